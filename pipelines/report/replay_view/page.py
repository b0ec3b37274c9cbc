"""replay.html: the recording in a page of its own, drawn with three.js, opened by a double click."""

import base64
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.report.colours import DATA_MAP, MAP, colour_map
from pipelines.report.page import asset, environment
from pipelines.report.replay_view.recording import ReplayRecording, read_recording
from pipelines.scans.project import Project
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.catalogue import ARTIFACTS
from stages.shared.robots.drawn_arm import arm_of

REPLAY_FILE_NAME = "replay.html"
GRAIN_M = 1e-5
"""Positions and displacements are stored in whole hundredths of a millimetre, which reach to 327 mm."""
GRAIN = 1e-3
"""Shares are stored in whole thousandths."""


def has_replay(project: Project, scan_id: str) -> bool:
    """True if the stage replay has run."""
    return (project.scan_dir(scan_id) / ARTIFACTS["replay/frames"].path).is_file()


def build_replay(project: Project, scan_id: str) -> Path:
    """Write replay.html into the scan's directory; returns its path."""
    path = project.scan_dir(scan_id) / REPLAY_FILE_NAME
    write_bytes_atomic(path, replay_html(read_recording(project, scan_id)).encode())
    return path


def replay_html(recording: ReplayRecording) -> str:
    """The page as text."""
    return (
        environment()
        .get_template("replay.html")
        .render(
            title=f"scan2cut replay: {recording.scan_id}",
            data=replay_data(recording),
            styles=asset("replay.css"),
            scripts=asset("three.min.js") + "\n" + asset("replay.js"),
        )
    )


def replay_data(recording: ReplayRecording) -> dict[str, Any]:
    """What the page's script draws: small numbers as they are, large arrays as base64 of 16-bit integers."""
    frames, metrics = recording.frames, recording.metrics
    return {
        "time_s": frames["time_s"].to_list(),
        "knife_m": frames["knife_position_m"].to_list(),
        "force_n": frames["force_norm_n"].to_list(),
        "cut_fraction": frames["cut_fraction"].to_list(),
        "blade": {
            "length_m": metrics["blade_length_m"],
            "height_m": metrics["blade_height_m"],
            "spine_m": metrics["blade_spine_m"],
        },
        "grain_m": GRAIN_M,
        "grain": GRAIN,
        "faces": _packed(recording.faces["vertices"].explode(), 1.0, pl.Int32),
        "side": _packed(recording.faces["side"], 1.0),
        "on_cut": _packed(recording.faces["on_cut"].cast(pl.Int16), 1.0),
        "vertices": _packed(recording.vertices["position_m"].explode(), GRAIN_M),
        "displacement": _packed(recording.vertices["displacement_m"], GRAIN_M),
        "plus": _packed(recording.springs["plus_m"].explode(), GRAIN_M),
        "minus": _packed(recording.springs["minus_m"].explode(), GRAIN_M),
        "remaining": _packed(recording.springs["remaining_fraction"], GRAIN),
        "max_displacement_m": metrics["max_displacement_m"],
        "surface_colours": list(colour_map(MAP)),
        "spring_colours": list(colour_map(DATA_MAP)),
        "outcome": metrics["outcome"],
        "arm": arm_of(recording.cut, frames["time_s"].to_list()),
    }


def _packed(values: pl.Series, grain: float, dtype: Any = pl.Int16) -> str:
    """Whole multiples of the grain, little-endian; what is too large for the type is cut off, not wrapped."""
    limit = 2**15 - 1 if dtype == pl.Int16 else 2**31 - 1
    whole = (values.cast(pl.Float64) / grain).round().clip(-limit, limit).cast(dtype)
    return base64.b64encode(whole.to_numpy().tobytes()).decode()
