"""Files of an export: names, hash chain of the inputs, and reading back."""

import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.export.trajectory_files import Recording, Trajectory, read_mcap, read_recording, read_yaml
from stages.export.waypoints import joint_rows, table_of_csv, table_of_rows
from stages.runtime.artifacts import read_parquet
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_path, sha256_of_value
from stages.runtime.scan_file import home_of
from stages.runtime.stage_io import Provenance, read_provenance

# Hash chain from the raw scan to the motion: recorded inputs and outputs of each stage, checked on disk


_ROOT = Path(__file__).parents[2]
_CODE = ("stages/export", "stages/shared/knives", "stages/shared/robots", "stages/shared/robots/robot.py")
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

    def path_of(name: str) -> Path:
        return home_of(scan_dir, name) / name

    digests: dict[str, str] = {}
    broken: set[str] = set()
    records: dict[str, Provenance] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in digests or name in broken:
            continue
        if not path_of(name).exists():
            broken.add(name)
            continue
        digests[name] = sha256_of_path(path_of(name))
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
            if not path_of(used).exists() or sha256_of_path(path_of(used)) != recorded:
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
SCHEMA_VERSION = 4
WAYPOINTS_PARQUET, WAYPOINTS_CSV = "waypoints.parquet", "waypoints.csv"
WHOLE, TRAJECTORY_YAML, TRAJECTORY_MCAP = "joint_1khz.csv", "joint_trajectory.yaml", "joint_trajectory.mcap"
"""Files to play: each begins and ends at the ready pose."""
TO_START, JOINTS, TO_READY = "to_start.csv", "motion_1khz.csv", "to_ready.csv"
"""The three parts of these files."""
MOTION = "motion.parquet"
RECORDING = "motion.mcap"
AIR = "air_cut"
RUN_SCRIPTS = ("run_cut.py", "cut_stream.py", "franka_arm.py", "stream_cut.cpp")
CHECKLIST, REASON = "CHECKLIST.md", "REASON.txt"
_OF_A_VARIANT = (WHOLE, TRAJECTORY_YAML, TRAJECTORY_MCAP, TO_START, JOINTS, TO_READY)
SIBLINGS = frozenset(
    {
        *_OF_A_VARIANT,
        *(f"{AIR}/{name}" for name in _OF_A_VARIANT),
        *(WAYPOINTS_PARQUET, WAYPOINTS_CSV, MOTION, RECORDING, CHECKLIST),
        *RUN_SCRIPTS,
    }
)
"""Every file of a certified export beside cut.json."""
_MAX_BYTES = 64_000_000
"""Size of a file that is still read: a minute of motion has 12 MB."""
_MAX_ROWS = 1_000_000
"""Rows of a table that is still read: a thousand seconds of motion."""
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
    def whole(self) -> NDArray[np.float64]:
        """Joints [rad] from the ready pose through the motion back to it, shape [n, joint_count]."""
        return np.concatenate([self.to_start, self.joints[1:], self.to_ready[1:]])

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


def foreign_entries(folder: Path, listed: Iterable[str] = SIBLINGS) -> list[str]:
    """Return what the folder holds beside regular files of the export: links, pipes, folders, other or huge files.

    Nothing is opened and no link is followed: Python imports from any folder or link beside a run script.
    """
    files = {DOCUMENT, *listed}
    folders = {name.rpartition("/")[0] for name in files} - {""}
    foreign, waiting = [], [""]
    while waiting:
        below = waiting.pop()
        for entry in os.scandir(folder / below):
            name, status = f"{below}{entry.name}", entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and name in folders:
                waiting.append(f"{name}/")
            elif stat.S_ISDIR(status.st_mode):
                foreign.append(f"{name}/ is not a folder of an export")
            elif not stat.S_ISREG(status.st_mode):
                kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a pipe, socket or device"
                foreign.append(f"{name} is {kind}")
            elif name not in files:
                foreign.append(f"{name} is not a file of an export")
            elif status.st_size > _MAX_BYTES:
                foreign.append(f"{name} has {status.st_size / 1e6:.0f} MB (at most {_MAX_BYTES / 1e6:.0f})")
    return sorted(foreign)


MEASURED = "measured"
"""Folder of a scan for logs of the arm and other files that no stage wrote; run_cut.py writes its logs there."""
_WRITTEN = re.compile(
    rf"(?:certified|refused)/(?:{'|'.join(map(re.escape, [DOCUMENT, REASON, *sorted(SIBLINGS)]))})"
)


def rescue_others(scan_dir: Path, folder: Path, written: Iterable[str] = ()) -> list[Path]:
    """Move the files below an export's folder that scan2cut did not write to the scan's folder `measured`.

    Call it before the folder is replaced: a measured log can't be made again. A folder without a cut.json is no export.
    Returns the new paths.
    """
    rescued: list[Path] = []
    if not any(folder.glob(f"*/{DOCUMENT}")):
        return rescued
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or path.is_symlink() or path.name.startswith("."):
            continue
        if _WRITTEN.fullmatch(name) or name in written:
            continue
        target, number = scan_dir / MEASURED / path.name, 1
        while target.exists():
            number += 1
            target = target.with_name(f"{path.stem}_{number}{path.suffix}")
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
        rescued.append(target)
    return rescued


_Read = TypeVar("_Read")


def named(path: Path, read: Callable[[Path], _Read]) -> _Read:
    """Return what `read` makes of the file; raise ValueError with the file's name whatever it raises."""
    try:
        return read(path)
    except Exception as error:  # a damaged file can raise anything in the library that reads it
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValueError(f"{path.name} can't be read ({what})") from error


def bounded_table(path: Path) -> pl.DataFrame:
    """Read a Parquet file; raise ValueError if its rows, which may take no space in the file, are too many."""
    count = pl.scan_parquet(path).select(pl.len()).collect().item()
    if count > _MAX_ROWS:
        raise ValueError(f"it has {count} rows, more than {_MAX_ROWS}")
    return read_parquet(path)


def read_document(path: Path) -> dict[str, Any]:
    """Read cut.json; raise ValueError for duplicate keys, NaN and infinity, which readers resolve differently."""
    document = named(path, lambda file: _strict_json(file.read_bytes()))
    if not isinstance(document, dict):
        raise ValueError(f"{path.name} is a {type(document).__name__}, not an object")
    return document


def _strict_json(data: bytes) -> Any:
    """Parse JSON; raise ValueError for duplicate keys and numbers that are not finite."""
    return json.loads(data, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return dict(pairs)


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is not a finite number")
    return float(text)


def read_export(folder: Path) -> ExportFiles:
    """Read the folder; raise ValueError with a message that names the file if one is missing or malformed."""
    document = read_document(folder / DOCUMENT)
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
        named(folder / WAYPOINTS_PARQUET, bounded_table),
        named(folder / WAYPOINTS_CSV, lambda file: table_of_csv(file.read_bytes())),
        named(folder / DOCUMENT, lambda _: table_of_rows(document["waypoints"])),
        named(folder / RECORDING, read_recording),
        _variant(folder, "cut"),
        _variant(folder / AIR, "air cut"),
    )


def _variant(folder: Path, name: str) -> Variant:
    return Variant(
        name,
        _joint_file(folder / JOINTS),
        named(folder / TRAJECTORY_YAML, lambda file: read_yaml(file.read_bytes())),
        named(folder / TRAJECTORY_MCAP, read_mcap),
        _joint_file(folder / TO_START)[:, 1:],
        _joint_file(folder / TO_READY)[:, 1:],
    )


def _joint_file(path: Path) -> NDArray[np.float64]:
    return named(path, lambda file: joint_rows(file.read_bytes()))
