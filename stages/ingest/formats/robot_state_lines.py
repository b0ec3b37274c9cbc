"""Streams of libfranka's RobotState: one JSON object per line, time in milliseconds."""

from typing import Any

import numpy as np

from stages.ingest.description import IngestParams
from stages.ingest.formats.control_server_json import WIDTHS
from stages.ingest.log_file import LogFile
from stages.ingest.robot_log import RobotLog, number_array, parse_json, pose_parts
from stages.runtime.errors import InputError


def recognises(file: LogFile) -> bool:
    """Return True if the first line is a sample."""
    line = file.first_line
    return file.is_json and line.endswith("}") and _is_state(parse_json(line, f"{file.name}, line 1"))


def _is_state(content: Any) -> bool:
    """Return True for one sample: an object whose time is a number."""
    return (
        isinstance(content, dict) and _is_number(content.get("time")) and bool(WIDTHS.keys() & content.keys())
    )


def read(file: LogFile, _params: IngestParams) -> RobotLog:
    """Return the log of a text with one RobotState per line; empty lines are skipped."""
    states, source = [], file.name
    for number, line in enumerate((file.text or "").splitlines(), start=1):
        if line.strip():
            state = parse_json(line, f"{source}, line {number}")
            if not _is_state(state):
                raise InputError(
                    f"{source}, line {number} is not a RobotState. Every line must be a JSON object with time and "
                    f"some of {', '.join(WIDTHS)}. Remove the line or record the log again."
                )
            states.append(state)
    fields = {
        name: number_array([state.get(name) for state in states], width, name, source)
        for name, width in WIDTHS.items()
        if states and states[0].get(name) is not None
    }
    position, rotation = pose_parts(fields["O_T_EE"]) if "O_T_EE" in fields else (None, None)
    return RobotLog(
        source_format="RobotState JSON lines",
        time_s=np.array([state["time"] for state in states], np.float64) * 1e-3,
        clock="time",
        time_unit="ms",
        position_m=position,
        rotation=rotation,
        force_n=fields["O_F_ext_hat_K"][:, :3] if "O_F_ext_hat_K" in fields else None,
        joints_rad=fields.get("q"),
        external_torque_nm=fields.get("tau_ext_hat_filtered"),
        tool=fields["F_T_EE"][0].reshape(4, 4).T if "F_T_EE" in fields else None,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
