"""The picture of the stage `clean`: the raw scan beside the clean surface."""

import numpy as np
from numpy.typing import NDArray

from stages.shared.pictures.preview import (
    SCAN,
    STRAY,
    WARNING,
    Layer,
    Panel,
    board_layer,
    cut_plane_layer,
    render,
)
from stages.shared.surface.triangles import Surface, edge_ids


def clean_picture(
    surface: Surface, raw_vertices: NDArray[np.float64], *, kept: Surface | None, removed: Surface | None
) -> NDArray[np.uint8]:
    """Raw scan with its faults on the left, clean surface on the board on the right; all in the cutting
    frame.

    Args:
        surface: the clean surface.
        raw_vertices: the scan's vertices [m], shape [vertex_count, 3].
        kept: the part of the scan that was kept; None for a point cloud.
        removed: the pieces that were removed; None for a point cloud.
    """
    if kept is None or removed is None:
        raw = [Layer(raw_vertices, colour=SCAN)]
        title = f"raw: {len(raw_vertices)} points"
    else:
        edges, _, count = edge_ids(kept.faces)
        raw = [
            # See-through if something was removed, so that pieces hidden inside show.
            Layer(kept.vertices, kept.faces, colour=SCAN, opacity=0.6 if len(removed.faces) else 1.0),
            Layer(removed.vertices, removed.faces, colour=STRAY),
            Layer(kept.vertices, edges[count != 2], colour=WARNING, size=4.0),
        ]
        title = f"raw: {len(kept.faces) + len(removed.faces)} faces; red: faulty edges, violet: removed"
    clean = [
        board_layer(surface.vertices),
        Layer(surface.vertices, surface.faces, show_edges=True),
        cut_plane_layer(surface.vertices),
    ]
    return render([Panel(title, raw), Panel(f"clean: {len(surface.faces)} faces, cut plane x = 0", clean)])
