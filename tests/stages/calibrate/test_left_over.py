"""What a fit leaves of its logs goes into the next prediction."""

from dataclasses import replace

import numpy as np
import pytest

from stages.calibrate.material import discrepancy
from stages.calibrate.material.discrepancy import (
    NOTHING,
    left_over,
    left_over_table,
    read_left_over,
    scale_again,
    scale_variance,
)
from stages.calibrate.material.likelihood import MODEL_ERROR, depth_likelihood
from stages.calibrate.prediction import band
from stages.calibrate.problem import pose_problem, top_of_body
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.shared.fitting import correlation, rough_correlation
from stages.shared.library.library import CUT_SPREAD, NINETY, SCALE_SPREAD
from tests.disect_sim.scenes import block_model, regular_block
from tests.stages.calibrate.test_material_fit import EDGE_TRUTH, quick_material
from tests.stages.calibration_scenes import record


@pytest.fixture(scope="module")
def problem():
    model = block_model(regular_block((3, 3, 3)), damage_law="edge")
    return pose_problem(model, record(model, EDGE_TRUTH), quick_material())


def _of(problem, profile, use=None, **more):
    use = problem.contact & problem.valid if use is None else use
    return left_over([depth_likelihood(problem, use, 0.5)], [profile], **more)


def test_nothing_is_left_of_a_perfect_fit(problem):
    left = _of(problem, problem.measured)
    check_table(ARTIFACTS["calibrate/left_over"], left_over_table([left]), "here")
    assert left.factor == pytest.approx(np.ones(len(left.factor)))
    assert left.height_m[-1] >= top_of_body(problem.model.mesh)


def test_a_bump_that_the_model_misses_comes_back_smoothed(problem):
    """A bump of 30 % and 4 mm, longer than a slice of 3 mm: most of it returns in the same cut."""
    middle = 0.5 * problem.height[problem.contact].mean() + 0.5 * problem.height[problem.contact].max()
    bump = 1.0 + 0.3 * np.exp(-0.5 * ((problem.height - middle) / 0.004) ** 2)
    bumpy = replace(problem, measured=bump * problem.measured)
    left = _of(bumpy, problem.measured, same_cut=True)
    assert left.at(np.array([middle]))[0] == pytest.approx(1.3, abs=0.08)
    use = problem.contact & problem.valid

    def error(profile):
        return np.abs(profile - bumpy.measured)[use].mean()

    assert error(left.at(problem.height) * problem.measured) < 0.4 * error(problem.measured)


def test_below_what_a_log_has_seen_it_fades(problem):
    """Twice the slow length below, a seventh of it is left: (1 + 2 √3) exp(-2 √3)."""
    use = problem.contact & problem.valid
    seen = use & (problem.height > problem.height[use].mean())
    left = _of(problem, problem.measured / 1.1, seen, same_cut=True)
    lowest = problem.height[seen].min()
    assert left.deviation_at(np.array([lowest]))[0] < 0.5 * MODEL_ERROR.deviation
    further = 2.0 * MODEL_ERROR.slow_length_m
    covariance = MODEL_ERROR.covariance(np.zeros(1), np.array([0.0, further]))[0]
    assert covariance[1] / covariance[0] == pytest.approx(1 / 7, abs=0.03)
    heights = lowest - np.array([0.0, 0.25, 0.5]) * further
    deviations, gains = left.deviation_at(heights), left.at(heights) - 1.0
    assert (np.diff(deviations) > 0.0).all() and (np.diff(gains) < 0.0).all() and gains[-1] > 0.0


def test_without_a_fit_the_factor_is_one():
    table = left_over_table([])
    check_table(ARTIFACTS["calibrate/left_over"], table, "here")
    assert read_left_over(table) == []
    left = NOTHING
    assert (left.at(np.linspace(-1.0, 1.0, 5)) == 1.0).all()
    assert (left.deviation_at(np.linspace(-1.0, 1.0, 5)) == MODEL_ERROR.deviation).all()


