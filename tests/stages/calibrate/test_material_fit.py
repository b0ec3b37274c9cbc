"""The fit of the material: a synthetic truth comes back, its end is forecast, a killed fit goes on, priors are what
they say, and another synthetic cut is predicted inside its band."""

import json

import numpy as np
import polars as pl
import pytest

from disect_sim.cut_mesh import box_mesh
from stages.calibrate.calibrate_picture import calibrate_picture
from stages.calibrate.calibrate_report import metrics, parameter_table
from stages.calibrate.calibration import calibrate
from stages.calibrate.material.discrepancy import left_over, left_over_table, scale_again
from stages.calibrate.material.fit import _profiles_of_draws, best_factor, material_unknowns
from stages.calibrate.material.likelihood import depth_likelihood
from stages.calibrate.material.posterior import Posterior, draw_table, posterior_table
from stages.calibrate.material.search import MaterialSearch
from stages.calibrate.prediction import predict
from stages.calibrate.problem import pose_problem
from stages.precut.precut import precut, tables
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.shared.library.library import sharpness_ratio
from tests.disect_sim.scenes import BLOCK_HIGH, BLOCK_LOW, block_model, regular_block
from tests.stages.calibration_scenes import ROOT, TRUTH, force_frame, quick, record

EDGE_TRUTH = {
    **{name: value for name, value in TRUTH.items() if name != "cut_spring_softness"},
    "edge_toughness": 700.0,
    "edge_rise": 1.5e-3,
    "skin_toughness": 300.0,
    "skin_depth": 1.0e-3,
    "sdf_mu": 0.25,
}


def quick_material(**changes):
    start = {name: value for name, value in EDGE_TRUTH.items() if name != "sdf_mu"}
    base = {
        "damage_law": "edge",
        "fit": "material",
        "material": ["edge_toughness", "sdf_mu"],
        "forecast_from": 0.5,
        "shared_iterations": 6,
        "processes": 1,
        "start": start | {"sdf_mu": 0.15},
    }
    return quick(**{**base, **changes})


@pytest.fixture(scope="module")
def model():
    return block_model(regular_block((3, 3, 3)), damage_law="edge")


@pytest.fixture(scope="module")
def log(model):
    return record(model, EDGE_TRUTH)


@pytest.fixture(scope="module")
def done(model, log):
    return calibrate(model, log, quick_material(), material="nothing known")


def test_the_truth_comes_back_within_its_interval(done):
    """Synthetic, same mesh: what the prior leads to expect is 400 and 0.15."""
    table = posterior_table(done.material.posterior)
    check_table(ARTIFACTS["calibrate/posterior"], table, "calibrate/posterior")
    rows = {row["name"]: row for row in table.iter_rows(named=True)}
    toughness = rows["edge_toughness"]
    assert toughness["expected"] == pytest.approx(400.0)
    assert toughness["low"] < 700.0 < toughness["high"]
    assert abs(toughness["value"] / 700.0 - 1.0) < 0.15
    assert toughness["high"] / toughness["low"] < 0.5 * toughness["expected_high"] / toughness["expected_low"]
    assert "known from this log" in toughness["learned"]


def test_the_end_of_the_cut_is_forecast_from_its_first_half(done):
    tail = done.material.tail
    assert tail.nmae_model < 0.05
    assert tail.nmae <= 0.5 * (tail.nmae_model + tail.nmae_hold_last) + 1e-9, "the mean of two forecasts"
    assert tail.coverage > 0.85
    figures = metrics(done, quick_material())
    assert figures["nmae"] < 0.03
    assert figures["nmae_forecast"] == done.material.tail.nmae
    assert figures["nmae_held_out"] is None, "the fit of the material sees every valid sample"
    assert calibrate_picture(done, figures).std() > 10.0


def test_draws_spread_as_the_posterior_says(done):
    unknowns = done.material.posterior.unknowns
    random = np.random.default_rng(1)
    root = np.eye(len(unknowns)) + 0.4 * random.standard_normal((len(unknowns), len(unknowns)))
    posterior = Posterior(unknowns, random.standard_normal(len(unknowns)), 0.1 * root @ root.T)
    table = draw_table(posterior, 400, 0)
    check_table(ARTIFACTS["calibrate/draws"], table, "calibrate/draws")
    for i, (name, prior) in enumerate(unknowns.prior.items()):
        drawn = np.log(table.filter(pl.col("name") == name)["factor"].to_numpy())
        spread = prior.spread * np.sqrt(posterior.covariance[i, i])
        assert drawn.std() == pytest.approx(spread, rel=0.15)
        assert drawn.mean() == pytest.approx(0.0, abs=4.0 * spread / np.sqrt(400))


