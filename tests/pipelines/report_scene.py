"""Scans whose artifacts keep the contract but were made up in a second, for tests of pages. Nothing was computed."""

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl

from pipelines.project import Project
from stages.runtime.artifacts import write_json, write_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.describe import Column
from stages.shared.robots.robot import limits_of, load_robot

ROOT = Path(__file__).parents[2]
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8ffff3f0005fe02fe"
    "dccc59e70000000049454e44ae426082"
)
"""The smallest PNG."""
ROWS, FRAMES = 24, 4
METRICS: dict[str, dict[str, Any]] = {
    "clean": {"volume_m3": 1.6e-4, "extent_x_m": 0.07, "extent_y_m": 0.05, "extent_z_m": 0.07, "pose": "rests"},
    "ingest": {"samples": ROWS, "peak_force_n": 20.0},
    "tetrahedralize": {"tets": ROWS},
    "precut": {"springs": ROWS},
    "simulate": {"outcome": "The knife finished its motion.", "peak_force_n": 18.0},
    "calibrate": {"nmae": 0.05, "nmae_held_out": 0.06, "mae_n": 1.0, "onset_s": 0.2, "puncture_measured_n": 0.5,
                  "outcome": "budget used", "remedy": "Raise the budget.", "individual": ["sdf_mu"]},
    "halve": {"volume_m3": 8e-5},
    "tetrahedralize_half": {"tets": ROWS},
    "precut_half": {"springs": ROWS},
    "transport": {"cost": 0.01, "mean_force_transported_n": 16.0, "mean_force_averaged_n": 17.0},
    "optimize": {"reduction": 0.2, "confirmed_reduction": 0.17, "mean_force_vertical_n": 18.0, "best_start": "vertical",
                 "mean_force_optimized_n": 15.0, "lateral_residual_m": 0.0, "unconstrained_reduction": 0.3,
                 "duration_s": 0.02, "draw_strokes": 1},
    "export": {"certified": True, "outcome": "certified", "verdict": "Certified: all 1 checks passed.", "checks": 1,
               "failed": [], "path": "data/scans/x/export/cut/certified", "cut_fraction": 0.9, "peak_force_n": 10.0,
               "deflection_m": 0.001},
    "replay": {"outcome": "The knife finished its motion.", "blade_length_m": 0.15, "blade_height_m": 0.04,
               "blade_spine_m": 0.002, "max_displacement_m": 0.001, "mean_force_over_time_n": 15.0},
}  # fmt: skip


def make_project(folder: Path) -> Project:
    """The template and params.yaml, and no scan yet."""
    (folder / "pipelines" / "dvc").mkdir(parents=True)
    for name in ("params.yaml", "pipelines/dvc/scan.dvc.yaml"):
        shutil.copy(ROOT / name, folder / name)
    return Project(folder)


def make_scan(
    project: Project,
    scan_id: str,
    *,
    without: tuple[str, ...] = (),
    factor: float = 1.0,
    raw: str = "scan.ply",
) -> Path:
    """A scan with all artifacts, save those of some stages; factor scales every number of its tables."""
    folder = project.scan_dir(scan_id)
    shutil.copytree(_whole_scan(factor), folder, ignore=lambda place, names: set(without) & set(names))
    scan_yaml = {"id": scan_id, "scan": raw, "log": "log.json", "cut_surface": raw, "material": "apple"}
    (folder / "scan.yaml").write_text(json.dumps(scan_yaml | {"replay": {"frames": FRAMES}}))
    return folder


@cache
def _whole_scan(factor: float) -> Path:
    """All artifacts, made once per session; they need not survive a power cut, so nothing waits for the disk."""
    keeper = tempfile.TemporaryDirectory(prefix="scan2cut-scene-")
    atexit.register(keeper.cleanup)
    folder = Path(keeper.name) / "scan"
    folder.mkdir()
    with mock.patch("os.fsync"):
        for artifact in ARTIFACTS.values():
            if artifact.kind == "table":
                frame = _table(artifact.name, artifact.columns, factor)
                write_table(folder, artifact.name, frame)
            elif artifact.kind == "metrics":
                write_json(folder, artifact.name, METRICS[artifact.producer])
            elif artifact.kind == "picture":
                (folder / artifact.path).write_bytes(PIXEL)
    place = folder / ARTIFACTS["export/cut"].path / "certified"
    place.mkdir(parents=True)
    (place / "cut.json").write_text(json.dumps(cut_document()))
    return folder


def _table(name: str, columns: tuple[Column, ...], factor: float) -> pl.DataFrame:
    rows = (
        ROWS * FRAMES
        if name.startswith("replay/") and name.endswith(("vertices", "springs"))
        else FRAMES
        if name in ("replay/frames", "replay/vertical_frames")
        else ROWS
    )
    return pl.DataFrame([_column(column, rows, factor) for column in columns])


def _column(column: Column, rows: int, factor: float) -> pl.Series:
    dtypes = {"f64": pl.Float64, "f32": pl.Float32, "i64": pl.Int64, "i32": pl.Int32, "i8": pl.Int8}
    if column.dtype == "str":
        return pl.Series(
            column.name, ["vertical" if column.name == "start" else f"row {i}" for i in range(rows)]
        )
    if column.dtype == "bool":
        return pl.Series(column.name, [i % 2 == 0 for i in range(rows)])
    width = int(column.dtype.partition(",")[2].rstrip("]")) if column.dtype.startswith("array") else 1
    kind = column.dtype.removeprefix("array[").partition(",")[0]
    whole = kind.startswith("i")
    values = np.arange(rows * width).reshape(rows, width)
    values = values % min(rows, 3 * width) if whole else factor * (values + 1.0) / (rows * width)
    if column.name == "frame" and width == 1:
        values = np.repeat(np.arange(FRAMES), rows // FRAMES)[:, None]
    if column.name in ("iteration", "step"):
        values = np.arange(1, rows + 1)[:, None]
    if column.name == "side":
        values = np.where(values % 2, 1, -1)
    flat = values.astype(int if whole else float)
    return pl.Series(
        column.name,
        flat if width > 1 else flat[:, 0],
        pl.Array(dtypes[kind], width) if width > 1 else dtypes[kind],
    )


def cut_document() -> dict[str, Any]:
    """A cut.json with the parts that the report reads."""
    robot = load_robot("panda")
    rows = [
        {"time_s": 0.01 * i, "phase": "cut", "q_rad": robot.ready_pose_rad.tolist(), "dq_rad_s": [0.01 * i] * 7,
         "ddq_rad_s2": [0.1] * 7, "force_n": [0.0, 0.0, 10.0]}
        for i in range(ROWS)
    ]  # fmt: skip
    return {
        "robot": {"name": "panda", "title": robot.title},
        "limits": limits_of(robot),
        "timing": {"phases": [{"phase": "cut", "start_s": 0.0, "end_s": 0.2}]},
        "frames": {"O_T_C": np.eye(4).tolist(), "F_T_E": np.eye(4).tolist()},
        "tool": {"knife": "kitchen", "blade_length_m": 0.15, "blade_height_m": 0.04, "mass_kg": 0.4,
                 "fixture_low_m": [0, 0, 0], "fixture_high_m": [0, 0, 0], "com_in_flange_m": [0, 0, 0]},
        "waypoints": rows,
        "certificate": {
            "checks": [{"number": 1, "name": "files readable", "value": "yes", "limit": "yes", "unit": "",
                        "margin": None, "passed": True, "note": "", "rule": "="}],
            "loads": {"peak_force_n": 10.0},
        },
    }  # fmt: skip
