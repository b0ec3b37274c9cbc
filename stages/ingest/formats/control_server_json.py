"""Recordings of a control server: one JSON object of arrays, e.g. time, O_T_EE, O_F_ext_hat_K, q."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile
from stages.ingest.robot_log import RobotLog, number_array, pose_parts
from stages.runtime.errors import InputError

WIDTHS = {"O_T_EE": 16, "F_T_EE": 16, "O_F_ext_hat_K": 6, "q": 7, "tau_ext_hat_filtered": 7}
"""Numbers per sample of the fields that are read; missing or null fields are skipped."""


def recognises(file: LogFile) -> bool:
    """Return True for an object with a clock and at least one of the fields that are read."""
    if not file.is_json:
        return False
    content = file.json
    if not isinstance(content, dict) or not WIDTHS.keys() & content.keys():
        return False
    return any(isinstance(content.get(clock), list) for clock in ("time", "robot_time"))


def read(file: LogFile, _params: IngestParams) -> RobotLog:
    """Return the log of a recording."""
    content, source = file.json, file.name
    time_s, clock, unit = _clock(content, source)
    fields: dict[str, NDArray[np.float64]] = {}
    for name, width in WIDTHS.items():
        if content.get(name) is not None:
            fields[name] = number_array(content[name], width, name, source)
            if len(fields[name]) != len(time_s):
                raise InputError(
                    f"{source}: {name} has {len(fields[name])} samples, the clock has {len(time_s)}. All fields must "
                    "have one value per sample. Record the log again."
                )
    position, rotation = pose_parts(fields["O_T_EE"]) if "O_T_EE" in fields else (None, None)
    has_tool = "F_T_EE" in fields and len(time_s) > 0
    return RobotLog(
        source_format="control-server JSON",
        time_s=time_s,
        clock=clock,
        time_unit=unit,
        position_m=position,
        rotation=rotation,
        force_n=fields["O_F_ext_hat_K"][:, :3] if "O_F_ext_hat_K" in fields else None,
        joints_rad=fields.get("q"),
        external_torque_nm=fields.get("tau_ext_hat_filtered"),
        tool=fields["F_T_EE"][0].reshape(4, 4).T if has_tool else None,
    )


def _clock(content: dict[str, Any], source: str) -> tuple[NDArray[np.float64], str, str]:
    """Return the robot's own clock if present: the other is the arrival time of the message, up to 5 ms off."""
    if isinstance(content.get("robot_time"), list):
        return number_array(content["robot_time"], None, "robot_time", source) * 1e-3, "robot_time", "ms"
    return number_array(content["time"], None, "time", source), "time", "s"
