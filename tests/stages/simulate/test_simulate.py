"""The stage simulate: tables that keep the contract, forces that make sense, errors that lose nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from disect_sim.cut_mesh import CutMesh
from disect_sim.parameters import MATERIALS, SPRING_PARAMETERS
from disect_sim.virtual_nodes.cutting import cut_by_plane
from stages.precut.precut import precut, tables
from stages.runtime.artifacts import read_metrics, read_table, write_table
from stages.runtime.catalogue import artifacts_of
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.shared.cut import read_cut_mesh, straight_cut
from stages.simulate.description import SimulateParams
from stages.simulate.simulate import (
    Profile,
    _check_parameters,
    _simulate_picture,
    force_table,
    metrics,
    simulate,
    spring_table,
)
from tests.disect_sim.tet_meshes import jittered_box

ROOT = Path(__file__).parents[3]
SHIPPED = load_params(ROOT / "params.yaml").simulate
# A box of 5 x 4 x 6 cm, cut fast and damaged fast: the whole cut in 150 steps.
CUT = {"speed_m_s": 0.3}
QUICK = {"parameters": {**SHIPPED.parameters, "cut_spring_softness": 1.0}}
PARAMS = SHIPPED.changed(**CUT, **QUICK)
APPLE = MATERIALS["apple"]


@pytest.fixture(scope="module")
def mesh() -> CutMesh:
    return cut_by_plane(*jittered_box(3), point=(0.0, 0.0, 0.0), normal=(1.0, 0.0, 0.0))


@pytest.fixture(scope="module")
def cut(mesh):
    return simulate(mesh, APPLE, PARAMS)


def test_motion_goes_from_above_the_fruit_to_above_the_board(mesh):
    motion, duration = straight_cut(mesh, PARAMS.cut)
    start, end = motion.poses(np.array([0.0, duration]))
    # The box is 4 cm high and centred in z.
    assert start == pytest.approx([0.0, 0.04 + PARAMS.cut.start_clearance_m, 0.0], abs=1e-12)
    assert end == pytest.approx([0.0, PARAMS.cut.board_clearance_m, 0.0], abs=1e-12)
    # Rounded to whole steps, so slower by at most one step's share.
    assert -motion.parameters["velocity_y"] == pytest.approx(
        PARAMS.cut.speed_m_s, rel=PARAMS.cut.dt_s / duration
    )
    assert duration / PARAMS.cut.dt_s == pytest.approx(round(duration / PARAMS.cut.dt_s), abs=1e-9)


def test_force_table(cut):
    table = force_table(cut)
    force, height = table["force_n"].to_numpy(), table["knife_position_m"].to_numpy()[:, 1]
    assert np.array_equal(table["force_norm_n"].to_numpy(), np.linalg.norm(force, axis=1))
    assert height[-1] == pytest.approx(PARAMS.cut.board_clearance_m, abs=1e-12)
    # Above the fruit by more than the knife's rounding and tip width nothing touches.
    above = height > 0.04 + PARAMS.parameters["sdf_radius"] + PARAMS.parameters["sdf_tip"]
    assert above.any() and np.abs(force[above]).max() == 0.0
    assert (table["contact_area_m2"].to_numpy()[above] == 0.0).all()
    # The knife is pushed up, and what it works is the vertical force times the way.
    assert force[~above, 1].mean() > 0.0
    way = -np.diff(height, prepend=0.04 + PARAMS.cut.start_clearance_m)
    assert metrics(cut)["knife_work_j"] == pytest.approx(float(force[:, 1] @ way), rel=1e-9)


def test_springs_are_cut_from_above(mesh, cut):
    table = spring_table(cut)
    remaining = table["remaining_fraction"].to_numpy()
    assert ((remaining >= 0.0) & (remaining <= 1.0)).all()
    height = mesh.spring_position[:, 1]
    assert remaining[height > 0.03].mean() < 0.01
    found = metrics(cut)
    assert found["dead_springs"] == (remaining == 0.0).sum() > 0
    assert found["cut_fraction"] == pytest.approx(1.0 - remaining.mean(), abs=1e-12)
    # Between the halves is a blade of 2 mm with a rounding of 0.5 mm; a cut spring spans at most that and a little.
    assert 0.0 < table["stretch_m"].to_numpy()[remaining == 0.0].max() < 5e-3


def test_metrics_are_deterministic_figures_with_the_outcome_in_words(mesh, cut):
    found = metrics(cut)
    assert found["outcome"] == "The knife finished its motion."
    assert found["peak_force_n"] >= found["mean_force_n"] > 0.0
    assert found["cut_surface_off_plane_m"] < 1e-12
    assert metrics(simulate(mesh, APPLE, PARAMS)) == found
    assert not any("second" in key or "wall" in key for key in found)


def test_a_cut_surface_beside_the_knife_is_called_so():
    beside = cut_by_plane(*jittered_box(3), point=(0.004, 0.0, 0.0), normal=(1.0, 0.0, 0.0))
    found = metrics(simulate(beside, APPLE, PARAMS.changed(board_clearance_m=0.035)))
    assert found["cut_surface_off_plane_m"] == pytest.approx(0.004, abs=1e-4)
    assert "up to 4.0 mm from the knife's plane" in found["warning"]


def test_a_blade_shorter_than_the_fruit_is_called_so(mesh, cut):
    assert metrics(cut)["warning"] is None, "150 mm over 60 mm"
    found = metrics(simulate(mesh, APPLE, PARAMS.changed(knife="folding", board_clearance_m=0.03)))
    assert "blade is 54 mm long, the cut surface 60 mm" in found["warning"]
    assert "Use a longer knife" in found["warning"]


def test_more_friction_needs_more_force(mesh, cut):
    rough = PARAMS.changed(parameters={**PARAMS.parameters, "sdf_mu": 1.0})
    assert metrics(simulate(mesh, APPLE, rough))["mean_force_n"] > 1.1 * metrics(cut)["mean_force_n"]


def test_picture_shows_four_times_and_the_force(mesh, cut):
    result = cut.result
    profile = Profile(
        result.time, result.force, np.interp(result.time, result.step_time, result.cut_fraction)
    )
    picture = _simulate_picture(mesh, cut.model.knife, cut.moments, profile)
    assert len(cut.moments) == 4
    views, plot = picture[:430], picture[430:]
    for panel in (*np.array_split(views, 4, axis=1), plot):
        assert 0.01 < (panel < 240).any(axis=2).mean() < 0.95


def test_progress_grows_to_one(mesh):
    reported: list[float] = []
    short = PARAMS.changed(board_clearance_m=0.03)
    simulate(mesh, APPLE, short, progress=reported.append)
    assert reported == sorted(reported) and reported[-1] == 1.0


def test_a_run_that_stops_gives_the_remedy(mesh):
    weak = PARAMS.changed(force_limit_n=0.5)
    with pytest.raises(InputError, match=r"passed the limit.*raise force_limit_n.*limit is 0\.5 N"):
        simulate(mesh, APPLE, weak)


def test_a_motion_that_stays_above_the_fruit_is_refused(mesh):
    with pytest.raises(InputError, match=r"less than the fruit's height, 0\.04 m"):
        simulate(mesh, APPLE, PARAMS.changed(board_clearance_m=0.05))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"parameters": {"sdf_mue": 0.5}}, "'sdf_mue' is not a parameter. Known: cut_spring_ke"),
        ({"parameters": {"sdf_mu": 2.0}}, r"sdf_mu is 2\. .* from 0\.02 to 1\."),
        (
            {"damage_law": "stretch"},
            r"cut_spring_softness is 1 N/m per m.*'stretch' it must be from 10 to 5000",
        ),
    ],
)
def test_parameters_are_checked_by_name_and_range(change, sentence):
    with pytest.raises(InputError, match=sentence):
        _check_parameters(PARAMS.changed(**change))


def test_shipped_parameters_are_valid_and_name_every_spring_parameter():
    _check_parameters(SHIPPED)
    assert set(SHIPPED.parameters) == set(SPRING_PARAMETERS)


def test_a_scan_overrides_single_parameters(tmp_path):
    scan_yaml = tmp_path / "scan.yaml"
    scan_yaml.write_text(yaml.safe_dump({"simulate": {"parameters": {"sdf_mu": 0.7}}}))
    merged = load_params(ROOT / "params.yaml", scan_yaml).simulate
    assert merged.parameters == {**SHIPPED.parameters, "sdf_mu": 0.7}


def test_params_have_no_defaults_of_their_own():
    with pytest.raises(ValueError, match="Field required"):
        SimulateParams()


def make_project(folder, section, cut):
    """A project with one scan that precut has done: the box."""
    for name in ("stages", "disect_sim", "pipelines"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "params.yaml", folder)
    scan = folder / "data" / "scans" / "box"
    scan.mkdir(parents=True)
    shutil.copy(folder / "pipelines" / "dvc" / "scan.dvc.yaml", scan / "dvc.yaml")
    (scan / "box.ply").write_text("raw scan, not read by simulate")
    result = precut(*jittered_box(3), load_params(ROOT / "params.yaml").precut)
    for name, frame in tables(result).items():
        write_table(scan, name, frame)
    write_scan_file(scan, section, cut)
    return scan, result.cut


def write_scan_file(scan, section, cut):
    content = {"id": "box", "scan": "box.ply", "log": None, "material": "apple", "cut_surface": "box.ply"}
    (scan / "scan.yaml").write_text(yaml.safe_dump({**content, "simulate": section, "cut": cut}))


def run_simulate(scan):
    command = [sys.executable, "-m", "stages", "simulate", str(scan)]
    return subprocess.run(command, cwd=scan.parents[2], capture_output=True, text=True, check=False)


def contents(scan):
    return {path.name: path.read_bytes() for path in sorted((scan / "simulate").iterdir())}


def test_stage_writes_everything_twice_alike_and_a_failing_rerun_changes_nothing(tmp_path):
    scan, mesh = make_project(tmp_path, QUICK, CUT)
    again = read_cut_mesh(lambda name: read_table(scan, name))
    for name in again.__dataclass_fields__:
        assert np.array_equal(getattr(again, name), getattr(mesh, name)), name

    done = run_simulate(scan)
    assert done.returncode == 0, done.stderr
    before = contents(scan)
    assert set(before) == {Path(a.path).name for a in artifacts_of("simulate")}
    assert read_metrics(scan / "simulate" / "metrics.json")["peak_force_n"] > 0.0
    assert len(read_table(scan, "simulate/springs")) == len(mesh.spring_area)

    write_scan_file(scan, QUICK, {**CUT, "force_limit_n": 0.5})
    stopped = run_simulate(scan)
    assert stopped.returncode == 2
    assert "passed the limit" in stopped.stderr and "Traceback" not in stopped.stderr
    assert contents(scan) == before
    assert not list(scan.glob(".scratch*"))

    write_scan_file(scan, QUICK, CUT)
    assert run_simulate(scan).returncode == 0
    assert contents(scan) == before
