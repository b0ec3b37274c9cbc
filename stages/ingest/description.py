"""What DVC and the flow need to know of the stage ingest."""

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
from stages.shared.robots.robot import ROBOTS

_FORCE = (
    Column("time_s", "f64", "s", "time of the sample, from 0"),
    Column(
        "position_m",
        "array[f64,3]",
        "m",
        "measured middle of the edge: y above the board, x and z from the start",
    ),
    Column("velocity_m_s", "array[f64,3]", "m/s", "its velocity, from the low-passed positions"),
    Column("force_n", "array[f64,3]", "N", "force on the knife: raw_n less air_n"),
    Column("force_norm_n", "f64", "N", "norm of force_n"),
    Column("force_filtered_norm_n", "f64", "N", "norm of force_n after the low-pass"),
    Column("air_n", "array[f64,3]", "N", "tare: what the log would read without contact"),
    Column("raw_n", "array[f64,3]", "N", "force on the knife as logged"),
    Column(
        "valid",
        "bool",
        "",
        "false at rest before the descent, on the board, and where force or tare are not known",
    ),
    Column("contact", "bool", "", "true from where the knife first touches the fruit"),
    Column("uncertainty_n", "f64", "N", "standard uncertainty of force_filtered_norm_n"),
)

_ARTIFACTS = (
    table(
        "ingest/force",
        _FORCE,
        meaning="measured force and motion of the knife in the cutting frame; no rows if the scan has no log",
    ),
    table(
        "ingest/further",
        [Column("log", "i64", "", "number of the log, 2 for the second"), *_FORCE],
        meaning="the same of further cuts of the fruit, one log after the other; no rows if there are none",
    ),
    metrics("ingest", "samples, rate, first touch, contact with the board, peak and mean force, tare"),
    picture("ingest", "raw, air and net force over time and height, with the contact onset"),
)


class IngestParams(StageParams):
    """ingest: from a robot's log to the force on the knife's edge."""

    columns: dict[str, str | list[str]]
    """For tables: what is in which column. For ROS recordings: the topics of force, pose and joints."""
    sample_rate_hz: Positive | None = None
    """Of a table without a time column."""
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
    """Of the board above the robot's base, along up_axis."""
    board_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the edge above the board at its lowest, where board_height_m is not known."""
    tare: Literal["auto", "air", "window"]
    tare_window_s: Annotated[float, Field(ge=0.02, le=10)]
    filter_cutoff_hz: Positive
    onset_force_n: Positive
    repeatability_n: Annotated[float, Field(ge=0)]
    scale_error_fraction: Annotated[float, Field(ge=0, le=1)]


STAGE = Stage(
    name="ingest",
    does="robot log → force on the knife, tared, with its uncertainty; without a log an empty table",
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
