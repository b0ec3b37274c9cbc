"""One scene of the simulator's benchmark, measured in a process of its own: `python -m lab.bench.simulator_scene`.

Reads the cut mesh as a pickle, prints one JSON object. CPU seconds; kernels are loaded before the clock starts.
"""

import argparse
import json
import pickle
import resource
import sys
import time
from pathlib import Path

import numpy as np

from disect_sim import MATERIALS, ConstantVelocity, CutMesh, Result, build_model, cut_by_plane, simulate
from disect_sim.cut_mesh import box_mesh
from disect_sim.simulation import SOLVERS

VELOCITY_Y = -0.05
"""Cutting speed [m/s]."""
KIB = 1024.0
SOFTNESS = 0.1
"""The nominal cut of params.yaml, which severs the body."""


def main() -> None:
    """Measure and print."""
    imported_mb = resident_mb()
    parser = argparse.ArgumentParser()
    parser.add_argument("mesh", type=Path, help="pickled CutMesh")
    parser.add_argument("--initial-y", type=float, required=True, help="height of the knife at the start [m]")
    parser.add_argument("--duration", type=float, default=0.9, help="[s]")
    parser.add_argument("--solver", choices=list(SOLVERS), help="of the steps; by default the device's")
    parser.add_argument("--gradient", action="store_true", help="measure forward + gradient as well")
    parser.add_argument("--columns", type=int, default=0, help="measure so many gradients together as well")
    given = parser.parse_args()
    with given.mesh.open("rb") as file:
        mesh: CutMesh = pickle.load(file)
    simulate_tiny(given.solver)
    scene = (mesh, given.initial_y, given.duration, given.solver)
    result, forward_s = _timed(*scene, gradient=False)
    statistics = result.statistics
    measured = {
        "tets": len(mesh.tets),
        "springs": len(mesh.spring_area),
        "nodes": len(mesh.nodes),
        "steps": statistics.steps,
        "forward_s": forward_s,
        "newton_per_step": statistics.newton_per_step,
        "newton_iterations": statistics.newton_iterations,
        "cg_iterations": statistics.cg_iterations,
        "factorisations": statistics.factorisations,
        "indefinite_hessians": statistics.indefinite_hessians,
        "split": _split(statistics.seconds),
        "outcome": str(result.outcome),
        "mean_force_n": float(result.force_norm.mean()),
    }
    if given.gradient:
        result, measured["gradient_s"] = _timed(*scene, gradient=True)
    if given.columns:
        measured |= _many_gradients(result, given.columns)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB
    measured["peak_rss_mb"] = peak_mb - imported_mb
    sys.stdout.write(json.dumps(measured) + "\n")


def _timed(
    mesh: CutMesh, initial_y: float, duration: float, solver: str | None, *, gradient: bool
) -> tuple[Result, float]:
    """The result and the CPU seconds from cut mesh to force or, with the gradient, to all derivatives."""
    start = time.process_time()
    model = build_model(mesh, MATERIALS["apple"])
    motion = ConstantVelocity(initial_y=initial_y, velocity_y=VELOCITY_Y)
    parameters = {"cut_spring_softness": SOFTNESS}
    result = simulate(
        model, motion, parameters, duration=duration, differentiable=gradient, device="cpu", solver=solver
    )
    if gradient:
        result.gradient(2.0 * result.force / len(result.force))
    return result, time.process_time() - start


def _many_gradients(result: Result, columns: int) -> dict[str, float]:
    """CPU seconds of one gradient and of many together, of a run that kept its states."""
    weights = np.random.default_rng(0).normal(size=(columns, *result.force.shape))
    start = time.process_time()
    result.gradient(weights[0])
    one = time.process_time()
    result.gradients(weights)
    return {"one_gradient_s": one - start, "many_gradients_s": time.process_time() - one}


def simulate_tiny(solver: str | None = None) -> None:
    """A few steps of a tiny cut, with gradient: compiling and loading kernels is not what is measured elsewhere."""
    nodes, tets = box_mesh((-0.02, 0.0, -0.02), (0.02, 0.02, 0.02), (3, 2, 2))
    tiny = cut_by_plane(nodes, tets, point=(0.0, 0.0, 0.0), normal=(1.0, 0.0, 0.0))
    _timed(tiny, 0.0205, 0.005, solver, gradient=True)


def _split(seconds: dict[str, float]) -> dict[str, float | None]:
    """The forward run's CPU seconds: element kernels, factorisation (None: inside solves), solves, Python and rest."""
    named = {"gradient", "hessian", "factorisation", "solve"}
    return {
        "element_kernels_s": seconds.get("gradient", 0.0) + seconds.get("hessian", 0.0),
        "factorisation_s": seconds.get("factorisation"),
        "solves_s": seconds.get("solve", 0.0),
        "python_s": sum(value for name, value in seconds.items() if name not in named),
    }


def resident_mb() -> float:
    """Memory of this process now [MB]."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1]) / KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB


if __name__ == "__main__":
    main()
