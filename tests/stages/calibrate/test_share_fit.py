"""The shares of the edge toughness as unknowns: a vertical log leaves them at the prior, a sawing log narrows them."""

import numpy as np
import polars as pl
import pytest

from disect_sim import RecordedMotion, simulate
from disect_sim.outcome import InputError
from stages.calibrate.calibrate_report import scalar_table
from stages.calibrate.calibration import calibrate, check_names
from stages.calibrate.material.fit import material_unknowns
from stages.calibrate.material.likelihood import depth_likelihood
from stages.calibrate.material.posterior import before_any_log, draw_table, posterior_table, what_the_log_says
from stages.calibrate.material.search import MaterialSearch
from stages.calibrate.prediction import nominal_values
from stages.calibrate.problem import RecordedCut, find_onset, pose_problem
from stages.shared.fitting import low_pass
from stages.shared.library.library import SHARE_RATIOS, expected, share_slopes, shares_of
from tests.disect_sim.scenes import BLOCK_HEIGHT, block_model, regular_block
from tests.stages.calibrate.test_material_fit import EDGE_TRUTH, quick_material
from tests.stages.calibration_scenes import RATE_HZ, SHIPPED, record

SHARES = {"edge_press": 0.40, "edge_drag": 0.40}
"""Truth of the synthetic logs: log(a/e) = -0.69, 1.5 prior deviations below its mean; log(m/e) = 0, 0.6 below."""
MATERIAL = ["edge_toughness", *SHARE_RATIOS]


def saw(model, parameters, *, speed=0.06, peak=3.0, dt=0.004) -> RecordedCut:
    """A simulated log: down at `speed` [m/s] while the blade goes to and fro with peaks of ξ = `peak`."""
    top, end, period = BLOCK_HEIGHT + 0.012, 0.003, 0.2
    steps = int((top - end) / speed / dt)
    t = np.linspace(0.0, steps * dt, 4 * steps)
    turn = 2.0 * np.pi / period
    way = np.stack([top - speed * t, peak * speed / turn * np.sin(turn * t)], axis=1)
    motion = RecordedMotion(t, way)
    result = simulate(model, motion, parameters, duration=steps * dt, dt=dt, sample_rate_hz=1.0 / dt)
    time = np.arange(0.0, steps * dt, 1.0 / RATE_HZ)
    force = np.stack([np.interp(time, result.time - 0.5 * dt, column) for column in result.force.T], axis=1)
    velocity = np.stack(
        [np.zeros_like(time), np.full_like(time, -speed), peak * speed * np.cos(turn * time)], axis=1
    )
    onset = find_onset(time, np.linalg.norm(low_pass(time, force, SHIPPED.reading.filter_cutoff_hz), axis=1))
    assert onset is not None
    return RecordedCut(time, motion.poses(time), velocity, force, np.ones(len(time), bool), onset)


@pytest.fixture(scope="module")
def model():
    return block_model(regular_block((3, 3, 3)), damage_law="edge")


def fitted(model, log):
    params = quick_material(material=MATERIAL, forecast_from=0.0, shared_iterations=12)
    return calibrate(model, log, params, material="nothing known")


def test_prior_is_that_of_the_public_cuts():
    prior = expected(SHARE_RATIOS, "nothing known", "edge")
    assert np.log(prior["slice_over_press"].median) == pytest.approx(0.54)
    assert np.log(prior["drag_over_press"].median) == pytest.approx(0.25)
    assert [prior[name].spread for name in SHARE_RATIOS] == pytest.approx([0.8, 0.45])
    middle = shares_of({name: prior[name].median for name in SHARE_RATIOS})
    assert middle == pytest.approx({"edge_press": 0.25, "edge_drag": 0.32}, abs=0.002)


def test_shares_and_their_slopes():
    ratios = {"slice_over_press": 1.3, "drag_over_press": 0.7}
    shares = shares_of(ratios)
    assert 1.0 - sum(shares.values()) == pytest.approx(1.3 * shares["edge_press"])
    assert shares["edge_drag"] == pytest.approx(0.7 * shares["edge_press"])
    for ratio, slopes in share_slopes(ratios).items():
        ends = [shares_of(ratios | {ratio: ratios[ratio] * np.exp(step)}) for step in (1e-5, -1e-5)]
        for name, slope in slopes.items():
            assert slope == pytest.approx((ends[0][name] - ends[1][name]) / 2e-5, rel=1e-8)


