"""Speed and memory of the simulator: three scenes beside the marks they must reach, and growth with the mesh.

`python -m lab.bench.simulator` prints them; `--against REF` runs another commit beside this one, on the same meshes
(against 6f86d19 two rounds of all scenes take about five minutes of CPU; `--scene small_box` alone one).
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from disect_sim import CutMesh
from lab.bench.precut_growth import growth_exponent
from lab.bench.simulator_meshes import Sizes, box_surface, cut_mesh_near, half_sphere_surface, jittered_box
from stages.shared.surface import Surface

ROOT = Path(__file__).parents[2]
HALF_SPHERE = ROOT.parent / "shared" / "data" / "meshes" / "ansys_sphere_5mm.stl"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
ONE_CORE = dict.fromkeys(THREAD_VARIABLES, "1")
GROWTH_CELLS = ((8, 4, 5), (12, 6, 8), (16, 9, 11), (24, 13, 16), (30, 15, 15))
"""Boxes of about 1,000 to 40,000 tets."""
GROWTH_EDGE_M = 0.005
GROWTH_S = 0.12
"""Simulated time per box [s]: 40 steps, from the first touch."""


@dataclass(frozen=True)
class Scene:
    """A cut of 0.9 s at 50 mm/s, and what it may cost on one core."""

    name: str
    surface: Callable[[], Surface]
    sizes: Sizes
    tets: int
    springs: int
    initial_y: float
    """Height of the knife's edge at the start [m]."""
    forward_mark_s: float
    gradient_mark_s: float
    memory_mark_mb: float


SCENES = (
    Scene(
        name="small_box",
        surface=lambda: box_surface((0.08, 0.042, 0.036)),
        sizes=Sizes(0.0098, 0.0105, 0.004),
        tets=1800,
        springs=130,
        initial_y=0.046,
        forward_mark_s=0.8,
        gradient_mark_s=1.5,
        memory_mark_mb=250.0,
    ),
    Scene(
        name="half_sphere_apple",
        surface=lambda: half_sphere_surface(HALF_SPHERE),
        sizes=Sizes(0.009, 0.009, 0.005),
        tets=4000,
        springs=320,
        initial_y=0.051,
        forward_mark_s=1.8,
        gradient_mark_s=4.0,
        memory_mark_mb=250.0,
    ),
    Scene(
        name="large_box",
        surface=lambda: box_surface((0.13, 0.045, 0.06)),
        sizes=Sizes(0.0065, 0.0078, 0.004),
        tets=10_000,
        springs=340,
        initial_y=0.046,
        forward_mark_s=4.0,
        gradient_mark_s=9.0,
        memory_mark_mb=250.0,
    ),
)


def simulator_scenes() -> dict[str, dict[str, Any]]:
    """Scene → what was measured, each in a process of its own."""
    found = {}
    for scene in SCENES:
        mesh = cut_mesh_near(scene.surface(), scene.sizes, tets=scene.tets, springs=scene.springs)
        found[scene.name] = measure(mesh, "--gradient", "--initial-y", str(scene.initial_y))
    return found


def simulator_growth() -> dict[int, float]:
    """Number of tets → CPU seconds per time step, the knife in touch."""
    seconds = {}
    for cells in GROWTH_CELLS:
        top = cells[1] * GROWTH_EDGE_M
        found = measure(
            jittered_box(cells, GROWTH_EDGE_M), "--initial-y", str(top + 1e-3), "--duration", str(GROWTH_S)
        )
        seconds[found["tets"]] = found["forward_s"] / found["steps"]
    return seconds


