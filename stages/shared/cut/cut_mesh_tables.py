"""The cut mesh, read back from the tables of the stage precut or an instance of it."""

from collections.abc import Callable

import polars as pl

from disect_sim.cut_mesh import CutMesh


def read_cut_mesh(read: Callable[[str], pl.DataFrame], stage: str = "precut") -> CutMesh:
    """The CutMesh that precut (or `stage`, an instance of it) wrote; `read` maps an artifact's name to its table.

    The number of snapped vertices is not in the tables (it is in precut/metrics) and is 0 here.
    """
    nodes, tets = read(f"{stage}/nodes"), read(f"{stage}/tets")
    virtual, springs = read(f"{stage}/virtual_nodes"), read(f"{stage}/springs")
    cut = CutMesh(
        nodes=nodes["position_m"].to_numpy(),
        node_original=nodes["original"].to_numpy(),
        node_ghost=nodes["ghost"].to_numpy(),
        tets=tets["nodes"].to_numpy(),
        tet_fraction=tets["fraction"].to_numpy(),
        tet_side=tets["side"].to_numpy(),
        tet_original=tets["original"].to_numpy(),
        virtual_parents=virtual["parents"].to_numpy(),
        virtual_coordinate=virtual["coordinate"].to_numpy(),
        virtual_side=virtual["side"].to_numpy(),
        spring_virtual=springs["virtual_nodes"].to_numpy(),
        spring_position=springs["position_m"].to_numpy(),
        spring_area=springs["area_m2"].to_numpy(),
        spring_surface=springs["surface"].to_numpy(),
    )
    cut.check()
    return cut
