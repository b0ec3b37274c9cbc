"""Section `halve` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from stages.runtime.params_base import StageParams


class HalveParams(StageParams):
    """halve: one half-body of the first cut, laid on the board for the second."""

    half: Literal["positive", "negative"]
    rests_on: Literal["cut_face", "as_it_was"]
    """cut_face: the first cut's flat face is down; as_it_was: the half stands as it did before the cut."""
    angle_deg: Annotated[float, Field(ge=-360, le=360)]
    """Turn about the vertical. At 0 the fruit's former vertical lies along the blade, if the half lies on its cut
    face; otherwise the second cut is parallel to the frame of the first."""
    offset_m: Annotated[float, Field(ge=-1, le=1)]
    """Of the second cut's plane from the half's centre of mass, along x."""
