"""Description of the stage ingest: parameters, artifacts, inputs."""

from typing import Annotated, Literal

from pydantic import Field

from stages.runtime.describe import (
    Column,
    Positive,
    Stage,
    StageParams,
    Vector,
    metrics,
    one_of,
    picture,
    table,
)
from stages.shared.input_files import ReadingParams
from stages.shared.robots.robot import ROBOTS

_FORCE = (
    Column("time_s", "f64", "s", "time of the sample, from 0"),
    Column(
        "position_m",
        "array[f64,3]",
        "m",
        "measured centre of the edge: y above the board, x and z relative to the start",
    ),
    Column("velocity_m_s", "array[f64,3]", "m/s", "velocity, from low-pass filtered positions"),
    Column("force_n", "array[f64,3]", "N", "force on the knife: raw_n minus air_n"),
    Column("force_norm_n", "f64", "N", "norm of force_n"),
    Column("force_filtered_norm_n", "f64", "N", "norm of the low-pass filtered force_n"),
    Column("air_n", "array[f64,3]", "N", "tare: force reading without contact"),
    Column("raw_n", "array[f64,3]", "N", "force on the knife as logged"),
    Column(
        "valid",
        "bool",
        "",
        "false before the descent, on the board, and where force or tare are unknown",
    ),
    Column("contact", "bool", "", "true from contact onset"),
    Column("uncertainty_n", "f64", "N", "standard uncertainty of force_filtered_norm_n"),
    Column(
        "pitch_rad",
        "f64",
        "rad",
        "angle of the knife in the cut plane since contact, positive lowers the +z end; absent below 2°",
        optional=True,
    ),
)

_ARTIFACTS = (
    table(
        "ingest/force",
        _FORCE,
        meaning="measured force and motion of the knife in the cutting frame; empty without a log",
    ),
    table(
        "ingest/further",
        [Column("log", "i64", "", "number of the log, 2 for the second"), *_FORCE],
        meaning="the same for further cuts of the fruit, log by log; empty if there are none",
    ),
    metrics("ingest", "samples, rate, contact onset, board contact, peak and mean force, tare"),
    picture("ingest", "raw, tare and net force over time and height, with contact onset"),
)


class IngestParams(StageParams):
    """ingest: from a robot's log to the force on the knife's edge."""

    reading: ReadingParams
    columns: dict[str, str | list[str]]
    """Tables: quantity → column or columns. ROS recordings: topics of force, pose and joints."""
    sample_rate_hz: Positive | None = None
    """Sample rate of a table without a time column."""
    time_unit: Literal["auto", "s", "ms", "us", "ns"]
    length_unit: Literal["m", "cm", "mm"]
    force_unit: Literal["N", "mN", "kN"]
    force_is: Literal["auto", "exerted", "on_knife"]
    """Whether the log has the force that the robot exerts or the one on the knife."""
    robot: Annotated[str, one_of(ROBOTS)]
    """Arm that wrote the log: its links give pose and force where the log has joints only."""
    allow_pickle: bool
    max_bytes: Annotated[int, Field(ge=1000)]
    min_rate_hz: Positive
    max_gap_s: Positive
    up_axis: Literal["x", "y", "z", "-x", "-y", "-z"]
    blade_axis: Literal["x", "y", "z", "-x", "-y", "-z"]
    edge_offset_m: Vector
    """From the end effector to the middle of the edge, in the end effector's frame."""
    board_height_m: float | None = None
    """Height of the board above the robot's base, along up_axis."""
    board_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the edge above the board at its lowest, where board_height_m is not known."""
    tare: Literal["auto", "air", "window", "none"]
    tare_window_s: Annotated[float, Field(ge=0.02, le=10)]
    onset_force_n: Positive
    scale_error_fraction: Annotated[float, Field(ge=0, le=1)]


STAGE = Stage(
    name="ingest",
    does="robot log → tared force on the knife with uncertainty; empty without a log",
    params=IngestParams,
    artifacts=_ARTIFACTS,
    reads=(),
    key_figure="peak_force_n",
    timeout_s=600,
    files=(
        "force_log",
        "air_runs",
        "further_logs",
    ),
)
