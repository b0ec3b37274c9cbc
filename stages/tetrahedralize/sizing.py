"""The background sizing field: small edges near the cut plane x = 0, growing away from it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GRADING = 0.5
"""Target edge gained per distance from the band [-]; above about 1 neighbouring tets differ too much in
size."""
CELLS_PER_BAND = 4
MARGIN_FRACTION = 0.2
"""The background mesh reaches this fraction of the diagonal beyond the body, so that it covers the
mesher's box."""
CUBE_TETS = np.array([[0, 1, 3, 7], [0, 3, 2, 7], [0, 2, 6, 7], [0, 6, 4, 7], [0, 4, 5, 7], [0, 5, 1, 7]])
"""Six tets that fill a cube whose corners are numbered 4 ix + 2 iy + iz."""


@dataclass(frozen=True)
class SizingField:
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
    """Target edge length [m] at distance x from the cut plane [m]; same shape as x_m."""
    beyond = np.maximum(np.abs(x_m) - cut_band_m, 0.0)
    return np.minimum(cut_edge_m + GRADING * beyond, max(edge_m, cut_edge_m))


def sizing_field(
    low_m: NDArray[np.float64],
    high_m: NDArray[np.float64],
    *,
    edge_m: float,
    cut_edge_m: float,
    cut_band_m: float,
) -> SizingField:
    """Slabs of cubes along x over the box from low_m to high_m [m], each of shape [3]."""
    margin = MARGIN_FRACTION * float(np.linalg.norm(high_m - low_m))
    low, high = low_m - margin, high_m + margin
    step = max(cut_band_m, cut_edge_m) / CELLS_PER_BAND
    x = np.linspace(low[0], high[0], int(np.ceil((high[0] - low[0]) / step)) + 1)
    grid = np.stack(np.meshgrid(x, [low[1], high[1]], [low[2], high[2]], indexing="ij"), axis=-1)
    vertices = grid.reshape(-1, 3)
    first = 4 * np.arange(len(x) - 1)
    tets = (first[:, None, None] + CUBE_TETS).reshape(-1, 4).astype(np.int32)
    corners = vertices[tets]
    volume = np.linalg.det(corners[:, 1:] - corners[:, :1])
    tets[volume < 0.0] = tets[volume < 0.0][:, [0, 2, 1, 3]]
    values = target_edge(vertices[:, 0], edge_m=edge_m, cut_edge_m=cut_edge_m, cut_band_m=cut_band_m)
    return SizingField(vertices, tets, values)
