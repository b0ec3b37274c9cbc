"""What DVC and the flow need to know of the stage simulate."""

from typing import Annotated

from pydantic import Field, model_validator

from stages.runtime.describe import Column, Stage, StageParams, metrics, picture, table
from stages.shared.cut_description import CutParams, cut_mesh, nominal_unless_given

_ARTIFACTS = (
    table(
        "simulate/force",
        [
            Column("time_s", "f64", "s", "end of the sampling interval"),
            Column("force_n", "array[f64,3]", "N", "resultant force on the knife, mean over the interval"),
            Column("torque_nm", "array[f64,3]", "N·m", "its torque about the middle of the knife's edge"),
            Column("force_norm_n", "f64", "N", "norm of force_n, what a force log is compared with"),
            Column("contact_area_m2", "f64", "m²", "cut surface that touches the knife, both halves"),
            Column("knife_position_m", "array[f64,3]", "m", "middle of the knife's edge"),
        ],
        meaning="force on the knife during a straight cut with the parameters of params.yaml, not calibrated",
    ),
    table(
        "simulate/springs",
        [
            Column(
                "remaining_fraction", "f64", "-", "stiffness at the end over stiffness at the start, 0 if cut"
            ),
            Column("stretch_m", "f64", "m", "distance of the spring's two ends at the end"),
        ],
        meaning="cutting springs after the cut, in the rows of precut/springs",
    ),
    metrics("simulate", "outcome, mean and peak force, share that is cut, and what the integrator did"),
    picture("simulate", "the halves at four times of the cut above the force on the knife"),
)


class SimulateParams(StageParams):
    """simulate: a straight cut with nominal parameters."""

    cut: CutParams
    sample_rate_hz: Annotated[float, Field(ge=1, le=10_000)]
    parameters: dict[str, float] = Field(default_factory=dict)
    """Simulator parameters of the nominal cut; those not given are `cut.nominal_parameters`."""

    _nominal = model_validator(mode="before")(nominal_unless_given("parameters"))


STAGE = Stage(
    name="simulate",
    does="two bodies → force on the knife in a nominal straight cut, with default, uncalibrated parameters",
    params=SimulateParams,
    artifacts=_ARTIFACTS,
    reads=(*cut_mesh("precut"),),
    key_figure="peak_force_n",
    timeout_s=3600,
    uses_material=True,
)
