"""Look at a force log before a run: what it contains, and the settings that make it readable, all at once.

Settings are tried: units that fit the size of the numbers, columns by their names, every vertical axis, both signs of
the force, every tare. Of those with which the log can be ingested, the one with the fewest changes is proposed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.ingest.description import IngestParams
from stages.ingest.formats import tables
from stages.ingest.ingest import ForceRecord, force_picture, ingest
from stages.ingest.log_file import LogFile, RobotLog, format_of, open_log, read_as, read_log
from stages.runtime.errors import InputError
from stages.shared.input_files import LOG_FORMATS

_OF = r"^(?:(?:current|actual|measured)_)?"
_NAMES = {
    "time": re.compile(r"^(t|time|times?tamps?|seconds|sec)(_?\[?(s|ms|us|ns|sec)\]?)?$"),
    "position": re.compile(
        _OF + r"(?:(?:tcp|ee|eef|pos|position|p|o_t_ee)[_.]?)?([xyz])(?:_?\[?(?:m|mm|cm)\]?)?$"
    ),
    "force": re.compile(_OF + r"(?:f|force|wrench(?:[_.]force)?)[_.]?([xyz])(?:_?\[?(?:n|mn|kn)\]?)?$"),
}
"""Usual names of columns, in lower case."""
_UP_AXES = ("z", "-z", "y", "-y", "x", "-x")
_BLADE_OF = {"z": "y", "y": "z", "x": "y"}
"""A blade axis for every vertical axis, where the given one is the vertical."""
_TIME_STEPS = ((1e5, "ns"), (1e2, "us"), (0.5, "ms"), (0.0, "s"))
"""Least median step of the clock for each unit: a log has 50 to 5000 samples per second."""
_ARM_REACH = ((50.0, "mm"), (4.0, "cm"), (0.0, "m"))
"""Least range of the positions' size for each unit: an arm reaches 0.3 to 2 m."""

_Changes = dict[str, Any]


@dataclass(frozen=True)
class _LogInspection:
    """What a log contains and what it needs."""

    format: str
    facts: tuple[tuple[str, str], ...]
    """Name and text: samples, rate, ranges, contact, tare."""
    problems: tuple[str, ...]
    """Why it can't be read as it is; empty if it can."""
    settings: Mapping[str, Any]
    """Settings of ingest with which it can be read; empty if none are needed or none were found."""
    readable: bool
    """True if it can be read, with these settings where there are any."""
    picture: bytes | None
    """PNG of the forces, if it is readable."""


def inspect_log(path: Path, params: IngestParams, airs: Mapping[str, Path]) -> _LogInspection:
    """Look at a log and its no-contact runs."""
    file = open_log(path, params)
    try:
        name = format_of(file, params)
    except InputError as error:
        return _LogInspection("unknown", (), (str(error),), {}, False, None)
    problems: list[str] = []
    for changes in _candidates(file, name, params, problems):
        tried = params.changed(**changes)
        try:
            log = read_as(name, file, tried)
            runs = {each: read_log(air, tried) for each, air in airs.items()}
            record = ingest(log, tried, air_runs=runs, source=path.name)
        except InputError as error:
            if str(error) not in problems and not changes:
                problems.append(str(error))
            continue
        return _LogInspection(
            LOG_FORMATS[name].title,
            _facts(log, record, len(airs)),
            tuple(problems) if changes else (),
            changes,
            True,
            _picture(record, path.name),
        )
    return _LogInspection(LOG_FORMATS[name].title, (), tuple(problems), {}, False, None)


def _candidates(file: LogFile, name: str, params: IngestParams, problems: list[str]) -> Iterator[_Changes]:
    """Return changes of the settings to try, the fewest first; the first is none."""
    yield {}
    columns: _Changes = {}
    if name == "tables" and not params.columns and not file.start.startswith(b"PK"):
        content = tables.numeric_columns(file, params)
        columns = _guessed_columns(content)
        missing = _missing(columns, params, content)
        problems += missing
        if missing:
            return
    units = (
        _guessed_units(file, name, params.changed(**columns))
        if columns or name != "tables" or params.columns
        else {}
    )
    known = columns | units
    options = [
        {"force_is": sign} | ({"up_axis": up} if up != params.up_axis else {}) | _blade(up, params) | tare
        for up, sign, tare in product(
            sorted(_UP_AXES, key=lambda axis: axis != params.up_axis),
            (params.force_is, "on_knife", "exerted"),
            ({}, {"tare": "window"}, {"tare": "none"}),
        )
    ]
    every = [
        {key: value for key, value in option.items() if getattr(params, key) != value} for option in options
    ]
    unique = {repr(sorted(option.items())): option for option in every}
    for option in sorted(unique.values(), key=_cost):
        if known or option:
            yield known | option


