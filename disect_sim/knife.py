"""The knife: a convex pentagon extruded along the blade, whose edge may be curved, and its tilt in the holder."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import isfinite, radians, tan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import Polynomial

from disect_sim.outcome import InputError

if TYPE_CHECKING:
    from disect_sim.kernels.contact_point import KnifeShape

_END_BLEND_M = 1.0e-3
"""Width of the rounding of the smooth knife towards spine and ends [m]; about one spring spacing / 5."""
_CURVE_DEGREE = 6
"""Degree of the polynomial for the edge's height over the length."""
_CURVE_ERROR_M = 0.5e-3
"""Largest distance between a given edge curve and its polynomial [m]."""
_LARGEST_TILT_DEG = 45.0
"""Largest tilt in the holder, and largest angle of a curved edge to its middle [degrees]."""
_BENT_M = 1.0e-6
"""Height by which a point may lie above the line through its neighbours in a curve that counts as convex [m]."""


@dataclass(frozen=True)
class Knife:
    """Blade geometry [m]. The edge runs along z, the blade is symmetric about x = 0, the origin is at the edge.

    A curved edge is level in the middle of the blade and rises towards its ends.
    """

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
    belly_radius_m: float | None = None
    """Radius of a circular edge; None: straight, or as edge_curve says."""
    edge_curve: tuple[tuple[float, float], ...] = ()
    """Edge as pairs of place along the blade and height [m], in increasing order from end to end; empty: straight, or
    as belly_radius_m says. Only the shape counts: a line is subtracted, so that the edge is level at the origin.
    """
    tilt_deg: float = 0.0
    """Angle about x by which the blade is turned in its holder [degrees]: positive lowers the +z end."""

    def __post_init__(self) -> None:
        for name in ("spine_m", "edge_m", "height_m", "tip_m", "length_m"):
            value = getattr(self, name)
            if not (value > 0.0 and isfinite(value)):
                raise InputError(f"knife: {name} is {value}. It must be > 0 m. Measure the blade.")
        if self.edge_m > self.spine_m or self.tip_m >= self.height_m:
            raise InputError(
                f"knife: edge {self.edge_m} m, spine {self.spine_m} m, tip {self.tip_m} m, height {self.height_m} m. "
                "The section must be convex: edge <= spine and tip < height. Correct the dimensions."
            )
        if not abs(self.tilt_deg) <= _LARGEST_TILT_DEG:
            raise InputError(
                f"knife: tilt_deg is {self.tilt_deg}. It must be at most {_LARGEST_TILT_DEG:g} degrees. Measure the "
                "angle between the edge in the middle of the blade and the stroke."
            )
        object.__setattr__(self, "edge_curve", _pairs(self.edge_curve))
        if self.belly_radius_m is not None or self.edge_curve:
            ends = self.edge_height_m(np.array([-0.5, 0.5]) * self.length_m)
            if ends.max() + self.tip_m >= self.height_m:
                raise InputError(
                    f"knife: the edge rises by {ends.max():.4g} m, the blade is {self.height_m:g} m high. The edge "
                    "must stay below the spine. Correct the curve or height_m."
                )

    @property
    def tilt_rad(self) -> float:
        """Angle by which the blade is turned in its holder [rad]."""
        return radians(self.tilt_deg)

    def edge_height_m(self, z: np.ndarray) -> np.ndarray:
        """Return the height of the edge [m] at places z along the blade [m]; beyond its ends it goes on straight."""
        curve, half = Polynomial([0.0, 0.0, *_edge_polynomial(self)]), 0.5 * self.length_m
        inside = np.clip(z, -half, half)
        height: np.ndarray = curve(inside) + curve.deriv()(inside) * (z - inside)
        return height

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
        s.curve = _edge_polynomial(self)
        return s


@lru_cache(maxsize=64)
def _edge_polynomial(knife: Knife) -> tuple[float, ...]:
    """Return the coefficients of z^2 to z^6 of the edge's height [m^-1 to m^-5]; zeros for a straight edge.

    The second derivative is a sum of Bernstein polynomials over the blade with coefficients >= 0, fitted to the given
    curve, so that the edge is convex.
    """
    from scipy.optimize import lsq_linear

    half = 0.5 * knife.length_m
    if knife.belly_radius_m is not None:
        if knife.edge_curve:
            raise InputError(
                "knife: belly_radius_m and edge_curve are given. Both state the edge. Give one of them."
            )
        radius = knife.belly_radius_m
        if not (isfinite(radius) and radius >= knife.length_m):
            raise InputError(
                f"knife: belly_radius_m is {radius}. It must be at least the blade's length, {knife.length_m:g} m, so "
                "that the edge stays within 30 degrees of its middle. Measure the curve again."
            )
        z = np.linspace(-half, half, 41)
        height = z**2 / (radius + np.sqrt(radius**2 - z**2))
    elif knife.edge_curve:
        z, height = _checked_curve(knife)
    else:
        return (0.0,) * (_CURVE_DEGREE - 1)
    t, basis = z / half, []
    order = _CURVE_DEGREE - 2
    for i in range(order + 1):
        bernstein = Polynomial([0.5, 0.5]) ** i * Polynomial([0.5, -0.5]) ** (order - i)
        basis.append(bernstein.integ(2))
    columns = np.stack([np.ones_like(t), t, *(one(t) for one in basis)], axis=1)
    low = np.concatenate([[-np.inf, -np.inf], np.zeros(order + 1)])
    size = max(float(np.ptp(height)), 1e-300)
    found = lsq_linear(columns, height / size, bounds=(low, np.inf), tol=1e-14, lsmr_tol=1e-14).x * size
    error = float(np.abs(columns @ found - height).max())
    if error > _CURVE_ERROR_M:
        raise InputError(
            f"knife: a smooth convex edge misses edge_curve by {1e3 * error:.2g} mm. At most {1e3 * _CURVE_ERROR_M:g} "
            "mm is allowed. Measure the curve again, or leave out a bolster or a bent tip."
        )
    curve = Polynomial(np.zeros(_CURVE_DEGREE + 1))
    for share, one in zip(found[2:], basis, strict=True):
        curve = curve + float(share) * one
    # integrals start at 0, so that height and slope in the middle are zero
    return tuple(float(c) / half**power for power, c in enumerate(curve.coef))[2:]


