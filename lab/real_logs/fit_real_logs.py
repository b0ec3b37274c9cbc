"""Fits five real force profiles, for the table and the picture of a fit of springs.

    python -m lab.real_logs.fit_real_logs [CASE ...]  apple, cucumber, potato, real_apple, prism; all without arguments
    python -m lab.docs.draw_real_fits                draws the picture and prints the table from the results

Needs the real data (lab/notes/real_data.md). There is no scan of those fruits: the bodies are primitives, scaled to the
log's contact height (docs/calibration.md). Results go to build/real_logs/CASE: mesh, checkpoint, metrics, profile,
parameters. A killed run continues from its checkpoint; a finished case is left alone until its folder is deleted.
"""

import json
import sys
import time
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import trimesh
from PIL import Image

from disect_sim import KNIVES, MATERIALS, build_model, cut_by_plane
from disect_sim.model import Model
from lab.real_logs.real_data import lab_key, real_file
from stages.calibrate.calibrate_picture import calibrate_picture
from stages.calibrate.calibrate_report import bound_table, metrics, parameter_table, profile_table
from stages.calibrate.calibration import calibrate
from stages.calibrate.problem import RecordedCut, find_onset, read_recorded_cut
from stages.ingest.ingest import force_table, ingest
from stages.ingest.log_file import read_log
from stages.runtime.params import load_params
from stages.shared.surface import Surface
from stages.tetrahedralize.tetrahedralize import tetrahedralize

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "real_logs"
SPEED_M_S = 0.05
"""Of the two cuts that come as force over time, without a motion: both were straight at 50 mm/s."""
COMMON = {
    "damage_law": "force",
    "boundary": "held",
    "fit": "springs",
    "dt_s": 0.004,
    "rate_hz": 250.0,
    "smoothness": 0.001,
    "tolerance": 0.0005,
    "shared_iterations": 12,
    "individual_iterations": 80,
}
"""What differs from params.yaml: the paper's law and fit, longer steps, more iterations and a looser prior, for
profiles the shared laws do not follow."""
SKIN = {
    "surface_cut_spring_ke": 7000.0,
    "surface_cut_spring_softness": 0.7,
    "surface_sdf_ke": 7000.0,
    "surface_sdf_tip": 0.0005,
}
"""Start of the skin: stiff and brittle, so that it dents and gives way at once. A soft start finds no puncture."""


@dataclass(frozen=True)
class Case:
    """One real profile and the body it is fitted on."""

    material: str
    knife: str
    shape: str
    """ANSYS primitive (sphere, prism: halves of 50 mm height), or cylinder, made here."""
    height_m: float
    """Contact height of the log, to which the shape is scaled."""
    edge_m: float
    cut_edge_m: float
    brittle: bool = True
    """Whether the fit begins with a stiff, brittle skin, or with skin like flesh."""


CASES = {
    "apple": Case("apple", "folding", "sphere", 0.042, 0.016, 0.0095),
    "cucumber": Case("cucumber", "folding", "cylinder", 0.0412, 0.012, 0.0065, brittle=False),
    "potato": Case("potato", "folding", "sphere", 0.052, 0.018, 0.0115),
    "real_apple": Case("apple", "kitchen", "sphere", 0.05, 0.018, 0.011),
    "prism": Case("potato", "kitchen", "prism", 0.05, 0.022, 0.0125),
}


PROFILES = {
    "real_apple": ("real_apple_groundtruth.csv", "force_N"),
    "prism": ("lsdyna_prism_potato_50mm_s.csv", "fy_N"),
}
"""File and column of the cuts of which there is a force over time only."""


def log_file(case: str) -> Path:
    """What was recorded."""
    return (
        real_file("forces", PROFILES[case][0]) if case in PROFILES else real_file("panda", case, "cut.json")
    )


