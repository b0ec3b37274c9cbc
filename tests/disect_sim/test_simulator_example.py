"""The examples run and do what they say; docs/simulator.md shows the second one."""

from pathlib import Path

import numpy as np
import pytest

from examples import batch, fit, gradient_check, posterior, slicing, soft_body

ROOT = Path(__file__).parents[2]


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "picture.png"
    yield str(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_gradient_check(picture):
    errors = gradient_check.main(picture)
    # The states are converged to about 1e-5 by default (NewtonOptions); the differences do not depend on their step.
    assert len(errors) == len(gradient_check.NAMES) and max(errors.values()) < 1e-4


def test_fit_finds_the_toughness(picture):
    path = fit.main(picture)
    # The knife's contact carries part of the force, the noise is 0.3 N: Adam's last steps are within 5 % of the truth.
    assert path[0] < 0.6 * fit.TRUTH and path[-1] == pytest.approx(fit.TRUTH, rel=0.05)


def test_posterior_holds_the_truth(picture):
    median, spread = posterior.main(picture)
    assert (np.abs(np.log(posterior.TRUTH / median)) < 3.0 * spread).all()
    assert (spread < posterior.PRIOR_SPREAD).all()


def test_slicing_needs_less_force(picture):
    vertical, drawn = slicing.main(picture)
    # One stroke along the blade with press share 0.25: the closed form of the law gives about half of the force.
    assert 0.35 * vertical < drawn < 0.75 * vertical


def test_batch_rises_with_toughness_and_friction(picture):
    peaks = batch.main(picture)
    assert (np.diff(peaks, axis=0) > 0.0).all() and (np.diff(peaks, axis=1) > 0.0).all()


def test_soft_body_is_cut_to_the_end(picture):
    result = soft_body.main(picture)
    assert result.outcome.ok and result.cut_fraction[-1] > 0.9


def test_page_shows_the_example():
    page = (ROOT / "docs" / "simulator.md").read_text()
    shown = page.split("```python\n")[1].split("```")[0].splitlines()
    source = [line.strip() for line in (ROOT / "examples" / "fit.py").read_text().splitlines()]
    assert [line for line in shown if line.strip() not in source] == []
