"""Rounds of learnt posteriors: where their points come from, and what is said when a round can't be."""

import numpy as np
import pytest
import torch

from stages.calibrate.samplers import learnt
from stages.calibrate.samplers.learnt import Region
from stages.calibrate.samplers.sampling import sample
from stages.runtime.errors import InputError
from tests.stages.calibrate.posterior_problems import curved_target, sampling_of

ROUNDS = {"chains": 1, "samples": 20, "simulations": 100, "rounds": 2}


class Normal:
    """A posterior as sbi has them: independent normals."""

    def __init__(self, mean, deviation):
        self._one = torch.distributions.Normal(torch.tensor(mean), deviation)

    def sample(self, shape, show_progress_bars):
        return self._one.sample(shape)

    def log_prob(self, theta, norm_posterior):
        return self._one.log_prob(theta).sum(dim=1)


def narrowed(*posteriors):
    torch.manual_seed(0)
    found = Region(2)
    for each in posteriors:
        found.narrow(each)
    return found


def test_points_come_from_the_prior_inside_the_region():
    random = np.random.default_rng(0)
    found = narrowed(Normal([1.0, 0.0], 0.2))
    points = found.of_prior(400, random)
    # All but a thousandth of a normal in the plane is within 3.72 deviations.
    distance = np.linalg.norm(points - [1.0, 0.0], axis=1) / 0.2
    assert len(points) == 400 and distance.max() < 3.72 * 1.1 and distance.max() > 3.72 * 0.85
    many = random.standard_normal((400_000, 2))
    inside = many[np.linalg.norm(many - [1.0, 0.0], axis=1) < 3.72 * 0.2]
    # The prior falls off to the right, so its points lean to the left; a mean of 400 is known to a twentieth.
    spread = inside.std(axis=0)
    assert np.abs(points.mean(axis=0) - inside.mean(axis=0)).max() < 4.0 * spread.max() / 20.0
    assert inside.mean(axis=0)[0] < 1.0 - 0.1


def test_far_out_in_the_prior_points_come_from_the_posterior(monkeypatch):
    """Five deviations out the prior has one point in a million inside; the region's points still lie as the prior's."""
    monkeypatch.setattr(learnt, "_MOST", 40_000)
    found = narrowed(Normal([5.5, 0.0], 0.2))
    points = found.of_prior(400, np.random.default_rng(0))
    assert len(points) == 400 == len(np.unique(points, axis=0))
    grid = np.stack(np.meshgrid(np.linspace(4.6, 6.4, 400), np.linspace(-0.9, 0.9, 400)), axis=-1).reshape(
        -1, 2
    )
    grid = grid[found.depth(grid) == 1]
    weight = np.exp(-0.5 * (grid**2).sum(axis=1))
    mean = (weight @ grid) / weight.sum()
    spread = np.sqrt(weight @ (grid - mean) ** 2 / weight.sum())
    assert np.abs(points.mean(axis=0) - mean).max() < 4.0 * spread.max() / 20.0
    assert points.std(axis=0) == pytest.approx(spread, rel=0.15)


def test_without_a_posterior_the_region_is_everywhere():
    points = Region(3).of_prior(1000, np.random.default_rng(1))
    assert points.shape == (1000, 3) and np.abs(points).max() > 2.5


def test_a_network_never_learns_from_fewer_points_than_at_first():
    random = np.random.default_rng(2)
    found = Region(2)
    torch.manual_seed(0)
    points = found.of_prior(300, random)
    for deviation in (0.4, 0.2):
        found.narrow(Normal([0.0, 0.0], deviation))
        points = np.concatenate([points, found.of_prior(100, random)])
    depth = found.depth(points)
    assert (depth[-100:] == 2).all() and (depth[300:400] >= 1).all() and (depth[:300] == 0).any()
    for wanted, at_least in ((300, 1), (120, 2), (1000, 0)):
        assert (found.enough(points, wanted) == (depth >= at_least)).all()


def test_a_posterior_that_is_too_narrow_for_further_rounds_is_a_sentence(monkeypatch):
    pytest.importorskip("sbi")
    learnt = pytest.importorskip("stages.calibrate.samplers.learnt")
    for module in (learnt, learnt):
        monkeypatch.setattr(module, "_MOST", 20)
        monkeypatch.setattr(module, "DRAWN", 20)
    monkeypatch.setattr(learnt, "_BATCH", 20)
    with pytest.raises(
        InputError,
        match=r"round 2 of bayessim can't draw the 20 points.*Lower calibrate.rounds",
    ):
        sample("bayessim", sampling_of(curved_target(), **ROUNDS))


@pytest.mark.parametrize("failing", [1, 2])
def test_a_round_that_can_not_be_trained_is_a_sentence(failing, monkeypatch):
    pytest.importorskip("sbi")
    from stages.calibrate.samplers import learnt

    trained = []

    class Failing(learnt.NPE):
        def train(self, **settings):
            trained.append(self)
            if len(trained) == failing:
                raise torch.linalg.LinAlgError("the input is not positive-definite")
            return super().train(**settings)

    monkeypatch.setattr(learnt, "NPE", Failing)
    with pytest.raises(
        InputError,
        match=rf"round {failing} of bayessim could not be trained on 1[0-9]0 simulations \(the input is not positive"
        r".*Raise calibrate.simulations, lower calibrate.rounds",
    ):
        sample("bayessim", sampling_of(curved_target(), **ROUNDS))
