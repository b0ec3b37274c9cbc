"""Section `tetrahedralize` of params.yaml."""

from typing import Annotated

from pydantic import Field

from stages.runtime.params_base import EdgeLength, Fraction, StageParams


class TetrahedralizeParams(StageParams):
    """tetrahedralize: from the surface to a tetrahedral mesh, finer near the cut plane."""

    edge_m: EdgeLength
    cut_edge_m: EdgeLength
    cut_band_m: Annotated[float, Field(ge=0, le=1)]
    epsilon_m: Annotated[float, Field(gt=0, le=0.01)]
    threads: Annotated[int, Field(ge=1, le=256)]
    max_volume_error_fraction: Fraction
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """Of the mesher's random numbers."""
