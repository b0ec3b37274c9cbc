"""Views of a cut: the halves and the knife at a few moments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh
from disect_sim.knife import Knife
from disect_sim.virtual_nodes import HalfBody, half_body
from stages.shared.pictures.preview import CUT, SCAN, Layer, Panel, board_layer, render

PANEL_SIZE = (460, 430)
"""Width and height of one view [pixel]."""
VIEW = (0.3, 0.55, 1.0)
"""Direction to the camera: from above the blade's end, so that the gap behind the knife is seen."""
SECTION_SIDES = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0))


@dataclass(frozen=True)
class Moment:
    """The body and the knife at one time."""

    time_s: float
    positions: NDArray[np.float64]
    """Node positions [m], shape [node_count, 3]."""
    knife_position: NDArray[np.float64]
    """[m], shape [3]."""


def cut_views(cut: CutMesh, knife: Knife, moments: Sequence[Moment]) -> NDArray[np.uint8]:
    """The halves and the knife at the given moments, side by side; 8-bit pixels, shape [height, width, 3]."""
    blades = [_blade(knife, moment.knife_position, cut.nodes) for moment in moments]
    frame = _frame([cut.nodes, *(blade.vertices for blade in blades)])
    panels = []
    for moment, blade in zip(moments, blades, strict=True):
        layers = [frame, board_layer(cut.nodes, margin_m=0.004), blade]
        for side in (1, -1):
            layers += _half(half_body(replace(cut, nodes=moment.positions), side))
        panels.append(Panel(f"{moment.time_s:.2f} s", layers, view=VIEW))
    return render(panels, panel_size=PANEL_SIZE)


def _half(half: HalfBody) -> list[Layer]:
    return [
        Layer(half.vertices, half.faces[~half.face_on_cut], show_edges=True),
        Layer(half.vertices, half.faces[half.face_on_cut], colour=CUT, show_edges=True),
    ]


def _blade(knife: Knife, position: NDArray[np.float64], nodes: NDArray[np.float64]) -> Layer:
    """The blade's surface, clipped to the picture: a little longer than the fruit."""
    half_spine, half_edge = 0.5 * knife.spine_m, 0.5 * knife.edge_m
    section = np.array(
        [
            [0.0, 0.0],
            [half_edge, knife.tip_m],
            [half_spine, knife.height_m],
            [-half_spine, knife.height_m],
            [-half_edge, knife.tip_m],
        ]
    )
    half_length = 0.5 * min(knife.length_m, 1.2 * float(np.ptp(nodes[:, 2])))
    ends = [np.column_stack([section, np.full(5, z)]) for z in (-half_length, half_length)]
    faces = [[a, b, b + 5] for a, b in SECTION_SIDES] + [[a, b + 5, a + 5] for a, b in SECTION_SIDES]
    faces += [[0, i, i + 1] for i in (1, 2, 3)] + [[5, 5 + i, 6 + i] for i in (1, 2, 3)]
    return Layer(np.concatenate(ends) + position, np.array(faces, np.int32), colour=SCAN, opacity=0.8)


def _frame(points: Sequence[NDArray[np.float64]]) -> Layer:
    """Unseen points around all given ones [m], each of shape [n, 3]: they give every view the same scale."""
    every = np.concatenate(points)
    low, high = every.min(axis=0), every.max(axis=0)
    corners = np.stack(np.meshgrid(*zip(low, high, strict=True), indexing="ij"), axis=-1).reshape(-1, 3)
    return Layer(corners, colour="white", size=1.0)