def print_simulator(console: Console, scenes: dict[str, dict[str, Any]], growth: dict[int, float]) -> bool:
    """Print the tables; true if every mark is reached."""
    table = Table(
        "scene", "tets", "springs", "steps", "forward", "mark", "+ gradient", "mark", "RSS", "mark",
        "Newton",
        title="Simulator: a 0.9 s cut at the default step on one core (CPU s; MB over import; Newton per step)",
    )  # fmt: skip
    reached = True
    for scene in SCENES:
        m = scenes[scene.name]
        pairs = (
            (m["forward_s"], scene.forward_mark_s),
            (m["gradient_s"], scene.gradient_mark_s),
            (m["peak_rss_mb"], scene.memory_mark_mb),
        )
        cells = [text for value, mark in pairs for text in (_beside(value, mark), f"≤ {mark:g}")]
        reached = reached and all(value <= mark for value, mark in pairs)
        counts = (f"{m['tets']:,}", str(m["springs"]), str(m["steps"]))
        table.add_row(scene.name, *counts, *cells, f"{m['newton_per_step']:.2f}")
    console.print(table)
    table = Table(
        "scene",
        "element kernels",
        "factorisation",
        "solves",
        "Python and rest",
        title="Where forward goes (CPU s)",
    )
    for name, m in scenes.items():
        parts = m["split"].values()
        table.add_row(name, *("in solves" if seconds is None else f"{seconds:.2f}" for seconds in parts))
    console.print(table)
    table = Table("tets", "per step (ms)", "per step and tet (µs)", title="Growth: jittered boxes, 40 steps")
    for tets, seconds in growth.items():
        table.add_row(f"{tets:,}", f"{1e3 * seconds:.1f}", f"{1e6 * seconds / tets:.2f}")
    console.print(table)
    console.print(f"time per step ∝ tets^{growth_exponent(growth):.2f}")
    return reached


def _beside(value: float, mark: float) -> str:
    return f"{value:.1f}" if value <= mark else f"[red]{value:.1f}[/red]"


def main() -> None:
    """Print the tables, or a comparison with another commit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", metavar="REF", help="commit to run beside this one")
    parser.add_argument(
        "--rounds", type=int, default=2, help="runs of either side per scene; the best counts"
    )
    names = [scene.name for scene in SCENES]
    parser.add_argument(
        "--scene", action="append", choices=names, help="only this scene of a comparison; may be given again"
    )
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    if given.against is None:
        print_simulator(console, simulator_scenes(), simulator_growth())
    else:
        print_comparison(console, compare(given.against, given.rounds, given.scene or names))


def compare(
    reference: str, rounds: int, names: Sequence[str]
) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Scene → best of what was measured with the reference's code and with this code, in turn on the same mesh."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="scan2cut-against-") as folder:
        tree = Path(folder) / "reference"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), reference], check=True)
        try:
            for scene in (scene for scene in SCENES if scene.name in names):
                mesh = cut_mesh_near(scene.surface(), scene.sizes, tets=scene.tets, springs=scene.springs)
                options = ("--gradient", "--initial-y", str(scene.initial_y))
                runs = [(measure(mesh, *options, root=tree), measure(mesh, *options)) for _ in range(rounds)]
                before, now = zip(*runs, strict=True)
                found[scene.name] = _best(before), _best(now)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    return found


def _best(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first run's counts with the least seconds and memory of all."""
    names = ("forward_s", "gradient_s", "peak_rss_mb")
    return runs[0] | {name: min(run[name] for run in runs) for name in names}


def print_comparison(console: Console, found: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Print both sides and their ratios."""
    table = Table(
        "scene", "tets", "steps", "forward", "ratio", "+ gradient", "ratio", "RSS", "ratio", "mean force",
        title="Before → now, each at its own default step (CPU s; MB over import; N)",
    )  # fmt: skip
    for name, (before, now) in found.items():
        cells = []
        for key in ("forward_s", "gradient_s", "peak_rss_mb"):
            digits = 0 if key == "peak_rss_mb" else 2
            cells += [f"{before[key]:.{digits}f} → {now[key]:.{digits}f}", f"{before[key] / now[key]:.2f}"]
        steps = f"{before['steps']} → {now['steps']}"
        force = f"{before['mean_force_n']:.3f} → {now['mean_force_n']:.3f}"
        table.add_row(name, f"{now['tets']:,}", steps, *cells, force)
    console.print(table)


def measure(mesh: CutMesh, *options: str, root: Path = ROOT) -> dict[str, Any]:
    """What lab.bench.simulator_scene of a source tree says about a mesh."""
    with tempfile.TemporaryDirectory(prefix="scan2cut-bench-") as folder:
        path = Path(folder) / "mesh.pickle"
        path.write_bytes(pickle.dumps(mesh))
        command = [sys.executable, "-m", "lab.bench.simulator_scene", str(path), *options]
        done = subprocess.run(
            command, cwd=root, env=os.environ | ONE_CORE, check=True, stdout=subprocess.PIPE, text=True
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