def test_it_survives_the_table(problem):
    lefts = [_of(problem, share * problem.measured) for share in (0.9, 1.0, 1.2)]
    for left, again in zip(lefts, read_left_over(left_over_table(lefts)), strict=True):
        assert np.array_equal(again.at(problem.height), left.at(problem.height))
        assert np.array_equal(again.deviation_at(problem.height), left.deviation_at(problem.height))


def test_another_cut_has_part_of_it_again(problem, monkeypatch):
    """Two errors of correlation c: c of what is known is expected, and 1 - c^2 of the variance stays."""
    same = _of(problem, problem.measured / 1.1, same_cut=True)
    monkeypatch.setattr(discrepancy, "MODEL_ERROR", replace(MODEL_ERROR, slow_again=0.5, fast_again=0.5))
    other = _of(problem, problem.measured / 1.1)
    assert other.factor - 1.0 == pytest.approx(0.5 * (same.factor - 1.0))
    variance = MODEL_ERROR.deviation**2
    assert other.deviation**2 == pytest.approx(variance - 0.25 * (variance - same.deviation**2))


def test_two_cuts_tell_more_of_the_third_than_one(problem):
    """Each is half like the third; what both show is believed more than what one shows."""
    likelihood = depth_likelihood(problem, problem.contact & problem.valid, 0.5)
    profile = problem.measured / 1.1
    one = left_over([likelihood], [profile])
    two = left_over([likelihood] * 2, [profile] * 2)
    used = (one.height_m > problem.height[problem.contact].min()) & (one.height_m < problem.height.max())
    assert (np.abs(two.factor - 1.0) > np.abs(one.factor - 1.0))[used].mean() > 0.9
    assert (two.deviation <= one.deviation).all()


def test_the_scale_of_the_reading_comes_again():
    """By brute force: a scale of all logs and an own factor of every cut, both normal in logarithms."""
    random = np.random.default_rng(0)
    scale = SCALE_SPREAD * random.standard_normal(400_000)
    read = scale + CUT_SPREAD * random.standard_normal((3, len(scale)))
    for cuts in (1, 3):
        total = read[:cuts].sum(axis=0)
        slope = (total @ scale) / (total @ total)
        assert np.log(scale_again([0.1] * cuts)) == pytest.approx(0.1 * cuts * slope, rel=0.01)
        assert scale_variance(cuts) == pytest.approx(np.var(scale - slope * total), rel=0.01)
    assert scale_again([]) == 1.0


def test_the_band_is_narrower_the_more_logs_there_are(problem):
    """Without draws and with the model's error known, what is left is the scale after so many logs and the next cut."""
    flat = np.full(len(problem.height), 20.0)
    exact = replace(NOTHING, height_m=np.array([-1.0, 1.0]), factor=np.ones(2), deviation=np.zeros(2))
    for cuts in (1, 4):
        low, high = band(problem, flat, [], exact, cuts=cuts)
        factor = np.exp(NINETY * np.hypot(CUT_SPREAD, np.sqrt(scale_variance(cuts))))
        assert high == pytest.approx(factor * flat) and low == pytest.approx(flat / factor)
    low, high = band(problem, flat, [], exact, knife=0.5)
    factor = np.exp(NINETY * np.sqrt(CUT_SPREAD**2 + scale_variance(1) + 0.5**2))
    assert high == pytest.approx(factor * flat), "another knife widens it"


def test_two_correlations_of_a_field():
    """Both 1 at the same place and falling; with a curvature of 1 / l², and 3 / l² of the rough one."""
    here, near = np.zeros(1), np.array([0.0, 1e-3, 0.5, 3.0])
    for kind, curvature in ((correlation, 1.0), (rough_correlation, 3.0)):
        (values,) = kind(here, near, 1.0)
        assert values[0] == 1.0 and (np.diff(values) < 0.0).all()
        assert 2.0 * (1.0 - values[1]) / 1e-6 == pytest.approx(curvature, rel=0.01)
        many = np.sort(np.random.default_rng(0).uniform(0.0, 5.0, 30))
        assert np.linalg.eigvalsh(kind(many, many, 1.0)).min() > -1e-9
