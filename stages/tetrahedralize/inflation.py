"""Giving a coarse mesh back the volume that its chords cut off.

The mesher keeps the boundary nodes near the surface, so the flat faces between them lie inside a convex body and the
mesh is one or two percent too small. All boundary nodes are moved outward by one and the same distance, which puts the
faces on both sides of the surface instead of inside.
"""

import numpy as np

from stages.shared.surface.triangles import Surface, face_normals_doubled, vertex_normals
from stages.tetrahedralize.mesher import TetMesh
from stages.tetrahedralize.quality import boundary_faces, tet_quality

NEWTON_STEPS = 3
"""The volume is nearly linear in the distance: the second step already ends within 1e-5."""

KEPT_ALTITUDE_FRACTION = 0.8
"""The smallest altitude, and with it the time step, may shrink to this fraction at most."""


def restore_volume(mesh: TetMesh, volume_m3: float, *, max_distance_m: float) -> tuple[TetMesh, float]:
    """Move the boundary nodes along their normals until the mesh has the wanted volume.

    Args:
        mesh: positively oriented mesh.
        volume_m3: wanted volume [m³].
        max_distance_m: the nodes move no further than this [m].

    Returns:
        The mesh and the distance its boundary moved outward [m]. If that would flatten a tet the mesh is returned as
        it was, and the distance is 0.
    """
    boundary = boundary_faces(mesh.tets)
    on_boundary = np.unique(boundary)
    normals = np.zeros_like(mesh.nodes)
    normals[on_boundary] = vertex_normals(Surface(mesh.nodes, boundary))[on_boundary]
    distance, nodes = 0.0, mesh.nodes
    for _ in range(NEWTON_STEPS):
        skin = Surface(nodes, boundary)
        # Derivative of the volume by the distance: each face sweeps its area times the mean normal of its corners.
        swept = np.einsum("ij,ikj->", face_normals_doubled(skin), normals[boundary]) / 6.0
        distance += (volume_m3 - skin.volume_m3) / swept
        distance = float(np.clip(distance, -max_distance_m, max_distance_m))
        nodes = mesh.nodes + distance * normals
    before, after = tet_quality(mesh.nodes, mesh.tets), tet_quality(nodes, mesh.tets)
    flattened = after.min_altitude_m.min() < KEPT_ALTITUDE_FRACTION * before.min_altitude_m.min()
    if flattened or not np.all(after.volume_m3 > 0.0):
        return mesh, 0.0
    return TetMesh(nodes, mesh.tets), distance
