"""Bringing a log to SI units, by what the user said or by the rule of its format."""

from dataclasses import replace

from stages.ingest.params import IngestParams
from stages.ingest.robot_log import EXERTED, ON_KNIFE, RobotLog

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
METRES = {"m": 1.0, "cm": 1e-2, "mm": 1e-3}
NEWTONS = {"N": 1.0, "mN": 1e-3, "kN": 1e3}
FACTORS = {"exerted": EXERTED, "on_knife": ON_KNIFE}


def in_si(log: RobotLog, params: IngestParams) -> RobotLog:
    """The log with the units and the sign of the params in place of its format's own."""
    time_unit = log.time_unit if params.time_unit == "auto" else params.time_unit
    return replace(
        log,
        time_s=log.time_s * (SECONDS[time_unit] / SECONDS[log.time_unit]),
        time_unit=time_unit,
        position_m=None if log.position_m is None else log.position_m * METRES[params.length_unit],
        force_n=None if log.force_n is None else log.force_n * NEWTONS[params.force_unit],
        force_factor=log.force_factor if params.force_is == "auto" else FACTORS[params.force_is],
    )
