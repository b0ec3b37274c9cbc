"""Sawing runs of KTH: forces.txt and positions.txt as `rostopic echo -p` writes them, in one ZIP archive.

forces.txt holds the wrench on the knife, positions.txt the end effector; each has its own time stamps in ns. The
positions are interpolated to the times of the forces, over the time that both cover. The sensor was zeroed before each
run, and most runs begin in contact: there is nothing to take a tare from, and none is needed. forces.txt alone is read
too, with positions.txt beside it in the same folder.
"""

import io
import struct
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.ingest.column_map import check_unpacked_size, unreadable
from stages.ingest.description import IngestParams
from stages.ingest.log_file import ON_KNIFE, LogFile, RobotLog
from stages.runtime.errors import InputError
from stages.shared.input_files import check_log_size

_FORCES, _POSITIONS = "forces.txt", "positions.txt"
_STAMP = "field.header.stamp"
_COLUMNS = {
    _FORCES: tuple(f"field.wrench.force.{axis}" for axis in "xyz"),
    _POSITIONS: tuple(f"field.vector.{axis}" for axis in "xyz"),
}
"""Columns read beside the stamp: force on the knife [N], position of the end effector [m]."""
_KIND = "a KTH sawing run"
_ZIP_THEM = f"Pack one run as: zip run01.zip {_FORCES} {_POSITIONS}."
_NS = 1e-9


def recognises(file: LogFile) -> bool:
    """True for a ZIP archive that holds one of the two files, and for forces.txt itself by its header."""
    if file.start.startswith(b"PK\x03\x04"):
        return any(PurePosixPath(name).name in _COLUMNS for name in _member_names(file.path))
    return file.start.startswith(b"%time,") and _COLUMNS[_FORCES][0] in file.first_line.split(",")


def read(file: LogFile, params: IngestParams) -> RobotLog:
    """Return the log of one run, sampled at the times of the forces that the positions cover."""
    is_archive = file.start.startswith(b"PK\x03\x04")
    tables = _from_archive(file, params) if is_archive else _from_folder(file, params)
    force_time, force = _parsed(tables[_FORCES], _FORCES, file.name)
    position_time, position = _parsed(tables[_POSITIONS], _POSITIONS, file.name)
    start = force_time[0]
    force_s, position_s = (force_time - start) * _NS, (position_time - start) * _NS
    _check_positions_clock(position_s, params.max_gap_s, file.name)
    covered = (force_s >= position_s[0]) & (force_s <= position_s[-1])
    if not covered.any():
        raise InputError(
            f"{file.name}: {_FORCES} covers 0 to {force_s[-1]:.3g} s and {_POSITIONS} {position_s[0]:.3g} to "
            f"{position_s[-1]:.3g} s. They must overlap in time. Give the two files of the same run."
        )
    time_s = force_s[covered]
    return RobotLog(
        source_format=_KIND,
        time_s=time_s,
        clock=_STAMP,
        time_unit="ns",
        position_m=np.stack([np.interp(time_s, position_s, column) for column in position.T], axis=1),
        force_n=force[covered],
        force_factor=ON_KNIFE,
        robot="ABB YuMi",
        zeroed=True,
    )


def _member_names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, EOFError, ValueError, NotImplementedError, struct.error, zipfile.BadZipFile):
        # Damaged: the reader of NPZ says what is wrong with it.
        return []


