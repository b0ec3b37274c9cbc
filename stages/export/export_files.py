"""Files of an export: names, hash chain of the inputs, and reading back."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.export.trajectory_files import Recording, Trajectory, read_mcap, read_recording, read_yaml
from stages.export.waypoints import joint_rows, table_of_csv, table_of_rows
from stages.runtime.artifacts import read_parquet
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_path, sha256_of_value
from stages.runtime.stage_io import Provenance, read_provenance

# Hash chain from the raw scan to the motion: recorded inputs and outputs of each stage, checked on disk


_ROOT = Path(__file__).parents[2]
_CODE = ("stages/export", "stages/shared/robots", "stages/shared/robots/robot.py")
"""Code that computes an export and its certificate. The code behind the motion is in optimize's provenance."""
_REQUIRED = ("clean", "tetrahedralize_half", "precut_half", "calibrate", "transport", "optimize")
"""Stages of a complete chain: surface, mesh, calibration, transport, motion."""


@dataclass(frozen=True)
class Chain:
    """Everything a file was made from."""

    digests: dict[str, str]
    """Path relative to the scan's directory → sha256 of the current file, sorted."""
    broken: tuple[str, ...]
    """Files that are missing or differ from the hash recorded when they were written or used."""


def walk(scan_dir: Path, names: tuple[str, ...], *, root: str, stages: tuple[str, ...] = _REQUIRED) -> Chain:
    """Follow the recorded inputs of the given files recursively back to the source files.

    A chain that does not end at the raw scan, `root`, or does not include all the stages, is broken.
    """
    digests: dict[str, str] = {}
    broken: set[str] = set()
    records: dict[str, Provenance] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in digests or name in broken:
            continue
        if not (scan_dir / name).exists():
            broken.add(name)
            continue
        digests[name] = sha256_of_path(scan_dir / name)
        stage, _, file = name.partition("/")
        if not file:
            continue
        if stage not in records:
            try:
                records[stage] = read_provenance(scan_dir, stage)
            except InputError:
                broken.add(name)
                continue
        if records[stage].outputs.get(name) != digests[name]:
            broken.add(name)
        for used, recorded in records[stage].inputs.items():
            if not (scan_dir / used).exists() or sha256_of_path(scan_dir / used) != recorded:
                broken.add(used)
            else:
                waiting.append(used)
    passed = {name.partition("/")[0] for name in digests}
    broken.update({root, *stages} - passed)
    return Chain(dict(sorted(digests.items())), tuple(sorted(broken)))


def code_sha256() -> str:
    """Return the sha256 of the code that exports and certifies."""
    return sha256_of_value({name: sha256_of_path(_ROOT / name) for name in _CODE})


DOCUMENT = "cut.json"
SCHEMA = "scan2cut/cut"
SCHEMA_VERSION = 3
WAYPOINTS_PARQUET, WAYPOINTS_CSV = "waypoints.parquet", "waypoints.csv"
JOINTS, TRAJECTORY_YAML, TRAJECTORY_MCAP = "joint_1khz.csv", "joint_trajectory.yaml", "joint_trajectory.mcap"
TO_START, TO_READY = "to_start.csv", "to_ready.csv"
MOTION = "motion.parquet"
RECORDING = "motion.mcap"
AIR = "air_cut"
RUN_SCRIPTS = ("run_cut.py", "cut_stream.py", "franka_arm.py", "stream_cut.cpp")
CHECKLIST, REASON = "CHECKLIST.md", "REASON.txt"
_KEYS = (
    "schema",
    "schema_version",
    "robot",
    "frames",
    "tool",
    "limits",
    "timing",
    "air_cut",
    "collision",
    "demand",
    "provenance",
    "siblings_sha256",
    "waypoints",
)
"""Required keys of cut.json."""


@dataclass(frozen=True)
class Variant:
    """Joint files of the cut, or of the air cut."""

    name: str
    rows: NDArray[np.float64]
    """Time [s] and joints [rad] at 1 kHz, shape [n, 1 + joint_count]."""
    from_yaml: Trajectory
    from_mcap: Trajectory
    to_start: NDArray[np.float64]
    """Joints [rad] from the ready pose to the start at 1 kHz, shape [n, joint_count]."""
    to_ready: NDArray[np.float64]
    """Joints [rad] from the end back to the ready pose, at 1 kHz."""

    @property
    def joints(self) -> NDArray[np.float64]:
        """Joints [rad], shape [n, joint_count]."""
        return self.rows[:, 1:]


@dataclass(frozen=True)
class ExportFiles:
    """Parsed content of the folder."""

    folder: Path
    document: dict[str, Any]
    waypoints: pl.DataFrame
    """Waypoints from the Parquet file."""
    csv_waypoints: pl.DataFrame
    json_waypoints: pl.DataFrame
    recording: Recording
    cut: Variant
    air: Variant


def read_export(folder: Path) -> ExportFiles:
    """Read the folder; raise ValueError with a message if a file is missing or malformed."""
    try:
        document = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
        missing = [key for key in _KEYS if key not in document]
        if missing:
            raise ValueError(f"{DOCUMENT} lacks {', '.join(missing)}")
        if (document["schema"], document["schema_version"]) != (SCHEMA, SCHEMA_VERSION):
            raise ValueError(
                f"{DOCUMENT} has schema {document['schema']} {document['schema_version']}, not {SCHEMA} "
                f"{SCHEMA_VERSION}: another version of scan2cut wrote it"
            )
        return ExportFiles(
            folder,
            document,
            read_parquet(folder / WAYPOINTS_PARQUET),
            table_of_csv((folder / WAYPOINTS_CSV).read_bytes()),
            table_of_rows(document["waypoints"]),
            read_recording(folder / RECORDING),
            _variant(folder, "cut"),
            _variant(folder / AIR, "air cut"),
        )
    except (OSError, KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error


def _variant(folder: Path, name: str) -> Variant:
    return Variant(
        name,
        joint_rows((folder / JOINTS).read_bytes()),
        read_yaml((folder / TRAJECTORY_YAML).read_bytes()),
        read_mcap(folder / TRAJECTORY_MCAP),
        joint_rows((folder / TO_START).read_bytes())[:, 1:],
        joint_rows((folder / TO_READY).read_bytes())[:, 1:],
    )
