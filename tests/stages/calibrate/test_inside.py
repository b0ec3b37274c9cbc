"""A core or stone from force: closed form of its force, the simulator, coverage of the intervals, the planned cut."""

import numpy as np
import polars as pl
import pytest

from disect_sim.cut_mesh import box_mesh
from disect_sim.parameters import MATERIALS
from disect_sim.regions import Anatomy, Region, Shape
from stages.calibrate.inside import (
    CutPlane,
    Inside,
    InsidePrior,
    Look,
    SimulatedCut,
    find_inside,
    inside_picture,
    inside_prior,
    look_from_log,
    plan_next,
    region_setting,
    simulate_cut,
    slices,
)
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from tests.stages.precut.test_precut import ROOT

CENTRE, EXTENT = np.array([0.0, 0.035, 0.0]), np.array([0.09, 0.07, 0.07])
GRID = np.linspace(0.0, 0.075, 301)
TOUGHNESS, RISE = 400.0, 1.5e-3
CORE = InsidePrior(False, CENTRE, np.array([0.004, 0.003, 0.002]), 0.012, 0.25, 2.0, 0.4)
STONE = InsidePrior(True, CENTRE, np.array([0.004, 0.003, 0.002]), 0.014, 0.25, 1.0, 0.0)


def flesh() -> np.ndarray:
    """Force of a ball of flesh: toughness x chord."""
    return TOUGHNESS * 2.0 * np.sqrt(np.maximum(0.0, 0.035**2 - (GRID - 0.035) ** 2))


def look(offset: float, force=None, *, lowest=0.001, heights=None) -> Look:
    height = np.arange(0.0685, max(lowest, 0.001), -0.003) if heights is None else heights
    plane = CutPlane.turned(CENTRE, offset, 0.0)
    force = np.interp(height, GRID, flesh()) if force is None else force
    return Look(
        plane,
        height,
        force,
        flesh(),
        GRID,
        np.zeros((3, len(GRID))),
        0.0 * GRID,
        TOUGHNESS,
        RISE,
        lowest,
        0.5,
    )


def test_the_work_of_a_core_is_its_toughness_times_its_section():
    """The integral of the added force over the whole descent is (ratio - 1) x G x pi (R^2 - d^2).

    24 chords of the midpoint rule in the angle are exact for a circle; the rest is the trapezoidal rule over heights.
    """
    ball = np.array([[0.003, 0.035, 0.0, 0.010, 2.5]])
    height = np.linspace(0.07, 0.0, 3001)
    added = look(0.0).added(ball, height[None])[0]
    work = np.trapezoid(added, -height)
    assert work == pytest.approx(1.5 * TOUGHNESS * np.pi * (0.010**2 - 0.003**2), rel=1e-4)


def test_a_plane_that_misses_the_core_feels_nothing():
    ball = np.array([[0.0, 0.035, 0.0, 0.010, 2.5]])
    assert not look(0.0101).added(ball, GRID[None]).any()


def test_turned_planes_have_their_own_frame():
    plane = CutPlane.turned(CENTRE, 0.004, 90.0)
    placed = plane.placed(np.array([[0.01, 0.02, 0.004], [0.0, 0.0, 0.0]]))
    assert placed[0] == pytest.approx([0.0, 0.02, -0.01], abs=1e-12)
    radius, middle = plane.tops(np.array([[0.01, 0.03, 0.007, 0.005]]))
    assert radius[0] == pytest.approx(0.004)  # 3 mm beside the plane: a triangle of 3, 4, 5
    assert middle[0] == 0.03


