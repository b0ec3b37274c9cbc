"""tetrahedralize: from the clean surface to a tetrahedral mesh that is finer near the cut plane."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.parameters import MATERIALS, Material
from stages.runtime.errors import InputError
from stages.runtime.stage_io import StageIO
from stages.shared.pictures import Layer, Panel, board_layer, render
from stages.shared.surface import Surface, face_areas, face_normals_doubled, is_closed, vertex_normals
from stages.tetrahedralize.description import TetrahedralizeParams
from stages.tetrahedralize.mesher import TetMesh, compacted, mesh_inside, sizing_field, target_edge
from stages.tetrahedralize.quality import (
    TetQuality,
    boundary_faces,
    boundary_faces_and_owners,
    count_pieces,
    drop_touching,
    tet_quality,
    unique_edges,
)

# Picture of the stage


def _tet_picture(
    nodes: NDArray[np.float64], tets: NDArray[np.int32], radius_ratio: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Draw the mesh whole, and cut open with its quality in colours; pixels of shape [height, width, 3].

    nodes [m] of shape [node_count, 3], one radius ratio per tet.
    """
    board = board_layer(nodes)
    behind = nodes[tets][:, :, 0].mean(axis=1) < 0.0
    faces, owner = boundary_faces_and_owners(tets[behind])
    opened = Layer(
        nodes,
        faces,
        values=radius_ratio[behind][owner],
        value_range=(0.0, 1.0),
        value_title="radius ratio",
        show_edges=True,
    )
    whole = Layer(nodes, boundary_faces(tets), show_edges=True)
    return render(
        [
            Panel(f"{len(tets)} tets, {len(nodes)} nodes", [board, whole]),
            Panel("opened at the cut plane x = 0", [board, opened], view=(1.0, 0.35, 0.35)),
        ]
    )


# Restoring the volume of a coarse mesh
#
# The mesher keeps the boundary nodes near the surface, so the flat faces between them lie inside a convex body and the
# mesh is one or two percent too small. All boundary nodes are moved outward by the same distance, which puts the faces
# on both sides of the surface instead of inside.


_NEWTON_STEPS = 3
"""Newton steps; the volume is nearly linear in the distance, so the second step is accurate to 1e-5."""

_KEPT_ALTITUDE_FRACTION = 0.8
"""Minimum remaining fraction of the smallest altitude."""


def _restore_volume(mesh: TetMesh, volume_m3: float, *, max_distance_m: float) -> tuple[TetMesh, float]:
    """Move the boundary nodes along their normals until the mesh has the target volume.

    Args:
        mesh: positively oriented mesh.
        volume_m3: target volume [m³].
        max_distance_m: largest displacement of the nodes [m].

    Returns:
        The mesh and the distance its boundary moved outward [m]. If that would flatten a tet, the mesh is returned
        unchanged with distance 0.
    """
    boundary = boundary_faces(mesh.tets)
    on_boundary = np.unique(boundary)
    normals = np.zeros_like(mesh.nodes)
    normals[on_boundary] = vertex_normals(Surface(mesh.nodes, boundary))[on_boundary]
    distance, nodes = 0.0, mesh.nodes
    for _ in range(_NEWTON_STEPS):
        skin = Surface(nodes, boundary)
        # Derivative of the volume in the distance: each face sweeps its area times the mean normal of its corners.
        swept = np.einsum("ij,ikj->", face_normals_doubled(skin), normals[boundary]) / 6.0
        distance += (volume_m3 - skin.volume_m3) / swept
        distance = float(np.clip(distance, -max_distance_m, max_distance_m))
        nodes = mesh.nodes + distance * normals
    before, after = tet_quality(mesh.nodes, mesh.tets), tet_quality(nodes, mesh.tets)
    flattened = after.min_altitude_m.min() < _KEPT_ALTITUDE_FRACTION * before.min_altitude_m.min()
    if flattened or not np.all(after.volume_m3 > 0.0):
        return mesh, 0.0
    return TetMesh(nodes, mesh.tets), distance


_EPSILON_RUNGS = 3
"""Number of attempts; the envelope is halved after each one that misses the surface's volume or is invalid."""
_REGULAR_TET_VOLUME = 1.0 / (6.0 * np.sqrt(2.0))
"""Volume of a regular tet with edge 1 [-]."""
_MAX_EXPECTED_TETS = 500_000
"""Number of tets above which the mesher runs for hours and the simulator would not fit in memory."""

