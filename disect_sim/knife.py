"""The knife: a convex pentagon extruded along the blade."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite, radians, tan
from typing import TYPE_CHECKING

import numpy as np

from disect_sim.outcome import InputError

if TYPE_CHECKING:
    from disect_sim.kernels.contact_point import KnifeShape

_END_BLEND_M = 1.0e-3
"""Width of the rounding of the smooth knife towards spine and ends [m]; about one spring spacing / 5."""


@dataclass(frozen=True)
class Knife:
    """Blade geometry [m]. The edge runs along z, the blade is symmetric about x = 0, the origin is at the edge."""

    spine_m: float = 2.0e-3
    """Thickness at the spine."""
    edge_m: float = 0.08e-3
    """Thickness where the flanks end."""
    height_m: float = 40.0e-3
    """Height from edge to spine."""
    tip_m: float = 0.04e-3
    """Height of the small wedge that closes the section below the flanks."""
    length_m: float = 150.0e-3
    """Length of the blade along z."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value > 0.0 and isfinite(value)):
                raise InputError(f"knife: {field.name} is {value}. It must be > 0 m. Measure the blade.")
        if self.edge_m > self.spine_m or self.tip_m >= self.height_m:
            raise InputError(
                f"knife: edge {self.edge_m} m, spine {self.spine_m} m, tip {self.tip_m} m, height {self.height_m} m. "
                "The section must be convex: edge <= spine and tip < height. Correct the dimensions."
            )

    def shape(self) -> "KnifeShape":
        """Return the geometry as a kernel struct."""
        from disect_sim.kernels.contact_point import KnifeShape

        across = 0.5 * (self.spine_m - self.edge_m)
        up = self.height_m - self.tip_m
        length = np.hypot(across, up)
        s = KnifeShape()
        s.flank_x, s.flank_y = up / length, -across / length
        s.flank_offset = s.flank_x * 0.5 * self.edge_m + s.flank_y * self.tip_m
        s.height, s.half_length = self.height_m, 0.5 * self.length_m
        s.blend = _END_BLEND_M
        return s


KNIVES = {
    "kitchen": Knife(),
    "slicing": Knife(length_m=254.0e-3),
    "folding": Knife(length_m=54.0e-3),
}
"""The three knives of the paper: they differ in blade length only."""

_BEVEL_DEG = "bevel_deg"
"""Included angle of the small wedge at the edge [degrees], as set on a sharpener; alternative to tip_m."""


def knife_from(description: "str | Knife | Mapping[str, float]") -> Knife:
    """Return a knife by its name in KNIVES, or from measured dimensions.

    Dimensions [m]: length_m, height_m, spine_m, edge_m and, for the small wedge at the edge, tip_m (its height) or
    bevel_deg (its included angle [degrees]). Missing dimensions are those of the kitchen knife.
    """
    if isinstance(description, Knife):
        return description
    if isinstance(description, str):
        if description not in KNIVES:
            raise InputError(
                f"knife: {description!r} is not a known knife. Known: {', '.join(KNIVES)}. Choose one, or give its "
                "dimensions (length_m, height_m, spine_m, edge_m, bevel_deg)."
            )
        return KNIVES[description]
    dimensions = [field.name for field in fields(Knife)]
    unknown = [str(key) for key in description if key not in (*dimensions, _BEVEL_DEG)]
    if unknown:
        raise InputError(
            f"knife: {', '.join(unknown)} is not a knife dimension. Known: {', '.join(dimensions)}, {_BEVEL_DEG}. "
            "Correct the name."
        )
    given = {name: _number(name, value) for name, value in description.items()}
    bevel = given.pop(_BEVEL_DEG, None)
    if bevel is not None:
        if "tip_m" in given or not 0.0 < bevel < 180.0:
            raise InputError(
                f"knife: {_BEVEL_DEG} is {bevel}{' beside tip_m' if 'tip_m' in given else ''}. It must be between 0 "
                "and 180 degrees and replaces tip_m. Give one of them."
            )
        given["tip_m"] = 0.5 * given.get("edge_m", KNIVES["kitchen"].edge_m) / tan(radians(0.5 * bevel))
    return Knife(**given)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"knife: {name} is {value!r}. It must be a number. Correct it.")
    return float(value)
