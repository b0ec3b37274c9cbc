"""optimize: the slicing motion that cuts the half-body with the least force, under hard constraints."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from disect_sim import MATERIALS
from disect_sim.cut_mesh import CutMesh
from stages.optimize.confirmation import finer_cut
from stages.optimize.descent import live_picture
from stages.optimize.description import OptimizeParams
from stages.optimize.optimize_picture import optimize_picture
from stages.optimize.optimize_report import (
    confirmation_table,
    history_table,
    keyframe_table,
    metrics,
    motion_table,
    profile_table,
)
from stages.optimize.search import optimize
from stages.runtime.checkpoint import work_key
from stages.runtime.errors import InputError
from stages.runtime.stage_io import StageIO
from stages.shared.cut import (
    OFF_PLANE_M,
    cutting_model,
    off_plane_m,
    read_cut_mesh,
    read_possible_materials,
    read_second_cut_values,
    relative_depth,
)
from stages.shared.pictures import plot_text

_OWN_CODE = Path(__file__).parent


def check_plane(mesh: CutMesh) -> None:
    """Refuse a cut surface that the knife, which moves in the plane x = 0, would miss."""
    off = off_plane_m(mesh)
    if off > OFF_PLANE_M:
        raise InputError(
            f"optimize: the second cut's surface lies up to {off:.4f} m from the knife's plane x = 0. It must lie in "
            "it. Keep precut_half.plane_* at their defaults and move the cut with halve.offset_m and halve.angle_deg."
        )


def run(io: StageIO, params: OptimizeParams) -> dict[str, Any]:
    """Read the second body's cut mesh and its parameters, optimise, write motion, history and picture."""
    torch.set_num_threads(1)  # the tensors are small: more threads only spin
    io.progress(0.0, "read the cut mesh and the parameters")
    mesh = read_cut_mesh(io.read, "precut_half")
    check_plane(mesh)
    model = cutting_model(mesh, MATERIALS[io.scan.material], params.cut)
    values = read_second_cut_values(io.read)
    skin = io.read("transport/parameters")["surface"].to_numpy()
    materials = read_possible_materials(io.read, skin, relative_depth(mesh))
    nodes, tets = io.read("tetrahedralize_half/nodes"), io.read("tetrahedralize_half/tets")
    silhouette = mesh.nodes[~mesh.node_ghost][:, [2, 1]]
    found = optimize(
        model,
        values,
        params,
        finer=finer_cut(nodes["position_m"].to_numpy(), tets["nodes"].to_numpy()),
        materials=materials,
        scan_dir=io.scan_dir,
        key=work_key(
            model,
            [*values.values(), *(np.asarray(factor) for m in materials for factor in m.values())],
            params,
            _OWN_CODE,
        ),
        progress=lambda fraction, text: io.progress(0.02 + 0.95 * fraction, text),
        show=lambda so_far: io.show(lambda: live_picture(so_far, silhouette)),
    )
    profile, history = profile_table(found), history_table(found)
    io.write("optimize/motion", motion_table(found), notes={"knife": params.cut.knife_label})
    io.write("optimize/profile", profile)
    io.write("optimize/keyframes", keyframe_table(found))
    io.write("optimize/history", history)
    io.write("optimize/confirmation", confirmation_table(found))
    io.write_plot("optimize/profile_plot", plot_text(profile, ["time_s", "vertical_n", "optimized_n"]))
    io.write_plot("optimize/history_plot", plot_text(history, ["start", "iteration", "mean_force_n"]))
    io.progress(0.98, "draw the picture")
    io.write_png("optimize/preview", optimize_picture(found, silhouette))
    io.progress(1.0, f"mean force {100.0 * found.reduction():.1f} % below the vertical cut")
    return metrics(found)
