"""What the log of a planned motion would tell."""

import numpy as np
import polars as pl
import pytest

from stages.calibrate.material.fit import material_unknowns
from stages.calibrate.prediction import (
    PlannedLog,
    covariances,
    deviation,
    expected_parameters,
    recorded,
    saving_slope,
)
from stages.calibrate.problem import OFFSET
from tests.disect_sim.scenes import block_model, regular_block
from tests.stages.calibrate.test_material_fit import EDGE_TRUTH, quick_material
from tests.stages.calibration_scenes import record


@pytest.fixture(scope="module")
def planned():
    model = block_model(regular_block((3, 3, 3)), damage_law="edge")
    params = quick_material()
    cut = record(model, EDGE_TRUTH)
    motion = pl.DataFrame(
        {
            "time_s": cut.time,
            "position_m": cut.position,
            "velocity_m_s": cut.velocity,
            "force_n": cut.force,
        }
    )
    return PlannedLog(motion, model, material_unknowns("apple", params), params)


def test_a_log_makes_no_unknown_less_certain_and_some_more(planned):
    (after,) = covariances([planned], lambda done: None)
    eigenvalues = np.linalg.eigvalsh(after)
    assert eigenvalues.min() > 0.0 and eigenvalues.max() <= 1.0 + 1e-12
    toughness = planned.unknowns.names.index("edge_toughness")
    assert after[toughness, toughness] < 0.5


def test_the_force_of_a_figure_that_the_log_measures_is_known_afterwards(planned):
    slope = np.zeros(len(planned.unknowns))
    slope[planned.unknowns.names.index("edge_toughness")] = 1.0
    after = planned.covariance()
    assert deviation(slope) == 1.0
    assert deviation(slope, after) < 0.8


def test_slope_of_a_saving_in_the_unknowns(planned):
    """Forces that are products of powers of the parameters have a slope in closed form."""
    unknowns = planned.unknowns
    values = expected_parameters(unknowns)
    assert OFFSET not in values

    def force(power_toughness, power_mu):
        toughness, mu = values["edge_toughness"], values["sdf_mu"]
        mean = float(toughness.mean() ** power_toughness * mu**power_mu)
        gradient = {
            "edge_toughness": np.full(toughness.shape, power_toughness * mean / toughness.sum()),
            "sdf_mu": np.asarray(power_mu * mean / mu),
        }
        return mean, gradient

    vertical, slicing = force(1.0, 0.0), force(1.0, 1.0)
    slope = saving_slope(unknowns, vertical, slicing)
    spread = unknowns.prior["sdf_mu"].spread
    expected = np.zeros(len(unknowns))
    expected[unknowns.names.index("sdf_mu")] = -spread * slicing[0] / vertical[0]
    assert slope == pytest.approx(expected, abs=1e-12)


def test_a_motion_without_force_has_its_onset_at_the_start():
    zeros = np.zeros((3, 3))
    still = {"time_s": [0.0, 0.1, 0.2], "position_m": zeros, "velocity_m_s": zeros, "force_n": zeros}
    assert recorded(pl.DataFrame(still)).onset_s == 0.0