def test_every_draw_has_what_it_leaves_of_the_log_itself(model, log, done):
    """So what the log says of the sum of both stays known: draws of the fitted cut itself agree within the noise."""
    posterior, params = done.material.posterior, quick_material()
    problem = pose_problem(model, log, params)
    use = problem.contact & problem.valid
    likelihood = depth_likelihood(problem, use, params.force_uncertainty_n)
    draws = posterior.draws(params.draws, params.seed)
    profiles = [own for (own,) in _profiles_of_draws([problem], posterior.unknowns, draws, 1)]
    lefts = done.material.left_over[1:]
    assert len(lefts) == len(profiles)
    for t, profile, left in zip(draws, profiles, lefts, strict=True):
        scale = scale_again([np.log(posterior.unknowns.amplitude(t))])
        assert left.factor == pytest.approx(left_over([likelihood], [profile], scale=scale).factor, rel=1e-9)

    def spread(factors):
        return np.std([f * p for f, p in zip(factors, profiles, strict=True)], axis=0)[use].mean()

    alone = spread(np.ones(len(profiles)))
    same = spread(
        [left_over([likelihood], [profile], same_cut=True).at(problem.height) for profile in profiles]
    )
    assert same < 0.35 * alone


def test_slices_are_whole(model, log):
    """A rest of a millimetre at the end is no slice of its own, which a single sample would decide."""
    problem = pose_problem(model, log, quick_material())
    use = problem.contact & problem.valid
    for samples in range(-12, 0):
        shown = use.copy()
        shown[samples:] = False
        slices = depth_likelihood(problem, shown, 0.5).slices
        counts = (slices > 0.0).sum(axis=1)
        assert counts.sum() == shown.sum()
        assert counts.min() > 0.4 * counts.max()


def test_derivatives_of_the_residuals_agree_with_differences(model, log):
    params = quick_material(material=["edge_toughness", "edge_rise", "skin_toughness", "sdf_mu"])
    problem = pose_problem(model, log, params)
    unknowns = material_unknowns("nothing known", params)
    likelihood = depth_likelihood(problem, problem.contact & problem.valid, 0.5)
    search = MaterialSearch("material", unknowns, [likelihood], 1)
    search.covariance()
    for i in range(len(unknowns)):
        move = 1e-3 * np.eye(len(unknowns))[i]
        ends = []
        for t in (move, -move):
            _, result = problem.run(unknowns.values(t), differentiable=False)
            ends.append(likelihood.residual(unknowns.amplitude(t) * problem.filtered(result)))
        difference = (ends[0] - ends[1]) / 2e-3
        # Residuals are in standard deviations: a few hundredths of one do not matter to a step.
        assert search.jacobian[:, i] == pytest.approx(difference, rel=0.02, abs=0.03), unknowns.names[i]


def test_a_drawn_cut_tells_more_of_friction_than_a_straight_one(model, log, done):
    """Drawn, the edge's push falls as 1 / (1 + xi^2) and friction's as its root; both lie along the knife's way, so
    that only their size tells, to within an amplitude of 12 % and a model error of 8 %: a little."""
    drawn = record(model, EDGE_TRUTH, slide=0.15)
    both = calibrate(model, log, quick_material(), more=[drawn], material="nothing known")
    names = both.material.posterior.unknowns.names
    assert names == ["edge_toughness", "sdf_mu", "amplitude", "offset_y", "amplitude_2", "offset_y_2"]
    friction = names.index("sdf_mu")
    assert both.material.posterior.deviation[friction] < 0.95 * done.material.posterior.deviation[friction]
    assert float(both.values["sdf_mu"]) == pytest.approx(0.25, rel=0.25)
    # The drawn cut was predicted from the straight one, beside repeating its profile.
    figures = metrics(both, quick_material())
    assert figures["nmae_next_cut"] == both.material.next_cut.nmae < 0.1 < figures["nmae_next_repeated"]


def test_a_killed_fit_goes_on_and_ends_with_the_same_numbers(model, log, done, tmp_path):
    class KilledError(Exception):
        pass

    def kill(fraction, text):
        if text.startswith("beginning 1"):
            raise KilledError

    params = quick_material()
    with pytest.raises(KilledError):
        calibrate(model, log, params, material="nothing known", scan_dir=tmp_path, key="k", progress=kill)
    assert list(tmp_path.glob(".checkpoints/calibrate-*"))
    again = calibrate(model, log, params, material="nothing known", scan_dir=tmp_path, key="k")
    assert (again.material.posterior.mean == done.material.posterior.mean).all()
    assert again.material.tail == done.material.tail
    assert not list(tmp_path.glob(".checkpoints/*"))


