"""Optimises the cut of three bodies and prints a table.

    python -m lab.real_logs.optimize_bodies [BODY ...]    sample, apple, cucumber; all without arguments

`sample` is the half of the bundled synthetic apple with the parameters fitted to its synthetic log; it needs the
results of `make demo`. `apple` is half of the YCB apple with the parameters of the Panda's apple log, `cucumber` the
paper's half cylinder with those of the cucumber log: body and log are of different fruits. Both need the real data
(lab/notes/real_data.md) and the results of `python -m lab.real_logs.predict_real_logs apple cucumber` in
build/predictions.
All bodies use the shipped params.yaml. Results go to build/bodies/BODY: mesh, metrics, motion, picture.
"""

import json
import sys
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
import trimesh
from PIL import Image

from disect_sim import MATERIALS
from disect_sim.cut_mesh import CutMesh
from disect_sim.parameters import SPRING_NAMES
from lab.real_logs.real_data import lab_key, real_file
from stages.clean.clean import clean
from stages.clean.scan_file import read_scan
from stages.halve.halve import halve
from stages.optimize.confirmation import finer_cut
from stages.optimize.optimize_report import metrics, motion_table, optimize_picture
from stages.optimize.search import optimize
from stages.precut.precut import precut
from stages.runtime.params import Params, load_params
from stages.shared.cut import cutting_model, read_possible_materials
from stages.shared.surface import Surface
from stages.tetrahedralize.tetrahedralize import tetrahedralize
from stages.transport.plan import SpringSet
from stages.transport.transport import read_source, transport

ROOT = Path(__file__).parents[2]
FITTED = ROOT / "build" / "predictions"
RESULTS = ROOT / "build" / "bodies"
CUCUMBER_HEIGHT_M = 0.0412
"""Contact height of the cucumber log above the board."""
SAMPLE = ROOT / "data" / "scans" / "synthetic_apple"


def half_apple() -> Surface:
    """Half of the YCB apple after its first cut, on its cut face."""
    params = load_params(ROOT / "params.yaml")
    scan = read_scan(
        real_file("scans", "013_apple_google16k_nontextured.ply"), max_faces=params.clean.max_faces
    )
    mesh = tetrahedralize(clean(scan, params.clean).surface, params.tetrahedralize).mesh
    first = precut(mesh.nodes, mesh.tets, params.precut)
    body, cut_points = first.positive, first.cut.virtual_positions()[first.cut.virtual_side == 1]
    return halve(Surface(body.vertices, body.faces), cut_points, params.halve).surface


def half_cylinder() -> Surface:
    """The paper's half cylinder, flat side down, its axis across the blade, as high as the log's contact height."""
    shape = trimesh.load_mesh(real_file("meshes", "ansys_cyl_5mm.stl"))
    shape.apply_scale(CUCUMBER_HEIGHT_M / shape.extents[1])
    shape.merge_vertices()
    return Surface(np.asarray(shape.vertices, np.float64), np.asarray(shape.faces, np.int32))


SURFACES: dict[str, tuple[str, Callable[[], Surface]]] = {
    "apple": ("apple", half_apple),
    "cucumber": ("cucumber", half_cylinder),
}
"""Material, and the surface of the body that is cut."""


def sample() -> tuple[np.ndarray, np.ndarray, Path]:
    """Mesh of the sample's half and where its fitted parameters are."""
    folder = SAMPLE / "tetrahedralize_half"
    nodes = pl.read_parquet(folder / "nodes.parquet")["position_m"].to_numpy()
    return nodes, pl.read_parquet(folder / "tets.parquet")["nodes"].to_numpy(), SAMPLE / "calibrate"


def meshed(name: str, params: Params, folder: Path) -> tuple[np.ndarray, np.ndarray, Path]:
    """Mesh of the body, kept for the next run, and where its fitted parameters are."""
    saved = folder / "mesh.npz"
    if not saved.exists():
        with chdir(folder):  # where the mesher leaves a file of its own
            mesh = tetrahedralize(SURFACES[name][1](), params.tetrahedralize_half).mesh
        np.savez_compressed(saved, nodes_m=mesh.nodes, tets=mesh.tets)
    with np.load(saved) as mesh:
        return mesh["nodes_m"], mesh["tets"], FITTED / name


def skin_of(mesh: CutMesh, params: Params) -> np.ndarray:
    """Which springs are skin: every body lies on its first cut's face, which is bare flesh."""
    skin: np.ndarray = mesh.spring_surface & (mesh.spring_position[:, 1] > params.transport.bare_within_m)
    return skin


def values_of(fitted: Path, mesh: CutMesh, params: Params) -> dict[str, np.ndarray]:
    """The fitted parameters on the body's springs, by transport."""
    parameters, bounds = (pl.read_parquet(fitted / f"{stem}.parquet") for stem in ("parameters", "bounds"))
    source = read_source(parameters, bounds, params.transport)
    target = SpringSet(mesh.spring_position, mesh.spring_area, skin_of(mesh, params))
    moved = transport(source, target, params.transport).values
    return {name: moved[name] for name in SPRING_NAMES}


def run(name: str) -> None:
    """Optimise one body; metrics, motion and picture go to its folder."""
    params = load_params(ROOT / "params.yaml")
    folder = RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    nodes, tets, fitted = sample() if name == "sample" else meshed(name, params, folder)
    material = "apple" if name == "sample" else SURFACES[name][0]
    mesh = precut(nodes, tets, params.precut_half).cut
    values = values_of(fitted, mesh, params)
    model = cutting_model(mesh, MATERIALS[material], params.optimize.cut)
    found = optimize(
        model,
        values,
        params.optimize,
        finer=finer_cut(nodes, tets),
        materials=read_possible_materials(
            lambda _: pl.read_parquet(fitted / "draws.parquet"), skin_of(mesh, params)
        ),
        scan_dir=folder,
        key=lab_key(name, params.optimize, "optimize"),
        progress=partial(_print_progress, name),
    )
    all_metrics = {"tets": model.tet_count, "springs": model.spring_count, **metrics(found)}
    motion_table(found).write_parquet(folder / "motion.parquet")
    Image.fromarray(optimize_picture(found, mesh.nodes[~mesh.node_ghost][:, [2, 1]])).save(folder / "cut.png")
    (folder / "metrics.json").write_text(json.dumps(all_metrics, indent=2) + "\n")
    sys.stdout.write(f"{row(name, all_metrics)}\n")


def row(name: str, found: dict[str, Any]) -> str:
    """One line of the table."""
    shares = ("reduction", "reduction_over_time", "peak_reduction", "reduction_by_sawing")
    kept = found["confirmed_reduction"]
    cells = [
        name,
        f"{found['tets']}, {found['springs']}",
        f"{found['duration_s']:.2f} s",
        f"{found['mean_force_vertical_n']:.1f} → {found['mean_force_optimized_n']:.1f} N",
        *(f"{100.0 * found[key]:.1f} %" for key in shares),
        "no" if kept is None else f"{100.0 * kept:.1f} %",
        f"{1e3 * found['end_height_residual_m']:.3f}, {1e3 * found['lateral_residual_m']:.3f} mm",
    ]
    return f"| {' | '.join(cells)} |"


def _print_progress(name: str, fraction: float, text: str) -> None:
    sys.stderr.write(f"{name} {100.0 * fraction:3.0f} % {text}\n")


def main() -> None:
    """Optimise the named bodies, or all."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or ("sample", *SURFACES):
        run(name)


if __name__ == "__main__":
    main()
