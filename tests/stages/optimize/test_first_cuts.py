"""First cuts before any log: what the mean force depends on, and the files they become."""

import numpy as np
import pytest

from stages.optimize.first_cuts import _VERTICAL, first_cuts, first_cuts_picture, to_execute
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from tests.disect_sim.scenes import block_model, regular_block
from tests.stages.slicing_scenes import quick

EDGE = {"edge_toughness": 300.0, "edge_rise": 1.5e-3, "sdf_mu": 0.2, "sdf_ke": 1200.0}


@pytest.fixture(scope="module")
def model():
    return block_model(regular_block((3, 3, 3)), damage_law="edge")


@pytest.fixture(scope="module")
def cuts(model):
    values = {name: np.asarray(value) for name, value in EDGE.items()}
    return first_cuts(model, values, quick(damage_law="edge"), 2)


def test_the_vertical_cut_and_slicing_motions_that_keep_the_limits(cuts):
    assert [cut.name for cut in cuts] == [_VERTICAL, "vertical, then sawing", "slicing 1", "slicing 2"]
    assert cuts[0].drawn_m == 0.0
    for cut in cuts[1:]:
        assert 0.0 < cut.drawn_m <= 2.0 * cut.motion.cut.passage.lateral_limit_m
    # The second is vertical at first and saws at the end, so that its slice-push ratio varies.
    speed = np.abs(cuts[1].motion.cut.trajectory(cuts[1].motion.variables).velocity[:, 1])
    assert speed[: len(speed) // 4].max() < 0.5 * speed.max()
    table = cuts[1].table()
    check_table(ARTIFACTS["optimize/motion"], table, "here")
    assert np.allclose(np.diff(table["time_s"]), 1e-3)


@pytest.mark.parametrize("name", ["edge_toughness", "sdf_mu"])
def test_sensitivity_agrees_with_differences(model, cuts, name):
    mean, slope = cuts[1].sensitivity()
    # the norm is rounded by 1e-6 N where there is no force
    assert mean == pytest.approx(cuts[1].motion.mean_n(), rel=1e-6)
    step = 1e-4 * EDGE[name]
    both = []
    for side in (1.0, -1.0):
        values = {key: np.asarray(value) for key, value in (EDGE | {name: EDGE[name] + side * step}).items()}
        both.append(first_cuts(model, values, quick(damage_law="edge"), 1)[1].motion.mean_n())
    # Central differences of 1e-4 leave 1e-8; the adjoint's own error is below 1e-4 (tests of the gradients).
    assert float(slope[name]) == pytest.approx((both[0] - both[1]) / (2.0 * step), rel=1e-3)


def test_to_execute_ends_with_the_final_draw(model):
    """A cut that ends 3 mm above the board leaves something whole."""
    params = quick(damage_law="edge", final_strokes=1, board_clearance_m=0.003)
    values = {name: np.asarray(value) for name, value in EDGE.items()}
    vertical = first_cuts(model, values, params, 1)[0]
    motion = to_execute(vertical, model, values, params)
    check_table(ARTIFACTS["optimize/motion"], motion, "here")
    assert len(motion) > len(vertical.table())
    assert not motion["velocity_m_s"].to_numpy()[-1].any()


def test_the_picture_names_every_cut(model, cuts):
    shape = first_cuts_picture(model.mesh, cuts[1], {cut.name: 0.1 for cut in cuts}, 0.2).shape
    assert shape == (420, 1200, 3)


def test_a_knife_that_jams_is_refused(model):
    """Springs of the edge law can't be cut with a force limit of a tenth of a newton."""
    stuck = quick(damage_law="edge", force_limit_n=0.1)
    values = {name: np.asarray(value) for name, value in EDGE.items()}
    with pytest.raises(InputError, match="first cuts"):
        first_cuts(model, values, stuck, 1)
