"""The picture of the stage `simulate`: the halves opening at a few times, and the force on the knife below."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh
from disect_sim.knife import Knife
from disect_sim.virtual_nodes import HalfBody, half_body
from stages.support.preview import CUT, FRUIT, SCAN, TEXT, WARNING, Layer, Panel, board_layer, render

PANEL_SIZE = (460, 430)
"""Width and height of one view [pixel]."""
PLOT_HEIGHT = 400
"""[pixel]"""
DPI = 100
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


@dataclass(frozen=True)
class Profile:
    """Curves of the plot, all of shape [sample_count]."""

    time_s: NDArray[np.float64]
    force_n: NDArray[np.float64]
    """Shape [sample_count, 3]."""
    cut_fraction: NDArray[np.float64]


def simulate_picture(
    cut: CutMesh, knife: Knife, moments: Sequence[Moment], profile: Profile
) -> NDArray[np.uint8]:
    """8-bit pixels, shape [height, width, 3]: one view per moment above the force over time."""
    views = cut_views(cut, knife, moments)
    plot = force_plot(profile, [m.time_s for m in moments], width=views.shape[1])
    return np.concatenate([views, plot])


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


def force_plot(profile: Profile, marked_s: Sequence[float], *, width: int) -> NDArray[np.uint8]:
    """Force on the knife and share of the springs that is cut, over time; pixels, shape [height, width, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / DPI, PLOT_HEIGHT / DPI), dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    norm = np.linalg.norm(profile.force_n, axis=1)
    axis.plot(profile.time_s, norm, color=FRUIT, lw=3.0, label="norm of the force on the knife")
    axis.plot(profile.time_s, profile.force_n[:, 1], color=TEXT, lw=1.0, label="its vertical part")
    for time_s in marked_s:
        axis.axvline(time_s, color=SCAN, lw=0.8, ls=":")
    axis.set(xlabel="time [s]", ylabel="force [N]", xlim=(0.0, float(profile.time_s[-1])), ylim=(0.0, None))
    right = axis.twinx()
    right.plot(
        profile.time_s, 100.0 * profile.cut_fraction, color=WARNING, lw=1.2, ls="--", label="springs cut"
    )
    right.set(ylabel="stiffness lost [%]", ylim=(0.0, 105.0))
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    buffer = io.BytesIO()
    canvas.print_rgba(buffer)
    columns, rows = canvas.get_width_height()
    pixels = np.frombuffer(buffer.getvalue(), np.uint8).reshape(rows, columns, 4)[..., :3]
    return pixels[:, :width]


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
