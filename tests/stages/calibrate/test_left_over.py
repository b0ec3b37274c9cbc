"""What a fit leaves of its logs goes into the next prediction."""

from dataclasses import replace

import numpy as np
import pytest

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
    """A bump of 30 % and 4 mm, longer than a slice of 3 mm: most of it returns, and nothing far from it."""
    middle = 0.5 * problem.height[problem.contact].mean() + 0.5 * problem.height[problem.contact].max()
    bump = 1.0 + 0.3 * np.exp(-0.5 * ((problem.height - middle) / 0.004) ** 2)
    bumpy = replace(problem, measured=bump * problem.measured)
    left = _of(bumpy, problem.measured)
    assert left.at(np.array([middle]))[0] == pytest.approx(1.3, abs=0.08)
    use = problem.contact & problem.valid

    def error(profile):
        return np.abs(profile - bumpy.measured)[use].mean()

    assert error(left.at(problem.height) * problem.measured) < 0.4 * error(problem.measured)


def test_below_what_a_log_has_seen_it_fades(problem):
    """Twice the length of 6 mm below, a seventh of it is left: (1 + 2 √3) exp(-2 √3)."""
    use = problem.contact & problem.valid
    seen = use & (problem.height > problem.height[use].mean())
    left = _of(problem, problem.measured / 1.1, seen)
    lowest = problem.height[seen].min()
    assert left.deviation_at(np.array([lowest]))[0] < 0.5 * MODEL_ERROR
    assert left.deviation_at(np.array([lowest - 0.015]))[0] > 0.9 * MODEL_ERROR
    near, far = np.abs(left.at(np.array([lowest, max(0.0, lowest - 0.012)])) - 1.0)
    assert far < 0.4 * near


def test_without_a_fit_the_factor_is_one():
    table = left_over_table([])
    check_table(ARTIFACTS["calibrate/left_over"], table, "here")
    assert read_left_over(table) == []
    left = NOTHING
    assert (left.at(np.linspace(-1.0, 1.0, 5)) == 1.0).all()
    assert (left.deviation_at(np.linspace(-1.0, 1.0, 5)) == MODEL_ERROR).all()


def test_it_survives_the_table(problem):
    lefts = [_of(problem, share * problem.measured) for share in (0.9, 1.0, 1.2)]
    for left, again in zip(lefts, read_left_over(left_over_table(lefts)), strict=True):
        assert np.array_equal(again.at(problem.height), left.at(problem.height))
        assert np.array_equal(again.deviation_at(problem.height), left.deviation_at(problem.height))


def test_another_cut_has_part_of_it_again(problem):
    """Two normal errors of correlation c: c of what is known is expected, and 1 - c^2 of the variance stays."""
    same = _of(problem, problem.measured / 1.1)
    other = _of(problem, problem.measured / 1.1, again=0.5)
    assert other.factor - 1.0 == pytest.approx(0.5 * (same.factor - 1.0))
    known = MODEL_ERROR**2 - same.deviation**2
    assert other.deviation**2 == pytest.approx(MODEL_ERROR**2 - 0.25 * known)


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
        expected = 20.0 * NINETY * np.hypot(CUT_SPREAD, np.sqrt(scale_variance(cuts)))
        assert high - flat == pytest.approx(np.full(len(flat), expected)) == flat - low


def test_two_correlations_of_a_field():
    """Both 1 at the same place and falling; with a curvature of 1 / l², and 3 / l² of the rough one."""
    here, near = np.zeros(1), np.array([0.0, 1e-3, 0.5, 3.0])
    for kind, curvature in ((correlation, 1.0), (rough_correlation, 3.0)):
        (values,) = kind(here, near, 1.0)
        assert values[0] == 1.0 and (np.diff(values) < 0.0).all()
        assert 2.0 * (1.0 - values[1]) / 1e-6 == pytest.approx(curvature, rel=0.01)
        many = np.sort(np.random.default_rng(0).uniform(0.0, 5.0, 30))
        assert np.linalg.eigvalsh(kind(many, many, 1.0)).min() > -1e-9
