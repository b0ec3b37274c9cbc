"""The material's posterior by sampling: gradients, priors, likelihoods, tables, and what does not go together."""

import numpy as np
import polars as pl
import pytest

from disect_sim.processes import Workers
from stages.calibrate.calibrate_picture import _draw_corner, calibrate_picture
from stages.calibrate.calibrate_report import band_table, metrics, sample_table
from stages.calibrate.calibration import calibrate, check_names, spring_values
from stages.calibrate.material.fit import material_unknowns
from stages.calibrate.material.posterior import draw_table, posterior_table, what_the_log_says
from stages.calibrate.material.sampled import material_target
from stages.calibrate.material.unknowns import Uniform, relative_slope, size_of
from stages.calibrate.problem import pose_problem
from stages.calibrate.samplers import sampling
from stages.optimize.search import _parameter_draws
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.shared.cut import read_possible_materials
from stages.shared.pictures import new_figure
from tests.disect_sim.scenes import block_model, regular_block
from tests.stages.calibrate.test_material_fit import EDGE_TRUTH, quick_material
from tests.stages.calibration_scenes import ROOT, TRUTH, record, small_block

SHORT = {"posterior": "sgld", "chains": 2, "samples": 6, "burn_in": 2, "forecast_from": 0.0, "draws": 4}


def paper(**changes):
    """Two of the paper's parameters with its law and its prior."""
    start = {name: value for name, value in TRUTH.items() if name not in ("sdf_ke", "cut_spring_ke")}
    base = {
        "damage_law": "force",
        "material": ["sdf_ke", "cut_spring_ke"],
        "prior": "uniform",
        "bounds": {"sdf_ke": (500.0, 8000.0), "cut_spring_ke": (100.0, 1500.0)},
        "start": start,
    }
    return quick_material(**{**base, **SHORT, **changes})


@pytest.fixture(scope="module")
def edge():
    model = block_model(regular_block((3, 3, 3)), damage_law="edge")
    return model, record(model, EDGE_TRUTH)


@pytest.fixture(scope="module")
def sampled(edge):
    return calibrate(*edge, quick_material(**SHORT), material="nothing known")


@pytest.mark.parametrize("likelihood", ["log", "exp_l1"])
@pytest.mark.parametrize("law", ["edge", "force"])
def test_the_gradient_agrees_with_differences(edge, law, likelihood):
    if law == "edge":
        model, log = edge
        params = quick_material(material=["edge_toughness", "edge_rise", "sdf_mu"])
    else:
        model, params = small_block(), paper()
        log = record(model, TRUTH)
    problem = pose_problem(model, log, params)
    unknowns = material_unknowns("nothing known", params)
    target = material_target([problem], unknowns, uncertainty_n=0.5, likelihood=likelihood)
    t = 0.4 + 0.1 * np.arange(len(unknowns))
    value, gradient = target.log_probability(t)
    step = (
        1e-3 if likelihood == "log" else 1e-4
    )  # absolute differences have kinks, and a long step crosses some
    moved = np.concatenate([t + step * np.eye(len(t)), t - step * np.eye(len(t)), t[None]])
    values = target.log_probabilities(moved, Workers(1))
    assert values[-1] == pytest.approx(value, rel=1e-9)
    difference = (values[: len(t)] - values[len(t) : -1]) / (2.0 * step)
    # The steps of the simulator's Newton method end at 1e-8 m: differences of such runs are good to a per cent.
    assert gradient == pytest.approx(difference, rel=0.02, abs=0.02 * np.abs(difference).max())


def test_without_amplitude_only_the_named_parameters_are_sought():
    unknowns = material_unknowns("apple", paper())
    assert unknowns.names == ["sdf_ke", "cut_spring_ke"]
    assert unknowns.amplitude(np.zeros(2)) == 1.0 and unknowns.height(np.zeros(2)) == 0.0


