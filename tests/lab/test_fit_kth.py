"""The strip model of sawing and its fit, on synthetic strokes whose law is known, and the folds of left-out strokes."""

from dataclasses import replace

import numpy as np
import pytest

from lab.real_logs.fit_kth import load_run, predict_strokes, repeated, strokes_of
from lab.real_logs.sawing_model import (
    FIRST_PRIOR,
    PRIOR_MEAN,
    STEP_S,
    SawingRun,
    edge_frame,
    fit_run,
    integrate,
    law_force,
    shares_of,
    synthetic_run,
)
from tests.real_data import real_file

STIFF = 2000.0


def motion(knife_m: np.ndarray, stroke: np.ndarray | None = None) -> SawingRun:
    time = STEP_S * np.arange(len(knife_m))
    return SawingRun(
        "s",
        "made up",
        time,
        knife_m,
        np.zeros_like(knife_m),
        np.zeros(len(time), int) if stroke is None else stroke,
    )


def sawing(strokes: int = 4, period_s: float = 6.0, descent_m: float = 0.02) -> SawingRun:
    """To and fro by 20 mm, down in steps that stop at every reversal; the slice-push ratio runs through 0 to 5."""
    time = np.arange(0.0, strokes * period_s / 2.0, STEP_S)
    phase = 2.0 * np.pi * time / period_s
    y = 0.010 * (1.0 - np.cos(phase))
    depth = descent_m / time[-1] * (time - 0.8 * np.sin(2.0 * phase) * period_s / (4.0 * np.pi))
    return motion(np.column_stack([y, depth]), strokes_of(y))


def values_with(**changes: float) -> np.ndarray:
    names = {"tilt": 0, "ae": 1, "me": 2, "kt": 3, "kn": 4, "relaxing": 5}
    values = PRIOR_MEAN.copy()
    for name, value in changes.items():
        values[names[name]] = value
    return values


def amplitude(depth: np.ndarray) -> np.ndarray:
    return np.log(5.0 + 250.0 * depth)


