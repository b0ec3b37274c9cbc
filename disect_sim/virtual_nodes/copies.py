"""Duplicate the crossed tets and decide which copies share which nodes."""

from dataclasses import dataclass

import numpy as np

from disect_sim.virtual_nodes.topology import LOCAL_FACES, FacePairs, component_labels

SIDES = (1, -1)


@dataclass(frozen=True)
class Copies:
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
    """True where the vertex is on the other side than the copies that use the node, shape [n], bool."""
    copy_of: np.ndarray
    """Copy of each input tet on side +1 (row 0) and side -1 (row 1), -1 if none, shape [2, input tets]."""
    piece_count: np.ndarray
    """Number of connected pieces of material on side +1 and -1, shape [2]."""


def duplicate_tets(tets: np.ndarray, side: np.ndarray, pairs: FacePairs) -> Copies:
    """Copy every tet (shape [k, 4]) to each side (+1 or -1 per vertex) on which it has a vertex.

    Neighbouring copies share the three nodes of their common face if material of their side touches that
    face. Sharing is transitive, so a vertex that two unconnected pieces of material surround gets a ghost
    for each (Sifakis et al. 2007). Real vertices of a body that only touches itself at a vertex are
    separated the same way.
    """
    has_side = np.stack([(side[tets] == s).any(axis=1) for s in SIDES])
    owner = np.concatenate([np.flatnonzero(row) for row in has_side])
    count = has_side.sum(axis=1)
    copy_side = np.repeat(np.array(SIDES, np.int8), count)
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
    return Copies(
        tets=rank[label].reshape(-1, 4),
        tet_side=copy_side,
        tet_original=owner,
        node_original=original[node_order],
        node_ghost=ghost[node_order],
        copy_of=copy_of,
        piece_count=np.array([(piece_side == s).sum() for s in SIDES]),
    )


def _shared_slots(
    tets: np.ndarray, side: np.ndarray, pairs: FacePairs, copy_of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of slots (4 * copy + local vertex) that are one node; pairs of copies with joined material."""
    tet, local_face = np.divmod(pairs.inner, 4)
    local = LOCAL_FACES[local_face]
    vertices = np.take_along_axis(tets[tet], local, axis=2)
    by_id = np.argsort(vertices, axis=2)
    local = np.take_along_axis(local, by_id, axis=2)
    slots, joined = [], []
    for row, s in enumerate(SIDES):
        touches = (side[vertices[:, 0]] == s).any(axis=1)
        copy = copy_of[row][tet[touches]]
        slots.append((4 * copy[:, :, None] + local[touches]).transpose(0, 2, 1).reshape(-1, 2))
        joined.append(copy)
    return np.concatenate(slots), np.concatenate(joined)