def test_the_added_force_is_that_of_the_simulator():
    """A stiff block with a core, cut with and without it. Measured: 1.9 % of the mean force; 3 % is assumed."""
    cut = load_params(ROOT / "params.yaml").cut
    nodes, tets = box_mesh((-0.02, 0.0, -0.015), (0.02, 0.03, 0.015), (3, 8, 6))
    plane = CutPlane.turned(np.array([0.0, 0.015, 0.0]), 0.002, 0.0)
    values = cut.nominal_parameters("apple") | {"edge_toughness": TOUGHNESS, "edge_rise": RISE}
    core = Region("core", Shape.sphere((0.004, 0.015, 0.001), 0.008), 2.0, toughness_ratio=2.0)
    with_core, without = (
        simulate_cut(nodes, tets, plane, MATERIALS["apple"], cut, values, anatomy)
        for anatomy in (Anatomy((core,)), None)
    )
    seen = Look(
        plane,
        without.height_m,
        without.force_n,
        without.force_n[::-1],
        without.height_m[::-1],
        without.bases_n[:, ::-1],
        without.dent_m[::-1],
        TOUGHNESS,
        RISE,
        without.lowest_m,
        0.5,
    )
    added = seen.added(np.array([[0.004, 0.015, 0.001, 0.008, 2.0]]), without.height_m[None])[0]
    error = with_core.force_n - without.force_n - added
    assert np.sqrt(np.mean(error**2)) < 0.03 * without.force_n.mean()
    # Rise length, skin and friction together are what the simulation has: the edge law explains most of the force.
    assert np.abs(without.bases_n[2]).mean() < 0.3 * without.force_n.mean()


def test_intervals_of_a_stone_contain_the_truth_as_often_as_they_say():
    """Stones from the prior, tops with the stated errors: 90 % intervals of 4 unknowns in 60 trials, 240 in all.

    If they were independent, the fraction would have a standard deviation of 2 %; the unknowns of one trial are not,
    so that four of those are allowed.
    """
    generator = np.random.default_rng(3)
    covered = []
    for _ in range(60):
        ball = STONE.ball(generator.standard_normal((1, 4)))
        looks = []
        for offset in (0.0, 0.009, -0.009):
            radius, middle = CutPlane.turned(CENTRE, offset, 0.0).tops(ball)
            top = float(middle[0] + radius[0]) if radius[0] > 0.0 else 0.001
            error = 0.7e-3 * generator.standard_normal(2).sum() if radius[0] > 0.0 else 0.0
            looks.append(look(offset, lowest=top + error))
        low, high = np.quantile(find_inside(looks, STONE, "avocado").balls, [0.05, 0.95], axis=0)
        covered.append((ball[0] >= low) & (ball[0] <= high))
    assert np.mean(covered) == pytest.approx(0.9, abs=0.08)


def seen_core(ball: np.ndarray, offsets, scale=1.3) -> list[Look]:
    looks = []
    for offset in offsets:
        plain = look(offset)
        force = scale * plain.model(ball, np.zeros(1))[0]
        looks.append(look(offset, force))
    return looks


def test_a_core_is_found_where_it_is():
    """Three cuts without noise, flesh 1.3 times as tough as expected."""
    ball = np.array([[0.004, 0.038, 0.0, 0.013, 2.2]])
    found = find_inside(seen_core(ball, (0.0, 0.01, -0.008)), CORE, "apple", model_error=0.0)
    mean = found.balls.mean(axis=0)
    assert mean[:2] == pytest.approx(ball[0, :2], abs=1e-3)
    assert mean[3] == pytest.approx(0.013, rel=0.08)
    assert found.present > 0.99
    figures = found.figures()
    assert figures["radius_m"]["low"] < 0.013 < figures["radius_m"]["high"]
    assert len(found.fitted) == 3
    # Along the blade nothing is seen: the prior stays.
    assert np.std(found.balls[:, 2]) == pytest.approx(0.002, rel=0.15)


def test_no_core_is_reported_as_none():
    looks = [look(0.0, 1.3 * np.interp(look(0.0).height_m, GRID, flesh()))]
    assert find_inside(looks, CORE, "apple", model_error=0.0).present < 0.2


def test_a_cut_to_the_board_excludes_a_stone_there():
    found = find_inside([look(0.0)], STONE, "avocado")
    radius, _ = CutPlane.turned(CENTRE, 0.0, 0.0).tops(found.balls)
    assert found.present < 0.5
    assert (radius > 0.002).mean() < 0.2


def certain(prior: InsidePrior, ball) -> Inside:
    balls = np.tile(ball, (500, 1)) * (
        1.0 + 1e-3 * np.random.default_rng(0).standard_normal((500, len(ball)))
    )
    return Inside(prior, balls, 1.0, ())


