"""Rocking: trajectory, rules of the whole blade and the force's slope, the search, and its tables."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from disect_sim.knife import Knife
from stages.optimize.constraints import Constraints, rules_of
from stages.optimize.kinematics import Trajectory
from stages.optimize.optimize import _from_sawing, _searches
from stages.optimize.optimize_report import (
    history_table,
    keyframe_table,
    metrics,
    motion_table,
    optimize_picture,
)
from stages.optimize.search import optimize
from stages.replay.replay import _recorded
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from tests.disect_sim.scenes import block_model, regular_block
from tests.stages.slicing_scenes import quick, slicing_cut

EDGE = {"edge_toughness": 500.0, "sdf_mu": 0.1}
KNIVES = {"straight": Knife(), "belly, tilted": Knife(belly_radius_m=0.3, tilt_deg=5.0)}


def rocking_cut(knife, **changes):
    params = quick(rocking=True, max_pitch_deg=12.0, on_board="tip", damage_law="edge", **changes)
    model = block_model(regular_block((3, 3, 3)), knife=knife, damage_law="edge")
    return slicing_cut(params, model), params


def wild(cut, seed=1):
    wish = cut.straight() + 0.3 * np.random.default_rng(seed).standard_normal(cut.straight().shape)
    wish[3] += 0.8
    return cut.held(wish)


@pytest.mark.parametrize("knife", KNIVES.values(), ids=KNIVES)
def test_trajectory_is_that_of_the_motion_and_ends_level(knife):
    cut, _ = rocking_cut(knife)
    at = wild(cut)
    trajectory = cut.trajectory(at)
    poses = cut.cuts(at)[0].motion.poses(cut.times)
    assert trajectory.position == pytest.approx(poses[:, :3], abs=1e-14)
    assert trajectory.turn[:, 0] == pytest.approx(poses[:, 3], abs=1e-14)
    assert trajectory.turn[-1, 0] + knife.tilt_rad == pytest.approx(0.0, abs=1e-14)
    assert np.degrees(trajectory.turn[0, 0] + knife.tilt_rad) < -3.0
    rate = np.gradient(trajectory.turn[:, 0], cut.times)
    assert trajectory.turn[2:-2, 1] == pytest.approx(rate[2:-2], abs=1e-3)
    # the lowest point of the edge over the block begins as high as a level edge
    over = 0.5 * 0.03 * np.sin(abs(trajectory.turn[0, 0] + knife.tilt_rad))
    assert trajectory.position[0, 1] - over == pytest.approx(cut.passage.start_m, abs=0.1e-3)


@pytest.mark.parametrize("knife", KNIVES.values(), ids=KNIVES)
def test_slopes_of_all_rules_agree_with_differences(knife):
    """A rule is taken at one time and one point: its derivative is exact as long as they stay the same."""
    cut, params = rocking_cut(knife)
    at, generator = wild(cut), np.random.default_rng(2)
    rules = Constraints(rules_of(cut.passage, params), params).rules
    assert {"pitch_rad", "fixture_m", "on_board_m"} < {rule.name for rule in rules}
    for rule in rules:
        trajectory, pullback = cut.coarse_trajectory(at)
        reading, bar = rule.measure(trajectory), Trajectory.zeros(len(trajectory.position))
        getattr(bar, reading.quantity)[reading.row] += reading.slope
        bar.turn[reading.row] += reading.turn
        along, step = generator.standard_normal(at.shape), 1e-6
        ends = [rule.measure(cut.coarse_trajectory(at + s * step * along)[0]).value for s in (1.0, -1.0)]
        difference = (ends[0] - ends[1]) / (2.0 * step)
        assert float((pullback(bar) * along).sum()) == pytest.approx(difference, rel=1e-6, abs=1e-9), (
            rule.name
        )


def test_rules_of_a_level_knife_are_those_of_the_slicing_motion():
    """Without pitch the whole blade moves like its middle: the same values, rule by rule."""
    cut, params = rocking_cut(Knife())
    plain = quick(damage_law="edge")
    level = slicing_cut(plain, block_model(regular_block((3, 3, 3)), damage_law="edge"))
    at = wild(cut)
    at[3] = 0.0
    turning = {r.name: r.measure(cut.trajectory(at)).value for r in rules_of(cut.passage, params)}
    for rule in rules_of(level.passage, plain):
        assert turning[rule.name] == pytest.approx(rule.measure(level.trajectory(at[:3])).value, abs=1e-12)


@pytest.mark.parametrize("over", ["depth", "time"])
def test_slope_of_the_mean_force(over):
    """Newton's usual tolerance leaves about 1e-4."""
    cut, _ = rocking_cut(KNIVES["belly, tilted"], mean_over=over)
    cut = type(cut)(cut._model, (EDGE,), cut.passage, quick(rocking=True, damage_law="edge", mean_over=over))
    at, step = wild(cut), 1e-5
    _, slope = cut.mean_force_and_slope(at)
    along = np.zeros_like(at)
    along[3] = np.random.default_rng(3).standard_normal(at.shape[1])
    difference = (cut.mean_force(at + step * along) - cut.mean_force(at - step * along)) / (2.0 * step)
    assert float((slope * along).sum()) == pytest.approx(difference, rel=2e-3)


