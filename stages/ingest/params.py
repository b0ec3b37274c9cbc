"""Section `ingest` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from stages.runtime.params_base import Positive, StageParams, Vector


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
