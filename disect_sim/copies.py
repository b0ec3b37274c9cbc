"""Several copies of one body, side by side in memory: what a batch of cuts in one launch works on."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from disect_sim.cut_mesh import CutMesh
from disect_sim.model import Model


def repeated(model: Model, copies: int) -> Model:
    """The model so many times; copies have no node, and so no force, in common.

    In every array one copy follows another, each in the order of the model.
    """
    if copies == 1:
        return model

    def again(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values] * copies)

    def on_nodes(values: np.ndarray) -> np.ndarray:
        return _counted_on(values, copies, model.node_count)

    return replace(
        model,
        mesh=_repeated_mesh(model.mesh, copies),
        fixed=again(model.fixed),
        guided=on_nodes(model.guided),
        tet_nodes=on_nodes(model.tet_nodes),
        tet_shape_gradients=again(model.tet_shape_gradients),
        tet_volume=again(model.tet_volume),
        node_volume=again(model.node_volume),
        spring_nodes=on_nodes(model.spring_nodes),
        spring_weights=again(model.spring_weights),
        cut_triangles=_counted_on(model.cut_triangles, copies, model.spring_count),
        spring_normal=again(model.spring_normal),
        spring_area_ratio=again(model.spring_area_ratio),
        overlap_stiffness=again(model.overlap_stiffness),
        contact_parents=on_nodes(model.contact_parents),
        contact_coordinate=again(model.contact_coordinate),
        contact_side=again(model.contact_side),
        contact_offset=again(model.contact_offset),
        board_nodes=on_nodes(model.board_nodes),
        board_area_ratio=again(model.board_area_ratio),
        spring_operator=sp.block_diag([model.spring_operator] * copies, format="csr"),
        original=model,
    )


def _repeated_mesh(mesh: CutMesh, copies: int) -> CutMesh:
    """Every field again and again; indices count on."""
    sizes = {
        "node_original": int(mesh.node_original.max()) + 1,
        "tets": len(mesh.nodes),
        "tet_original": int(mesh.tet_original.max()) + 1,
        "virtual_parents": len(mesh.nodes),
        "spring_virtual": len(mesh.virtual_parents),
    }
    fields = {
        name: _counted_on(values, copies, sizes.get(name, 0))
        for name, values in vars(mesh).items()
        if isinstance(values, np.ndarray)
    }
    return replace(mesh, **fields, snapped_vertices=copies * mesh.snapped_vertices)


def _counted_on(values: np.ndarray, copies: int, size: int) -> np.ndarray:
    """The values again and again, each time more by the size, in their own type; as they are with a size of 0."""
    if size == 0:
        return np.concatenate([values] * copies)
    return np.concatenate([values + copy * size for copy in range(copies)]).astype(values.dtype)
