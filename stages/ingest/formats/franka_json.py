"""Franka's states as JSON: an object of arrays from a control server, or one libfranka RobotState per line."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile, RobotLog, number_array, parse_json, pose_parts
from stages.runtime.errors import InputError

_WIDTHS = {"O_T_EE": 16, "F_T_EE": 16, "O_F_ext_hat_K": 6, "q": 7, "tau_ext_hat_filtered": 7}
"""Numbers per sample of the fields that are read; missing or null fields are skipped."""

_MAX_STATE = 65536
"""Longest line that may be one state, which has a few thousand characters."""


def recognises(file: LogFile) -> bool:
    """Return True if the first line is a sample, or the whole is an object with a clock and one of the fields."""
    if not file.is_json:
        return False
    if _has_states(file):
        return True
    content = file.json
    if not isinstance(content, dict) or not _WIDTHS.keys() & content.keys():
        return False
    return any(isinstance(content.get(clock), list) for clock in ("time", "robot_time"))


def read(file: LogFile, _params: IngestParams) -> RobotLog:
    """Return the log of a recording."""
    return _read_states(file) if _has_states(file) else _read_arrays(file.json, file.name)


# One RobotState per line, time in milliseconds


def _has_states(file: LogFile) -> bool:
    line = file.first_line
    return (
        line.endswith("}") and len(line) <= _MAX_STATE and _is_state(parse_json(line, f"{file.name}, line 1"))
    )


def _is_state(content: Any) -> bool:
    """Return True for one sample: an object whose time is a number."""
    if not isinstance(content, dict) or not _WIDTHS.keys() & content.keys():
        return False
    return isinstance(content.get("time"), int | float) and not isinstance(content["time"], bool)


def _read_states(file: LogFile) -> RobotLog:
    """Return the log of a text with one RobotState per line; empty lines are skipped."""
    states, source = [], file.name
    for number, line in enumerate((file.text or "").splitlines(), start=1):
        if line.strip():
            state = parse_json(line, f"{source}, line {number}")
            if not _is_state(state):
                raise InputError(
                    f"{source}, line {number} is not a RobotState. Every line must be a JSON object with time and "
                    f"some of {', '.join(_WIDTHS)}. Remove the line or record the log again."
                )
            states.append(state)
    time_ms = number_array([state["time"] for state in states], None, "time", source)
    present = [name for name in _WIDTHS if states and states[0].get(name) is not None]
    fields = {
        name: number_array([state.get(name) for state in states], _WIDTHS[name], name, source)
        for name in present
    }
    return _log("RobotState JSON lines", fields, (time_ms * 1e-3, "time", "ms"), source)


# One object of arrays, e.g. time, O_T_EE, O_F_ext_hat_K, q


def _read_arrays(content: dict[str, Any], source: str) -> RobotLog:
    present = [name for name in _WIDTHS if content.get(name) is not None]
    fields = {name: number_array(content[name], _WIDTHS[name], name, source) for name in present}
    return _log("control-server JSON", fields, _clock(content, source), source)


def _clock(content: dict[str, Any], source: str) -> tuple[NDArray[np.float64], str, str]:
    """Return the robot's own clock if present: the other is the arrival time of the message, up to 5 ms off."""
    if isinstance(content.get("robot_time"), list):
        return number_array(content["robot_time"], None, "robot_time", source) * 1e-3, "robot_time", "ms"
    return number_array(content["time"], None, "time", source), "time", "s"


def _log(
    source_format: str,
    fields: dict[str, NDArray[np.float64]],
    clock: tuple[NDArray[np.float64], str, str],
    source: str,
) -> RobotLog:
    time_s, clock_name, unit = clock
    for name, values in fields.items():
        if len(values) != len(time_s):
            raise InputError(
                f"{source}: {name} has {len(values)} samples, the clock has {len(time_s)}. All fields must have one "
                "value per sample. Record the log again."
            )
    position, rotation = pose_parts(fields["O_T_EE"], source) if "O_T_EE" in fields else (None, None)
    has_tool = "F_T_EE" in fields and len(time_s) > 0
    return RobotLog(
        source_format=source_format,
        time_s=time_s,
        clock=clock_name,
        time_unit=unit,
        position_m=position,
        rotation=rotation,
        force_n=fields["O_F_ext_hat_K"][:, :3] if "O_F_ext_hat_K" in fields else None,
        joints_rad=fields.get("q"),
        external_torque_nm=fields.get("tau_ext_hat_filtered"),
        tool=fields["F_T_EE"][0].reshape(4, 4).T if has_tool else None,
    )
