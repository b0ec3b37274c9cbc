"""Virtual nodes and springs on the crossed edges, and the tributary area of each spring."""

from dataclasses import dataclass

import numpy as np

# Canonical vertex order of a cut tet, in which every split is one of three patterns


POLYGON_EDGES = {
    1: np.array([[0, 1], [0, 2], [0, 3]]),
    2: np.array([[0, 2], [0, 3], [1, 3], [1, 2]]),
    3: np.array([[0, 3], [1, 3], [2, 3]]),
}
"""Crossed edges around the cut polygon, by the number of inside vertices, in canonical local vertices.

The polygon faces outward, from the inside vertices to the others, if the canonical order is an even permutation of a
positively oriented tet. The quadrilateral need not be flat; it is always split along its corners 0 and 2, which is the
same diagonal whichever side is called inside.
"""


@dataclass(frozen=True)
class _PieceOrder:
    """Tets reordered: inside vertices first, then the others, both by ascending id."""

    order: np.ndarray
    """Local vertex at each canonical place, shape [k, 4]."""
    inside_count: np.ndarray
    """Number of inside vertices, 1 to 3, shape [k]."""
    even: np.ndarray
    """True where the reordering is an even permutation, shape [k], bool."""


def order_pieces(ids: np.ndarray, inside: np.ndarray) -> _PieceOrder:
    """Order tets with vertex ids (shape [k, 4]) of which some vertices are inside (shape [k, 4], bool)."""
    order = np.lexsort((ids, ~inside), axis=1)
    first, second = np.triu_indices(4, k=1)
    inversions = (order[:, first] > order[:, second]).sum(axis=1)
    return _PieceOrder(order=order, inside_count=inside.sum(axis=1), even=inversions % 2 == 0)


@dataclass(frozen=True)
class _CutPolygons:
    """The polygon (triangle or quadrilateral) in which the surface cuts each crossed tet."""

    crossing: np.ndarray
    """Crossed edge at each corner, -1 at the missing fourth corner of triangles, shape [k, 4]."""
    local_edge: np.ndarray
    """Local vertices of the tet (inside end, outside end) of each corner's edge, shape [k, 4, 2]."""


def cut_polygons(tets: np.ndarray, pieces: _PieceOrder, crossed: np.ndarray) -> _CutPolygons:
    """Return the polygons of crossed tets (shape [k, 4]) on crossed edges (end on +1, end on -1; shape [c, 2])."""
    stride = int(max(tets.max(), crossed.max())) + 1
    key = crossed[:, 0].astype(np.int64) * stride + crossed[:, 1]
    order = np.argsort(key)
    crossing = np.full((len(tets), 4), -1)
    local_edge = np.zeros((len(tets), 4, 2), np.int64)
    for inside_count, edges in POLYGON_EDGES.items():
        rows = np.flatnonzero(pieces.inside_count == inside_count)
        local = pieces.order[rows][:, edges]
        ends = np.take_along_axis(tets[rows][:, None, :], local, axis=2).astype(np.int64)
        edge_index = np.searchsorted(key, ends[..., 0] * stride + ends[..., 1], sorter=order)
        crossing[rows[:, None], np.arange(len(edges))] = order[edge_index]
        local_edge[rows[:, None], np.arange(len(edges))] = local
    return _CutPolygons(crossing=crossing, local_edge=local_edge)


def triangle_areas(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the areas of triangles [m²], shape [k], from their corners [m], each of shape [k, 3]."""
    return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=-1)


def _corner_areas(polygons: _CutPolygons, points: np.ndarray) -> np.ndarray:
    """Return each corner's share of its polygon's area [m²], shape [k, 4]; points are the crossings [m], [c, 3].

    A triangle gives each corner a third (the integral of its linear hat function). A quadrilateral gives the mean over
    its two triangulations, scaled so that the shares add up to the area of the one that is used.
    """
    p0, p1, p2, p3 = (points[polygons.crossing[:, i]] for i in range(4))
    t012, t023 = triangle_areas(p0, p1, p2), triangle_areas(p0, p2, p3)
    t013, t123 = triangle_areas(p0, p1, p3), triangle_areas(p1, p2, p3)
    weight = np.stack(
        [t012 + t023 + t013, t012 + t013 + t123, t012 + t023 + t123, t023 + t013 + t123], axis=1
    )
    quad = (t012 + t023)[:, None] * weight / weight.sum(axis=1, keepdims=True)
    triangle = (t012 / 3.0)[:, None] * np.array([1.0, 1.0, 1.0, 0.0])
    return np.where(polygons.crossing[:, 3:] < 0, triangle, quad)


@dataclass(frozen=True)
class _Springs:
    """One spring per crossed edge of the cut mesh; its ends start at the same point."""

    parents: np.ndarray
    """Nodes (real on +1, ghost on +1, real on -1, ghost on -1), shape [s, 4]."""
    crossing: np.ndarray
    """Crossed edge of each spring, shape [s]."""
    area: np.ndarray
    """Tributary area [m²], shape [s]."""


def join_sides(
    polygons: _CutPolygons, positive_tets: np.ndarray, negative_tets: np.ndarray, points: np.ndarray
) -> _Springs:
    """Return the springs of crossed tets, given the nodes of their copies on both sides (each of shape [k, 4])."""
    corner = polygons.crossing >= 0
    row = np.nonzero(corner)[0]
    plus_end, minus_end = polygons.local_edge[corner].T
    parents = np.stack(
        [
            positive_tets[row, plus_end],
            positive_tets[row, minus_end],
            negative_tets[row, minus_end],
            negative_tets[row, plus_end],
        ],
        axis=1,
    )
    parents, first, inverse = np.unique(parents, axis=0, return_index=True, return_inverse=True)
    area = np.bincount(inverse.ravel(), _corner_areas(polygons, points)[corner])
    return _Springs(parents=parents, crossing=polygons.crossing[corner][first], area=area)
