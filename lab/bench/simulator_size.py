"""How the simulator grows: python -m lab.bench.simulator_size [ROUNDS]

Forward cuts of jittered boxes of about 1,800, 4,100, 9,700 and 40,000 tets, with the factor on the host and as a run
that stays on the device (here Warp's CPU device), in turn, each in a process of its own; then the memory that many
simulations in one process leave behind. CPU time per step, peak memory over import in MB, the least of the rounds.
"""

import sys
from typing import Any

from disect_sim.simulation import SOLVERS
from lab.bench.precut_growth import growth_exponent
from lab.bench.simulator import GROWTH_EDGE_M, GROWTH_S, measure
from lab.bench.simulator_meshes import jittered_box
from lab.bench.simulator_scene import resident_mb, simulate_tiny

CELLS = ((9, 5, 6), (13, 7, 7), (17, 9, 10), (29, 15, 15))
"""Of the boxes, an odd number across the cut: about 1,800, 4,100, 9,700 and 40,000 tets with the copies of the cut."""
WARM_UP, RUNS = 10, 50
"""Tiny simulations before and while the memory is watched."""


def sizes(rounds: int) -> dict[str, dict[int, dict[str, Any]]]:
    """Solver → number of tets → the best that was measured."""
    found: dict[str, dict[int, dict[str, Any]]] = {solver: {} for solver in SOLVERS}
    for cells in CELLS:
        mesh = jittered_box(cells, GROWTH_EDGE_M)
        top = cells[1] * GROWTH_EDGE_M
        options = ("--initial-y", str(top + 1e-3), "--duration", str(GROWTH_S))
        runs = [{s: measure(mesh, *options, "--solver", s) for s in SOLVERS} for _ in range(rounds)]
        for solver in SOLVERS:
            best = min((run[solver] for run in runs), key=lambda m: m["forward_s"])
            best["peak_rss_mb"] = min(run[solver]["peak_rss_mb"] for run in runs)
            found[solver][best["tets"]] = best
            _print_row(solver, best)
    return found


def _print_row(solver: str, m: dict[str, Any]) -> None:
    per_step = m["forward_s"] / m["steps"]
    print(
        f"{m['tets']:6}  {solver:20}  {1e3 * per_step:9.1f}  {1e6 * per_step / m['tets']:8.2f}  "
        f"{m['newton_per_step']:6.2f}  {m['cg_iterations'] / m['newton_iterations']:9.1f}  "
        f"{m['peak_rss_mb']:6.0f}  {m['mean_force_n']:.6f}",
        flush=True,
    )


def memory_per_simulation_mb() -> float:
    """Growth of this process per simulation with gradient [MB]."""
    for _ in range(WARM_UP):
        simulate_tiny()
    before = resident_mb()
    for _ in range(RUNS):
        simulate_tiny()
    return (resident_mb() - before) / RUNS


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if sys.argv[1:] else 1
    print("  tets  solver                ms a step  µs a tet  Newton  CG/solve  MB      mean force [N]")
    found = sizes(rounds)
    for solver, by_tets in found.items():
        per_step = {tets: m["forward_s"] / m["steps"] for tets, m in by_tets.items()}
        print(f"{solver}: time per step ∝ tets^{growth_exponent(per_step):.2f}")
    print(f"memory left behind: {memory_per_simulation_mb():.3f} MB per simulation, over {RUNS}")


if __name__ == "__main__":
    main()
