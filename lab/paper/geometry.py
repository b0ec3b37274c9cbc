"""Do springs that were fitted on one body predict another? 16 pairs, by transport, by averages and by shared values.

    python -m lab.paper.geometry

The paper's half sphere, half cylinder and prism, and half of a scanned apple: needs the real data.
Synthetic truth: a material that is firm inside and soft at the rim, and firmer below. Every body is fitted on its own
log; every fit predicts the same four bodies, a quarter larger and meshed anew.
"""

from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from numpy.typing import NDArray

from disect_sim import MATERIALS, build_model, cut_by_plane
from disect_sim.cut_mesh import CutMesh
from disect_sim.model import Model
from disect_sim.parameters import SPRING_NAMES
from lab.paper.kept import ROOT, Kept
from lab.paper.page import command, table, write_figure
from lab.paper.scene import HIGH, PAPER, Scene
from lab.paper.springs import fitted, mean_error_n, settings
from lab.real_logs.optimize_bodies import half_apple
from lab.real_logs.real_data import real_file
from stages.calibrate.phase import parameter_bounds
from stages.runtime.params import load_params
from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, new_figure
from stages.shared.surface import Surface
from stages.tetrahedralize.tetrahedralize import tetrahedralize
from stages.transport.plan import SpringSet
from stages.transport.transport import Source, transport

NAME = "geometry"
LARGER = 1.25
WAYS = ("transported", "averaged", "shared")

Array = NDArray[np.float64]


def of_the_paper(name: str) -> Surface:
    """One of the paper's bodies, flat side down."""
    shape = trimesh.load_mesh(real_file("meshes", f"ansys_{name}_5mm.stl"))
    shape.merge_vertices()
    return Surface(np.asarray(shape.vertices, np.float64), np.asarray(shape.faces, np.int32))


BODIES: dict[str, Callable[[], Surface]] = {
    "half sphere": lambda: of_the_paper("sphere"),
    "half cylinder": lambda: of_the_paper("cyl"),
    "prism": lambda: of_the_paper("prism"),
    "half apple": half_apple,
}


@dataclass(frozen=True)
class Size:
    """How fine and how long."""

    scene: Scene = field(default_factory=Scene)
    edges_m: tuple[float, float] = (0.016, 0.009)
    """Far from the cut and at it; those of the larger bodies are as long."""
    shared: int = 8
    individual: int = 16
    bodies: tuple[str, ...] = tuple(BODIES)


COARSE = Size(Scene((3, 2, 2), 0.01, 100.0), (0.03, 0.02), 2, 1, ("half cylinder", "prism"))
"""For a test."""


def bodied(name: str, size: Size, folder: Path, scale: float = 1.0) -> Model:
    """A body as high as the block, times the scale, glued to the board; its mesh is kept."""
    saved = folder / f"{name} {scale} {size.edges_m}.npz"
    if not saved.exists():
        folder.mkdir(parents=True, exist_ok=True)
        surface = BODIES[name]()
        low, high = surface.vertices.min(axis=0), surface.vertices.max(axis=0)
        middle = np.array([0.0, low[1], 0.5 * (low[2] + high[2])])
        places = (surface.vertices - middle) * scale * HIGH[1] / (high[1] - low[1])
        edge, cut_edge = size.edges_m
        sizes = load_params(ROOT / "params.yaml").tetrahedralize.model_copy(
            update={
                "edge_m": edge,
                "cut_edge_m": cut_edge,
                "epsilon_m": 0.001,
                "max_volume_error_fraction": 0.03,
            }
        )
        with chdir(folder):  # where the mesher leaves a file of its own
            mesh = tetrahedralize(Surface(places, surface.faces), sizes).mesh
        np.savez_compressed(saved, nodes_m=mesh.nodes, tets=mesh.tets)
    with np.load(saved) as mesh:
        cut = cut_by_plane(mesh["nodes_m"], mesh["tets"])
    return build_model(cut, MATERIALS["apple"], boundary="glued", damage_law="force")


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
    """Fit every body, predict every larger one."""
    params = settings(size.scene, shared=size.shared, individual=size.individual)
    return {
        body: kept.once(body, size, lambda body=body: _from(body, size, params, kept.folder))  # type: ignore[misc]
        for body in size.bodies
    }


def _from(body: str, size: Size, params: Any, folder: Path) -> dict[str, Any]:
    scene, model = size.scene, bodied(body, size, folder)
    fit = fitted(model, scene.record(model, truth_on(model.mesh)), params)
    count = model.spring_count
    bounds = parameter_bounds(SPRING_NAMES, damage_law="force", offset_range_m=0.0, given={})
    source = Source(
        springs_of(model.mesh),
        {name: np.full(count, fit["individual"].get(name, bounds[name].low)) for name in SPRING_NAMES},
        {(name, skin): bounds[name] for name in SPRING_NAMES for skin in (False, True)},
        np.ones(count, bool),
    )
    errors: dict[str, dict[str, float]] = {}
    for target in size.bodies:
        larger = bodied(target, size, folder, LARGER)
        log = scene.record(larger, truth_on(larger.mesh), noise_n=0.0, height_m=LARGER * HIGH[1])
        done = transport(source, springs_of(larger.mesh), load_params(ROOT / "params.yaml").transport)
        values = dict(zip(WAYS, (done.values, done.averaged, fit["shared"]), strict=True))
        errors[target] = {
            way: mean_error_n(larger, log, params, {name: values[way][name] for name in PAPER})
            for way in WAYS
        }
    return {"errors": errors, "tets": model.tet_count, "springs": count}


def _pairs(found: dict[str, Any]) -> list[tuple[str, str, dict[str, float]]]:
    return [(body, to, each) for body, result in found.items() for to, each in result["errors"].items()]


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    pairs = _pairs(found)
    rows = [[body, to, *(f"{errors[way]:.2f} N" for way in WAYS)] for body, to, errors in pairs]
    wins = {way: sum(errors[WAYS[0]] < errors[way] for _, _, errors in pairs) for way in WAYS[1:]}
    cpu = sum(result["cpu_s"] for result in found.values())
    fine = ", ".join(f"{body} {result['tets']} tets" for body, result in found.items())
    return table(["fitted on", "predicts the larger", *WAYS], rows) + (
        f"\n\nTransport is better than averages in {wins['averaged']} and better than shared values in "
        f"{wins['shared']} of {len(pairs)} pairs; {cpu:.0f} CPU-seconds. Mean absolute errors. The paper's: "
        f"better in 12 of 16. Meshes: {fine}."
    )


def draw(found: dict[str, Any], folder: Path) -> None:
    """Errors of every pair."""
    pairs = [(f"{body} → {to}", errors) for body, to, errors in _pairs(found)]
    figure, canvas = new_figure((7.0, 0.8 + 0.28 * len(pairs)))
    axis = figure.subplots()
    rows = np.arange(len(pairs))
    for way, colour in zip(WAYS, (FRUIT, CUT, SCAN), strict=True):
        axis.plot([errors[way] for _, errors in pairs], rows, "o", color=colour, label=way)
    axis.set_yticks(rows, [name for name, _ in pairs], fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="mean absolute error of the force [N]", xlim=(0.0, None))
    axis.set_title("fitted on one body, predicts a larger one", color=TEXT, fontsize=10)
    axis.legend(frameon=False, fontsize=8)
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
