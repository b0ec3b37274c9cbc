"""A neck in a body: the mark of two fruits that touch and were scanned as one."""

import numpy as np
from numpy.typing import NDArray

from stages.shared.surface.triangles import Surface

SLICES = 60
"""Planes across the longest axis; the neck between two fruits of 70 mm is wider than their distance."""
NECK = 0.5
"""Area of the neck over that of the thinner side of it. Pears stay above 0.9, two spheres that touch are below 0.3."""

PART_OF_BODY = 0.25
"""Of the largest cross-section: what is thinner everywhere beyond a neck is a stem or a tip."""


def neck_warning(surface: Surface) -> str | None:
    """A sentence if the body has a neck; None for a body that swells and shrinks once along its longest axis."""
    ratio = neck_ratio(surface)
    if ratio >= NECK:
        return None
    return (
        f"The body has a neck with {ratio:.0%} of the cross-section beside it, as two fruits have that touch. One scan "
        "must show one fruit. Look at clean/preview.png; if there are two, part them and scan one."
    )


def neck_ratio(surface: Surface) -> float:
    """The narrowest cross-section between two wider ones, over the smaller of these; 1 if there is no neck."""
    areas = cross_sections(surface)
    left = np.maximum.accumulate(areas)
    right = np.maximum.accumulate(areas[::-1])[::-1]
    beside = np.minimum(left, right)
    is_body = beside >= PART_OF_BODY * areas.max()
    return float((areas[is_body] / beside[is_body]).min())


def cross_sections(surface: Surface) -> NDArray[np.float64]:
    """Areas [m2] of cuts across the longest axis, evenly spaced, without the two ends."""
    centred = surface.vertices - surface.vertices.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    if np.linalg.det(axes) < 0.0:
        axes[2] = -axes[2]
    corners = (centred @ axes.T)[surface.faces]
    low, high = corners[..., 0].min(), corners[..., 0].max()
    heights = np.linspace(low, high, SLICES + 2)[1:-1]
    return np.array([_area(corners, height) for height in heights])


def _area(corners: NDArray[np.float64], height: float) -> float:
    """Area of a closed surface's cut: half the sum of cross products over the segments, as oriented by the faces.

    Args:
        corners: Triangles, shape [face_count, 3, 3]; the plane is where the first coordinate is `height`.
        height: Of the plane.
    """
    above = corners[..., 0] > height
    alone = above.sum(axis=1)
    crossed = (alone == 1) | (alone == 2)
    triangles, above = corners[crossed], above[crossed]
    odd = np.argmax(above == (alone[crossed] == 1)[:, None], axis=1)  # the corner that is alone on its side
    rows = np.arange(len(triangles))
    apex, after, before = (triangles[rows, (odd + step) % 3] for step in (0, 1, 2))
    first, second = (_crossing(apex, other, height) for other in (after, before))
    sign = np.where(above[rows, odd], 1.0, -1.0)
    twice = sign * (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    return abs(float(twice.sum())) / 2.0


def _crossing(start: NDArray[np.float64], end: NDArray[np.float64], height: float) -> NDArray[np.float64]:
    """The other two coordinates where the edges from start to end meet the plane."""
    share = (height - start[:, 0]) / (end[:, 0] - start[:, 0])
    crossing: NDArray[np.float64] = start[:, 1:] + share[:, None] * (end[:, 1:] - start[:, 1:])
    return crossing