def test_a_uniform_prior_is_uniform():
    prior = Uniform(500.0, 8000.0)
    drawn = np.array([size_of(prior, t) for t in np.random.default_rng(0).standard_normal(4000)])
    counts, _ = np.histogram(drawn, 10, range=(500.0, 8000.0))
    assert counts.sum() == 4000
    # Counts of 400 have a deviation of 19.
    assert (np.abs(counts - 400) < 80).all()
    slope = (np.log(size_of(prior, 0.301)) - np.log(size_of(prior, 0.299))) / 0.002
    assert relative_slope(prior, 0.3) == pytest.approx(slope, rel=1e-5)


def test_samples_are_what_optimize_reads(sampled):
    found, posterior = sampled.material.sampled, sampled.material.posterior
    table = sample_table(sampled.material)
    check_table(ARTIFACTS["calibrate/samples"], table, "calibrate/samples")
    assert len(table) == 2 * 6 * len(posterior.unknowns)
    toughness = table.filter(pl.col("name") == "edge_toughness")
    assert set(toughness["unit"]) == {"J/m^2"}
    friction = table.filter(pl.col("name") == "sdf_mu")["value"].to_numpy()
    draws = draw_table(posterior, 4, 0).filter(pl.col("name") == "sdf_mu")["factor"].to_numpy()
    assert len(draws) == 4
    for factor in draws:
        assert np.isclose(
            friction, factor * posterior.unknowns.sizes(posterior.mean)["sdf_mu"], rtol=1e-9
        ).any()
    rows = {row["name"]: row for row in posterior_table(posterior).iter_rows(named=True)}
    low, high = np.quantile(toughness["value"].to_numpy(), (0.05, 0.95))
    assert rows["edge_toughness"]["low"] == pytest.approx(low, rel=1e-2)
    assert rows["edge_toughness"]["high"] == pytest.approx(high, rel=1e-2)
    assert found.samples.gradients == 2 * 9


def test_optimize_cuts_with_the_sampled_materials(sampled):
    """What a robust motion is sought for are the fit and points of the chains, on the springs of the second cut."""
    posterior, problem = sampled.material.posterior, sampled.problem
    draws = draw_table(posterior, 4, 0)
    mesh = problem.model.mesh
    materials = read_possible_materials({"calibrate/draws": draws}.__getitem__, mesh.spring_surface)
    values = spring_values(problem.model, sampled.values)
    tried = _parameter_draws(values, load_params(ROOT / "params.yaml").optimize.changed(draws=4), materials)
    table = sample_table(sampled.material).filter(pl.col("name") == "sdf_mu")
    points = table["value"].to_numpy()
    assert len(tried) == 4 and (tried[0]["sdf_mu"] == values["sdf_mu"]).all()
    for each in tried[1:]:
        friction = each["sdf_mu"]
        assert len(friction) == problem.model.spring_count
        assert friction == pytest.approx(friction[0]) and np.isclose(points, friction[0], rtol=1e-9).any()
    assert len({float(each["sdf_mu"][0]) for each in tried}) > 1, "they differ"


def test_the_report_of_a_sampled_posterior(sampled):
    params = quick_material(**SHORT)
    figures = metrics(sampled, params)
    assert figures["posterior"] == "sgld" and figures["posterior_points"] == 12
    assert figures["effective_points"] > 0 and figures["rhat"] > 0.9
    assert "independent points" in figures["remedy"], "12 points are too few, and it says so"
    band = band_table(sampled)
    check_table(ARTIFACTS["calibrate/band"], band, "calibrate/band")
    assert (
        figures["inside_band"]
        == ((band["measured_n"] >= band["low_n"]) & (band["measured_n"] <= band["high_n"])).mean()
    )
    assert figures["inside_band"] > 0.9
    picture = calibrate_picture(sampled, figures)
    assert picture.shape[0] > 1500 and picture[-600:].std() > 10.0