def test_the_plan_keeps_two_millimetres():
    inside = certain(STONE, [0.002, 0.035, 0.0, 0.012])
    plan = plan_next(inside, CENTRE, EXTENT)
    assert plan["beside_positive_m"] == pytest.approx(0.016, abs=2e-4)
    assert plan["beside_negative_m"] == pytest.approx(-0.012, abs=2e-4)
    assert plan["stop_above_m"] == pytest.approx(0.049, abs=2e-4)
    assert plan_next(certain(STONE, [0.0, 0.035, 0.0, 0.044]), CENTRE, EXTENT)["beside_positive_m"] is None


def test_the_region_is_in_the_axes_of_the_scan():
    frame = np.array([[0.0, 0, 1, 0.01], [1, 0, 0, 0.02], [0, 1, 0, 0.03], [0, 0, 0, 1]])
    entry = region_setting(certain(CORE, [0.004, 0.03, 0.001, 0.01, 2.0]), frame.tolist())
    back = frame[:3, :3] @ np.array(entry["centre_m"]) + frame[:3, 3]
    assert back == pytest.approx([0.004, 0.03, 0.001], abs=5e-5)
    assert entry["toughness_ratio"] == pytest.approx(2.0, abs=0.01)


def log(height: np.ndarray, force: np.ndarray, drawn=0.0) -> pl.DataFrame:
    along = np.linspace(0.0, drawn, len(height))
    position = np.stack([0.0 * height, height, along], axis=1)
    return pl.DataFrame(
        [
            pl.Series("position_m", position, pl.Array(pl.Float64, 3)),
            pl.Series(
                "force_n", np.stack([0.0 * force, force, 0.0 * force], axis=1), pl.Array(pl.Float64, 3)
            ),
        ]
    )


VALUES = {"edge_toughness": TOUGHNESS, "edge_rise": RISE}
FLESH = SimulatedCut(GRID[::-1], flesh()[::-1], np.zeros((3, len(GRID))), 0.0 * GRID, 0.0)


def read(table: pl.DataFrame, align=True) -> Look:
    plane = CutPlane.turned(CENTRE, 0.0, 0.0)
    return look_from_log(table, plane, FLESH, VALUES, top_m=0.07, noise_n=0.5, align=align)


def test_a_log_is_aligned_where_it_meets_the_fruit():
    height = np.linspace(0.08, 0.001, 800)
    shifted = read(log(height + 0.005, np.interp(height, GRID, flesh())))
    assert shifted.lowest_m == pytest.approx(0.001, abs=2e-4)
    kept = read(log(height + 0.005, np.interp(height, GRID, flesh())), align=False)
    assert kept.lowest_m == pytest.approx(0.006, abs=1e-6)
    assert not shifted.stopped
    assert kept.stopped


def test_logs_that_tell_nothing_are_rejected():
    height = np.linspace(0.08, 0.001, 800)
    force = np.interp(height, GRID, flesh())
    with pytest.raises(InputError, match=r"drawn by 30 mm.*Use the log of a vertical cut"):
        read(log(height, force, drawn=0.03))
    with pytest.raises(InputError, match=r"below 2 N.*Check the tare"):
        read(log(height, 0.01 * force))


def test_slices_are_means_over_three_millimetres():
    height = np.linspace(0.07, 0.0, 7001)
    middle, mean = slices(height, height, 0.0, 0.07)
    assert middle == pytest.approx(mean)
    assert -np.diff(middle)[:-1] == pytest.approx(np.full(len(middle) - 2, 0.003), abs=2e-5)


def test_priors_scale_with_the_fruit():
    prior = inside_prior("avocado", None, CENTRE, EXTENT.copy(), 1.8e-4)
    assert prior.rigid
    assert prior.centre_spread_m[0] > prior.centre_spread_m[1]  # along the longest axis
    assert not inside_prior("avocado", "core", CENTRE, EXTENT.copy(), 1.8e-4).rigid
    assert inside_prior("apple", "stone", CENTRE, EXTENT.copy(), 1.8e-4).rigid


def test_the_picture_is_drawn():
    inside = certain(STONE, [0.002, 0.035, 0.0, 0.012])
    pixels = inside_picture(inside, [look(0.0)], plan_next(inside, CENTRE, EXTENT), CENTRE)
    assert pixels.dtype == np.uint8
    assert pixels.shape[2] == 3