_LOG = logging.getLogger(__name__)

_Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class _TetResult:
    """Mesh, quality and comparison with the surface."""

    mesh: TetMesh
    quality: TetQuality
    dropped_tets: int
    """Number of tets dropped because they touched the body only at an edge or a node."""
    epsilon_m: float
    """Envelope of the mesher [m]."""
    inflation_m: float
    """Distance by which the boundary nodes were moved outward to restore the volume [m]."""
    volume_error_fraction: float
    """(mesh volume - surface volume) / surface volume [-]."""
    unseeded: str = ""
    """Reason why another run would give another mesh; empty if runs are reproducible."""


def tetrahedralize(
    surface: Surface, params: TetrahedralizeParams, progress: _Progress | None = None
) -> _TetResult:
    """Mesh the inside of a closed surface; raise InputError if the mesh misses its volume or is invalid."""
    if not is_closed(surface.faces) or surface.volume_m3 <= 0.0:
        raise InputError(
            "The surface is not closed or is inside out. The mesher needs a closed surface. Run the "
            "stage clean again."
        )
    _reject_too_many(surface, params)
    field = sizing_field(
        surface.vertices.min(axis=0),
        surface.vertices.max(axis=0),
        edge_m=params.edge_m,
        cut_edge_m=params.cut_edge_m,
        cut_band_m=params.cut_band_m,
    )
    faults = []
    for rung in range(_EPSILON_RUNGS):
        epsilon = params.epsilon_m / 2**rung
        if progress is not None:
            progress(0.05 + 0.8 * rung / _EPSILON_RUNGS, f"mesh with an envelope of {epsilon * 1e3:g} mm")
        raw = mesh_inside(
            surface,
            field,
            edge_m=params.edge_m,
            epsilon_m=epsilon,
            threads=params.threads,
            seed=params.seed,
        )
        keep = drop_touching(raw.tets, np.abs(tet_quality(raw.nodes, raw.tets).volume_m3))
        sound = compacted(raw.nodes, raw.tets[keep])
        mesh, inflation = _restore_volume(sound, surface.volume_m3, max_distance_m=epsilon)
        quality = tet_quality(mesh.nodes, mesh.tets)
        error = float(quality.volume_m3.sum() / surface.volume_m3 - 1.0)
        fault = _fault(mesh, quality, error, params.max_volume_error_fraction)
        if fault is None:
            return _TetResult(
                mesh=_on_the_board(mesh, surface),
                quality=quality,
                dropped_tets=int(np.count_nonzero(~keep)),
                epsilon_m=epsilon,
                inflation_m=inflation,
                volume_error_fraction=error,
                unseeded=raw.unseeded,
            )
        faults.append(f"{fault} with an envelope of {epsilon * 1e3:g} mm")
    raise InputError(
        f"The surface could not be meshed: {'; '.join(faults)}. The mesh must be one body with a closed boundary and "
        f"within {params.max_volume_error_fraction:.1%} of the surface's volume. Lower "
        "tetrahedralize.edge_m, cut_edge_m "
        "and epsilon_m, or smooth the scan more (clean.smooth_iterations, clean.target_edge_m)."
    )


def metrics(result: _TetResult, material: Material) -> dict[str, object]:
    """Return the artifact tetrahedralize/metrics."""
    mesh, quality = result.mesh, result.quality
    edges = unique_edges(mesh.tets)
    length = np.linalg.norm(mesh.nodes[edges[:, 0]] - mesh.nodes[edges[:, 1]], axis=1)
    x = mesh.nodes[edges][:, :, 0]
    crossing = x[:, 0] * x[:, 1] < 0.0
    volume = float(quality.volume_m3.sum())
    return {
        "tets": len(mesh.tets),
        "nodes": len(mesh.nodes),
        "edges_across_cut_plane": int(crossing.sum()),
        "edge_across_cut_plane_mean_m": float(length[crossing].mean()) if crossing.any() else 0.0,
        "dropped_tets": result.dropped_tets,
        "volume_m3": volume,
        "mass_kg": volume * material.density_kg_m3,
        "volume_error_fraction": result.volume_error_fraction,
        "min_tet_volume_m3": float(quality.volume_m3.min()),
        "min_edge_m": float(length.min()),
        "mean_edge_m": float(length.mean()),
        "max_edge_m": float(length.max()),
        "min_radius_ratio": float(quality.radius_ratio.min()),
        "mean_radius_ratio": float(quality.radius_ratio.mean()),
        "min_altitude_m": float(quality.min_altitude_m.min()),
        "epsilon_m": result.epsilon_m,
        "inflation_m": result.inflation_m,
        "seeded": not result.unseeded,
    }


