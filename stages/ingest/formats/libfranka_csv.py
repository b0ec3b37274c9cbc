"""CSV of libfranka's logToCSV, which has joints and torques but neither pose nor wrench.

Since 0.9.1 the header has 87 unique names. Before, it has 88 columns with names that occur twice and an empty column
between states and commands. Measured values are in the same columns in both, so they are read by column index.
"""

import numpy as np

from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile, RobotLog
from stages.runtime.errors import InputError

_NEW_START = "time,success_rate,state.q[0]"
_OLD_START = "duration, success rate, q[0]"
_COLUMN_COUNT = {_NEW_START: 87, _OLD_START: 88}
_TIME, _JOINTS, _EXTERNAL_TORQUE = 0, slice(2, 9), slice(37, 44)
"""Column indices: time [ms], q [rad], tau_ext_hat_filtered [N m]."""


def recognises(file: LogFile) -> bool:
    """Return True for the header of either version."""
    return file.first_line.startswith((_NEW_START, _OLD_START))


def read(file: LogFile, _params: IngestParams) -> RobotLog:
    """Return the log of a text that starts with either header."""
    source = file.name
    header, *lines = (file.text or "").splitlines()
    start = _NEW_START if header.startswith(_NEW_START) else _OLD_START
    count = _COLUMN_COUNT[start]
    if header.count(",") + 1 != count:
        raise InputError(
            f"{source} has {header.count(',') + 1} columns. A logToCSV file with this header has {count}. "
            "Export it again, or give a column map in ingest.columns."
        )
    rows = [_measured(line, count, f"{source}, line {n}") for n, line in enumerate(lines, 2) if line.strip()]
    table = np.array(rows, np.float64).reshape(len(rows), 15)
    return RobotLog(
        source_format=f"libfranka CSV ({'0.9.1 or later' if start == _NEW_START else 'before 0.9.1'})",
        time_s=table[:, 0] * 1e-3,
        clock="time" if start == _NEW_START else "duration",
        time_unit="ms",
        joints_rad=table[:, 1:8],
        external_torque_nm=table[:, 8:],
    )


def _measured(line: str, count: int, where: str) -> list[float]:
    cells = line.split(",")
    if len(cells) != count:
        raise InputError(
            f"{where} has {len(cells)} cells, the header has {count}. All lines must be complete. Remove the line."
        )
    try:
        return [float(cell) for cell in (cells[_TIME], *cells[_JOINTS], *cells[_EXTERNAL_TORQUE])]
    except ValueError as error:
        raise InputError(
            f"{where}: {error}. Time, joints and torques must be numbers. Export the log again."
        ) from error
