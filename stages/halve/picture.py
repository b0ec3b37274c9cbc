"""The picture of the stage `halve`: the half before, and on the board with the second cut's plane."""

import numpy as np
from numpy.typing import NDArray

from stages.shared.pictures.preview import CUT, FRUIT, Layer, Panel, board_layer, cut_plane_layer, render
from stages.shared.surface.triangles import Surface, face_normals_doubled


def halve_picture(
    before: Surface, after: Surface, on_cut: NDArray[np.bool_], *, rests_on: str
) -> NDArray[np.uint8]:
    """Pixels, shape [height, width, 3]; `on_cut` marks vertices of the first cut's face, [vertex_count]."""
    cut_faces = np.asarray(on_cut[before.faces].all(axis=1))
    toward_cut = (
        np.sign(face_normals_doubled(Surface(before.vertices, before.faces[cut_faces])).sum(axis=0)[0]) or 1.0
    )
    panels = []
    for body, title in (
        (before, "the half as the first cut left it (blue: the cut)"),
        (after, f"on the board ({rests_on.replace('_', ' ')}), second cut plane x = 0"),
    ):
        layers = [
            board_layer(body.vertices),
            Layer(body.vertices, body.faces[~cut_faces], colour=FRUIT, show_edges=True),
            Layer(body.vertices, body.faces[cut_faces], colour=CUT, show_edges=True),
        ]
        if body is after:
            layers.append(cut_plane_layer(body.vertices))
        panels.append(Panel(title, layers, view=(0.9 * toward_cut, 0.45, 0.8)))
    return render(panels)
