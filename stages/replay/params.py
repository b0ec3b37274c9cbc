"""Section `replay` of params.yaml."""

from typing import Annotated

from pydantic import Field

from stages.runtime.params_base import StageParams
from stages.shared.cut.params import CutParams


class ReplayParams(StageParams):
    """replay: the optimised cut, recorded for the 3D viewers."""

    cut: CutParams
    frames: Annotated[int, Field(ge=2, le=1000)]
    """Recorded moments, evenly spaced, the start and the end among them."""
