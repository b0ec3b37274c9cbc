"""Section `clean` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from stages.runtime.params_base import EdgeLength, Fraction, Positive, StageParams, Vector


class CleanParams(StageParams):
    """clean: from the raw scan to a watertight surface in the cutting frame."""

    unit: Literal["auto", "m", "cm", "mm", "in"]
    scale: Positive | None = None
    """Metres per unit of the scan; overrides `unit`."""
    min_component_fraction: Fraction
    target_edge_m: EdgeLength
    smooth_iterations: Annotated[int, Field(ge=0, le=100)]
    max_displacement_fraction: Fraction
    max_faces: Annotated[int, Field(ge=100)]
    max_bytes: Annotated[int, Field(ge=100)]
    """Of the scan's file; larger ones are refused before they are read or copied."""
    max_filled_fraction: Annotated[float, Field(ge=0, le=1)]
    """Part of the clean surface's area that may be invented where the scan saw nothing."""
    orientation: Literal["auto", "y_up", "z_up"]
    rotation_deg: Vector | None = None
    """Turns about the scan's x, y, z axis in this order; y is then up. Overrides `orientation`."""
    turn_deg: Annotated[float, Field(ge=-360, le=360)]
    cut_offset_m: Annotated[float, Field(ge=-1, le=1)]