def _checked_curve(knife: Knife) -> tuple[np.ndarray, np.ndarray]:
    """Return places and heights [m] of the edge curve."""
    z, height = np.array(knife.edge_curve, float).reshape(-1, 2).T
    half = 0.5 * knife.length_m
    steps = np.diff(z)
    if len(z) < 3 or not (np.isfinite(height).all() and (steps > 0.0).all()):
        raise InputError(
            f"knife: edge_curve has {len(z)} points. It needs at least 3, finite, with increasing place along the "
            "blade. Correct the table."
        )
    if z[0] > -0.95 * half or z[-1] < 0.95 * half or np.abs(z).max() > 1.05 * half:
        raise InputError(
            f"knife: edge_curve runs from {z[0]:g} to {z[-1]:g} m. It must reach from end to end of the blade, "
            f"{-half:g} to {half:g} m. Measure it from the middle of the blade."
        )
    slope = np.diff(height) / steps
    above = np.diff(slope) * steps[1:] * steps[:-1] / (steps[1:] + steps[:-1])
    if (above < -_BENT_M).any():
        worst = int(above.argmin()) + 1
        raise InputError(
            f"knife: edge_curve is not convex: at {z[worst]:g} m the edge lies {-1e3 * above[worst - 1]:.2g} mm above "
            "the line through its neighbours. The edge must be straight or curved outwards. Correct the table."
        )
    level = np.tan(radians(_LARGEST_TILT_DEG))
    if np.ptp(slope) > level:
        raise InputError(
            f"knife: the slope of edge_curve changes by {np.ptp(slope):.2g}. It may change by {level:g}. Correct the "
            "table."
        )
    return z, height


def _pairs(value: object) -> tuple[tuple[float, float], ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in value
    ):
        raise InputError(
            "knife: edge_curve is not a table. It must be a list of pairs of place along the blade and height [m]. "
            "Correct it."
        )
    return tuple((_number("edge_curve", z), _number("edge_curve", height)) for z, height in value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"knife: {name} is {value!r}. It must be a number. Correct it.")
    return float(value)


KNIVES = {
    "kitchen": Knife(),
    "slicing": Knife(length_m=254.0e-3),
    "folding": Knife(length_m=54.0e-3),
}
"""The three knives of the paper: they differ in blade length only."""

_BEVEL_DEG = "bevel_deg"
"""Included angle of the small wedge at the edge [degrees], as set on a sharpener; alternative to tip_m."""


def knife_from(description: "str | Knife | Mapping[str, Any]") -> Knife:
    """Return a knife by its name in KNIVES, or from measured dimensions.

    Dimensions [m]: length_m, height_m, spine_m, edge_m and, for the small wedge at the edge, tip_m (its height) or
    bevel_deg (its included angle [degrees]). Missing dimensions are those of the kitchen knife. The edge may be curved
    (belly_radius_m [m], or edge_curve, a table of places and heights [m]), and the blade tilted (tilt_deg [degrees]).
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
    given: dict[str, Any] = {
        name: value if name == "edge_curve" else _number(name, value) for name, value in description.items()
    }
    bevel = given.pop(_BEVEL_DEG, None)
    if bevel is not None:
        if "tip_m" in given or not 0.0 < bevel < 180.0:
            raise InputError(
                f"knife: {_BEVEL_DEG} is {bevel}{' beside tip_m' if 'tip_m' in given else ''}. It must be between 0 "
                "and 180 degrees and replaces tip_m. Give one of them."
            )
        given["tip_m"] = 0.5 * given.get("edge_m", KNIVES["kitchen"].edge_m) / tan(radians(0.5 * bevel))
    return Knife(**given)


def turned(vectors: np.ndarray, pitch: float) -> np.ndarray:
    """Return vectors, shape [count, 3, ...], turned about x by the pitch [rad]: from the knife's directions to the
    cut's; by the opposite pitch, back.
    """
    if pitch == 0.0:
        return vectors
    c, s, out = np.cos(pitch), np.sin(pitch), vectors.copy()
    out[:, 1], out[:, 2] = c * vectors[:, 1] - s * vectors[:, 2], s * vectors[:, 1] + c * vectors[:, 2]
    return out


def across_x(vectors: np.ndarray) -> np.ndarray:
    """Return the cross products of the unit vector along x with vectors, shape [count, 3, ...].

    They are the derivatives of `turned` in the pitch.
    """
    return np.stack([np.zeros_like(vectors[:, 0]), -vectors[:, 2], vectors[:, 1]], axis=1)
