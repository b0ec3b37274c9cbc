"""Description of the stage export: parameters, artifacts, inputs."""

from typing import Annotated

from pydantic import Field

from stages.runtime.describe import Stage, StageParams, Vector, folder, metrics, picture
from stages.shared.cut_description import CutParams
from stages.shared.robots.robot import ArmParams

_ARTIFACTS = (
    folder(
        "export/cut",
        "files for the robot in the subfolder `certified`, or `refused` with REASON.txt; see docs/export.md",
    ),
    metrics(
        "export",
        "verdict of the certificate, path of the files, margins to the limits",
    ),
    picture("export", "path of the knife over the fruit, joints and their limits, predicted force"),
)


class ExportParams(StageParams):
    """export: the cell (board, knife) and how the knife goes to the cut and away from it."""

    cut: CutParams
    arm: ArmParams
    board_position_m: Vector
    """Origin of the cutting frame (on the board, in the cut plane) in the robot's base frame."""
    blade_yaw_deg: Annotated[float, Field(ge=-360, le=360)]
    """Direction of the blade (the cutting frame's z) on the board, from the base's x axis."""
    edge_offset_m: Vector
    """Centre of the knife's edge in the flange's frame."""
    blade_angle_deg: Annotated[float, Field(ge=-360, le=360)]
    """Direction of the blade in the flange's x-y plane, from the flange's x axis."""
    fixture_low_m: Vector
    """Corner of a box around all that moves with the knife, save the blade; in the edge's frame (y up, z along)."""
    fixture_high_m: Vector
    tool_mass_kg: Annotated[float, Field(ge=0, le=3)] | None
    """Mass of knife and fixture; null: as the knife's file says."""
    tool_com_m: Vector | None
    """Their centre of mass in the flange's frame; null: as the knife's file says."""
    joint_stiffness_nm_rad: Annotated[float, Field(ge=100, le=14250)]
    """Stiffness of the robot's joint impedance controller, for which the deflection is predicted."""
    max_deflection_m: Annotated[float, Field(gt=0, le=0.01)]
    """Maximum deflection of the edge; beyond a centimetre the cut is not the simulated one."""
    min_board_clearance_m: Annotated[float, Field(ge=0, le=0.05)]
    """Minimum height of the edge above the board."""
    fixture_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Minimum distance of the fixture from board and fruit."""
    blade_overlap_m: Annotated[float, Field(ge=0, le=0.1)]
    """Minimum reach of the blade beyond the fruit at both ends."""
    approach_height_m: Annotated[float, Field(gt=0, le=0.5)]
    """Height above the start of the cut where the motion begins and ends."""
    approach_speed_m_s: Annotated[float, Field(gt=0, le=0.25)]
    approach_acceleration_m_s2: Annotated[float, Field(gt=0, le=5)]
    approach_jerk_m_s3: Annotated[float, Field(gt=0, le=500)]
    dwell_s: Annotated[float, Field(ge=0.01, le=10)]
    """Rest before and after the approach, the cut and the retract."""
    air_cut_lift_m: Annotated[float, Field(ge=0.01, le=0.3)]
    min_cut_fraction: Annotated[float, Field(ge=0.5, le=1)]
    """Minimum cut fraction of the simulated cut."""
    mujoco: bool
    """Simulate the joint trajectory on a torque-controlled arm in MuJoCo (the extra `verify`)."""


_CHAIN = (
    "clean",
    "ingest",
    "tetrahedralize",
    "precut",
    "calibrate",
    "halve",
    "tetrahedralize_half",
    "precut_half",
    "transport",
    "optimize",
    "replay",
)
"""Stages from the raw scan to the motion and its simulation: the certificate names what each read and wrote."""

STAGE = Stage(
    name="export",
    does="motion → waypoints, joint trajectories and certificate (certified or refused)",
    params=ExportParams,
    artifacts=_ARTIFACTS,
    reads=(
        "optimize/motion",
        "calibrate/profile",
        "halve/vertices",
        "halve/faces",
        "replay/frames",
        "replay/springs",
        *(f"{stage}/provenance" for stage in _CHAIN),
    ),
    key_figure="outcome",
    timeout_s=1800,
)
