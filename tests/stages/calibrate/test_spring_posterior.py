"""What a log tells about each spring: as dense algebra would have it, and only about springs that the knife met."""

import numpy as np
import pytest

from stages.calibrate.calibrate_report import spring_table
from stages.calibrate.calibration import calibrate
from stages.calibrate.springs.posterior import _PRIOR_SPREAD, _likeness, _variance_left
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from tests.stages.calibration_scenes import TRUTH, quick, record, small_block

NAMES = ["cut_spring_ke", "sdf_ke"]


@pytest.fixture(scope="module")
def fit():
    model = small_block()
    log = record(model, TRUTH)
    half = log.time <= 0.5 * (log.onset_s + log.time[-1])
    begun = type(log)(
        log.time[half], log.position[half], log.velocity[half], log.force[half], log.valid[half], log.onset_s
    )
    params = quick(individual=NAMES, shared=[*NAMES, "sdf_mu"], shared_iterations=1, individual_iterations=1)
    return calibrate(model, begun, params)


def test_low_rank_is_the_dense_inverse():
    random = np.random.default_rng(0)
    position, skin = random.random((12, 2)), np.arange(12) < 4
    alike = _likeness(position, skin) + 1e-9 * np.eye(12)
    rows = {name: random.standard_normal((5, 12)) for name in NAMES}
    found = _variance_left(rows, alike)
    before = np.kron(np.eye(2), _PRIOR_SPREAD**2 * alike)
    j = np.concatenate(list(rows.values()), axis=1)
    after = np.linalg.inv(np.linalg.inv(before) + j.T @ j)
    expected = np.diag(after) / _PRIOR_SPREAD**2
    assert np.concatenate(list(found.values())) == pytest.approx(expected, abs=1e-6)


def test_springs_are_alike_where_they_are_near_and_of_one_kind():
    position = np.array([[0.0, 0.0], [0.0, 0.01], [0.0, 0.1], [0.0, 0.0]])
    alike = _likeness(position, np.array([False, False, False, True]))
    assert (np.diag(alike) == 1.0).all()
    # 10 mm apart on a face of 100 mm is half of the length over which they are alike.
    assert alike[0, 1] == pytest.approx(np.exp(-0.5 * 0.5**2))
    assert alike[0, 2] < 1e-5 and alike[0, 3] == 0.0


def test_a_log_tells_of_the_springs_that_the_knife_met(fit):
    """The log ends half way down: what is far below is as unknown as before."""
    assert list(fit.springs) == NAMES
    height = fit.problem.model.mesh.spring_position[:, 1]
    deep = height < height.min() + 0.15 * np.ptp(height)
    for name in NAMES:
        known = fit.springs[name]
        assert (known.left > 0.0).all() and (known.left <= 1.0).all()
        assert (known.low < known.value).all() and (known.high > known.value).all()
        assert known.left[deep].min() > 0.97
        assert known.value == pytest.approx(fit.values[name])
    stiff = fit.springs["sdf_ke"]
    assert stiff.left.min() < 0.7, "the log is not silent about the others"
    best = np.argmin(stiff.left)
    assert fit.impulse[best] > 0.0


def test_the_table_has_every_spring_and_every_parameter(fit):
    table = spring_table(fit.springs, "force")
    check_table(ARTIFACTS["calibrate/spring_posterior"], table, "calibrate/spring_posterior")
    assert len(table) == len(NAMES) * fit.problem.model.spring_count
    assert set(table["unit"]) == {"N/m"}
    assert len(spring_table({}, "force")) == 0


@pytest.mark.parametrize(("law", "unit"), [("force", "-"), ("stretch", "N/m per m"), ("cohesive", "m")])
def test_units_follow_the_damage_law(fit, law, unit):
    """The softness of a spring is another quantity under each law."""
    known = {"cut_spring_softness": fit.springs[NAMES[0]]}
    assert set(spring_table(known, law)["unit"]) == {unit}
