"""fTetWild, through pytetwild, made to behave: no litter, no console output, one orientation, no loose
nodes."""

import contextlib
import tempfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.shared.surface.triangles import Surface
from stages.tetrahedralize.sizing import SizingField

STOP_ENERGY = 8.0
"""AMIPS energy at which the mesher stops improving (a regular tet has 3, its own default is 10)."""


@dataclass(frozen=True)
class TetMesh:
    """A tetrahedral mesh."""

    nodes: NDArray[np.float64]
    """Positions [m], shape [node_count, 3]."""
    tets: NDArray[np.int32]
    """Node indices, positively oriented, shape [tet_count, 4]."""


def mesh_inside(
    surface: Surface, sizing: SizingField, *, edge_m: float, epsilon_m: float, threads: int
) -> TetMesh:
    """Fill a closed surface with tets.

    Args:
        surface: closed surface.
        sizing: target edge lengths.
        edge_m: target edge length where the sizing field does not reach [m].
        epsilon_m: largest distance of the mesh's boundary from the surface [m].
        threads: threads of the mesher. Its result differs from run to run even with 1 (docs/meshing.md).
    """
    import pytetwild

    # The mesher writes __tracked_surface.stl into the working directory, whatever it is told.
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        try:
            nodes, tets = pytetwild.tetrahedralize(
                # Copies, because the mesher takes writable arrays only and tables are read-only.
                np.array(surface.vertices, np.float64, order="C"),
                np.array(surface.faces, np.int32, order="C"),
                edge_length_abs=edge_m,
                epsilon=epsilon_m / surface.diagonal_m,
                stop_energy=STOP_ENERGY,
                num_threads=threads,
                quiet=True,
                bg_vertices=sizing.vertices,
                bg_tets=sizing.tets,
                bg_values=sizing.edge_m,
            )
        except RuntimeError as error:
            raise InputError(
                f"The mesher gave up ({error}). It needs a closed surface. Raise "
                "tetrahedralize.epsilon_m or clean the "
                "scan with a larger clean.target_edge_m."
            ) from error
    if len(tets) == 0:
        raise InputError(
            "The mesher returned no tets. The surface must enclose a volume much larger than "
            "tetrahedralize.edge_m. "
            "Lower edge_m."
        )
    return compacted(nodes, oriented(nodes, tets.astype(np.int32)))


def compacted(nodes: NDArray[np.float64], tets: NDArray[np.int32]) -> TetMesh:
    """The mesh without nodes that no tet uses."""
    used, compact = np.unique(tets, return_inverse=True)
    return TetMesh(nodes[used], compact.reshape(-1, 4).astype(np.int32))


def oriented(nodes: NDArray[np.float64], tets: NDArray[np.int32]) -> NDArray[np.int32]:
    """The tets with nodes swapped where needed, so that every volume is positive; shape [tet_count, 4]."""
    corners = nodes[tets]
    negative = np.linalg.det(corners[:, 1:] - corners[:, :1]) < 0.0
    turned = tets.copy()
    turned[negative] = tets[negative][:, [0, 2, 1, 3]]
    return turned
