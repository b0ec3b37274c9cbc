"""The picture of the stage `tetrahedralize`: the mesh whole, and cut open with its quality in colours."""

import numpy as np
from numpy.typing import NDArray

from stages.shared.pictures.preview import Layer, Panel, board_layer, render
from stages.tetrahedralize.quality import boundary_faces, boundary_faces_and_owners


def tet_picture(
    nodes: NDArray[np.float64], tets: NDArray[np.int32], radius_ratio: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Pixels of shape [height, width, 3]; nodes [m] of shape [node_count, 3], one radius ratio per tet."""
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