def recorded(case: str) -> RecordedCut:
    """The measured cut: a robot's log through ingest, or a profile in time with a constant speed."""
    path = log_file(case)
    if case not in PROFILES:
        params = load_params(ROOT / "params.yaml").ingest
        airs = {air.name: read_log(air, params) for air in sorted(path.parent.glob("air*.json"))}
        record = ingest(read_log(path, params), params, air_runs=airs, source=case)
        cut = read_recorded_cut(force_table(record))
        assert cut is not None
        return cut
    table = pl.read_csv(path)
    moment = table["time_s"].to_numpy()
    keep = np.concatenate([[True], np.diff(moment) > 0.0])
    moment, force = moment[keep], table[PROFILES[case][1]].to_numpy()[keep]
    zero = np.zeros_like(moment)
    # The heights only matter from contact on: calibrate.align shifts them to meet the body's top.
    position = np.stack([zero, 0.08 - SPEED_M_S * moment, zero], axis=1)
    velocity = np.tile([0.0, -SPEED_M_S, 0.0], (len(moment), 1))
    return RecordedCut(
        moment,
        position,
        velocity,
        np.stack([zero, force, zero], axis=1),
        np.ones(len(zero), bool),
        float(find_onset(moment, force) or 0.0),
    )


def body(case: Case, folder: Path) -> Model:
    """The primitive, cut; its mesh is kept, so that a resumed fit does not mesh again."""
    saved = folder / "mesh.npz"
    if not saved.exists():
        with chdir(folder):  # where the mesher leaves a file of its own
            nodes, tets = meshed(case)
        np.savez_compressed(saved, nodes_m=nodes, tets=tets)
    with np.load(saved) as mesh:
        cut = cut_by_plane(mesh["nodes_m"], mesh["tets"])
    return build_model(cut, MATERIALS[case.material], KNIVES[case.knife])


def meshed(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [m], shape [n, 3], and tets, shape [t, 4], of the primitive."""
    if case.shape == "cylinder":
        shape = trimesh.creation.cylinder(radius=0.5 * case.height_m, height=0.06, sections=48)
        shape.apply_transform(trimesh.transformations.rotation_matrix(np.pi / 2.0, [0.0, 1.0, 0.0]))
        shape.apply_translation([0.0, -shape.bounds[0][1], 0.0])
    else:
        shape = trimesh.load_mesh(real_file("meshes", f"ansys_{case.shape}_5mm.stl"))
        shape.apply_scale(case.height_m / 0.05)
        shape.merge_vertices()
    sizes = load_params(ROOT / "params.yaml").tetrahedralize.model_copy(
        update={
            "edge_m": case.edge_m,
            "cut_edge_m": case.cut_edge_m,
            "epsilon_m": 0.001,
            "max_volume_error_fraction": 0.03,
        }
    )
    surface = Surface(np.asarray(shape.vertices, float), np.asarray(shape.faces, np.int32))
    mesh = tetrahedralize(surface, sizes).mesh
    return mesh.nodes, mesh.tets


def fit(name: str) -> None:
    """Fit one case; metrics, profile, parameters and picture go to its folder."""
    case, folder = CASES[name], RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    shipped = load_params(ROOT / "params.yaml").calibrate
    start = {**shipped.start, **(SKIN if case.brittle else {})}
    params = shipped.changed(**COMMON, start=start)
    cpu = time.process_time()
    model, cut = body(case, folder), recorded(name)
    done = calibrate(
        model,
        cut,
        params,
        scan_dir=folder,
        key=lab_key(name, params, "calibrate"),
        progress=partial(_print_progress, name),
    )
    fit_metrics = metrics(done, params)
    all_metrics = {"tets": model.tet_count, "cpu_s": time.process_time() - cpu, **fit_metrics}
    profile_table(done).write_parquet(folder / "profile.parquet")
    springs = parameter_table(model, done.values, gradient_norm=done.gradient_norm, touched_ns=done.impulse)
    springs.write_parquet(folder / "parameters.parquet")
    bound_table(params).write_parquet(folder / "bounds.parquet")
    Image.fromarray(calibrate_picture(done, fit_metrics)).save(folder / "fit.png")
    (folder / "metrics.json").write_text(json.dumps(all_metrics, indent=2) + "\n")


def _print_progress(name: str, fraction: float, text: str) -> None:
    sys.stderr.write(f"{name} {100.0 * fraction:3.0f} % {text}\n")


def main() -> None:
    """Fit the named cases, or all; those that are done are left alone."""
    for name in sys.argv[1:] or CASES:
        if (RESULTS / name / "metrics.json").exists():
            sys.stderr.write(f"{name} is done; delete {RESULTS / name} to fit it again\n")
        else:
            fit(name)


if __name__ == "__main__":
    main()
