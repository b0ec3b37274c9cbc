"""The stage calibrate: synthetic truth comes back, a killed fit goes on, bad trials are survived."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import yaml

from stages.calibrate.calibrate_report import metrics, parameter_table, profile_table, scalar_table
from stages.calibrate.calibration import calibrate, check_names
from stages.calibrate.methods import METHODS
from stages.calibrate.phase import FitOutcome, Objective
from stages.calibrate.problem import TOUCHED_NS, errors, live_picture
from stages.ingest.ingest import empty_table
from stages.precut.precut import precut, tables
from stages.runtime.artifacts import check_table, read_metrics, read_table, write_table
from stages.runtime.catalogue import ARTIFACTS, artifacts_of
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from tests.disect_sim.tet_meshes import jittered_box
from tests.stages.calibration_scenes import ROOT, SHIPPED, TRUTH, force_frame, quick, record, small_block


@pytest.fixture(scope="module")
def model():
    return small_block()


@pytest.fixture(scope="module")
def log(model):
    """Fast and half-way down, to be quick: enough to run a fit, not to find the truth."""
    return record(model, TRUTH, speed=0.2, end=0.012)


@pytest.fixture(scope="module")
def fit(model):
    params = quick(shared_iterations=12, individual=["cut_spring_ke"], individual_iterations=2)
    seen = []

    def show(problem, text):
        seen.append((text, problem.nearest.error_n, live_picture(problem, text).shape))

    done = calibrate(model, record(model, TRUTH), params, progress=lambda *_: None, show=show)
    SHOWN[:] = seen
    return params, done


SHOWN: list[tuple[str, float, tuple[int, ...]]] = []
"""What the fit showed on its way: text, error of the nearest curve [N], shape of the picture."""


def test_the_nearest_curve_so_far_can_be_watched(fit):
    _, done = fit
    assert len(SHOWN) == len(done.history)
    texts, errors_n, shapes = zip(*SHOWN, strict=True)
    assert texts[0].startswith("shared 1: loss") and texts[-1].startswith("individual")
    assert list(errors_n) == sorted(errors_n, reverse=True), "it never gets worse"
    p = done.problem
    use = p.contact & p.valid
    assert (
        errors_n[-1] <= abs(done.simulated - p.measured)[use].mean() * 1.0001
    )  # the same curve, in torch's rounding
    assert set(shapes) == {(450, 800, 3)}


def nmae(fit, simulated=None):
    p = fit.problem
    profile = fit.simulated if simulated is None else simulated
    return errors(profile, p.measured, p.contact & p.valid, p.mean_force).nmae


def test_two_shared_parameters_come_back(fit):
    _, done = fit
    # Same mesh, same steps, no noise: only the low-pass's ends and the log's interpolation stand between.
    assert float(done.reference_values["cut_spring_ke"]) == pytest.approx(700.0, rel=0.05)
    assert float(done.reference_values["sdf_mu"]) == pytest.approx(0.7, rel=0.05)
    assert nmae(done) < 0.01


def test_the_tables_keep_their_contracts(fit):
    params, done = fit
    model = done.problem.model
    parameters = parameter_table(
        model, done.values, gradient_norm=done.gradient_norm, touched_ns=done.impulse
    )
    for name, table in (
        ("calibrate/parameters", parameters),
        ("calibrate/scalars", scalar_table(done)),
        ("calibrate/profile", profile_table(done)),
        ("calibrate/profile", profile_table(None)),
        ("calibrate/scalars", scalar_table(None)),
    ):
        check_table(ARTIFACTS[name], table, name)
    reported = metrics(done, params)
    assert reported["nmae"] == pytest.approx(nmae(done))
    assert reported["mae_n"] == pytest.approx(reported["nmae"] * reported["mean_force_n"])
    assert reported["iterations"] == len(done.history) and reported["gradients"] <= reported["simulations"]
    assert abs(reported["onset_error_s"]) < 0.01
    assert not any("second" in key or "wall" in key for key in reported)


def test_springs_below_the_knifes_end_were_not_touched(fit):
    _, done = fit
    height = done.problem.model.mesh.spring_position[:, 1]
    assert (done.impulse[height > 0.012] > TOUCHED_NS).all()
    assert done.impulse[height < 0.001].max() < 0.1 * done.impulse.max()
    assert done.gradient_norm[np.argmin(done.impulse)] < done.gradient_norm.max()


def test_held_out_samples_do_not_enter_the_fit(fit):
    _, done = fit
    held = done.problem.held_out
    assert held.any()
    objective_sees = np.zeros(len(held), bool)
    objective_sees[done.problem.training.numpy()] = True
    assert not (objective_sees & held).any()
    assert (objective_sees | held)[done.problem.valid].all()


@pytest.mark.parametrize("optimiser", METHODS)
def test_a_killed_fit_goes_on_and_ends_alike(model, log, tmp_path, optimiser):
    individual_iterations = 2 if optimiser == "adam" else 0
    params = quick(
        shared_optimiser=optimiser,
        shared_iterations=2,
        individual=["sdf_mu"],
        individual_iterations=individual_iterations,
    )
    whole = calibrate(model, log, params)

    class KilledError(BaseException):
        pass

    def kill(_fraction, _text):
        raise KilledError

    for _ in range(1 + individual_iterations):
        with pytest.raises(KilledError):
            calibrate(model, log, params, scan_dir=tmp_path, key="k", progress=kill)
    again = calibrate(model, log, params, scan_dir=tmp_path, key="k")
    assert again.history == whole.history
    assert again.gradients == whole.gradients
    assert np.array_equal(again.simulated, whole.simulated)
    for name, value in whole.values.items():
        assert np.array_equal(again.values[name], value), name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("optimiser", METHODS)
def test_a_fit_ends_at_the_noise_of_the_log(model, log, optimiser):
    """The start is 10 to 20 % off; whatever is below 5 N counts as noise here, so the first iteration is the last."""
    done = calibrate(model, log, quick(shared_optimiser=optimiser, enough_n=5.0))
    assert done.outcome is FitOutcome.NOISE
    assert len(done.history) == 1


def test_the_individual_phase_begins_where_the_shared_one_ended_and_moves_the_skin(model, log):
    """Also when calibrate.start gives the skin values of its own."""
    params = quick(
        shared=["surface_cut_spring_ke", "surface_sdf_ke"],
        individual=["cut_spring_ke", "sdf_ke"],
        start={**TRUTH, "surface_cut_spring_ke": 3000.0, "surface_sdf_ke": 4000.0},
        shared_iterations=2,
        individual_iterations=2,
        individual_optimiser="adam",  # its first row is the start; L-BFGS has moved by then
        loss="l1",
    )
    done = calibrate(model, log, params)
    shared, individual = (
        [row for row in done.history if row.phase == phase] for phase in ("shared", "individual")
    )
    # The values pass through their bounds' logarithm and back: rounding only.
    assert individual[0].nmae == pytest.approx(shared[-1].nmae, rel=1e-6)
    skin = model.mesh.spring_surface
    touched = done.impulse > TOUCHED_NS
    assert (done.gradient_norm[skin & touched] > 0.0).any()


def test_bad_trials_are_survived_and_the_best_is_kept(model, log, monkeypatch):
    evaluate = Objective._evaluate
    count = 0

    def sometimes_bad(self, free):
        nonlocal count
        count += 1
        return self._bad(free, "Newton's method stalled.") if count in (2, 3) else evaluate(self, free)

    monkeypatch.setattr(Objective, "_evaluate", sometimes_bad)
    done = calibrate(model, log, quick(shared_optimiser="adam", shared_iterations=8, learning_rate=0.3))
    losses = [row.best_loss for row in done.history]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert [row.failed for row in done.history].count(True) == 2


def test_a_start_that_cannot_be_simulated_is_refused_with_the_reason(model, log):
    with pytest.raises(InputError, match=r"start parameters did not finish.*passed the limit"):
        calibrate(model, log, quick(force_limit_n=0.5))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"shared": ["sdf_mue"]}, "'sdf_mue' is not a parameter"),
        ({"individual": ["young_pa"]}, "Only cut_spring_ke"),
        ({"shared": ["young_pa"]}, r"calibrate\.start has no 'young_pa'"),
    ],
)
def test_what_cannot_be_fitted_is_said(model, log, change, sentence):
    with pytest.raises(InputError, match=sentence):
        calibrate(model, log, quick(**change))


def test_a_log_that_begins_inside_the_fruit_is_refused(model, log):
    late = log.time > 0.066
    parts = {name: part[late] for name, part in vars(log).items() if isinstance(part, np.ndarray)}
    cut = replace(log, **parts, onset_s=parts["time"][0])
    with pytest.raises(InputError, match="below the body's top"):
        calibrate(model, cut, quick())


@pytest.mark.slow
@pytest.mark.ci
def test_several_starts_give_the_best(model, log):
    params = quick(shared_iterations=1, starts=2, start_spread=1.5, processes=2)
    several, one = calibrate(model, log, params), calibrate(model, log, quick(shared_iterations=1))
    assert {row.phase for row in several.history} == {"shared", "shared 2"}
    assert nmae(several) <= nmae(one) + 1e-12


def test_shipped_parameters_are_valid():
    check_names(SHIPPED)


def make_project(folder, cut, section):
    """A project with one scan that precut and ingest have done: a box of 5 x 4 x 6 cm."""
    for name in ("stages", "disect_sim", "pipelines"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "params.yaml", folder)
    scan = folder / "data" / "scans" / "box"
    scan.mkdir(parents=True)
    shutil.copy(folder / "pipelines" / "dvc" / "scan.dvc.yaml", scan / "dvc.yaml")
    (scan / "box.ply").write_text("raw scan, not read by calibrate")
    result = precut(*jittered_box(3, cells=(3, 3, 3)), load_params(ROOT / "params.yaml").precut)
    for name, frame in tables(result).items():
        write_table(scan, name, frame)
    frame = force_frame(cut)
    write_table(scan, "ingest/force", frame)
    write_table(scan, "ingest/further", empty_table("ingest/further"))
    content = {
        "id": "box",
        "scan": "box.ply",
        "log": None,
        "material": "apple",
        "cut_surface": "box.ply",
        "force_log": "box.ply",
        "air_runs": "box.ply",
        "further_logs": "box.ply",
        "calibrate": section,
        "cut": {"dt_s": 0.004},
    }
    (scan / "scan.yaml").write_text(yaml.safe_dump(content))
    return scan


def run_stage(scan):
    command = [sys.executable, "-m", "stages", "calibrate", str(scan)]
    return subprocess.run(command, cwd=scan.parents[2], capture_output=True, text=True, check=False)


def test_stage_with_a_log_and_without(tmp_path, model, log):
    section = {
        "rate_hz": 250.0,
        "shared_iterations": 1,
        "individual_iterations": 1,
        "shared": ["cut_spring_ke"],
        "individual": ["sdf_mu"],
    }
    scan = make_project(tmp_path, log, section)
    done = run_stage(scan)
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (scan / "calibrate").iterdir()}
    assert written == {artifact.path.split("/")[1] for artifact in artifacts_of("calibrate")}
    reported = read_metrics(scan / "calibrate" / "metrics.json")
    assert reported["outcome"] in {outcome.word for outcome in FitOutcome} and reported["nmae"] > 0.0
    assert len(read_table(scan, "calibrate/parameters")) == reported["springs"]
    assert not (scan / ".checkpoints").exists() and not list(scan.glob(".scratch*"))

    nothing = force_frame(log)[:0]
    write_table(scan, "ingest/force", nothing)
    done = run_stage(scan)
    assert done.returncode == 0, done.stderr
    reported = json.loads((scan / "calibrate" / "metrics.json").read_text())
    assert reported["outcome"] == "no log, nominal parameters" and reported["nmae"] is None
    parameters = read_table(scan, "calibrate/parameters")
    assert (parameters["cut_spring_ke"] == SHIPPED.start["cut_spring_ke"]).all()
    assert (parameters["touched_ns"] == 0.0).all()
