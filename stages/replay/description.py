"""What DVC and the flow need to know of the stage replay."""

from typing import Annotated

from pydantic import Field

from stages.runtime.describe import Column, Stage, StageParams, metrics, picture, table
from stages.shared.columns import SIDE, triangles
from stages.shared.cut_description import CutParams, cut_mesh

_ARTIFACTS = (
    table(
        "replay/frames",
        [
            Column("time_s", "f64", "s", "time of the frame; 0 is the body at rest"),
            Column("knife_position_m", "array[f64,3]", "m", "middle of the knife's edge"),
            Column("force_n", "array[f64,3]", "N", "force on the knife in the step that ends there"),
            Column("force_norm_n", "f64", "N", "norm of force_n"),
            Column("cut_fraction", "f64", "-", "share of the springs' stiffness that is gone"),
        ],
        meaning="the recorded frames of the optimised cut",
    ),
    table(
        "replay/faces",
        [
            triangles("rows within a frame of replay/vertices, counter-clockwise seen from outside"),
            SIDE,
            Column("on_cut", "bool", "", "true for the face that the knife makes"),
        ],
        meaning="triangles of both halves, the same in every frame",
    ),
    table(
        "replay/vertices",
        [
            Column("frame", "i32", "index", "row of replay/frames"),
            Column("position_m", "array[f32,3]", "m", "position in the cutting frame (y up, board y = 0)"),
            Column("displacement_m", "f32", "m", "distance from where the vertex was at rest"),
        ],
        meaning="vertices of both halves, frame after frame, as many and in the same order in each",
    ),
    table(
        "replay/springs",
        [
            Column("frame", "i32", "index", "row of replay/frames"),
            Column("plus_m", "array[f32,3]", "m", "the spring's end on side +1"),
            Column("minus_m", "array[f32,3]", "m", "its end on side -1"),
            Column("remaining_fraction", "f32", "-", "stiffness over stiffness at the start, 0 if cut"),
        ],
        meaning="cutting springs, frame after frame, in the rows of precut_half/springs",
    ),
    metrics("replay", "outcome, length and mean force of the recorded cut, and the knife's size"),
    picture("replay", "the halves and the knife at four moments of the optimised cut"),
)


class ReplayParams(StageParams):
    """replay: the optimised cut, recorded for the 3D viewers."""

    cut: CutParams
    frames: Annotated[int, Field(ge=2, le=1000)]
    """Recorded moments, evenly spaced, the start and the end among them."""


STAGE = Stage(
    name="replay",
    does="motion → a recording of the cut for the 3D viewers",
    params=ReplayParams,
    artifacts=_ARTIFACTS,
    reads=(
        "calibrate/body",
        "transport/parameters",
        "optimize/motion",
        *cut_mesh("precut_half"),
    ),
    key_figure="mean_force_over_time_n",
    timeout_s=3600,
    uses_material=True,
)
