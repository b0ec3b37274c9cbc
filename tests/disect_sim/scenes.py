"""Small synthetic scenes for the tests of the simulator: blocks that are cut in a fraction of a second."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
import trimesh

from disect_sim import MATERIALS, build_model, cut_by_plane
from disect_sim.cut_mesh import CutMesh, box_mesh, tet_volumes
from disect_sim.model import Model
from disect_sim.parameters import Material, expand
from disect_sim.step_system import StepSystem

APPLE = MATERIALS["apple"]
BLOCK_LOW, BLOCK_HIGH = (-0.02, 0.0, -0.015), (0.02, 0.025, 0.015)
"""Corners of the block every scene cuts [m]: 40 mm across the cut, 25 mm high, 30 mm along the blade."""
BLOCK_HEIGHT = 0.025


def regular_block(cells=(3, 3, 3)) -> CutMesh:
    """The block as a regular mesh; an odd number of cells along x keeps nodes off the cut plane."""
    return cut_by_plane(*box_mesh(BLOCK_LOW, BLOCK_HIGH, cells))


def irregular_block() -> CutMesh:
    """The block as pytetwild meshed it once, about 500 tets."""
    return cut_by_plane(*saved_block("synthetic_block_tetwild"))


def saved_block(name) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [m] and tets of a synthetic block that `tetwild_block` made.

    The mesher draws other random numbers every time; tests that compare numbers want the same mesh.
    """
    with np.load(Path(__file__).parent / "data" / f"{name}.npz") as saved:
        return saved["nodes_m"], saved["tets"]


def tetwild_block(directory, edge_fraction=0.12):
    """Nodes [m] and tets of the block, meshed anew by pytetwild."""
    surface = trimesh.creation.box(bounds=[BLOCK_LOW, BLOCK_HIGH])
    return tetwild(surface, directory, edge_fraction, coarsen=True)


def tetwild(surface, directory, edge_fraction, **options):
    """Nodes [m] and positively oriented tets of a closed surface."""
    pytetwild = pytest.importorskip("pytetwild")
    # The mesher leaves __tracked_surface.stl in the working directory.
    with contextlib.chdir(directory):
        nodes, tets = pytetwild.tetrahedralize(
            np.asarray(surface.vertices, float),
            np.asarray(surface.faces, np.int32),
            edge_length_fac=edge_fraction,
            **options,
        )[:2]
    tets = np.array(tets)
    flipped = tet_volumes(nodes, tets) < 0.0
    tets[flipped] = tets[flipped][:, [0, 2, 1, 3]]
    return nodes, tets


def block_model(mesh: CutMesh | None = None, material: Material = APPLE, **options) -> Model:
    return build_model(regular_block() if mesh is None else mesh, material, **options)


def step_system(model: Model, parameters=None, dt=1e-3) -> StepSystem:
    """One time step of a model, on the CPU."""
    expanded = expand(parameters or {}, model.material, model.surface, model.damage_law)
    return StepSystem(model, expanded, dt, "cpu")


def dense_hessian(system: StepSystem) -> np.ndarray:
    """Hessian over the free nodes at the x of the last `gradient` [N/m], shape [3 free, 3 free]."""
    import scipy.sparse as sp

    p = system.pattern
    size = 3 * p.free_count
    return sp.bsr_matrix((system.hessian().copy(), p.indices, p.indptr), shape=(size, size)).toarray()
