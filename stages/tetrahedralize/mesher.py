"""fTetWild through pytetwild: seeded, without console output, stray files or loose nodes, consistently oriented."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.runtime.errors import InputError
from stages.shared.surface import Surface
from stages.tetrahedralize import mesher_process

# Sizing field: small edges near the cut plane x = 0, growing away from it


_GRADING = 0.5
"""Target edge gained per distance from the band [-]; above about 1 neighbouring tets differ too much in size."""
_CELLS_PER_BAND = 4
_MARGIN_FRACTION = 0.2
"""Fraction of the diagonal by which the background mesh exceeds the body, so that it covers the mesher's box."""
_CUBE_TETS = np.array([[0, 1, 3, 7], [0, 3, 2, 7], [0, 2, 6, 7], [0, 6, 4, 7], [0, 4, 5, 7], [0, 5, 1, 7]])
"""Six tets that fill a cube whose corners are numbered 4 ix + 2 iy + iz."""


@dataclass(frozen=True)
class _SizingField:
    """Target edge lengths on a background mesh."""

    vertices: NDArray[np.float64]
    """Positions [m], shape [vertex_count, 3]."""
    tets: NDArray[np.int32]
    """Vertex indices of positively oriented tets, shape [tet_count, 4]."""
    edge_m: NDArray[np.float64]
    """Target edge length at each vertex [m], shape [vertex_count]."""


def target_edge(
    x_m: NDArray[np.float64], *, edge_m: float, cut_edge_m: float, cut_band_m: float
) -> NDArray[np.float64]:
    """Return the target edge length [m] at distance x from the cut plane [m]; same shape as x_m."""
    beyond = np.maximum(np.abs(x_m) - cut_band_m, 0.0)
    return np.minimum(cut_edge_m + _GRADING * beyond, max(edge_m, cut_edge_m))


def sizing_field(
    low_m: NDArray[np.float64],
    high_m: NDArray[np.float64],
    *,
    edge_m: float,
    cut_edge_m: float,
    cut_band_m: float,
) -> _SizingField:
    """Build slabs of cubes along x over the box from low_m to high_m [m], each of shape [3]."""
    margin = _MARGIN_FRACTION * float(np.linalg.norm(high_m - low_m))
    low, high = low_m - margin, high_m + margin
    step = max(cut_band_m, cut_edge_m) / _CELLS_PER_BAND
    x = np.linspace(low[0], high[0], int(np.ceil((high[0] - low[0]) / step)) + 1)
    grid = np.stack(np.meshgrid(x, [low[1], high[1]], [low[2], high[2]], indexing="ij"), axis=-1)
    vertices = grid.reshape(-1, 3)
    first = 4 * np.arange(len(x) - 1)
    tets = (first[:, None, None] + _CUBE_TETS).reshape(-1, 4).astype(np.int32)
    corners = vertices[tets]
    volume = np.linalg.det(corners[:, 1:] - corners[:, :1])
    tets[volume < 0.0] = tets[volume < 0.0][:, [0, 2, 1, 3]]
    values = target_edge(vertices[:, 0], edge_m=edge_m, cut_edge_m=cut_edge_m, cut_band_m=cut_band_m)
    return _SizingField(vertices, tets, values)


_STOP_ENERGY = 8.0
"""AMIPS energy at which the mesher stops improving (a regular tet has 3, the mesher's default is 10)."""
_PROCESS = ["-m", mesher_process.__name__]
_CODE = Path(__file__).resolve().parents[2]
"""Folder of the package `stages`, for the mesher's process, which starts elsewhere."""


@dataclass(frozen=True)
class TetMesh:
    """A tetrahedral mesh."""

    nodes: NDArray[np.float64]
    """Positions [m], shape [node_count, 3]."""
    tets: NDArray[np.int32]
    """Node indices, positively oriented, shape [tet_count, 4]."""
    unseeded: str = ""
    """Reason why another run would give another mesh; empty if runs are reproducible."""


def mesh_inside(
    surface: Surface, sizing: _SizingField, *, edge_m: float, epsilon_m: float, threads: int, seed: int
) -> TetMesh:
    """Fill a closed surface with tets; the same input and seed give the same bytes (docs/pipeline.md#reproducing).

    Args:
        surface: closed surface.
        sizing: target edge lengths.
        edge_m: target edge length where the sizing field does not reach [m].
        epsilon_m: largest distance of the mesh's boundary from the surface [m].
        threads: threads of the mesher.
        seed: of the mesher's random numbers, 0 to 2^32 - 1.
    """
    result = _run_in_process(
        vertices=np.array(surface.vertices, np.float64, order="C"),
        faces=np.array(surface.faces, np.int32, order="C"),
        edge_length_abs=edge_m,
        epsilon=epsilon_m / surface.diagonal_m,
        stop_energy=_STOP_ENERGY,
        num_threads=threads,
        quiet=True,
        bg_vertices=sizing.vertices,
        bg_tets=sizing.tets,
        bg_values=sizing.edge_m,
        seed=seed,
    )
    if "refusal" in result:
        raise InputError(
            f"The mesher failed ({result['refusal']}). It needs a closed surface. Raise "
            "tetrahedralize.epsilon_m or clean the "
            "scan with a larger clean.target_edge_m."
        )
    nodes, tets = result["nodes"], result["tets"]
    if len(tets) == 0:
        raise InputError(
            "The mesher returned no tets. The surface must enclose a volume much larger than "
            "tetrahedralize.edge_m. "
            "Lower edge_m."
        )
    mesh = compacted(nodes, oriented(nodes, tets.astype(np.int32)))
    return replace(mesh, unseeded=str(result["unseeded"]))


def why_unseeded() -> str:
    """Return why the mesher can't be seeded here, empty if it can; tested by meshing an octahedron."""
    corners = 0.02 * np.vstack([np.eye(3), -np.eye(3)])
    faces = [[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2], [1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]]
    edge_m = 0.005
    sizing = sizing_field(
        corners.min(axis=0), corners.max(axis=0), edge_m=edge_m, cut_edge_m=edge_m, cut_band_m=0.0
    )
    body = Surface(corners, np.array(faces, np.int32))
    return mesh_inside(body, sizing, edge_m=edge_m, epsilon_m=0.001, threads=1, seed=0).unseeded


def _run_in_process(**arguments: object) -> dict[str, NDArray[Any]]:
    """Run mesher_process with these arguments and return its output."""
    path = os.pathsep.join([str(_CODE), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as scratch:
        np.savez(Path(scratch) / mesher_process.INPUT, **arguments)  # type: ignore[arg-type]
        done = subprocess.run(
            [sys.executable, *_PROCESS, str(os.getpid())],
            cwd=scratch,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["There was no output."])[-1]
            raise RuntimeError(
                f"The mesher's process ended with code {done.returncode}. It must end with 0. Check its last "
                f"output, and the memory if it was killed (code -9): {last}"
            )
        with np.load(Path(scratch) / mesher_process.OUTPUT) as file:
            return dict(file)


def compacted(nodes: NDArray[np.float64], tets: NDArray[np.int32]) -> TetMesh:
    """Remove nodes that no tet uses."""
    used, compact = np.unique(tets, return_inverse=True)
    return TetMesh(nodes[used], compact.reshape(-1, 4).astype(np.int32))


def oriented(nodes: NDArray[np.float64], tets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Swap nodes where needed, so that every volume is positive; shape [tet_count, 4]."""
    corners = nodes[tets]
    negative = np.linalg.det(corners[:, 1:] - corners[:, :1]) < 0.0
    turned = tets.copy()
    turned[negative] = tets[negative][:, [0, 2, 1, 3]]
    return turned