def test_another_cut_is_predicted_beside_its_baselines(model, done):
    """Synthetic: faster, and of a fruit a tenth tougher than the one that was fitted."""
    other = record(model, EDGE_TRUTH | {"edge_toughness": 770.0}, speed=0.2)
    params = quick_material(draws=3)
    mesh_tables = tables(
        precut(*box_mesh(BLOCK_LOW, BLOCK_HIGH, (3, 3, 3)), load_params(ROOT / "params.yaml").precut)
    )
    untouched = np.zeros(model.spring_count)
    artifacts = mesh_tables | {
        "ingest/force": force_frame(record(model, EDGE_TRUTH)),
        "ingest/further": force_frame(record(model, EDGE_TRUTH)).clear().with_columns(log=pl.lit(2)),
        "calibrate/parameters": parameter_table(
            model, done.values, gradient_norm=untouched, touched_ns=untouched
        ),
        "calibrate/body": pl.DataFrame(schema={"name": pl.String, "value": pl.Float64, "unit": pl.String}),
        "calibrate/left_over": left_over_table(done.material.left_over[:4]),
        "calibrate/draws": draw_table(done.material.posterior, 3, 0),
        "calibrate/posterior": posterior_table(done.material.posterior),
    }
    found = predict(artifacts.__getitem__, "apple", params, force_frame(other))
    figures = found.figures()
    assert 0.03 < figures["nmae"] < 0.15
    assert figures["nmae_with_amplitude"] < 0.05
    assert figures["amplitude"] == pytest.approx(1.09, abs=0.04)
    assert figures["coverage"] > 0.9
    assert figures["nmae"] < figures["nmae_nominal"]
    assert {"repeated_n", "nominal_n", "low_n", "high_n"} <= set(found.table().columns)
    json.dumps(figures)
    blunter = predict(artifacts.__getitem__, "apple", params, force_frame(other), knife="folding").figures()
    ratio, spread = sharpness_ratio("kitchen", "folding", "edge")
    assert ratio > 1.05 and blunter["amplitude"] < figures["amplitude"] / 1.02, (
        "the library's folding knife is blunter"
    )
    assert blunter["band_half_width"] > figures["band_half_width"] + 0.5 * spread
    # A body half as wide along the blade needs about half the force, and nothing is known of its model error.
    low, high = (np.array(corner) * [1.0, 1.0, 0.5] for corner in (BLOCK_LOW, BLOCK_HIGH))
    narrow = precut(*box_mesh(low, high, (3, 3, 3)), load_params(ROOT / "params.yaml").precut).cut
    beside = predict(artifacts.__getitem__, "apple", params, force_frame(other), mesh=narrow)
    assert beside.figures()["amplitude"] == pytest.approx(2.0 * figures["amplitude"], rel=0.15)
    assert beside.figures()["band_half_width"] > figures["band_half_width"]
    assert beside.guesses["repeated"] == pytest.approx(found.guesses["repeated"])
    with pytest.raises(InputError, match="not a known knife"):
        predict(artifacts.__getitem__, "apple", params, force_frame(other), knife="spoon")


def test_the_material_needs_the_edge_law(model, log):
    with pytest.raises(InputError, match=r"Set cut.damage_law to edge"):
        calibrate(model, log, quick_material(damage_law="force"), material="apple")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"material": ["cut_spring_kd"]}, r"calibrate.material names cut_spring_kd. It takes edge_toughness"),
        ({"material": []}, r"names nothing"),
        ({"fit": "springs", "shared": ["cut_spring_softness"]}, r"has no effect with cut.damage_law 'edge'"),
    ],
)
def test_what_can_not_be_sought_is_refused(model, log, changes, sentence):
    with pytest.raises(InputError, match=sentence):
        calibrate(model, log, quick_material(**changes))


def test_the_best_factor_has_the_least_mean_absolute_error():
    """One wild sample does not move it, unlike a least-squares factor; a scan over factors finds nothing better."""
    assert best_factor(np.ones(3), np.array([2.0, 2.0, 9.0])) == 2.0
    random = np.random.default_rng(1)
    profile, measured = random.uniform(1.0, 5.0, 51), random.uniform(1.0, 9.0, 51)
    best = np.abs(best_factor(profile, measured) * profile - measured).mean()
    assert best <= min(np.abs(f * profile - measured).mean() for f in np.linspace(0.2, 5.0, 500)) + 1e-12
