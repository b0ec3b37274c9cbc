"""Which of the connected pieces of a scan are the fruit."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.clean.topology import crack_width, weld_close_vertices
from stages.shared.surface.triangles import Surface, face_areas, face_components, is_closed, subset

INSIDE_SAMPLES = 16
"""Vertices of a piece that are tested for lying inside the main piece."""
LARGEST_TESTED = 20
"""Pieces that are tested for lying inside; smaller ones are dropped anyway, so it does not matter where
they are."""


@dataclass(frozen=True)
class Pieces:
    """The fruit and what was thrown away."""

    fruit: Surface
    components: int
    """Connected pieces in the scan."""
    small: int
    """Pieces removed because their area is below the limit."""
    hidden: int
    """Pieces removed because they lie inside the main piece."""
    removed: Surface
    """All removed pieces."""


def keep_fruit(surface: Surface, *, min_component_fraction: float) -> Pieces:
    """Keep the piece of the largest area and the open patches that belong to it.

    Args:
        surface: merged surface of all pieces.
        min_component_fraction: pieces with less than this fraction of the largest piece's area are stray.
    """
    # Welded for the count only: faces with hairline cracks between them are one piece.
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
        piece = subset(surface, label == other) if rank < LARGEST_TESTED or not too_small else None
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
    return Pieces(subset(surface, kept), len(area), small, hidden, subset(surface, ~kept))


def drop_fragments(surface: Surface, *, min_component_fraction: float) -> Surface:
    """Without pieces of less than this fraction of the largest piece's area, such as fins cut off the
    surface."""
    label = face_components(surface.faces, len(surface.vertices))
    area = np.bincount(label, weights=face_areas(surface))
    return subset(surface, (area >= min_component_fraction * area.max())[label])


def winding_number(points: NDArray[np.float64], surface: Surface) -> NDArray[np.float64]:
    """How often the surface winds around each point [-], shape [point_count]: 1 inside, 0 outside, between
    if open."""
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
    step = max(1, len(piece.vertices) // INSIDE_SAMPLES)
    return bool(np.mean(np.abs(winding_number(piece.vertices[::step], main)) > 0.5) > 0.5)