def _cost(option: _Changes) -> int:
    """Return the number of changes; no tare at all comes last, as it lets a log of the wrong sign pass."""
    return len(option) + (len(_UP_AXES) if option.get("tare") == "none" else 0)


def _blade(up: str, params: IngestParams) -> _Changes:
    axis = up.lstrip("-")
    return {"blade_axis": _BLADE_OF[axis]} if axis == params.blade_axis.lstrip("-") else {}


def _guessed_columns(content: Mapping[str, NDArray[np.float64]]) -> _Changes:
    """Return ingest.columns by the usual names, and the sample rate if no column is a clock."""
    found: dict[str, dict[str, str]] = {key: {} for key in _NAMES}
    for name in content:
        for key, pattern in _NAMES.items():
            match = pattern.match(name.strip().lower())
            if match and (key == "time" or match.group(1) not in found[key]):
                found[key]["t" if key == "time" else match.group(1)] = name
                break
    columns: dict[str, Any] = {
        key: [found[key][axis] for axis in "xyz"]
        for key in ("position", "force")
        if set(found[key]) == set("xyz")
    }
    if found["time"]:
        columns = {"time": found["time"]["t"]} | columns
    return {"columns": columns} if {"position", "force"} <= columns.keys() else {}


def _missing(columns: _Changes, params: IngestParams, names: Iterable[str]) -> list[str]:
    """Return what a table lacks for settings to be tried."""
    if not columns:
        return [
            f"None of the columns look like x, y, z and fx, fy, fz: {', '.join(list(names)[:30])}. Name them: "
            "--set 'ingest.columns={time: t, position: [x, y, z], force: [fx, fy, fz]}'."
        ]
    if "time" not in columns["columns"] and params.sample_rate_hz is None:
        return [
            f"No column looks like a clock; position and force are {columns['columns']}. Give the sample rate: "
            "--set ingest.sample_rate_hz=RATE."
        ]
    return []


def _guessed_units(file: LogFile, name: str, params: IngestParams) -> _Changes:
    """Return units that fit the size of the numbers, where they differ from the settings."""
    try:
        log = read_as(name, file, params)
    except InputError:
        return {}
    changes: _Changes = {}
    step = float(np.median(np.abs(np.diff(log.time_s)))) if len(log.time_s) > 1 else 0.0
    if name == "tables" and params.time_unit == "auto":
        unit = next(unit for least, unit in _TIME_STEPS if step >= least)
        changes |= {} if unit == "s" else {"time_unit": unit}
    if log.position_m is not None and params.length_unit == "m":
        size = float(np.abs(log.position_m[np.isfinite(log.position_m)]).max(initial=0.0))
        unit = next(unit for least, unit in _ARM_REACH if size >= least)
        changes |= {} if unit == "m" else {"length_unit": unit}
    return changes


def _facts(log: RobotLog, record: ForceRecord, airs: int) -> tuple[tuple[str, str], ...]:
    time = record.time_s
    norm = np.linalg.norm(record.filtered_n, axis=1)
    height = 1e3 * record.position_m[:, 1]
    sign = "on the knife" if log.force_factor > 0.0 else "exerted by the robot"
    contact = float(time[record.onset])
    board = "none" if record.on_board is None else f"from {time[record.on_board]:.3g} s on"
    return (
        ("robot", log.robot),
        (
            "samples",
            f"{len(time):,} in {time[-1] - time[0]:.3g} s, {(len(time) - 1) / (time[-1] - time[0]):.0f} Hz",
        ),
        ("clock", f"{log.clock} [{log.time_unit}]"),
        ("pose of the knife", "yes" if log.rotation is not None else "position only"),
        ("logged force", f"taken as {sign}"),
        (
            "descent",
            f"{height.max() - height.min():.0f} mm, along the blade {1e3 * np.ptp(record.position_m[:, 2]):.0f} mm",
        ),
        (
            "contact",
            f"at {contact:.3g} s, {height[record.onset]:.0f} mm above the lowest point; board: {board}",
        ),
        ("force", f"peak {norm.max():.1f} N, {record.residual_n:.2f} N left before contact after the tare"),
        ("tare", f"{airs} no-contact run(s)" if airs else "no no-contact run"),
    )


def _picture(record: ForceRecord, title: str) -> bytes:
    return force_picture(
        record.time_s,
        record.position_m[:, 1],
        record.raw_n,
        record.tare.force_n,
        record.raw_n - record.tare.force_n,
        np.linalg.norm(record.filtered_n, axis=1),
        record.valid,
        onset=record.onset,
        title=title,
    )
