"""Irregular meshes for the simulator's benchmark, made by pytetwild from primitives."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import trimesh

from disect_sim import CutMesh, cut_by_plane
from disect_sim.cut_mesh import box_mesh
from stages.shared.surface import Surface
from stages.tetrahedralize.mesher import mesh_inside, sizing_field

EPSILON_M = 6.0e-4
"""Envelope of the mesher [m]."""
HALF_SPHERE_RADIUS_M = 0.05
NEAR_FRACTION = 0.1
"""How far the counts of tets and springs may be off."""
TRIED_FACTORS = (1.0, 1.02, 0.98, 1.04, 0.96, 1.06, 1.0, 1.02, 0.98)
JITTER = 0.15
"""Displacement of the inner nodes of a regular box, as a fraction of its cells."""


@dataclass(frozen=True)
class Sizes:
    """Target edge lengths [m]: away from the cut, near it, and the half-width of the band where the latter holds."""

    edge_m: float
    cut_edge_m: float
    band_m: float


def cut_mesh(surface: Surface, sizes: Sizes) -> CutMesh:
    """Mesh the inside of a surface and cut it by x = 0."""
    field = sizing_field(
        surface.vertices.min(axis=0),
        surface.vertices.max(axis=0),
        edge_m=sizes.edge_m,
        cut_edge_m=sizes.cut_edge_m,
        cut_band_m=sizes.band_m,
    )
    mesh = mesh_inside(surface, field, edge_m=sizes.edge_m, epsilon_m=EPSILON_M, threads=1, seed=0)
    return cut_by_plane(mesh.nodes, mesh.tets, point=(0.0, 0.0, 0.0), normal=(1.0, 0.0, 0.0))


def cut_mesh_near(surface: Surface, sizes: Sizes, *, tets: int, springs: int) -> CutMesh:
    """A cut mesh with about so many tets and springs.

    The mesher jumps between fine and coarse: sizes a little larger and smaller are tried
    until both counts are near, else the nearest mesh counts.
    """

    def miss(mesh: CutMesh) -> float:
        return max(abs(len(mesh.tets) / tets - 1.0), abs(len(mesh.spring_area) / springs - 1.0))

    best: CutMesh | None = None
    for factor in TRIED_FACTORS:
        tried = cut_mesh(
            surface, Sizes(factor * sizes.edge_m, factor * sizes.cut_edge_m, factor * sizes.band_m)
        )
        if best is None or miss(tried) < miss(best):
            best = tried
        if miss(best) < NEAR_FRACTION:
            break
    assert best is not None
    return best


def box_surface(size_m: tuple[float, float, float]) -> Surface:
    """A box on the board, centred in x and z."""
    box = trimesh.creation.box(size_m).subdivide_to_size(0.01)
    lift = np.array([0.0, 0.5 * size_m[1], 0.0])
    return Surface(box.vertices + lift, np.array(box.faces, np.int32))


def half_sphere_surface(file: Path) -> Surface:
    """The paper's half sphere if the file is there, else the same shape made here."""
    if file.exists():
        found = trimesh.load_mesh(file)
        return Surface(np.array(found.vertices), np.array(found.faces, np.int32))
    angle = np.linspace(0.0, 0.5 * np.pi, 17)
    base = np.column_stack([np.linspace(0.0, HALF_SPHERE_RADIUS_M, 9), np.zeros(9)])
    arc = HALF_SPHERE_RADIUS_M * np.column_stack([np.cos(angle), np.sin(angle)])
    half = trimesh.creation.revolve(np.concatenate([base, arc[1:]]), sections=64)
    # Turned about z; (x, y, z) -> (y, z, x) keeps the orientation and puts the pole on y.
    return Surface(np.array(half.vertices)[:, [1, 2, 0]], np.array(half.faces, np.int32))


def jittered_box(cells: tuple[int, int, int], edge_m: float) -> CutMesh:
    """A box of cells with this edge [m] whose inner nodes are moved at random, cut by x = 0; six tets per cell."""
    nx, ny, nz = (edge_m * count for count in cells)
    low, high = (-0.5 * nx, 0.0, -0.5 * nz), (0.5 * nx, ny, 0.5 * nz)
    nodes, tets = box_mesh(low, high, cells)
    inner = ((nodes > np.array(low) + 0.1 * edge_m) & (nodes < np.array(high) - 0.1 * edge_m)).all(axis=1)
    moves = np.random.default_rng(0).uniform(-JITTER, JITTER, (int(inner.sum()), 3))
    nodes[inner] += edge_m * moves
    return cut_by_plane(nodes, tets, point=(0.0, 0.0, 0.0), normal=(1.0, 0.0, 0.0))
