"""Exact volume fractions of the two pieces of a split tet."""

import numpy as np


def piece_fractions(s: np.ndarray, inside_count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fractions of each tet's volume inside and outside the cut [-], each of shape [k]; they add up to 1.

    Args:
        s: Coordinates of the crossings around the cut polygon, from the inside end of their edge (0) to the
            other end (1), in the order of POLYGON_EDGES, shape [k, 4]; the fourth is unused for triangles.
        inside_count: Number of inside vertices, 1 to 3, shape [k].

    A corner is the whole tet with its three edges shortened: the product of three coordinates. The wedge at
    two inside vertices a, b with crossings ac, ad, bd, bc is three tets that share a: (b, bc, bd), (ac, ad,
    bd) and (ac, bd, bc). All terms are positive, so nothing cancels, and small corners are exact.
    """
    first, second, third, fourth = s.T
    corner = first * second * third
    wedge = fourth * third + first * second * (1.0 - third) + first * third * (1.0 - fourth)
    other_corner = (1.0 - first) * (1.0 - second) * (1.0 - third)
    one, two = inside_count == 1, inside_count == 2
    inside = np.select([one, two], [corner, wedge], 1.0 - other_corner)
    outside = np.select([one, two], [1.0 - corner, 1.0 - wedge], other_corner)
    return inside, outside
