"""Description of the stage simulate: parameters, artifacts, inputs."""

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
            Column("torque_nm", "array[f64,3]", "N·m", "torque about the centre of the edge"),
            Column("force_norm_n", "f64", "N", "norm of force_n, compared with the force log"),
            Column(
                "contact_area_m2",
                "f64",
                "m²",
                "area of the cut surface in contact with the knife, both halves",
            ),
            Column("knife_position_m", "array[f64,3]", "m", "centre of the edge"),
        ],
        meaning="force on the knife in a straight cut with uncalibrated parameters from params.yaml",
    ),
    table(
        "simulate/springs",
        [
            Column("remaining_fraction", "f64", "-", "final / initial stiffness; 0: cut"),
            Column("stretch_m", "f64", "m", "final distance of the spring's two ends"),
        ],
        meaning="springs after the cut, rows as in precut/springs",
    ),
    metrics("simulate", "outcome, mean and peak force, cut fraction, statistics of the integrator"),
    picture("simulate", "fruit at four times of the cut, and force on the knife"),
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
    does="two halves → force on the knife in a nominal straight cut with uncalibrated parameters",
    params=SimulateParams,
    artifacts=_ARTIFACTS,
    reads=(*cut_mesh("precut"),),
    key_figure="peak_force_n",
    timeout_s=3600,
    uses_material=True,
)