def run(io: StageIO, params: TetrahedralizeParams) -> dict[str, object]:
    """Read the clean surface, mesh it, write nodes, tets with their quality and the picture."""
    io.progress(0.0, "read the surface")
    surface = Surface(
        io.read("clean/vertices")["position_m"].to_numpy(), io.read("clean/faces")["vertices"].to_numpy()
    )
    result = tetrahedralize(surface, params, io.progress)
    if result.unseeded:
        _LOG.warning(
            "The mesher drew random numbers without a seed, so another run gives another mesh: %s. "
            "Run 'scan2cut doctor' for the remedy.",
            result.unseeded,
        )
    mesh, quality = result.mesh, result.quality
    io.write(
        "tetrahedralize/nodes",
        pl.DataFrame([pl.Series("position_m", mesh.nodes, dtype=pl.Array(pl.Float64, 3))]),
    )
    io.write(
        "tetrahedralize/tets",
        pl.DataFrame(
            [
                pl.Series("nodes", mesh.tets, dtype=pl.Array(pl.Int32, 4)),
                pl.Series("volume_m3", quality.volume_m3),
                pl.Series("radius_ratio", quality.radius_ratio),
                pl.Series("min_altitude_m", quality.min_altitude_m),
                pl.Series("min_edge_m", quality.min_edge_m),
                pl.Series("max_edge_m", quality.max_edge_m),
            ]
        ),
    )
    io.progress(0.9, "draw the picture")
    io.write_png("tetrahedralize/preview", _tet_picture(mesh.nodes, mesh.tets, quality.radius_ratio))
    io.progress(1.0, "done")
    return metrics(result, MATERIALS[io.scan.material])


def _reject_too_many(surface: Surface, params: TetrahedralizeParams) -> None:
    """Estimate the number of tets from the sizing field and reject too many before the mesher runs for hours."""
    # The body's volume in a slab at x follows from the divergence theorem over faces; spreading it by face area is
    # accurate enough.
    x = surface.corners[:, :, 0].mean(axis=1)
    edge = target_edge(x, edge_m=params.edge_m, cut_edge_m=params.cut_edge_m, cut_band_m=params.cut_band_m)
    share = face_areas(surface) / surface.area_m2
    expected = float(surface.volume_m3 * np.sum(share / (_REGULAR_TET_VOLUME * edge**3)))
    if expected > _MAX_EXPECTED_TETS:
        raise InputError(
            f"Edges of {params.edge_m:g} m ({params.cut_edge_m:g} m near the cut) would give about "
            f"{expected:,.0f} tets. "
            f"At most {_MAX_EXPECTED_TETS:,} are made. Raise tetrahedralize.edge_m and cut_edge_m."
        )


def _fault(mesh: TetMesh, quality: TetQuality, volume_error: float, max_volume_error: float) -> str | None:
    """Return the defect of a mesh as text; None if it is valid."""
    flat = np.flatnonzero(~(quality.volume_m3 > 0.0))
    if len(flat):
        return f"{len(flat)} of {len(mesh.tets)} tets have no volume (ids {', '.join(map(str, flat[:5]))})"
    pieces = count_pieces(mesh.tets)
    if pieces > 1:
        return f"{pieces} pieces that share no face"
    if not is_closed(boundary_faces(mesh.tets)):
        return "a boundary that touches itself along an edge"
    if abs(volume_error) > max_volume_error:
        return f"a volume off by {volume_error:+.1%}"
    return None


def _on_the_board(mesh: TetMesh, surface: Surface) -> TetMesh:
    """Shift the mesh vertically, by at most twice the envelope, so that its lowest node is level with the surface's."""
    lift = np.array([0.0, surface.vertices[:, 1].min() - mesh.nodes[:, 1].min(), 0.0])
    return TetMesh(mesh.nodes + lift, mesh.tets)
