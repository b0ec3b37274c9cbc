"""The virtual node algorithm, once it is known where the surface crosses which edge."""

import numpy as np

from disect_sim.cut_mesh import CutMesh
from disect_sim.virtual_nodes.checks import check_faces, check_manifold, check_two_pieces
from disect_sim.virtual_nodes.copies import duplicate_tets
from disect_sim.virtual_nodes.fractions import piece_fractions
from disect_sim.virtual_nodes.piece_order import order_pieces
from disect_sim.virtual_nodes.snapping import keep_off_ends, tet_edges
from disect_sim.virtual_nodes.springs import cut_polygons, join_sides
from disect_sim.virtual_nodes.topology import FacePairs, outer_faces, pair_faces


def split_mesh(
    nodes: np.ndarray,
    tets: np.ndarray,
    *,
    side: np.ndarray,
    crossed: np.ndarray,
    coordinate: np.ndarray,
    axes: np.ndarray,
    snap_tolerance_fraction: float,
) -> CutMesh:
    """Cut a tet mesh whose crossed edges are known.

    Args:
        nodes: Vertex positions [m], shape [n, 3].
        tets: Vertex indices, positively oriented, shape [m, 4].
        side: Side of each vertex, +1 or -1, shape [n].
        crossed: All edges between the sides, as (end on +1, end on -1), shape [c, 2].
        coordinate: Where the surface crosses them, from the end on +1 (0) to the end on -1 (1), shape [c].
        axes: Unit vectors along which spring positions are measured on the cut surface [-], shape [2, 3].
        snap_tolerance_fraction: Crossings are kept this fraction of the edge away from its ends [-].
    """
    pairs = pair_faces(tets)
    check_faces(pairs)
    copies = duplicate_tets(tets, side, pairs)
    check_two_pieces(copies.piece_count)

    kept = keep_off_ends(coordinate, snap_tolerance_fraction)
    near_end = crossed[np.arange(len(crossed)), (coordinate > 0.5).astype(int)]
    snapped = np.unique(near_end[kept != coordinate])
    points = (1.0 - kept)[:, None] * nodes[crossed[:, 0]] + kept[:, None] * nodes[crossed[:, 1]]

    cut_tets = np.flatnonzero((copies.copy_of >= 0).all(axis=0))
    pieces = order_pieces(tets[cut_tets], side[tets[cut_tets]] > 0)
    polygons = cut_polygons(tets[cut_tets], pieces, crossed)
    positive, negative = piece_fractions(kept[polygons.crossing], pieces.inside_count)
    positive_copy, negative_copy = copies.copy_of[:, cut_tets]
    fraction = np.ones(len(copies.tets))
    fraction[positive_copy], fraction[negative_copy] = positive, negative

    springs = join_sides(polygons, copies.tets[positive_copy], copies.tets[negative_copy], points)
    count = len(springs.area)
    spring_kept = kept[springs.crossing]
    cut = CutMesh(
        nodes=nodes[copies.node_original],
        node_original=copies.node_original.astype(np.int32),
        node_ghost=copies.node_ghost,
        tets=copies.tets.astype(np.int32),
        tet_fraction=fraction,
        tet_side=copies.tet_side,
        tet_original=copies.tet_original.astype(np.int32),
        virtual_parents=np.concatenate([springs.parents[:, :2], springs.parents[:, 2:]]).astype(np.int32),
        virtual_coordinate=np.concatenate([spring_kept, 1.0 - spring_kept]),
        virtual_side=np.repeat(np.array([1, -1], np.int8), count),
        spring_virtual=np.stack([np.arange(count), count + np.arange(count)], axis=1).astype(np.int32),
        spring_position=points[springs.crossing] @ axes.T,
        spring_area=springs.area,
        spring_surface=on_outer_surface(tets, pairs, crossed)[springs.crossing],
        snapped_vertices=len(snapped),
    )
    cut.check()
    check_manifold(cut)
    return cut


def on_outer_surface(tets: np.ndarray, pairs: FacePairs, crossed: np.ndarray) -> np.ndarray:
    """Which crossed edges (shape [c, 2]) lie on the outer surface of the mesh, shape [c], bool."""
    # tet_edges wants four corners: repeating one only adds edges from a vertex to itself.
    outer_edges = tet_edges(outer_faces(tets, pairs)[:, [0, 1, 2, 0]])
    stride = int(tets.max()) + 1
    low, high = crossed.min(axis=1).astype(np.int64), crossed.max(axis=1)
    return np.isin(low * stride + high, outer_edges[:, 0] * stride + outer_edges[:, 1])