def _from_archive(file: LogFile, params: IngestParams) -> dict[str, bytes]:
    """Return the bytes of both members; their sizes are checked before anything is unpacked."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            _check_members(archive.namelist(), file.name)
            unpacked = sum(archive.getinfo(name).file_size for name in _COLUMNS)
            check_unpacked_size(file.name, unpacked, params.max_bytes)
            return {name: archive.read(name) for name in _COLUMNS}
    except (InputError, MemoryError):
        raise
    except Exception as error:  # damaged, encrypted or of an unknown compression: zipfile can raise anything
        raise unreadable(file.name, f"{_KIND} in a ZIP archive", error) from error


def _check_members(names: list[str], source: str) -> None:
    for needed in _COLUMNS:
        count = names.count(needed)
        if count == 1:
            continue
        nested = [name for name in names if PurePosixPath(name).name == needed]
        if count > 1:
            what = f"holds {needed} {count} times"
        elif nested:
            what = f"holds {nested[0][:80]}, in a folder"
        else:
            what = f"holds {', '.join(names[:4])[:120]} but no {needed}"
        raise InputError(
            f"{source} {what}. The archive of a KTH run must hold {_FORCES} and {_POSITIONS} once each, without a "
            f"folder. {_ZIP_THEM}"
        )


def _from_folder(file: LogFile, params: IngestParams) -> dict[str, bytes]:
    beside = file.path.with_name(_POSITIONS)
    if not beside.is_file():
        raise InputError(
            f"{file.name} is the {_FORCES} of a KTH run, and there is no {_POSITIONS} beside it. A registered log is "
            f"one file, so both must be in one archive. {_ZIP_THEM}"
        )
    check_log_size(beside, params.max_bytes, beside.name)
    return {_FORCES: file.path.read_bytes(), _POSITIONS: beside.read_bytes()}


def _parsed(data: bytes, name: str, source: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return stamps [ns], shape [n], and the three columns, shape [n, 3]."""
    where = f"{source}, {name}"
    if not data.strip():
        raise InputError(f"{where} is empty. It must hold a header and one row per sample. {_ZIP_THEM}")
    try:
        frame = pl.read_csv(io.BytesIO(data), infer_schema=False)
    except pl.exceptions.PolarsError as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"{where} is no table ({reason}). Every row must have as many cells as the header. Remove the row, or "
            "export the topic again with rostopic echo -p."
        ) from error
    columns = (_STAMP, *_COLUMNS[name])
    for column in columns:
        if column not in frame.columns:
            raise InputError(
                f"{where} has the columns {', '.join(frame.columns[:12])[:200]}. It must have {', '.join(columns)}. "
                "Export the topic again with rostopic echo -p."
            )
    if not len(frame):
        raise InputError(f"{where} has a header and no rows. There must be one row per sample. {_ZIP_THEM}")
    stamp = _numbers(frame, _STAMP, pl.Int64, where).to_numpy()
    values = [_numbers(frame, column, pl.Float64, where).to_numpy() for column in _COLUMNS[name]]
    return stamp, np.column_stack(values)


def _numbers(frame: pl.DataFrame, column: str, dtype: type[pl.DataType], where: str) -> pl.Series:
    series = frame[column].str.strip_chars().cast(dtype, strict=False)
    wrong = series.is_null().arg_true()
    if len(wrong):
        row = int(wrong[0])
        kind = "a whole number of ns" if dtype is pl.Int64 else "a number"
        raise InputError(
            f"{where}, line {row + 2}: {column} is {str(frame[column][row])[:40]!r}. It must be {kind} in every row "
            f"({len(wrong)} are not). Remove these rows or export the topic again."
        )
    return series


def _check_positions_clock(position_s: NDArray[np.float64], max_gap_s: float, source: str) -> None:
    steps = np.diff(position_s)
    stuck = np.flatnonzero(steps <= 0.0)
    if len(stuck):
        raise InputError(
            f"{source}, {_POSITIONS}: the stamp does not increase from row {stuck[0] + 1} to the next, {len(stuck)} "
            "times in all. It must increase, since positions are interpolated to the times of the forces. Remove "
            "repeated rows."
        )
    if len(steps) and steps.max() > max_gap_s:
        raise InputError(
            f"{source}, {_POSITIONS} has a gap of {1e3 * steps.max():.3g} ms between two rows. At most "
            f"ingest.max_gap_s = {1e3 * max_gap_s:.3g} ms are interpolated. Record it again, or raise ingest.max_gap_s."
        )
