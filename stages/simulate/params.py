"""Section `simulate` of params.yaml."""

from typing import Annotated

from pydantic import Field

from stages.runtime.params_base import StageParams
from stages.shared.cut.params import CutParams


class SimulateParams(StageParams):
    """simulate: a straight cut with nominal parameters."""

    cut: CutParams
    sample_rate_hz: Annotated[float, Field(ge=1, le=10_000)]
    parameters: dict[str, float]
    """Spring, contact and material parameters of the simulator; the stage checks names and ranges."""
