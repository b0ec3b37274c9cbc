"""Synthetic tet meshes and cutting surfaces made on the spot, and measures of a cut that tests share."""

import numpy as np
import trimesh
from scipy.spatial import Delaunay

from disect_sim.cut_mesh import CutMesh, box_mesh, tet_volumes
from disect_sim.virtual_nodes.split import half_body
from disect_sim.virtual_nodes.topology import outer_faces

BOX_LOW, BOX_HIGH = (-0.025, 0.0, -0.03), (0.025, 0.04, 0.03)
BOX_VOLUME = 0.05 * 0.04 * 0.06


def regular_box(cells=(4, 4, 6)):
    """A box of 5 × 4 × 6 cm; with an even number of cells along x, vertices lie exactly on x = 0."""
    return box_mesh(BOX_LOW, BOX_HIGH, cells)


def jittered_box(seed, cells=(5, 4, 5), amount=0.15):
    """The box with its inner vertices moved at random, by a fraction of the cell that keeps the tets upright."""
    nodes, tets = regular_box(cells)
    cell = (np.array(BOX_HIGH) - BOX_LOW) / cells
    inner = (np.abs(nodes - (0.0, 0.02, 0.0)) < (0.024, 0.019, 0.029)).all(axis=1)
    nodes[inner] += np.random.default_rng(seed).uniform(-amount, amount, (inner.sum(), 3)) * cell
    assert tet_volumes(nodes, tets).min() > 0.0
    return nodes, tets


def delaunay_body(seed, count=60, *, radius=0.035):
    """The convex hull of random points in a ball, meshed by Delaunay: as irregular as a mesh can be."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, 3))
    points *= (radius * rng.uniform(size=(count, 1)) ** (1 / 3)) / np.linalg.norm(
        points, axis=1, keepdims=True
    )
    tets = Delaunay(points).simplices
    volume = tet_volumes(points, tets)
    tets[volume < 0.0] = tets[volume < 0.0][:, [0, 2, 1, 3]]
    return points, tets[tet_volumes(points, tets) > 0.0].astype(np.int32)


def sheet(height, cells=24, half_size=0.06):
    """A surface x = height(y, z) over a square around the box, normals towards +x: vertices, faces."""
    u = np.linspace(-half_size, half_size, cells + 1)
    y, z = np.meshgrid(u + 0.02, u, indexing="ij")
    vertices = np.stack([height(y, z), y, z], axis=-1).reshape(-1, 3)
    index = np.arange(len(vertices)).reshape(cells + 1, cells + 1)
    a, b, c, d = (part.ravel() for part in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    return vertices, np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


def outer_area(nodes, tets):
    """Area of the outer surface [m²]."""
    a, b, c = (nodes[outer_faces(tets)[:, i]] for i in range(3))
    return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1).sum()


def assert_conserves(cut: CutMesh, nodes, tets, relative=1e-9):
    """Volume, mass and outer area of the two sides add up to the body's (rounding only, hence 1e-9)."""
    volume = tet_volumes(nodes, tets).sum()
    halves = [half_body(cut, side) for side in (1, -1)]
    assert abs(cut.material_volume() / volume - 1) < relative
    assert abs(cut.node_masses(787.0).sum() / (787.0 * volume) - 1) < relative
    assert abs(sum(half.volume() for half in halves) / volume - 1) < relative
    for side, half in zip((1, -1), halves, strict=True):
        assert abs(half.volume() / cut.material_volume(side) - 1) < relative
        assert abs(half.areas()[half.face_on_cut].sum() / cut.spring_area.sum() - 1) < relative
    outer = sum(half.areas()[~half.face_on_cut].sum() for half in halves)
    assert abs(outer / outer_area(nodes, tets) - 1) < relative


def assert_two_manifold_bodies(cut: CutMesh, euler=2):
    """Both half-bodies are closed, oriented, in one piece and have the Euler number, as judged by trimesh."""
    for side in (1, -1):
        half = half_body(cut, side)
        mesh = trimesh.Trimesh(half.vertices, half.faces, process=False)
        assert mesh.is_watertight
        assert mesh.is_winding_consistent
        assert mesh.euler_number == euler
        assert len(trimesh.graph.connected_components(mesh.face_adjacency, min_len=1)) == 1