@pytest.mark.parametrize("xi", [0.3, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_steady_cutting_gives_the_closed_form(xi, sign):
    """With the springs loaded the edge moves like the knife, whatever their stiffness and the edge's direction."""
    values = values_with(tilt=9.0, relaxing=-20.0)
    step = np.array([sign * xi, 1.0]) / np.hypot(xi, 1.0) * 5e-4
    run = motion(np.arange(400)[:, None] * (step @ edge_frame(values[:1])[0]))
    force, edge = integrate("a+m+e", run, values[None], np.full((400, 1), 6.0))
    along, across = law_force(shares_of("a+m+e", values[None])[:, 0], np.array(xi))
    got = edge_frame(values[:1])[0] @ force[-1, 0]
    # The load approaches its limit exponentially: 400 steps of 0.5 mm against springs that yield after 2 to 6 mm.
    assert got == pytest.approx([sign * 6.0 * along, 6.0 * across], rel=2e-3)
    assert edge[-1, 0] - edge[-2, 0] == pytest.approx(step, rel=1e-2)


def test_the_edge_sticks_at_a_reversal_until_the_spring_has_turned():
    values = values_with(tilt=0.0, kt=np.log(STIFF), relaxing=-20.0)
    there = np.column_stack([np.linspace(0.0, 0.03, 120), np.linspace(0.0, 0.006, 120)])
    back = np.column_stack([np.linspace(0.03, 0.02, 101)[1:], np.full(100, 0.006)])  # the descent stops
    force, edge = integrate("a+m+e", motion(np.vstack([there, back])), values[None], np.full((220, 1), 6.0))
    drag = 6.0 * shares_of("a+m+e", values[None])[1, 0]
    stick = (force[119, 0, 0] + drag) / STIFF  # from the force forward to the drag backward
    assert 0.002 < stick < 0.004  # what the real runs show
    turned = 0.03 - back[:, 0] > stick + 2e-4
    assert np.allclose(edge[120:, 0][~turned][:-3], edge[119, 0], atol=1e-12)
    assert (np.diff(edge[120:, 0, 0][turned]) < 0.0).all()


def test_a_descent_that_stops_holds_the_force_or_relaxes_it():
    stop = np.column_stack([np.zeros(200), np.minimum(np.linspace(0.0, 0.02, 200), 0.01)])
    held, _ = integrate("a+m+e", motion(stop), values_with(relaxing=-20.0)[None], np.full((200, 1), 6.0))
    assert held[-1, 0] == pytest.approx(held[110, 0], abs=1e-9)
    loose, _ = integrate("a+m+e", motion(stop), values_with(relaxing=0.0)[None], np.full((200, 1), 6.0))
    assert 0.3 < loose[-1, 0, 1] / loose[99, 0, 1] < 0.95


@pytest.mark.parametrize(
    ("shares", "tilt"), [((0.35, 0.35, 0.30), 7.0), ((0.60, 0.25, 0.15), 11.0), ((0.2, 0.4, 0.4), 9.0)]
)
def test_shares_of_the_same_law_are_recovered(shares, tilt):
    a, m, e = shares
    truth = values_with(tilt=tilt, ae=np.log(a / e), me=np.log(m / e))
    run = synthetic_run(sawing(), "a+m+e", truth, amplitude, noise_n=0.1, seed=1)
    fit = fit_run(run, "a+m+e")
    # 0.1 N of correlated noise on 5 N, errors of 12 % assumed: the prior still pulls by up to 0.13.
    assert fit.shares == pytest.approx(shares, abs=0.13)
    assert fit.values[0] == pytest.approx(tilt, abs=1.5)
    assert np.exp(fit.values[3]) == pytest.approx(STIFF, rel=0.35)


def test_another_law_is_told_apart():
    """Strokes made by pure slicing: the law of three terms finds little of e, and slicing alone fits as well."""
    run = synthetic_run(sawing(), "a", values_with(tilt=9.0), amplitude, noise_n=0.1, seed=2)
    three, slicing = fit_run(run, "a+m+e"), fit_run(run, "a")
    assert three.shares[0] > 0.6 and three.shares[2] < 0.15
    assert slicing.objective < three.objective
    truth = values_with(ae=0.0, me=0.0)
    run = synthetic_run(sawing(), "a+m+e", truth, amplitude, noise_n=0.1, seed=3)
    assert fit_run(run, "a").objective > 3.0 * fit_run(run, "a+m+e").objective


def test_no_stroke_is_predicted_by_its_own_force():
    run = synthetic_run(sawing(), "a+m+e", values_with(), amplitude, noise_n=0.1, seed=4)
    of_stroke = run.stroke == 1
    damaged = replace(run, force_n=np.where(of_stroke[:, None], 99.0, run.force_n))
    assert np.array_equal(
        fit_run(damaged, "a+m+e", FIRST_PRIOR, [1]).predicted_n,
        fit_run(run, "a+m+e", FIRST_PRIOR, [1]).predicted_n,
    )
    assert not np.isin(99.0, repeated(damaged)[of_stroke])


def test_left_out_strokes_of_a_known_law_are_predicted():
    run = synthetic_run(sawing(), "a+m+e", values_with(), amplitude, noise_n=0.1, seed=5)
    size = np.linalg.norm(run.force_n, axis=1)

    def error(predicted: np.ndarray) -> float:
        return float(np.abs(np.linalg.norm(predicted, axis=1) - size)[1:].mean() / size.mean())

    ours, slicing, repeat = (
        error(predict_strokes(run, "a+m+e", FIRST_PRIOR)),
        error(predict_strokes(run, "a", FIRST_PRIOR)),
        error(repeated(run)),
    )
    assert ours < 0.12 and ours < slicing and ours < repeat


def test_strokes_end_where_the_motion_turns():
    run = sawing(strokes=5)
    assert set(run.stroke) == set(range(5))
    assert run.forward.tolist() == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("name", "food", "strokes"), [("01", "zucchini", 2), ("12", "carrot", 4), ("21", "carrot", 6)]
)
def test_real_runs_are_loaded(name, food, strokes):
    real_file("kth_sawing")
    run = load_run(name)
    assert run.food == food and run.stroke.max() + 1 == strokes
    assert (run.force_n[:, 1] > -0.3).all() and 2.0 < np.linalg.norm(run.force_n, axis=1).max() < 14.0
    # Held back: the force on the food points along the stroke once the blade slides.
    middle = run.stroke == 0
    assert run.forward[0] and run.force_n[middle, 0].max() > 1.5
