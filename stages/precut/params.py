"""Section `precut` of params.yaml."""

from typing import Annotated

from pydantic import Field

from stages.runtime.params_base import StageParams, Vector


class PrecutParams(StageParams):
    """precut: the virtual node algorithm along the cutting surface."""

    plane_point_m: Vector
    plane_normal: Vector
    surface_file: str | None = None
    """A triangle mesh in the scan's directory that replaces the plane."""
    snap_tolerance_fraction: Annotated[float, Field(ge=1e-4, le=0.2)]
    """How near to its ends an edge may be cut, as a fraction of its length."""
