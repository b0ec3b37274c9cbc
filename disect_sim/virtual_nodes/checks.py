"""What the algorithm asks of its input, and what it promises of its output."""

import numpy as np

from disect_sim.cut_mesh import CutMesh, tet_volumes
from disect_sim.errors import InputError
from disect_sim.virtual_nodes.half_bodies import half_body
from disect_sim.virtual_nodes.topology import FacePairs, pinched_edges, pinched_vertices

MIN_SNAP_FRACTION, MAX_SNAP_FRACTION = 1e-4, 0.2
"""Range of the snap tolerance [-]: fractions (its cube) vanish in rounding below, the cut is ragged above."""
SIDE_NAMES = ("positive", "negative")


def check_tet_mesh(nodes: np.ndarray, tets: np.ndarray) -> None:
    """Refuse node positions [m], shape [n, 3], and tets, shape [m, 4], that are no tetrahedral mesh."""
    if nodes.ndim != 2 or nodes.shape[1] != 3 or tets.ndim != 2 or tets.shape[1] != 4 or not len(tets):
        raise InputError(
            f"precut: nodes have shape {nodes.shape} and tets {tets.shape}. They must be [n, 3] and [m, 4] "
            "with at least one tet. Run tetrahedralize again."
        )
    if not np.isfinite(nodes).all():
        bad = np.flatnonzero(~np.isfinite(nodes).all(axis=1))
        raise InputError(
            f"precut: {len(bad)} nodes are not finite (first id {bad[0]}). Positions must be numbers in "
            "metres. Run tetrahedralize again."
        )
    if tets.min() < 0 or tets.max() >= len(nodes):
        raise InputError(
            f"precut: tets point to nodes {tets.min()} … {tets.max()}, but there are {len(nodes)} nodes. "
            "Run tetrahedralize again."
        )
    inverted = np.flatnonzero(tet_volumes(nodes, tets) <= 0.0)
    if len(inverted):
        listed = ", ".join(map(str, inverted[:5]))
        raise InputError(
            f"precut: {len(inverted)} of {len(tets)} tets are flat or inverted (ids {listed}). Volume must "
            "be > 0. Lower edge_m in tetrahedralize or repair the scan."
        )


def check_faces(pairs: FacePairs) -> None:
    """Refuse a mesh in which more than two tets share a face."""
    if pairs.crowded:
        raise InputError(
            f"precut: {pairs.crowded} faces are shared by more than two tets. Tets must not overlap. "
            "Run tetrahedralize again."
        )


def check_snap_tolerance(snap_tolerance_fraction: float) -> None:
    """Refuse a snap tolerance that would make fractions vanish or the cut ragged."""
    if not MIN_SNAP_FRACTION <= snap_tolerance_fraction <= MAX_SNAP_FRACTION:
        raise InputError(
            f"precut.snap_tolerance_fraction is {snap_tolerance_fraction:g}. It must be between "
            f"{MIN_SNAP_FRACTION:g} and {MAX_SNAP_FRACTION:g} of an edge. Use 0.01."
        )


def check_both_sides_hit(side: np.ndarray, distance: np.ndarray) -> None:
    """Refuse a surface with the whole body on one side; side and signed distance [m] have shape [n]."""
    if (side > 0).all() or (side < 0).all():
        where = "positive" if (side > 0).all() else "negative"
        raise InputError(
            f"precut: the cutting surface misses the body: all {len(side)} vertices are on its {where} side, "
            f"the nearest {np.abs(distance).min():.3g} m away. It must pass through the body. Move the "
            "surface (precut.plane_point_m or the surface file) or shift the scan (clean.cut_offset_m)."
        )


def check_two_pieces(piece_count: np.ndarray) -> None:
    """Refuse a cut that does not leave exactly one piece on each side; piece_count has shape [2]."""
    if (piece_count != 1).any():
        counts = " and ".join(
            f"{n} on the {name} side" for n, name in zip(piece_count, SIDE_NAMES, strict=True)
        )
        raise InputError(
            f"precut: the cut leaves {piece_count.sum()} pieces ({counts}). It must leave two, one on each "
            "side. Move or tilt the cutting surface, or clean the scan so that the body is one piece."
        )


def check_manifold(cut: CutMesh) -> None:
    """Refuse a cut mesh of which a half-body is not a closed manifold surface."""
    for side, name in zip((1, -1), SIDE_NAMES, strict=True):
        faces = half_body(cut, side).faces
        edges = pinched_edges(faces)
        vertices = pinched_vertices(faces) if not len(edges) else edges[:0, 0]
        if len(edges) or len(vertices):
            raise InputError(
                f"precut: the half-body on the {name} side touches itself at {len(edges)} edges and "
                f"{len(vertices)} vertices. Both halves must be manifold. Remesh with another edge_m, or "
                "smooth the scan more."
            )
