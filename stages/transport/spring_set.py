"""The springs of one cut surface, as optimal transport sees them: points in a box, with masses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MIN_AREA_FRACTION = 1.0e-3
"""Of the mean area: no spring weighs less, so that every target gets a share of the plan that is not rounding."""


@dataclass(frozen=True)
class SpringSet:
    """Springs of one cut surface."""

    position_m: Floats
    """2D position on the cut surface [m], shape [spring_count, 2]."""
    area_m2: Floats
    """Tributary area [m²], shape [spring_count]."""
    skin: Flags
    """True for springs in the skin, shape [spring_count]."""

    def check(self, name: str) -> None:
        """Refuse an empty set, and numbers that are none; `name` says whose springs they are."""
        if len(self.area_m2) == 0:
            raise InputError(f"{name} has no springs. A cut needs at least one. Run the stage again.")
        if not (np.isfinite(self.position_m).all() and np.isfinite(self.area_m2).all()):
            raise InputError(
                f"{name} has positions or areas that are NaN or infinite. All must be finite. Run the stage again."
            )
        if not (self.area_m2 >= 0.0).all() or not (self.area_m2 > 0.0).any():
            raise InputError(
                f"{name} has areas from {self.area_m2.min():g} to {self.area_m2.max():g} m2. None may be negative, and "
                "not all may be 0. Run the stage again."
            )

    @property
    def in_unit_box(self) -> Floats:
        """Positions scaled to the unit box, each axis for itself [-], shape [spring_count, 2].

        The knife goes from the top of a cut surface to its bottom, and the blade from one end to the other, whatever
        the surface's size. So top goes to top and end to end, also on a half that is half as high as the fruit.
        An axis along which all springs are in one place has the coordinate 1/2.
        """
        low, high = self.position_m.min(axis=0), self.position_m.max(axis=0)
        flat = high - low <= 1e-9 * np.abs(high - low).max()
        scaled = (self.position_m - low) / np.where(flat, 1.0, high - low)
        return np.where(flat, 0.5, scaled)

    def masses(self, weight: Floats | None = None) -> Floats:
        """Areas times a weight, made to sum to one [-], shape [spring_count].

        Areas, because what is carried over is a field on a surface: a spot that the mesher filled with many springs
        must not count for more than its area.
        """
        mass = np.maximum(self.area_m2, MIN_AREA_FRACTION * self.area_m2.mean())
        if weight is not None:
            mass = mass * weight
        return mass / mass.sum()


def bare_flesh(positions_m: Floats, point_m: Floats, normal: Floats, within_m: float) -> Flags:
    """Points [m], shape [n, 3], no further than `within_m` from a plane: where the first cut took the skin away."""
    return np.abs((positions_m - point_m) @ normal) <= within_m


def touch_weights(touched: Flags, untouched_weight: float) -> Floats:
    """1 for springs that the knife touched, less for others, of which only the smoothing of the fit knows.

    If none was touched (a scan without a log) all weigh the same. Shape [spring_count].
    """
    if not touched.any():
        return np.ones(len(touched))
    return np.where(touched, 1.0, untouched_weight)
