"""Connected pieces of a scan: find the fruit, and detect a neck between two touching fruits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.clean.topology import crack_width, weld_close_vertices
from stages.runtime.errors import InputError
from stages.shared.surface import Surface, face_areas, face_components, is_closed, subset

# Neck: indicates two touching fruits scanned as one


_SLICES = 60
"""Number of planes across the longest axis; the neck between two fruits of 70 mm is wider than their distance."""
_NECK = 0.5
"""Maximum ratio of the neck's area to that of the thinner side.

Pears stay above 0.9, two touching spheres below 0.3.
"""

_PART_OF_BODY = 0.25
"""Fraction of the largest cross-section below which a part beyond a neck is a stem or a tip."""


def neck_warning(surface: Surface) -> str | None:
    """Return a warning if the body has a neck.

    None if its cross-section grows and shrinks once along the longest axis.
    """
    ratio = _neck_ratio(surface)
    if ratio >= _NECK:
        return None
    return (
        f"The body has a neck with {ratio:.0%} of the cross-section beside it, like two touching fruits. One scan "
        "must show one fruit. Look at clean/preview.png; if there are two, separate them and scan one."
    )


def _neck_ratio(surface: Surface) -> float:
    """Return the narrowest cross-section between two wider ones, divided by the smaller of these; 1 without a neck."""
    areas = _cross_sections(surface)
    before = np.maximum.accumulate(areas)
    after = np.maximum.accumulate(areas[::-1])[::-1]
    beside = np.minimum(before, after)
    is_body = beside >= _PART_OF_BODY * areas.max()
    return float((areas[is_body] / beside[is_body]).min())


def _cross_sections(surface: Surface) -> NDArray[np.float64]:
    """Return the areas [m2] of cuts across the longest axis, evenly spaced, without the two ends."""
    centred = surface.vertices - surface.vertices.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2]
    if np.linalg.det(axes) < 0.0:
        axes[2] = -axes[2]
    corners = (centred @ axes.T)[surface.faces]
    low, high = corners[..., 0].min(), corners[..., 0].max()
    heights = np.linspace(low, high, _SLICES + 2)[1:-1]
    return np.array([_area(corners, height) for height in heights])


def _area(corners: NDArray[np.float64], height: float) -> float:
    """Return the area of a closed surface's cut: half the sum of cross products over the oriented segments.

    Args:
        corners: Triangles, shape [face_count, 3, 3]; the plane is where the first coordinate is `height`.
        height: First coordinate of the plane.
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
    """Return the other two coordinates where the edges from start to end meet the plane."""
    share = (height - start[:, 0]) / (end[:, 0] - start[:, 0])
    crossing: NDArray[np.float64] = start[:, 1:] + share[:, None] * (end[:, 1:] - start[:, 1:])
    return crossing


_INSIDE_SAMPLES = 16
"""Number of vertices of a piece that are tested for lying inside the main piece."""
_LARGEST_TESTED = 20
"""Number of pieces that are tested for lying inside; smaller ones are dropped anyway."""


@dataclass(frozen=True)
class _Pieces:
    """The fruit and the removed pieces."""

    fruit: Surface
    components: int
    """Number of connected pieces in the scan."""
    small: int
    """Number of pieces removed because their area is below the limit."""
    hidden: int
    """Number of pieces removed because they lie inside the main piece."""
    removed: Surface
    """All removed pieces."""


def keep_fruit(surface: Surface, *, min_component_fraction: float) -> _Pieces:
    """Keep the piece of the largest area and the open patches that belong to it.

    Args:
        surface: merged surface of all pieces.
        min_component_fraction: pieces with less than this fraction of the largest piece's area are stray.
    """
    # Welded for the count only: faces separated by hairline cracks are one piece.
    welded = weld_close_vertices(surface, crack_width(surface))
    label = face_components(welded.faces, len(welded.vertices))
    area = np.bincount(label, weights=face_areas(surface))
    main_label = int(np.argmax(area))
    main = subset(surface, label == main_label)
    keep = np.zeros(len(area), bool)
    keep[main_label] = True
    small = hidden = 0
    for rank, other in enumerate(np.argsort(-area, kind="stable")[1:]):
        too_small = area[other] < min_component_fraction * area[main_label]
        piece = subset(surface, label == other) if rank < _LARGEST_TESTED or not too_small else None
        if piece is not None and _is_inside(piece, main):
            hidden += 1
        elif too_small or piece is None:
            small += 1
        elif is_closed(piece.faces):
            raise InputError(
                "The scan holds two separate closed bodies; the second has "
                f"{area[other] / area[main_label]:.0%} of the "
                "first one's area. One scan must be one fruit (smaller pieces than "
                "clean.min_component_fraction = "
                f"{min_component_fraction:g} are dropped). Delete the other body, or raise that fraction."
            )
        else:
            keep[other] = True
    kept = keep[label]
    return _Pieces(subset(surface, kept), len(area), small, hidden, subset(surface, ~kept))


def drop_fragments(surface: Surface, *, min_component_fraction: float) -> Surface:
    """Remove pieces with less than this fraction of the largest piece's area, such as fins cut off the surface."""
    label = face_components(surface.faces, len(surface.vertices))
    area = np.bincount(label, weights=face_areas(surface))
    return subset(surface, (area >= min_component_fraction * area.max())[label])


def _winding_number(points: NDArray[np.float64], surface: Surface) -> NDArray[np.float64]:
    """Return the winding number at each point [-], shape [point_count]: 1 inside, 0 outside, between if open."""
    numbers = np.empty(len(points))
    for i, point in enumerate(points):
        a, b, c = np.moveaxis(surface.corners - point, 1, 0)
        la, lb, lc = (np.linalg.norm(v, axis=1) for v in (a, b, c))
        triple = np.einsum("ij,ij->i", a, np.cross(b, c))
        below = (
            la * lb * lc
            + np.einsum("ij,ij->i", a, b) * lc
            + np.einsum("ij,ij->i", b, c) * la
            + np.einsum("ij,ij->i", c, a) * lb
        )
        numbers[i] = np.arctan2(triple, below).sum() / (2.0 * np.pi)
    return numbers


def _is_inside(piece: Surface, main: Surface) -> bool:
    step = max(1, len(piece.vertices) // _INSIDE_SAMPLES)
    return bool(np.mean(np.abs(_winding_number(piece.vertices[::step], main)) > 0.5) > 0.5)
