"""Learning from slice to slice: a conjugate posterior of the fruit's amplitude and of the spread from cut to cut."""

import math

import numpy as np
import pytest
from scipy import stats

from lab.bench.slices_learning import table
from stages.shared import amplitude
from stages.shared.amplitude import SPREAD, SliceForce, forces_picture, learn, replan_pays
from stages.shared.library import library


def test_the_spread_is_the_librarys():
    assert library.PRIOR_CUTS + len(library.VARIATION["cut"]["factors"]) == amplitude._WORTH
    half = float(stats.t.ppf(0.95, amplitude._WORTH)) * SPREAD
    assert half == pytest.approx(library.NINETY * library.CUT_SPREAD, rel=1e-3)


def test_the_posterior_is_the_integral_of_prior_and_likelihood():
    """Mean and interval of the factor agree with a grid over fruit and spread."""
    ratios = [0.7, 0.8, 0.72]
    known = learn(ratios)
    fruit, spread = np.meshgrid(np.linspace(-1.5, 1.5, 1501), np.linspace(0.01, 1.2, 600), indexing="ij")
    logs = np.log(ratios)
    density = stats.norm.logpdf(fruit, 0.0, spread)  # the calibrated cut counts as one cut of this fruit
    density += sum(stats.norm.logpdf(y, fruit, spread) for y in logs)
    a = 0.5 * amplitude._WORTH
    density += stats.invgamma.logpdf(spread**2, a, scale=a * SPREAD**2) + np.log(spread)
    weight = np.exp(density - density.max())
    marginal = weight.sum(axis=1) / weight.sum()
    low, high = (np.interp(q, np.cumsum(marginal), fruit[:, 0]) for q in (0.05, 0.95))
    assert math.log(known.factor) == pytest.approx(float(marginal @ fruit[:, 0]), abs=2e-3)
    assert math.log(known.factor_low) == pytest.approx(low, abs=4e-3)
    assert math.log(known.factor_high) == pytest.approx(high, abs=4e-3)


def test_equal_slices_make_the_fruit_better_known_than_its_neighbours_band():
    widths = [learn([0.8] * count).known_within for count in range(9)]
    assert widths == sorted(widths, reverse=True)
    known = learn([0.8] * 8)
    assert known.next_low < known.factor_low < known.factor < known.factor_high < known.next_high
    assert known.spread < 0.8 * SPREAD


def test_without_a_log_of_the_fruit_the_first_slice_decides():
    assert learn([0.5], calibrated=False).factor == pytest.approx(0.5, abs=0.04)
    assert learn([0.5]).factor == pytest.approx(math.sqrt(0.5), abs=1e-9)


def test_planning_anew_pays_where_forces_leave_the_certified_range():
    assert replan_pays(1.0, learn([1.6, 1.7, 1.65]), 1.36).startswith("19 of 20")
    assert "lower stop force" in replan_pays(1.0, learn([0.5, 0.5, 0.5, 0.5]), 1.36)
    steady = learn([1.0] * 6)
    assert replan_pays(1.0, steady, 1.36) == ""


def test_the_error_falls_with_the_slices_and_the_band_covers():
    rows = table(600, SPREAD)
    errors = [row["error"] for row in rows]
    assert errors[3] < 0.92 * errors[0] and errors[7] < errors[3]
    assert all(0.85 <= row["coverage"] <= 0.97 for row in rows)


def test_the_picture_shows_bands_and_measurements():
    time = np.linspace(0.0, 1.0, 50)
    force = 30.0 * np.sin(np.pi * time)
    slices = [SliceForce(1, time, force, 0.7, 1.4, time, 0.8 * force), SliceForce(2, time, force, 0.8, 1.3)]
    pixels = forces_picture(slices, "apple")
    assert pixels.ndim == 3 and pixels.std() > 5.0