def test_derivatives_of_a_sawing_log_agree_with_differences(model):
    params = quick_material(material=MATERIAL)
    problem = pose_problem(model, saw(model, EDGE_TRUTH | SHARES), params)
    unknowns = material_unknowns("nothing known", params)
    likelihood = depth_likelihood(problem, problem.contact & problem.valid, 0.5)
    assert len(likelihood.components) == 2, "both components of the force count where the blade was drawn"
    search = MaterialSearch("material", unknowns, [likelihood], 1)
    search.covariance()
    for i, name in enumerate(unknowns.names[:3]):
        ends = []
        for step in (1e-3, -1e-3):
            t = step * np.eye(len(unknowns))[i]
            _, result = problem.run(unknowns.values(t), differentiable=False)
            ends.append(likelihood.residual(problem.filtered(result)))
        assert search.jacobian[:, i] == pytest.approx((ends[0] - ends[1]) / 2e-3, rel=2e-3, abs=3e-3), name


def test_a_vertical_log_leaves_the_shares_at_their_prior(model):
    done = fitted(model, record(model, EDGE_TRUTH | SHARES))
    posterior = done.material.posterior
    for name in SHARE_RATIOS:
        i = posterior.unknowns.names.index(name)
        assert posterior.deviation[i] == pytest.approx(1.0, abs=0.01)
        assert posterior.mean[i] == pytest.approx(0.0, abs=0.05)
    assert not set(SHARE_RATIOS) & set(what_the_log_says(posterior_table(posterior)))


def test_a_sawing_log_narrows_the_shares_around_the_truth(model):
    done = fitted(model, saw(model, EDGE_TRUTH | SHARES))
    table = posterior_table(done.material.posterior)
    rows = {row["name"]: row for row in table.iter_rows(named=True)}
    # In units of the prior's deviations; with a model error of 18 % in both components and an amplitude of 19 %.
    assert rows["slice_over_press"]["deviation"] < 0.75
    assert rows["drag_over_press"]["deviation"] < 0.75
    assert rows["slice_over_press"]["low"] < 0.5 < rows["slice_over_press"]["high"]
    assert rows["drag_over_press"]["low"] < 1.0 < rows["drag_over_press"]["high"]
    found = {name: float(done.values[name]) for name in SHARES}
    assert found == pytest.approx(SHARES, abs=0.08)
    scalars = {row["name"]: row for row in scalar_table(done).iter_rows(named=True)}
    assert 0.0 < scalars["edge_press"]["standard_error"] < 0.1
    assert not set(SHARE_RATIOS) & set(scalars)
    assert set(SHARE_RATIOS) & set(what_the_log_says(table)), "a sawing log teaches the library"


def test_without_a_log_the_draws_carry_shares_from_the_prior():
    params = quick_material(material=MATERIAL)
    unknowns = material_unknowns("nothing known", params, cuts=0)
    table = draw_table(before_any_log(unknowns), 800, 0)
    middle = nominal_values(params, "nothing known")
    drawn = {
        name: float(middle[name]) * table.filter(pl.col("name") == name)["factor"].to_numpy()
        for name in SHARES
    }
    press, drag = drawn["edge_press"], drawn["edge_drag"]
    sliced = 1.0 - press - drag
    assert len(press) == 800 and (sliced > 0.0).all() and (press > 0.0).all() and (drag > 0.0).all()
    # 800 draws: standard errors of 0.03 and 0.02
    assert np.log(sliced / press).mean() == pytest.approx(0.54, abs=0.1)
    assert np.log(sliced / press).std() == pytest.approx(0.8, abs=0.07)
    assert np.log(drag / press).mean() == pytest.approx(0.25, abs=0.06)
    assert np.log(drag / press).std() == pytest.approx(0.45, abs=0.04)


@pytest.mark.parametrize("prior", ["library", "uniform"])
def test_one_ratio_alone_is_rejected(prior):
    params = quick_material(material=["edge_toughness", "drag_over_press"], prior=prior)
    with pytest.raises(
        InputError, match=r"names drag_over_press alone.*need both ratios.*Name both, or none"
    ):
        check_names(params)


def test_ratios_under_a_uniform_prior():
    params = quick_material(material=MATERIAL, prior="uniform")
    check_names(params)
    unknowns = material_unknowns("nothing known", params, cuts=0)
    values = unknowns.parameters(np.array([0.0, 3.0, -3.0]))
    assert 0.0 < values["edge_press"] + values["edge_drag"] < 1.0
    with pytest.raises(InputError, match="must name parameters of that law"):
        check_names(quick_material(material=[*SHARE_RATIOS], prior="uniform", damage_law="force"))
