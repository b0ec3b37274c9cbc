"""The final draw: it parts what the cut left whole, keeps the limits, and joins the cut without a jump."""

import numpy as np
import pytest

from stages.optimize.constraints import Passage
from stages.optimize.final_draw import PARTED, final_draw, joined, stroke
from stages.optimize.optimize_report import motion_rows
from stages.optimize.search import Measured
from tests.disect_sim.scenes import block_model, regular_block
from tests.stages.slicing_scenes import VALUES, block, quick, slicing_cut

PASSAGE = Passage(0.06, 0.001, 0.01, 0.035, 1.2)
END = np.array([0.0, 0.001, 0.03])


def test_a_stroke_sinks_to_its_height_crosses_the_fruit_and_rests_at_its_end():
    params = quick(final_height_m=0.0, final_stroke_s=0.6)
    path = stroke(END, PASSAGE, params)
    assert path.position[-1] == pytest.approx([0.0, 0.0, path.position[-1, 2]], abs=1e-15)
    assert path.position[:, 1].min() == path.position[-1, 1]
    # the second half runs along the board, over the middle of the fruit
    half = len(path.position) // 2
    assert (path.position[half:, 1] == path.position[-1, 1]).all()
    assert path.position[-1, 2] < PASSAGE.z_m < END[2]
    assert np.abs(path.position[:, 2] - PASSAGE.z_m).max() <= PASSAGE.lateral_limit_m + 1e-12
    assert np.abs(path.velocity[-1]).max() == np.abs(path.acceleration[-1]).max() == 0.0
    # differences over one millisecond of derivatives below 30 m/s³
    assert np.diff(path.position[:, 2]) * 1e3 == pytest.approx(path.velocity[1:, 1], abs=5e-3)
    assert np.diff(path.velocity[:, 1]) * 1e3 == pytest.approx(path.acceleration[1:, 1], abs=5e-2)


@pytest.mark.parametrize("clearance", [0.0, 0.001, 0.02])
def test_a_stroke_keeps_the_limits_of_speed_and_acceleration(clearance):
    params = quick(max_speed_m_s=0.1, max_acceleration_along_m_s2=0.5, max_acceleration_vertical_m_s2=0.3)
    path = stroke(np.array([0.0, clearance, 0.03]), PASSAGE, params)
    assert np.linalg.norm(path.velocity, axis=1).max() <= params.max_speed_m_s
    assert np.abs(path.acceleration[:, 1]).max() <= params.max_acceleration_along_m_s2
    assert np.abs(path.acceleration[:, 0]).max() <= params.max_acceleration_vertical_m_s2
    assert path.position[-1, 1] == pytest.approx(0.0, abs=1e-15)


def test_a_cut_that_ends_lower_is_not_raised_and_a_narrow_way_is_not_left():
    narrow = Passage(0.06, 0.0, 0.0, 0.004, 1.2)
    path = stroke(np.array([0.0, 0.0, 0.004]), narrow, quick(final_height_m=0.002))
    assert (path.position[:, 1] == 0.0).all()
    assert path.position[-1, 2] == pytest.approx(-0.004, abs=1e-15)


@pytest.mark.parametrize("law", ["force", "edge"])
def test_what_the_cut_leaves_whole_is_parted_by_the_draw(law):
    """The cut ends 1 mm above the board, and the block's lowest springs lie on it."""
    model, params = block_model(regular_block((3, 3, 3)), damage_law=law), quick(damage_law=law)
    cut = slicing_cut(params, model)
    still = final_draw(model, VALUES, cut, cut.straight(), params.changed(final_strokes=0))
    assert (still.strokes, len(still.path.position), still.peak_n) == (0, 0, 0.0)
    assert still.cut_fraction < 0.97
    drawn = final_draw(model, VALUES, cut, cut.straight(), params)
    assert drawn.cut_fraction >= 0.98 and 1 <= drawn.strokes <= params.final_strokes
    assert drawn.strokes == params.final_strokes or drawn.cut_fraction >= PARTED
    assert drawn.peak_n > 0.0
    assert len(drawn.force) == round(drawn.duration_s / params.cut.dt_s)


def test_the_motion_table_goes_on_with_the_draw_without_a_jump():
    params = quick()
    cut = slicing_cut(params)
    variables = cut.straight()
    draw = final_draw(block(), VALUES, cut, variables, params.changed(final_strokes=1))
    samples = round(cut.passage.duration_s * cut.sample_rate_hz)
    table = motion_rows(Measured(cut, variables, np.ones((samples, 3))), draw)
    before = len(cut.times)
    assert len(table) == before + len(draw.path.position)
    whole = joined(cut.trajectory(variables), draw.path)
    assert np.array_equal(table["position_m"].to_numpy(), whole.position)
    # 1 ms at the speed that a stroke has in its first millisecond: micrometres
    assert np.abs(np.diff(whole.position, axis=0))[before - 1].max() < 1e-6
    assert np.abs(whole.acceleration[[before - 1, before]]).max() < 0.1
    assert np.diff(table["time_s"].to_numpy()) == pytest.approx(np.full(len(table) - 1, 1e-3), abs=1e-12)
    force = table["force_n"].to_numpy()
    # the cut's own force up to its end, the draw's after it
    assert (force[10 : before - 10] == 1.0).all()
    assert force[-1] == pytest.approx(draw.force[-1])
