"""Starts that are far behind after a few simulations are given up; the others go on as if nothing had been asked."""

import numpy as np
import pytest

from disect_sim.processes import Workers
from stages.optimize import search
from stages.optimize.descent import LEFT_BEHIND, Descent, SoFar
from stages.optimize.search import Start, near_vertical
from tests.stages.slicing_scenes import VALUES, block, quick, slicing_cut


@pytest.fixture(scope="module")
def runs():
    """Beside the vertical cut, and from a motion that saws already; one simulation decides."""
    params = quick(iterations=3, ablation_iterations=1)
    model = block()
    cut = slicing_cut(params, model)
    scale = cut.mean_force(cut.straight())
    near, sawing = near_vertical(cut, params), cut.straight()
    sawing[0] = 1.0
    start = Start("", True, near, model, (VALUES,), cut.passage, params, scale, None, "")
    patch = pytest.MonkeyPatch()
    patch.setattr(search, "_TRIAL", 1)
    quiet = SoFar(cut, scale)
    found = search._descents(
        Workers(1), start, {"vertical": near, "drawn 1": sawing}, lambda *_: None, quiet, lambda _: None
    )
    patch.undo()
    from_the_start = Start(
        "drawn 1", True, sawing, model, (VALUES,), cut.passage, params, scale, None, ""
    ).run()
    return found, from_the_start


def test_the_start_that_is_behind_is_given_up(runs):
    found, _ = runs
    assert found["drawn 1"].best_after(1) < found["vertical"].best_after(1)
    assert found["vertical"].ended == LEFT_BEHIND
    assert len(found["vertical"].history) == 1
    assert len(found[search.UNCONSTRAINED].history) == 1


def test_the_other_goes_on_to_the_same_numbers(runs):
    found, whole = runs
    assert len(whole.history) == 3
    assert found["drawn 1"].history == whole.history
    assert found["drawn 1"].ended == whole.ended
    assert np.array_equal(found["drawn 1"].best.variables, whole.best.variables)


def test_the_comparison_looks_at_the_first_simulations_alone():
    """A search that was killed and goes on may have more of them already."""
    rows = [(3.0, True), (1.0, False), (2.0, True), (1.5, True)]
    run = Descent(history=[{"objective": value, "feasible": kept} for value, kept in rows])
    assert [run.best_after(count) for count in (0, 1, 2, 3, 4)] == [np.inf, 3.0, 3.0, 2.0, 1.5]
