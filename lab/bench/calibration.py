"""Seconds per iteration of a calibration of the bundled sample, and where they go."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from disect_sim import MATERIALS, cut_by_plane, torch_module
from disect_sim.model import Model
from disect_sim.result import Result
from stages.calibrate.problem import RecordedCut, pose_problem, read_recorded_cut
from stages.calibrate.springs.fit import fit_individual
from stages.clean.clean import clean
from stages.clean.scan_file import read_scan
from stages.ingest.ingest import force_table, ingest
from stages.ingest.log_file import read_log
from stages.runtime.params import Params, load_params
from stages.shared.cut import cutting_model
from stages.tetrahedralize.tetrahedralize import tetrahedralize

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data" / "sample" / "synthetic_apple.ply"
LOG = ROOT / "data" / "sample" / "synthetic_apple_log.json"
ITERATIONS = 5


def calibration_iteration() -> dict[str, Any]:
    """CPU seconds of one iteration of the individual phase (one gradient), with params.yaml's settings."""
    params = load_params(ROOT / "params.yaml")
    model, cut = _sample_model(params), _sample_cut(params)
    short = params.calibrate.changed(individual_iterations=ITERATIONS)
    problem = pose_problem(model, cut, short)
    start = {name: np.asarray(value) for name, value in short.start.items()}
    names = short.individual
    fit_individual(
        problem,
        names,
        start,
        short.changed(individual_iterations=1),
        scan_dir=None,
        key="",
    )
    seconds = {"forward": 0.0, "gradient": 0.0}
    before = time.process_time()
    with (
        _clocked(torch_module, "simulate", seconds, "forward"),
        _clocked(Result, "gradient", seconds, "gradient"),
    ):
        done, _ = fit_individual(problem, names, start, short, scan_dir=None, key="")
    whole = time.process_time() - before
    per = {name: value / done.gradients for name, value in seconds.items()}
    total = whole / done.gradients
    return {
        "tets": model.tet_count,
        "springs": model.spring_count,
        "unknowns": len(done.best.free),
        "steps": round(problem.module.options["duration"] / short.dt_s),
        "iteration_s": total,
        **{f"{name}_s": value for name, value in per.items()},
        "rest_s": total - sum(per.values()),
    }


def print_calibration(console: Console, found: dict[str, Any]) -> None:
    """Print the table."""
    table = Table(
        "tets", "springs", "unknowns", "steps", "per iteration", "forward", "gradient", "rest",
        title=f"Calibration of the bundled sample: one Adam iteration (CPU s, mean of {ITERATIONS})",
    )  # fmt: skip
    counts = (f"{found[key]:,}" for key in ("tets", "springs", "unknowns", "steps"))
    parts = (f"{found[key]:.2f}" for key in ("iteration_s", "forward_s", "gradient_s", "rest_s"))
    table.add_row(*counts, *parts)
    console.print(table)


@contextmanager
def _clocked(owner: Any, name: str, seconds: dict[str, float], key: str) -> Iterator[None]:
    """Within the context, calls of owner.name add their CPU time to seconds[key]."""
    original: Callable[..., Any] = getattr(owner, name)

    def timed(*args: Any, **options: Any) -> Any:
        before = time.process_time()
        try:
            return original(*args, **options)
        finally:
            seconds[key] += time.process_time() - before

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _sample_model(params: Params) -> Model:
    """The bundled scan, cleaned, meshed and cut as the pipeline does it."""
    scan = read_scan(SAMPLE, max_faces=params.clean.max_faces)
    # The mesher leaves a file in the working directory.
    with tempfile.TemporaryDirectory(prefix="scan2cut-bench-") as folder, chdir(folder):
        mesh = tetrahedralize(clean(scan, params.clean).surface, params.tetrahedralize).mesh
    return cutting_model(cut_by_plane(mesh.nodes, mesh.tets), MATERIALS["apple"], params.calibrate.cut)


def _sample_cut(params: Params) -> RecordedCut:
    """The bundled synthetic log."""
    record = ingest(read_log(LOG, params.ingest), params.ingest, air_runs={}, source=LOG.name)
    cut = read_recorded_cut(force_table(record))
    assert cut is not None
    return cut


if __name__ == "__main__":
    os.chdir(ROOT)
    print_calibration(Console(width=None if sys.stdout.isatty() else 120), calibration_iteration())
