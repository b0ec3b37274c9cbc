"""Parts of the stage calibrate: losses, bounds, prior, onset, hold-out, checkpoints."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from disect_sim.parameters import SPRING_NAMES
from stages.calibrate.calibrate_report import bound_table
from stages.calibrate.calibration import check_names
from stages.calibrate.methods import LOSSES, l1
from stages.calibrate.phase import Objective, Phase, Trial, fit
from stages.calibrate.problem import _held_out_blocks, errors, find_onset, find_puncture
from stages.calibrate.springs.fit import _neighbour_pairs, _Smoothness
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.checkpoint import _CHECKPOINT_FOLDER, Checkpoint, remove_checkpoints
from stages.runtime.errors import InputError
from stages.shared.fitting import make_bound
from tests.stages.calibration_scenes import quick

MEASURED = torch.tensor([0.0, 1.0, 4.0, 9.0, 7.0, 8.0], dtype=torch.float64)
SIMULATED = torch.tensor([0.1, 0.7, 5.0, 8.0, 7.5, 9.0], dtype=torch.float64)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_zero_for_equal_profiles_and_positive_otherwise(name):
    loss = LOSSES[name]
    assert float(loss(MEASURED, MEASURED, 5.0)) == pytest.approx(0.0, abs=1e-9)
    assert float(loss(SIMULATED, MEASURED, 5.0)) > 1e-4


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_losses_agree_with_differences(name):
    def loss(x):
        return LOSSES[name](x, MEASURED, 5.0)

    # gradcheck's own tolerances; the point keeps away from the kinks of l1 (residuals >= 0.1).
    assert torch.autograd.gradcheck(loss, (SIMULATED.clone().requires_grad_(True),))


def test_what_the_losses_look_at():
    assert float(l1(SIMULATED, MEASURED, 5.0)) == pytest.approx((0.1 + 0.3 + 1 + 1 + 0.5 + 1) / 6 / 5)
    # Shape only: a profile twice as large is as good.
    assert float(LOSSES["inverse_cosine"](2.0 * MEASURED, MEASURED, 5.0)) == pytest.approx(0.0, abs=1e-12)
    # The worst residual rules: spreading the same sum of residuals lowers the loss.
    even, peaked = torch.full_like(MEASURED, 1.0), torch.tensor([0, 0, 6, 0, 0, 0], dtype=torch.float64)
    worst = LOSSES["log_sum_exp"]
    assert float(worst(MEASURED + peaked, MEASURED, 5.0)) > 2.0 * float(worst(MEASURED + even, MEASURED, 5.0))
    # Pseudo-Huber is l1 less its width for large residuals: 5 N against a width of 0.03 * 5 N.
    far = LOSSES["pseudo_huber"](MEASURED + 5.0, MEASURED, 5.0)
    assert float(far) == pytest.approx(1.0 - 0.03, abs=0.002)


@given(st.floats(1e-6, 1e3), st.floats(1.01, 1e4), st.floats(0.001, 0.999))
def test_bounded_values_go_there_and_back(low, ratio, fraction):
    bound = make_bound("x", low, low * ratio)
    value = low * ratio**fraction if bound.logarithmic else low + (low * ratio - low) * fraction
    again = bound.value(bound.free(value))
    assert float(again) == pytest.approx(value, rel=1e-9)
    assert bound.low < float(bound.value(torch.tensor(-5.0, dtype=torch.float64))) < bound.high


def test_bounds():
    wide, narrow, offset = make_bound("a", 0.0, 1.0), make_bound("b", 0.45, 1.0), make_bound("c", -2.0, 2.0)
    assert wide.logarithmic and wide.low == pytest.approx(1e-3)
    assert not narrow.logarithmic and not offset.logarithmic
    assert float(offset.value(torch.zeros((), dtype=torch.float64))) == 0.0
    assert narrow.touches(0.999) and narrow.touches(0.45) and not narrow.touches(0.7)
    assert float(narrow.value(narrow.free(7.0))) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(InputError, match=r"bounds\.a is \[2, 1\]"):
        make_bound("a", 2.0, 1.0)


def test_smoothness_prior():
    position = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [5.0, 0.0], [5.0, 1.0]])
    skin = np.array([False, False, False, True, True])
    pairs = _neighbour_pairs(position, skin, 1)
    assert pairs.tolist() == [[0, 1], [1, 2], [3, 4]]
    prior = _Smoothness(pairs, 0.5, ["a"])
    free = torch.tensor([1.0, 1.0, 3.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    assert float(prior({"a": torch.full((5,), 2.0, dtype=torch.float64)})) == 0.0
    value = prior({"a": free})
    assert float(value.detach()) == pytest.approx(0.5 * 4.0 / 3.0)
    value.backward()
    # It pulls neighbours together and leaves the sum alone.
    assert free.grad[1] < 0.0 < free.grad[2] and float(free.grad.sum()) == pytest.approx(0.0, abs=1e-12)


def test_onset_ignores_bumps_and_interpolates():
    time = np.arange(0.0, 1.0, 0.01)
    norm = np.where(time >= 0.495, 10.0 * (time - 0.495), 0.0)
    norm[10] = 5.0
    assert find_onset(time, norm, 1.0) == pytest.approx(0.595, abs=1e-9)
    assert find_onset(time, 0.0 * norm, 1.0) is None
    assert find_onset(time, norm, 100.0) is None


def test_puncture_is_the_first_peak_that_stands_out():
    time = np.linspace(0.0, 1.0, 101)
    ramp = 10.0 * time
    bump = 4.0 * np.exp(-(((time - 0.3) / 0.03) ** 2))
    assert find_puncture(time, ramp) is None
    assert find_puncture(time, ramp + bump)[0] == pytest.approx(0.3, abs=0.02)
    later = 4.0 * np.exp(-(((time - 0.7) / 0.03) ** 2))
    # On a ramp of 10 N/s the top of a bump this wide shifts by about a millisecond's grid: 0.02 s is two samples.
    assert find_puncture(time, ramp + bump + later, near_s=0.72)[0] == pytest.approx(0.7, abs=0.02)
    assert find_puncture(time, ramp + later, near_s=0.3) is None


def test_held_out_blocks_are_interleaved_and_start_after_contact():
    time = np.arange(-0.1, 0.6, 0.001) + 0.0005
    held = _held_out_blocks(time, 0.03, 0.2)
    assert not held[time < 0.12].any() and held[(time > 0.12) & (time < 0.15)].all()
    assert held[time > 0.0].mean() == pytest.approx(0.2, abs=0.01)
    assert not _held_out_blocks(time, 0.03, 0.0).any()


def test_l_bfgs_wants_a_smooth_loss():
    with pytest.raises(InputError, match=r"calibrate\.loss is l1.*pseudo_huber"):
        check_names(quick(individual_optimiser="lbfgs", loss="l1"))


def test_errors_count_only_what_is_in_use():
    use = np.array([True, True, False])
    found = errors(np.array([1.0, 3.0, 99.0]), np.array([2.0, 2.0, 2.0]), use, 2.0)
    assert (found.mae_n, found.nmae, found.peak_error_n) == (1.0, 0.5, 1.0)


def test_checkpoints_survive_corruption_and_other_fits(tmp_path):
    state = {"free": torch.arange(3.0), "history": [{"phase": "shared", "loss": 0.5}]}
    ours = Checkpoint(tmp_path, "key", stage="calibrate", part="shared")
    assert ours.load() is None
    ours.save(state)
    assert torch.equal(ours.load()["free"], state["free"])
    assert Checkpoint(tmp_path, "another key", stage="calibrate", part="shared").load() is None
    file = tmp_path / _CHECKPOINT_FOLDER / "calibrate-shared.pt"
    whole = file.read_bytes()
    for broken in (
        b"",
        whole[:100],
        whole[:-50],
        b"not a checkpoint" * 20,
        whole.replace(b"shared", b"sharXd"),
    ):
        file.write_bytes(broken)
        loaded = ours.load()
        assert loaded is None or torch.equal(loaded["free"], state["free"])
    ours.save(state)
    assert ours.load() is not None
    remove_checkpoints(tmp_path, "calibrate")
    assert list(tmp_path.iterdir()) == []


def test_the_bounds_table_has_what_the_fit_used():
    given = {"cut_spring_ke": [200.0, 3000.0], "surface_cut_spring_ke": [300.0, 4000.0], "sdf_mu": [0.5, 0.9]}
    shared_only = bound_table(quick(bounds=given, shared=["cut_spring_ke", "surface_cut_spring_ke"]))
    check_table(ARTIFACTS["calibrate/bounds"], shared_only, "calibrate/bounds")
    found = {(name, skin): (low, high) for name, skin, low, high in shared_only.iter_rows()}
    assert set(found) == {(name, skin) for name in SPRING_NAMES for skin in (False, True)}
    assert found["cut_spring_ke", False] == (200.0, 3000.0)
    assert found["cut_spring_ke", True] == (300.0, 4000.0)
    assert found["sdf_mu", False] == found["sdf_mu", True] == (0.5, 0.9)
    # One value per spring: the skin's springs are sought in the same range as the others.
    individual = bound_table(quick(bounds=given, individual=["cut_spring_ke"], individual_iterations=1))
    found = {(name, skin): (low, high) for name, skin, low, high in individual.iter_rows()}
    assert found["cut_spring_ke", True] == (200.0, 3000.0)


class SumOfDistances(Objective):
    """|x| in the place of a simulation: kinked at its minimum, like l1."""

    def __init__(self):
        self.best, self.gradients, self.recent = None, 0, []
        self.problem = SimpleNamespace(mean_force=1.0)

    def _evaluate(self, free):
        return Trial(free, float(free.abs().sum()), torch.sign(free), 0.0)


def test_adam_improves_on_a_start_that_is_nearly_right():
    """Its first steps are 50 times too long: it goes back to the best point and halves its rate until they help."""
    start = torch.linspace(-0.02, 0.02, 40, dtype=torch.float64)
    phase = Phase("individual", "adam", 30, quick(learning_rate=0.5, tolerance=1e-3, patience=5))
    nowhere = Checkpoint(None, "", stage="calibrate", part="x")
    done = fit(phase, start, SumOfDistances(), checkpoint=nowhere)
    assert done.best.loss < 0.5 * float(start.abs().sum())
    assert done.gradients == len(done.history)
