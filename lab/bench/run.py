"""`make bench`: times of stages on the bundled sample and a real scan, of precut, of transport and of the simulator."""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab.bench.calibration import calibration_iteration, print_calibration
from lab.bench.precut_growth import growth_exponent, precut_times
from lab.bench.simulator import print_simulator, simulator_growth, simulator_scenes
from lab.bench.stage_times import Subject, stage_times
from lab.bench.transport_time import transport_times

ROOT = Path(__file__).parents[2]
SUBJECTS = (
    Subject("bundled sample (synthetic)", ROOT / "data" / "sample" / "synthetic_apple.ply"),
    Subject("YCB apple", ROOT.parent / "shared" / "data" / "scans" / "013_apple_google16k_nontextured.ply"),
)
MAX_EXPONENT = 1.2
"""Time ∝ tets^k: k = 1 is linear; caches, sorting and a noisy machine add a little."""


def main() -> int:
    """Print the tables; write benchmarks/latest.json (simulator) and stages.json, which are not committed.

    Returns 1 if precut is not linear or the simulator misses a mark.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    present = [subject for subject in SUBJECTS if subject.path.exists()]
    for subject in SUBJECTS:
        if subject not in present:
            console.print(f"{subject.name}: left out, {subject.path} does not exist")
    stages = {s.name: stage_times(ROOT, s) for s in track(present, "stages", console=Console(stderr=True))}
    growth = precut_times()
    exponent = growth_exponent(growth)

    table = Table("scan", *next(iter(stages.values())), title="Stage times in seconds, each a fresh process")
    for name, times in stages.items():
        table.add_row(name, *(f"{seconds:.1f}" for seconds in times.values()))
    console.print(table)
    table = Table("tets", "time (s)", "per tet (µs)", title="Virtual node algorithm on a box, best of 3")
    for tets, seconds in growth.items():
        table.add_row(f"{tets:,}", f"{seconds:.3f}", f"{1e6 * seconds / tets:.2f}")
    console.print(table)
    linear = exponent <= MAX_EXPONENT
    console.print(f"time ∝ tets^{exponent:.2f}: {'linear' if linear else 'faster than linear'}")
    plans = transport_times()
    table = Table("springs on either side", "time (s)", title="Earth Mover's plan, exact")
    for springs, seconds in plans.items():
        table.add_row(f"{springs:,}", f"{seconds:.2f}")
    console.print(table)
    _write(
        "stages.json",
        {
            "stage_seconds": stages,
            "precut_seconds": growth,
            "precut_exponent": exponent,
            "transport_seconds": plans,
        },
    )

    iteration = calibration_iteration()
    _write("calibration.json", iteration)
    print_calibration(console, iteration)
    scenes = simulator_scenes()
    _write("latest.json", scenes)
    reached = print_simulator(console, scenes, simulator_growth())
    return 0 if linear and reached else 1


def _write(name: str, content: dict[str, Any]) -> None:
    (ROOT / "benchmarks" / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
