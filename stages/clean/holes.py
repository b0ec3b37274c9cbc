"""Closing holes with a patch that continues the curvature of its surroundings."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, diags, identity
from scipy.sparse.linalg import spsolve

from stages.clean.resampling import split_long_edges
from stages.shared.surface.triangles import Surface, edge_ids, half_edges

FAIRED_LOOP_LENGTH = 8
"""Shorter holes are smaller than the mesh resolution: a flat fan is enough."""


def boundary_loops(faces: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Vertex indices around each hole, in the direction a patch must run.

    Needs an oriented surface with one fan per vertex, so that each boundary vertex lies on one loop only.
    """
    directed = half_edges(faces)
    edge_of, count = edge_ids(faces)[1:]
    border = directed[count[edge_of] == 1]
    following = {int(head): int(tail) for tail, head in border}
    loops = []
    while following:
        start, vertex = following.popitem()
        loop = [start]
        while vertex != start and vertex in following:
            loop.append(vertex)
            vertex = following.pop(vertex)
        loops.append(np.array(loop, np.int32))
    return loops


def fill_holes(surface: Surface, *, target_edge_m: float) -> tuple[Surface, int]:
    """Close every hole; returns the surface and the number of holes.

    Each hole gets a fan around its centre. The fans of large holes are refined to the target edge length
    and their
    new vertices placed where the bi-Laplacian vanishes, so the patch bulges like the fruit around it.
    """
    loops = boundary_loops(surface.faces)
    vertices, faces = [surface.vertices], [surface.faces]
    next_vertex = len(surface.vertices)
    for loop in loops:
        if len(loop) < 3:
            continue
        if len(loop) == 3:
            faces.append(loop[None, :])
            continue
        vertices.append(surface.vertices[loop].mean(axis=0)[None, :])
        hub = np.full(len(loop), next_vertex, np.int32)
        faces.append(np.column_stack([loop, np.roll(loop, -1), hub]))
        next_vertex += 1
    filled = Surface(np.concatenate(vertices), np.concatenate(faces).astype(np.int32))
    if any(len(loop) >= FAIRED_LOOP_LENGTH for loop in loops):
        filled = _fair(filled, fixed_vertices=len(surface.vertices), target_edge_m=target_edge_m)
    return filled, len(loops)


def _fair(surface: Surface, *, fixed_vertices: int, target_edge_m: float) -> Surface:
    """Refine the patches and place the vertices that came with them; the first `fixed_vertices` stay."""
    locked = np.all(surface.faces < fixed_vertices, axis=1)
    border = _edges_of(surface.faces[locked])
    refined = split_long_edges(surface, target_edge_m, locked_edges=border, flip=True)
    count = len(refined.vertices)
    free = np.arange(count) >= fixed_vertices
    if not free.any():
        return refined
    edges = edge_ids(refined.faces)[0]
    rows = np.concatenate([edges[:, 0], edges[:, 1]])
    columns = np.concatenate([edges[:, 1], edges[:, 0]])
    adjacency = coo_matrix((np.ones(len(rows)), (rows, columns)), (count, count)).tocsr()
    degree = np.asarray(adjacency.sum(axis=1)).reshape(-1)
    laplacian = identity(count, format="csr") - diags(1.0 / np.maximum(degree, 1.0)) @ adjacency
    system = (laplacian.T @ laplacian).tocsr()
    placed = refined.vertices.copy()
    right = -system[free][:, ~free] @ placed[~free]
    placed[free] = spsolve(system[free][:, free].tocsc(), right).reshape(-1, 3)
    return Surface(placed, refined.faces)


def _edges_of(faces: NDArray[np.int32]) -> NDArray[np.int32]:
    return edge_ids(faces)[0]
