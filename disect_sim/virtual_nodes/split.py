"""The virtual node algorithm for given crossings: sides, copies, volume fractions, half-bodies and checks."""

from dataclasses import dataclass

import numpy as np

from disect_sim.cut_mesh import CutMesh, tet_volumes
from disect_sim.outcome import InputError
from disect_sim.virtual_nodes.springs import POLYGON_EDGES, cut_polygons, join_sides, order_pieces
from disect_sim.virtual_nodes.topology import (
    LOCAL_EDGES,
    LOCAL_FACES,
    FacePairs,
    component_labels,
    outer_faces,
    pair_faces,
    pinched_edges,
    pinched_vertices,
)

# Sides of the vertices, and crossings kept away from vertices


def tet_edges(tets: np.ndarray) -> np.ndarray:
    """Return all edges of the tets (shape [m, 4]), each once, ends ascending, shape [e, 2]."""
    ends = np.sort(tets[:, LOCAL_EDGES].reshape(-1, 2), axis=1).astype(np.int64)
    stride = int(ends.max()) + 1
    key = np.unique(ends[:, 0] * stride + ends[:, 1])
    return np.stack(np.divmod(key, stride), axis=1)


def longest_edges(nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the length of the longest edge (of edges, shape [e, 2]) at each vertex [m], shape [n].

    0 if it has none.
    """
    length = np.linalg.norm(nodes[edges[:, 0]] - nodes[edges[:, 1]], axis=1)
    longest = np.zeros(len(nodes))
    np.maximum.at(longest, edges.ravel(), np.repeat(length, 2))
    return longest


def vertex_sides(
    nodes: np.ndarray, edges: np.ndarray, distance: np.ndarray, *, snap_tolerance_fraction: float
) -> np.ndarray:
    """Return the side of each vertex, +1 or -1, shape [n], int8, from its signed distance to the surface [m], shape
    [n].

    A vertex nearer than the tolerance (a fraction of its mean edge length) is assigned to the side of its neighbours
    that are not near, if these agree: so a face of the body that lies in the surface does not become a flake. If they
    do not agree it keeps the sign of its distance, and 0 counts as +1.
    """
    length = np.linalg.norm(nodes[edges[:, 0]] - nodes[edges[:, 1]], axis=1)
    ends, count = edges.ravel(), len(nodes)
    degree = np.bincount(ends, minlength=count)
    mean_length = np.bincount(ends, np.repeat(length, 2), minlength=count) / np.maximum(degree, 1)
    near = np.abs(distance) < snap_tolerance_fraction * mean_length

    sign = np.where(distance >= 0.0, 1, -1)
    vote = np.where(near, 0, sign)
    other_end = edges[:, ::-1].ravel()
    positive = np.bincount(ends, vote[other_end] > 0, minlength=count) > 0
    negative = np.bincount(ends, vote[other_end] < 0, minlength=count) > 0
    side = np.where(near & (positive != negative), np.where(positive, 1, -1), sign)
    return side.astype(np.int8)


def crossed_edges(edges: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return the edges whose ends are on different sides, as (end on +1, end on -1), shape [c, 2]."""
    ends = edges[side[edges[:, 0]] != side[edges[:, 1]]]
    return np.where(side[ends[:, :1]] > 0, ends, ends[:, ::-1])


def _keep_off_ends(coordinate: np.ndarray, snap_tolerance_fraction: float) -> np.ndarray:
    """Move crossing coordinates [-], shape [c], away from the ends of their edge, to the tolerance.

    Vertices stay in place, so volume and outer area do not change; only the point where the edge is split moves, by at
    most the tolerance. No piece of an edge, hence no material fraction, then becomes arbitrarily small.
    """
    return np.clip(coordinate, snap_tolerance_fraction, 1.0 - snap_tolerance_fraction)


# Exact volume fractions of the two pieces of a split tet


def _piece_fractions(s: np.ndarray, inside_count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the fractions of each tet's volume inside and outside the cut [-], each of shape [k]; they add up to 1.

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


# Duplicate the crossed tets; determine which copies share which nodes


_SIDES = (1, -1)


@dataclass(frozen=True)
class _Copies:
    """One copy per tet and side that has material in it: all of side +1 first, each in input order."""

    tets: np.ndarray
    """Node indices, shape [m, 4]."""
    tet_side: np.ndarray
    """+1 or -1, shape [m], int8."""
    tet_original: np.ndarray
    """Input tet, shape [m]."""
    node_original: np.ndarray
    """Input vertex, shape [n]; real nodes first, in input order, then ghosts."""
    node_ghost: np.ndarray
    """True where the vertex is on the other side from the copies that use the node, shape [n], bool."""
    copy_of: np.ndarray
    """Copy of each input tet on side +1 (row 0) and side -1 (row 1), -1 if none, shape [2, input tets]."""
    piece_count: np.ndarray
    """Number of connected pieces of material on side +1 and -1, shape [2]."""


def _duplicate_tets(tets: np.ndarray, side: np.ndarray, pairs: FacePairs) -> _Copies:
    """Copy every tet (shape [k, 4]) to each side (+1 or -1 per vertex) on which it has a vertex.

    Neighbouring copies share the three nodes of their common face if material of their side touches that face. Sharing
    is transitive, so a vertex that two unconnected pieces of material surround gets a ghost for each (Sifakis et al.
    2007). Real vertices of a body that only touches itself at a vertex are separated the same way.
    """
    has_side = np.stack([(side[tets] == s).any(axis=1) for s in _SIDES])
    owner = np.concatenate([np.flatnonzero(row) for row in has_side])
    count = has_side.sum(axis=1)
    copy_side = np.repeat(np.array(_SIDES, np.int8), count)
    copy_of = np.full(has_side.shape, -1)
    copy_of[has_side] = np.arange(count.sum())

    slots, joined = _shared_slots(tets, side, pairs, copy_of)
    piece_total, piece = component_labels(len(owner), joined)
    piece_side = np.empty(piece_total, np.int8)
    piece_side[piece] = copy_side

    number, label = component_labels(4 * len(owner), slots)
    original, ghost = np.empty(number, np.int64), np.empty(number, bool)
    original[label] = tets[owner].ravel()
    ghost[label] = (side[tets[owner]] != copy_side[:, None]).ravel()
    node_order = np.lexsort((original, ghost))
    rank = np.empty(number, np.int64)
    rank[node_order] = np.arange(number)
    return _Copies(
        tets=rank[label].reshape(-1, 4),
        tet_side=copy_side,
        tet_original=owner,
        node_original=original[node_order],
        node_ghost=ghost[node_order],
        copy_of=copy_of,
        piece_count=np.array([(piece_side == s).sum() for s in _SIDES]),
    )


def _shared_slots(
    tets: np.ndarray, side: np.ndarray, pairs: FacePairs, copy_of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of slots (4 * copy + local vertex) that are one node, and pairs of copies with joined material."""
    tet, local_face = np.divmod(pairs.inner, 4)
    local = LOCAL_FACES[local_face]
    vertices = np.take_along_axis(tets[tet], local, axis=2)
    by_id = np.argsort(vertices, axis=2)
    local = np.take_along_axis(local, by_id, axis=2)
    slots, joined = [], []
    for row, s in enumerate(_SIDES):
        touches = (side[vertices[:, 0]] == s).any(axis=1)
        copy = copy_of[row][tet[touches]]
        slots.append((4 * copy[:, :, None] + local[touches]).transpose(0, 2, 1).reshape(-1, 2))
        joined.append(copy)
    return np.concatenate(slots), np.concatenate(joined)


# Half-bodies as closed triangle meshes


@dataclass(frozen=True)
class HalfBody:
    """Closed, outward oriented surface of the material on one side of the cut."""

    vertices: np.ndarray
    """Vertex positions [m], shape [v, 3]."""
    faces: np.ndarray
    """Vertex indices of the triangles, shape [f, 3], int32."""
    face_on_cut: np.ndarray
    """True for triangles of the cut surface, False for the outer surface, shape [f], bool."""

    def volume(self) -> float:
        """Return the enclosed volume [m³]."""
        centred = self.vertices - self.vertices.mean(axis=0)
        a, b, c = (centred[self.faces[:, i]] for i in range(3))
        return float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6.0)

    def areas(self) -> np.ndarray:
        """Return the triangle areas [m²], shape [f]."""
        a, b, c = (self.vertices[self.faces[:, i]] for i in range(3))
        return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)


def half_body(cut: CutMesh, side: int) -> HalfBody:
    """Return the surface of the material on one side (+1 or -1) of a cut mesh, split at the virtual nodes."""
    tets = cut.tets[cut.tet_side == side].astype(np.int64)
    split = _EdgeSplits(cut, side)
    outer = _outer_faces(cut, tets, split)
    on_cut = _cut_faces(cut, tets, split)
    faces = np.concatenate([outer, on_cut])
    used, compact = np.unique(faces, return_inverse=True)
    return HalfBody(
        vertices=np.concatenate([cut.nodes, cut.virtual_positions()])[used],
        faces=compact.reshape(-1, 3).astype(np.int32),
        face_on_cut=np.arange(len(faces)) >= len(outer),
    )


class _EdgeSplits:
    """Finds the virtual node on an edge (real node, ghost node); points are nodes, then virtual nodes."""

    def __init__(self, cut: CutMesh, side: int) -> None:
        self._count = len(cut.nodes)
        self._virtual = np.flatnonzero(cut.virtual_side == side)
        key = self._key(cut.virtual_parents[self._virtual, 0], cut.virtual_parents[self._virtual, 1])
        order = np.argsort(key)
        self._virtual, self._sorted_key = self._virtual[order], key[order]

    def _key(self, real: np.ndarray, ghost: np.ndarray) -> np.ndarray:
        return real.astype(np.int64) * self._count + ghost

    def __call__(self, real: np.ndarray, ghost: np.ndarray) -> np.ndarray:
        """Return the point index of the virtual node between real and ghost nodes (arrays of equal shape)."""
        return self._count + self._virtual[np.searchsorted(self._sorted_key, self._key(real, ghost))]


def _outer_faces(cut: CutMesh, tets: np.ndarray, split: _EdgeSplits) -> np.ndarray:
    """Return the material part of the outer faces, triangulated, shape [f, 3]."""
    faces = outer_faces(tets)
    ghost = cut.node_ghost[faces]
    ghosts = ghost.sum(axis=1)
    whole = faces[ghosts == 0]

    # Two ghosts: rotate so that the real vertex comes first. One ghost: so that the ghost comes last.
    a, g, h = _rotate(faces[ghosts == 2], np.argmin(ghost[ghosts == 2], axis=1)).T
    corner = np.stack([a, split(a, g), split(a, h)], axis=1)
    a, b, g = _rotate(faces[ghosts == 1], np.argmax(ghost[ghosts == 1], axis=1) + 1).T
    on_a, on_b = split(a, g), split(b, g)
    return np.concatenate([whole, corner, np.stack([a, b, on_b], axis=1), np.stack([a, on_b, on_a], axis=1)])


def _rotate(faces: np.ndarray, first: np.ndarray) -> np.ndarray:
    return np.take_along_axis(faces, (first[:, None] + np.arange(3)) % 3, axis=1)


def _cut_faces(cut: CutMesh, tets: np.ndarray, split: _EdgeSplits) -> np.ndarray:
    """Return the cut polygons of the crossed tets, triangulated along their canonical diagonal, shape [f, 3]."""
    ghost = cut.node_ghost[tets]
    crossed = ghost.any(axis=1)
    tets, real = tets[crossed], ~ghost[crossed]
    pieces = order_pieces(cut.node_original[tets], real)
    ordered = np.take_along_axis(tets, pieces.order, axis=1)
    triangles = []
    for real_count, edges in POLYGON_EDGES.items():
        rows = pieces.inside_count == real_count
        ends = ordered[rows][:, edges]
        ring = split(ends[..., 0], ends[..., 1])
        ring = np.where(pieces.even[rows][:, None], ring, ring[:, [0, *range(len(edges) - 1, 0, -1)]])
        triangles += [ring[:, [0, i, i + 1]] for i in range(1, len(edges) - 1)]
    return np.concatenate(triangles)


# Checks of input and output


_MIN_SNAP_FRACTION, _MAX_SNAP_FRACTION = 1e-4, 0.2
"""Range of the snap tolerance [-]: below, fractions (its cube) vanish in rounding; above, the cut is ragged."""
_SIDE_NAMES = ("positive", "negative")


def check_tet_mesh(nodes: np.ndarray, tets: np.ndarray) -> None:
    """Reject node positions [m], shape [n, 3], and tets, shape [m, 4], that are not a valid tet mesh."""
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


def _check_faces(pairs: FacePairs) -> None:
    """Reject a mesh in which more than two tets share a face."""
    if pairs.crowded:
        raise InputError(
            f"precut: {pairs.crowded} faces are shared by more than two tets. Tets must not overlap. "
            "Run tetrahedralize again."
        )


def check_snap_tolerance(snap_tolerance_fraction: float) -> None:
    """Reject a snap tolerance at which fractions vanish or the cut is ragged."""
    if not _MIN_SNAP_FRACTION <= snap_tolerance_fraction <= _MAX_SNAP_FRACTION:
        raise InputError(
            f"precut.snap_tolerance_fraction is {snap_tolerance_fraction:g}. It must be between "
            f"{_MIN_SNAP_FRACTION:g} and {_MAX_SNAP_FRACTION:g} of an edge. Use 0.01."
        )


def check_both_sides_hit(side: np.ndarray, distance: np.ndarray) -> None:
    """Reject a surface with the whole body on one side; side and signed distance [m] have shape [n]."""
    if (side > 0).all() or (side < 0).all():
        where = "positive" if (side > 0).all() else "negative"
        raise InputError(
            f"precut: the cutting surface misses the body: all {len(side)} vertices are on its {where} side, "
            f"the nearest {np.abs(distance).min():.3g} m away. It must pass through the body. Move the "
            "surface (precut.plane_point_m or the surface file) or shift the scan (clean.cut_offset_m)."
        )


def _check_two_pieces(piece_count: np.ndarray) -> None:
    """Reject a cut that does not leave exactly one piece on each side; piece_count has shape [2]."""
    if (piece_count != 1).any():
        counts = " and ".join(
            f"{n} on the {name} side" for n, name in zip(piece_count, _SIDE_NAMES, strict=True)
        )
        raise InputError(
            f"precut: the cut leaves {piece_count.sum()} pieces ({counts}). It must leave two, one on each "
            "side. Move or tilt the cutting surface, or clean the scan so that the body is one piece."
        )


def _check_manifold(cut: CutMesh) -> None:
    """Reject a cut mesh if a half-body is not a closed manifold surface."""
    for side, name in zip((1, -1), _SIDE_NAMES, strict=True):
        faces = half_body(cut, side).faces
        edges = pinched_edges(faces)
        vertices = pinched_vertices(faces) if not len(edges) else edges[:0, 0]
        if len(edges) or len(vertices):
            raise InputError(
                f"precut: the half-body on the {name} side touches itself at {len(edges)} edges and "
                f"{len(vertices)} vertices. Both halves must be manifold. Remesh with another edge_m, or "
                "smooth the scan more."
            )


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
    """Cut a tet mesh at given crossed edges.

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
    _check_faces(pairs)
    copies = _duplicate_tets(tets, side, pairs)
    _check_two_pieces(copies.piece_count)

    kept = _keep_off_ends(coordinate, snap_tolerance_fraction)
    near_end = crossed[np.arange(len(crossed)), (coordinate > 0.5).astype(int)]
    snapped = np.unique(near_end[kept != coordinate])
    points = (1.0 - kept)[:, None] * nodes[crossed[:, 0]] + kept[:, None] * nodes[crossed[:, 1]]

    cut_tets = np.flatnonzero((copies.copy_of >= 0).all(axis=0))
    pieces = order_pieces(tets[cut_tets], side[tets[cut_tets]] > 0)
    polygons = cut_polygons(tets[cut_tets], pieces, crossed)
    positive, negative = _piece_fractions(kept[polygons.crossing], pieces.inside_count)
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
        spring_surface=_on_outer_surface(tets, pairs, crossed)[springs.crossing],
        snapped_vertices=len(snapped),
    )
    cut.check()
    _check_manifold(cut)
    return cut


def _on_outer_surface(tets: np.ndarray, pairs: FacePairs, crossed: np.ndarray) -> np.ndarray:
    """Return True for crossed edges (shape [c, 2]) on the outer surface of the mesh, shape [c], bool."""
    # tet_edges needs four corners: repeating one only adds edges from a vertex to itself.
    outer_edges = tet_edges(outer_faces(tets, pairs)[:, [0, 1, 2, 0]])
    stride = int(tets.max()) + 1
    low, high = crossed.min(axis=1).astype(np.int64), crossed.max(axis=1)
    return np.isin(low * stride + high, outer_edges[:, 0] * stride + outer_edges[:, 1])
