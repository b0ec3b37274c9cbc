"""The picture of a probe: how sure the saving is after every first cut, path and force of the chosen one."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from disect_sim.cut_mesh import CutMesh
from stages.optimize.first_cuts import FirstCut
from stages.shared.pictures.figure import new_figure, pixels_of
from stages.shared.pictures.preview import CUT, FRUIT, SCAN, TEXT

MM = 1.0e3


def first_cuts_picture(
    mesh: CutMesh, chosen: FirstCut, bands: Mapping[str, float], before: float
) -> NDArray[np.uint8]:
    """8-bit pixels, shape [height, width, 3].

    Args:
        mesh: The fruit.
        chosen: The first cut to execute.
        bands: By the name of the first cut, half of the saving's 90 % interval after its log [-].
        before: The same before any log [-].
    """
    figure, canvas = new_figure((12.0, 4.2))
    known, path, force = figure.subplots(1, 3)
    names = sorted(bands, key=lambda name: -bands[name])
    colours = [CUT if name == chosen.name else SCAN for name in names]
    known.barh(names, [100.0 * bands[name] for name in names], color=colours)
    known.axvline(100.0 * before, color=TEXT, lw=1, ls="--")
    known.set(xlabel="saving known to ± points (dashed: before any log)")
    known.set_title("after the log of each first cut", color=TEXT, fontsize=10)

    table = chosen.table()
    position, newtons = table["position_m"].to_numpy(), table["force_n"].to_numpy()
    silhouette = mesh.nodes[~mesh.node_ghost][:, [2, 1]]
    hull = MM * silhouette[ConvexHull(silhouette).vertices]
    path.fill(hull[:, 0], hull[:, 1], color=FRUIT, alpha=0.35, lw=0)
    path.plot(MM * position[:, 2], MM * position[:, 1], color=CUT, lw=1.5)
    path.axhline(0.0, color=TEXT, lw=1)
    path.set(xlabel="along the blade [mm]", ylabel="height [mm]", aspect="equal")
    path.set_title(f"path of the edge's middle: {chosen.name}", color=TEXT, fontsize=10)

    for values, colour, label in (
        (newtons[:, 1], CUT, "upward"),
        (np.abs(newtons[:, 2]), FRUIT, "along the blade, size"),
    ):
        force.plot(table["time_s"], values, color=colour, label=label)
    force.set(xlabel="time [s]", ylabel="expected force on the knife [N]")
    force.legend(frameon=False)
    return pixels_of(canvas)
