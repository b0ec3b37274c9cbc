"""A canonical order of a cut tet's vertices, in which every split looks like one of three patterns."""

from dataclasses import dataclass

import numpy as np

POLYGON_EDGES = {
    1: np.array([[0, 1], [0, 2], [0, 3]]),
    2: np.array([[0, 2], [0, 3], [1, 3], [1, 2]]),
    3: np.array([[0, 3], [1, 3], [2, 3]]),
}
"""Crossed edges around the cut polygon, by the number of inside vertices, in canonical local vertices.

The polygon faces outward, from the inside vertices to the others, if the canonical order is an even
permutation of a positively oriented tet. The quadrilateral need not be flat; it is always split along its
corners 0 and 2, which is the same diagonal whichever side is called inside.
"""


@dataclass(frozen=True)
class PieceOrder:
    """Tets reordered: inside vertices first, then the others, both by ascending id."""

    order: np.ndarray
    """Local vertex at each canonical place, shape [k, 4]."""
    inside_count: np.ndarray
    """Number of inside vertices, 1 to 3, shape [k]."""
    even: np.ndarray
    """True where the reordering is an even permutation, shape [k], bool."""


def order_pieces(ids: np.ndarray, inside: np.ndarray) -> PieceOrder:
    """Order tets with vertex ids (shape [k, 4]) of which some vertices are inside (shape [k, 4], bool)."""
    order = np.lexsort((ids, ~inside), axis=1)
    first, second = np.triu_indices(4, k=1)
    inversions = (order[:, first] > order[:, second]).sum(axis=1)
    return PieceOrder(order=order, inside_count=inside.sum(axis=1), even=inversions % 2 == 0)