@pytest.mark.slow
@pytest.mark.ci
def test_a_killed_posterior_goes_on_and_ends_with_the_same_points(edge, sampled, tmp_path, monkeypatch):
    class KilledError(Exception):
        pass

    def kill(fraction, text):
        if text.startswith("sgld: chain 2, iteration 3"):
            raise KilledError

    monkeypatch.setattr(sampling, "_SAVE_S", 0.0)
    params, where = quick_material(**SHORT), {"scan_dir": tmp_path, "key": "k", "material": "nothing known"}
    with pytest.raises(KilledError):
        calibrate(*edge, params, progress=kill, **where)
    assert list(tmp_path.glob(".checkpoints/calibrate-sgld-1.pt"))
    seen = []
    again = calibrate(*edge, params, progress=lambda share, text: seen.append(share), **where)
    assert (again.material.sampled.samples.t == sampled.material.sampled.samples.t).all()
    assert seen == sorted(seen) and seen[-1] == pytest.approx(1.0)
    assert not list(tmp_path.glob(".checkpoints/*"))


def test_the_papers_prior_and_likelihood_by_a_grid():
    model = small_block()
    log = record(model, TRUTH)
    params = paper(posterior="grid", likelihood="exp_l1", simulations=36, samples=80)
    fit = calibrate(model, log, params, material="nothing known")
    rows = {row["name"]: row for row in posterior_table(fit.material.posterior).iter_rows(named=True)}
    assert rows["sdf_ke"]["low"] < TRUTH["sdf_ke"] < rows["sdf_ke"]["high"]
    assert rows["sdf_ke"]["expected"] == pytest.approx(4250.0)
    assert metrics(fit, params)["rhat"] is None
    says = what_the_log_says(posterior_table(fit.material.posterior))
    assert says["sdf_ke"][0] == pytest.approx(rows["sdf_ke"]["value"], rel=1e-3)
    assert calibrate_picture(fit, metrics(fit, params)).std() > 10.0


@pytest.mark.parametrize("summary", ["slices", "profile", "statistics"])
def test_summaries_of_the_measured_force_are_the_observed_ones(edge, summary):
    """What a network sees of the log is what it would see of a simulation that is the log, but for noise."""
    model, log = edge
    params = quick_material()
    problem = pose_problem(model, log, params)
    unknowns = material_unknowns("nothing known", params)
    target = material_target([problem], unknowns, uncertainty_n=1e-6, summary=summary)
    clean = target.summaries(np.zeros((2, len(unknowns))), Workers(1))
    assert (clean[0] == clean[1]).all() and np.isfinite(clean).all()
    noisy = target.noisy(np.repeat(clean, 200, axis=0), np.random.default_rng(0))
    assert noisy.shape[1] == len(target.observed)
    if summary == "slices":
        assert target.observed == pytest.approx(0.0)
        assert noisy.std(axis=0) == pytest.approx(1.0, rel=0.2)
    if summary == "profile":
        assert len(target.observed) == min(90, (problem.contact & problem.valid).sum())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"likelihood": "exp_l1"}, r"has kinks.*Set calibrate.posterior to grid, sgld or nuts"),
        ({"posterior": "sgld", "fit": "springs"}, r"Only a handful of unknowns"),
        ({"posterior": "bayessim", "likelihood": "exp_l1"}, r"learns from simulations"),
        ({"prior": "uniform", "material": ["cut_spring_softness"]}, r"must name parameters of that law"),
        ({"prior": "uniform", "material": []}, r"names nothing"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        check_names(quick_material(**changes))


@pytest.mark.parametrize(("count", "bins", "size"), [(40, 10, 6.0), (4000, 24, 2.0)])
def test_a_corner_plot_of_few_points_can_be_read(count, bins, size):
    """Fewer, wider bars and larger dots."""
    figure, _ = new_figure((4.0, 4.0))
    _draw_corner(figure, np.random.default_rng(0).standard_normal((count, 2)), ["a", "b"])
    first, _, pair, _ = figure.axes
    assert len(first.patches) == bins
    assert pair.lines[0].get_markersize() == size
