"""The picture of the stage `precut`: the two half-bodies pulled apart, and the springs on the cut surface."""

import numpy as np
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh
from disect_sim.virtual_nodes import HalfBody
from stages.shared.pictures.preview import CUT, SCAN, WARNING, Layer, Panel, render

GAP_FRACTION = 0.9
"""How far the halves are pulled apart, as a fraction of the body's size [-]."""
MM2_PER_M2 = 1e6


def precut_picture(
    cut: CutMesh, positive: HalfBody, negative: HalfBody, *, normal: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Halves pulled apart along the unit normal [-] (shape [3]) on the left, springs face-on on the right."""
    shift = 0.5 * GAP_FRACTION * np.ptp(cut.nodes, axis=0).max() * normal
    virtual = cut.virtual_positions()
    ends = np.concatenate(
        [virtual[cut.spring_virtual[:, 0]] + shift, virtual[cut.spring_virtual[:, 1]] - shift]
    )
    count = len(cut.spring_virtual)
    lines = np.stack([np.arange(count), count + np.arange(count)], axis=1).astype(np.int32)
    skin = cut.spring_surface
    sideways = np.cross(normal, [0.0, 1.0, 0.0]) if abs(normal[1]) < 0.9 else np.array([0.0, 0.0, 1.0])
    apart = [
        *_body(positive, shift),
        *_body(negative, -shift),
        Layer(ends, lines[~skin], colour=SCAN, size=0.5),
        Layer(ends, lines[skin], colour=WARNING, size=1.0),
    ]
    on_cut = virtual[cut.spring_virtual[:, 0]]
    toward_camera = -0.002 * np.ptp(cut.nodes, axis=0).max() * normal
    face_on = [
        Layer(
            positive.vertices, positive.faces[positive.face_on_cut], colour=CUT, opacity=0.35, show_edges=True
        ),
        Layer(on_cut[skin] + toward_camera, colour=WARNING, size=11.0),
        Layer(
            on_cut + 2.0 * toward_camera,
            values=MM2_PER_M2 * cut.spring_area,
            value_range=(0.0, float(MM2_PER_M2 * cut.spring_area.max())),
            value_title="area of a spring [mm²]",
            size=7.0,
        ),
        _room_around(on_cut),
    ]
    titles = (
        f"two half-bodies, pulled apart; {count} springs, {int(skin.sum())} of them in the skin (red)",
        f"springs on the cut, {1e4 * cut.spring_area.sum():.2f} cm² (red rim: skin)",
    )
    view = tuple(sideways - 0.6 * normal + np.array([0.0, 0.3, 0.0]))
    return render([Panel(titles[0], apart, view=view), Panel(titles[1], face_on, view=tuple(-normal))])


def _room_around(points: NDArray[np.float64]) -> Layer:
    """Unseen points above and below the given ones [m], shape [n, 3]: room for title and colour bar."""
    low, high = points.min(axis=0), points.max(axis=0)
    height = np.array([0.0, high[1] - low[1], 0.0])
    return Layer(np.stack([low - 0.25 * height, high + 0.08 * height]), colour="white", size=1.0)


def _body(half: HalfBody, shift: NDArray[np.float64]) -> list[Layer]:
    moved = half.vertices + shift
    return [
        Layer(moved, half.faces[~half.face_on_cut], show_edges=True),
        Layer(moved, half.faces[half.face_on_cut], colour=CUT, show_edges=True),
    ]
