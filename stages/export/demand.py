"""What an export is held against: the cell as it stands, the motion that was optimised, the fruit."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.export.cell import Cell
from stages.export.params import ExportParams
from stages.export.parting import Parting
from stages.export.segments import EdgeMotion
from stages.shared.robots.robot import Robot


@dataclass(frozen=True)
class Fruit:
    """The body on the board, in the cutting frame."""

    low_m: NDArray[np.float64]
    """Corner of its box [m], shape [3]."""
    high_m: NDArray[np.float64]
    section_low_m: float
    """Where its cut section begins along the blade [m]."""
    section_high_m: float
    section: NDArray[np.float64]
    """Segments of the section's outline as (z, y) [m], shape [n, 2, 2]."""
    silhouette: NDArray[np.float64]
    """All triangles of the surface as (z, y) [m], shape [n, 3, 2]."""


@dataclass(frozen=True)
class Demand:
    """Everything the certificate compares the files with."""

    robot: Robot
    cell: Cell
    params: ExportParams
    cut: EdgeMotion
    knife_of_motion: str
    """The knife that the motion was optimised for."""
    fruit: Fruit
    parting: Parting
    """What the simulated cut of the motion left whole."""
    provenance: dict[str, str]
    """Path → sha256 of everything upstream, as computed from the files."""
    broken_links: tuple[str, ...]
    """Files that are not what the ones made from them say they were."""


def fruit_of(vertices: NDArray[np.float64], faces: NDArray[np.int32]) -> Fruit:
    """The fruit of a closed surface [m] whose cut plane is x = 0."""
    side = vertices[:, 0] >= 0.0
    crossed = faces[side[faces].any(axis=1) & ~side[faces].all(axis=1)]
    if len(crossed) == 0:
        raise InputError(
            f"The body reaches from x = {vertices[:, 0].min():.4f} to {vertices[:, 0].max():.4f} m, so the knife at "
            "x = 0 misses it. The cut plane must go through the body. Change halve.offset_m."
        )
    points = [[_crossing(vertices, f[i], f[(i + 1) % 3], side) for i in range(3)] for f in crossed]
    segments = np.array([[p for p in three if p is not None] for three in points])
    along = segments[..., 0]
    return Fruit(
        vertices.min(axis=0),
        vertices.max(axis=0),
        float(along.min()),
        float(along.max()),
        segments,
        vertices[faces][..., [2, 1]],
    )


def _crossing(
    vertices: NDArray[np.float64], a: int, b: int, side: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """Where the edge a-b meets x = 0, as (z, y), if it does."""
    if side[a] == side[b]:
        return None
    share = vertices[a, 0] / (vertices[a, 0] - vertices[b, 0])
    point = vertices[a] + share * (vertices[b] - vertices[a])
    return point[[2, 1]]
