"""Description of the stage replay: parameters, artifacts, inputs."""

from typing import Annotated

from pydantic import Field

from stages.runtime.describe import Column, Stage, StageParams, metrics, picture, table
from stages.shared.cut_description import CutParams, cut_mesh
from stages.shared.surface import SIDE, triangles

_FRAMES = [
    Column("time_s", "f64", "s", "time of the frame; 0: body at rest"),
    Column("knife_position_m", "array[f64,3]", "m", "centre of the edge"),
    Column("force_n", "array[f64,3]", "N", "force on the knife in the preceding time step"),
    Column("force_norm_n", "f64", "N", "norm of force_n"),
    Column("cut_fraction", "f64", "-", "cut fraction: share of the spring stiffness that is gone"),
    Column(
        "knife_pitch_rad", "f64", "rad", "angle of the blade about x, if it is tilted or turns", optional=True
    ),
]
_VERTICES = [
    Column("frame", "i32", "index", "row of the table of frames"),
    Column("position_m", "array[f32,3]", "m", "position in the cutting frame (y up, board y = 0)"),
    Column("displacement_m", "f32", "m", "distance from the rest position"),
]
_SPRINGS = [
    Column("frame", "i32", "index", "row of the table of frames"),
    Column("plus_m", "array[f32,3]", "m", "end of the spring on side +1"),
    Column("minus_m", "array[f32,3]", "m", "end of the spring on side -1"),
    Column("remaining_fraction", "f32", "-", "stiffness / initial stiffness; 0: cut"),
]
_ARTIFACTS = (
    table("replay/frames", _FRAMES, meaning="frames of the optimised cut"),
    table(
        "replay/faces",
        [
            triangles("rows within a frame of replay/vertices, counter-clockwise seen from outside"),
            SIDE,
            Column("on_cut", "bool", "", "true for faces created by the cut"),
        ],
        meaning="triangles of both parts, the same in every frame",
    ),
    table(
        "replay/vertices",
        _VERTICES,
        meaning="vertices of both parts, frame by frame, in the same order",
    ),
    table(
        "replay/springs",
        _SPRINGS,
        meaning="springs, frame by frame, rows as in precut_half/springs",
    ),
    table(
        "replay/vertical_frames",
        _FRAMES,
        meaning="frames of the vertical cut of the same duration; empty if it stopped at once",
    ),
    table("replay/vertical_vertices", _VERTICES, meaning="vertices of both parts in the vertical cut"),
    table("replay/vertical_springs", _SPRINGS, meaning="springs in the vertical cut"),
    metrics("replay", "outcome, duration and mean force of the recorded cut, dimensions of the knife"),
    picture("replay", "fruit and knife at four times of the optimised cut"),
)


class ReplayParams(StageParams):
    """replay: the optimised motion simulated once more and recorded, for the certificate and the viewer."""

    cut: CutParams
    frames: Annotated[int, Field(ge=2, le=1000)]
    """Recorded moments, evenly spaced, the start and the end among them."""


STAGE = Stage(
    name="replay",
    does="motion and vertical cut → simulated once more and recorded, for certificate and viewer",
    params=ReplayParams,
    artifacts=_ARTIFACTS,
    reads=(
        "calibrate/body",
        "transport/parameters",
        "optimize/motion",
        "optimize/profile",
        *cut_mesh("precut_half"),
    ),
    key_figure="mean_force_over_time_n",
    timeout_s=3600,
    uses_material=True,
)