def test_without_sawing_strokes_are_held():
    cut, _ = rocking_cut(Knife(), sawing=False)
    assert (cut.trajectory(wild(cut)).position[:, 2] == cut.passage.z_m).all()


@pytest.fixture(scope="module")
def optimum():
    """Sawing, rocking and both, each searched for briefly."""
    model = block_model(regular_block((3, 3, 3)), damage_law="edge")
    params = quick(
        rocking=True, damage_law="edge", confirm=False, ablation_iterations=0, inner_iterations=150
    )
    found = {}
    for name, settings in _searches(params).items():
        started = settings if name != "whole" else _from_sawing(settings, found)
        found[name] = optimize(model, EDGE, started, finer=model.mesh)
    return replace(found.pop("whole"), alone=found)


def test_the_search_keeps_every_rule_of_the_whole_blade(optimum):
    trajectory = optimum.whole.path
    z = np.linspace(-0.075, 0.075, 31)
    heights = trajectory.position[:, 1:2] - z * np.sin(trajectory.turn[:, :1])
    assert heights.min() > -0.6e-3
    assert np.degrees(np.abs(trajectory.turn[:, 0]).max()) < 15.2
    assert np.abs(optimum.alone["rocking"].whole.path.turn[:, 0]).max() > 1e-3
    both, sawing = (one.slicing.mean_n() for one in (optimum, optimum.alone["sawing"]))
    assert both <= sawing * (1.0 + 1e-4), "it starts from the motion that only saws"
    assert set(optimum.alone) == {"sawing", "rocking"}
    assert (
        np.abs(
            np.diff(
                optimum.alone["rocking"]
                .slicing.cut.trajectory(optimum.alone["rocking"].slicing.variables)
                .position[:, 2]
            )
        ).max()
        == 0.0
    )


def test_tables_and_figures_tell_what_each_contributes(optimum):
    rows = metrics(optimum)["contributions"]
    assert set(rows) == {"sawing", "rocking", "both"}
    for row in rows.values():
        assert row["reduction"] == pytest.approx(1.0 - row["mean_force_n"] / row["mean_force_vertical_n"])
    motion = motion_table(optimum)
    assert motion.columns[-2:] == ["pitch_rad", "torque_nm"]
    assert motion["pitch_rad"][-1] == pytest.approx(0.0, abs=1e-12)
    for name, table in (
        ("optimize/motion", motion),
        ("optimize/keyframes", keyframe_table(optimum)),
        ("optimize/history", history_table(optimum)),
    ):
        check_table(ARTIFACTS[name], table, name)
    picture = optimize_picture(optimum, np.random.default_rng(0).uniform(0.0, 0.03, (20, 2)))
    assert picture.ndim == 3 and picture.std() > 10.0
    without = motion.drop("pitch_rad", "torque_nm")
    check_table(ARTIFACTS["optimize/motion"], without, "a motion that does not turn")
    with pytest.raises(InputError, match="must have exactly"):
        check_table(ARTIFACTS["optimize/motion"], motion.with_columns(pl.lit(1.0).alias("roll_rad")), "table")


def test_replay_turns_the_knife_as_the_table_says(optimum):
    """Rates of the pitch are differences of the table's rows: between them it follows their line to 10 µrad."""
    motion = motion_table(optimum)
    poses = _recorded(motion).poses(np.array(motion["time_s"]))
    assert poses[:, 3] == pytest.approx(motion["pitch_rad"].to_numpy(), abs=1e-12)
    assert poses[:, :3] == pytest.approx(motion["position_m"].to_numpy(), abs=1e-12)
    between = motion["time_s"].to_numpy()[:-1] + 0.5e-3
    expected = np.interp(between, motion["time_s"].to_numpy(), motion["pitch_rad"].to_numpy())
    assert _recorded(motion).poses(between)[:, 3] == pytest.approx(expected, abs=1e-5)
    assert _recorded(motion.drop("pitch_rad", "torque_nm")).poses(between).shape[1] == 3
