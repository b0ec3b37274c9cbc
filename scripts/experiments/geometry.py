"""Do springs that were fitted on one shape predict another? 16 pairs, by transport, by averages and by shared values.

    python -m scripts.experiments.geometry

Synthetic truth: a material that is firm inside and soft at the rim, and firmer below, on four shapes. Every shape is
fitted on its own log; every fit predicts the same four shapes, a quarter larger and meshed anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim import MATERIALS, build_model, cut_by_plane
from disect_sim.box_mesh import box_mesh
from disect_sim.cut_mesh import CutMesh
from disect_sim.model import Model
from disect_sim.parameters import SPRING_NAMES
from scripts.experiments.kept import ROOT, Kept
from scripts.experiments.page import command, table, write_figure
from scripts.experiments.scene import HIGH, LOW, PAPER, Scene
from scripts.experiments.springs import fitted, mean_error_n, settings
from stages.calibrate.unknowns import parameter_bounds
from stages.runtime.params import load_params
from stages.shared.pictures.figure import new_figure
from stages.shared.pictures.preview import CUT, FRUIT, SCAN, TEXT
from stages.transport.spring_set import SpringSet
from stages.transport.stage import Source, transport

NAME = "geometry"
SHAPES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "block": lambda up: np.ones_like(up),
    "narrow above": lambda up: 1.0 - 0.5 * up,
    "narrow below": lambda up: 0.5 + 0.5 * up,
    "barrel": lambda up: 0.6 + 1.6 * up * (1.0 - up),
}
"""Width along the blade over the block's, at a relative height."""
LARGER = 1.25
WAYS = ("transported", "averaged", "shared")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    """How fine and how long."""

    scene: Scene = field(default_factory=Scene)
    larger_cells: tuple[int, int, int] = (3, 4, 4)
    shared: int = 8
    individual: int = 16
    shapes: tuple[str, ...] = tuple(SHAPES)


COARSE = Size(Scene((3, 2, 2), 0.01, 100.0), (3, 2, 3), 2, 1, ("block", "barrel"))
"""For a test."""


def shaped(shape: str, cells: tuple[int, int, int], scale: float = 1.0) -> Model:
    """One of the shapes, glued to the board."""
    low, high = (tuple(scale * x for x in corner) for corner in (LOW, HIGH))
    nodes, tets = box_mesh(low, high, cells)
    nodes[:, 2] *= SHAPES[shape](nodes[:, 1] / high[1])
    mesh = cut_by_plane(nodes, tets)
    return build_model(mesh, MATERIALS["apple"], boundary="glued", damage_law="force")


def springs_of(mesh: CutMesh) -> SpringSet:
    """As transport sees them."""
    return SpringSet(mesh.spring_position, mesh.spring_area, mesh.spring_surface)


def truth_on(mesh: CutMesh) -> dict[str, Array]:
    """The synthetic material on a body's springs."""
    along, up = springs_of(mesh).in_unit_box.T
    inside = 4.0 * np.minimum(along * (1.0 - along), up * (1.0 - up))
    firm = np.exp(0.8 * (inside - 0.5) + 1.4 * (0.5 - up))
    stiff = {"cut_spring_ke": 400.0 * firm, "sdf_ke": 3000.0 * firm}
    return {name: np.full(len(up), value) for name, value in PAPER.items()} | stiff


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:
    """Fit every shape, predict every larger one."""
    scene = size.scene
    params = settings(scene, shared=size.shared, individual=size.individual)
    return {
        shape: kept.once(shape, size, lambda shape=shape: _from(shape, size, params))  # type: ignore[misc]
        for shape in size.shapes
    }


def _from(shape: str, size: Size, params: Any) -> dict[str, Any]:
    scene, model = size.scene, shaped(shape, size.scene.cells)
    fit = fitted(model, scene.record(model, truth_on(model.mesh)), params)
    count = model.spring_count
    bounds = parameter_bounds(SPRING_NAMES, damage_law="force", offset_range_m=0.0, given={})
    source = Source(
        springs_of(model.mesh),
        {name: np.full(count, fit["individual"].get(name, bounds[name].low)) for name in SPRING_NAMES},
        {(name, skin): bounds[name] for name in SPRING_NAMES for skin in (False, True)},
        np.ones(count, bool),
    )
    out: dict[str, Any] = {}
    for target in size.shapes:
        larger = shaped(target, size.larger_cells, LARGER)
        log = scene.record(larger, truth_on(larger.mesh), noise_n=0.0, height_m=LARGER * HIGH[1])
        done = transport(source, springs_of(larger.mesh), load_params(ROOT / "params.yaml").transport)
        values = dict(zip(WAYS, (done.values, done.averaged, fit["shared"]), strict=True))
        out[target] = {
            way: mean_error_n(larger, log, params, {name: values[way][name] for name in PAPER})
            for way in WAYS
        }
    return out


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    rows, wins, pairs = [], dict.fromkeys(WAYS[1:], 0), 0
    for shape, targets in found.items():
        for target, errors in targets.items():
            if target not in found:
                continue
            pairs += 1
            for way in wins:
                wins[way] += errors["transported"] < errors[way]
            rows.append([shape, target, *(f"{errors[way]:.2f} N" for way in WAYS)])
    cpu = sum(targets["cpu_s"] for targets in found.values())
    return table(["fitted on", "predicts the larger", *WAYS], rows) + (
        f"\n\nTransport is better than averages in {wins['averaged']} and better than shared values in "
        f"{wins['shared']} of {pairs} pairs; {cpu:.0f} CPU-seconds. Mean absolute errors. The paper's: "
        "better in 12 of 16."
    )


def draw(found: dict[str, Any], folder: Path) -> None:
    """Errors of every pair."""
    pairs = [
        (f"{shape} → {target}", errors)
        for shape, targets in found.items()
        for target, errors in targets.items()
        if target in found
    ]
    figure, canvas = new_figure((7.0, 0.8 + 0.28 * len(pairs)))
    axis = figure.subplots()
    rows = np.arange(len(pairs))
    for way, colour in zip(WAYS, (FRUIT, CUT, SCAN), strict=True):
        axis.plot([errors[way] for _, errors in pairs], rows, "o", color=colour, label=way)
    axis.set_yticks(rows, [name for name, _ in pairs], fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="mean absolute error of the force [N]", xlim=(0.0, None))
    axis.set_title("fitted on one shape, predicts a larger one", color=TEXT, fontsize=10)
    axis.legend(frameon=False, fontsize=8)
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
