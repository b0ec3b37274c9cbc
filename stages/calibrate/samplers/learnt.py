"""Posteriors learnt by a network from simulations, by sbi: BayesSim and neural posterior estimation."""

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sbi.inference import NPE
from sbi.neural_nets import posterior_nn

from disect_sim.processes import Workers
from stages.calibrate.samplers.sampling import RememberedSimulations, Samples, Sampling
from stages.runtime.errors import InputError

# Truncated proposals: later rounds draw from the prior inside the current posterior's region


_CUT_OFF = 1.0e-3
"""Posterior probability outside the region: what a round misses no later one finds."""
_POINTS = 20_000
"""Number of posterior points used to find the density at its boundary."""
_BATCH = 20_000
_MOST = 2_000_000
"""Maximum number of prior points tried: some seconds."""
DRAWN = 200_000
"""Number of posterior points for resampling if the prior has too few inside."""

_Array = NDArray[np.float64]


class Region:
    """The whole space at first; every posterior truncates it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._edges: list[tuple[Any, torch.Tensor]] = []
        """Posteriors and the density at their boundary."""

    def narrow(self, posterior: Any) -> None:
        """Truncate where a posterior of sbi has the last CUT_OFF of its probability."""
        drawn = posterior.sample((_POINTS,), show_progress_bars=False)
        density = posterior.log_prob(drawn, norm_posterior=False)
        self._edges.append((posterior, torch.quantile(density, _CUT_OFF)))

    def depth(self, points: _Array) -> NDArray[np.int64]:
        """Return the number of posteriors, from the first, that contain a point, shape [point_count]."""
        depth, inside = np.zeros(len(points), np.int64), np.ones(len(points), bool)
        for posterior, edge in self._edges:
            density = posterior.log_prob(torch.as_tensor(points, dtype=torch.float32), norm_posterior=False)
            inside &= (density >= edge).numpy()
            depth += inside
        return depth

    def enough(self, points: _Array, wanted: int) -> NDArray[np.bool_]:
        """Return the points in the narrowest region so far that has at least `wanted`, shape [point_count].

        If points were drawn by `of_prior` as the region got narrower, these are prior draws in that region.
        """
        depth = self.depth(points)
        while_enough = [k for k in range(len(self._edges) + 1) if (depth >= k).sum() >= wanted]
        return depth >= max(while_enough, default=0)

    def of_prior(self, wanted: int, random: np.random.Generator) -> _Array:
        """Draw points of the standard normal prior inside; empty if there are fewer than `wanted`.

        Drawn from the prior or, if that yields too few, resampled from the last posterior.
        """
        if not self._edges:
            return random.standard_normal((wanted, self._count))
        found: list[_Array] = []
        for _ in range(_MOST // _BATCH):
            points = random.standard_normal((_BATCH, self._count))
            found.append(points[self.depth(points) == len(self._edges)])
            if sum(map(len, found)) >= wanted:
                return np.concatenate(found)[:wanted]
        return self._resampled(wanted, random)

    def _resampled(self, wanted: int, random: np.random.Generator) -> _Array:
        """Resample points of the last posterior inside, weighted by prior / posterior."""
        posterior, _ = self._edges[-1]
        drawn = posterior.sample((DRAWN,), show_progress_bars=False)
        density = posterior.log_prob(drawn, norm_posterior=False).double().numpy()
        points = drawn.double().numpy()
        inside = self.depth(points) == len(self._edges)
        points, log_weight = points[inside], (-0.5 * (points**2).sum(axis=1) - density)[inside]
        weight = np.exp(log_weight - log_weight.max(initial=-np.inf))
        if not len(points) or weight.sum() ** 2 < wanted * (weight**2).sum():  # effective number of points
            return points[:0]
        return points[random.choice(len(points), wanted, replace=False, p=weight / weight.sum())]


_NOISES = 3
"""Number of noise realisations per simulation in training: noise costs nothing."""
_LATER_ROUNDS = 5
"""Divisor of the number of simulations in later rounds: 500, then 100 each in the paper."""
_PATIENCE = 20
"""Epochs without a better validation loss (a tenth is held out) after which training ends."""
_FEWEST = 50
"""Minimum number of finished simulations."""


def _sample_learnt(method: str, sampling: Sampling, **network: Any) -> Samples:
    """Sample the posterior that a network has learnt for the target's log."""
    points, asked = learnt_points(method, sampling, np.array([sampling.target.observed]), **network)
    t = points[0].reshape(sampling.chains, sampling.samples, -1)
    return Samples(t, np.full(t.shape[:2], np.nan), 0, asked, False, t)


def learnt_points(method: str, sampling: Sampling, shown: _Array, **network: Any) -> tuple[_Array, int]:
    """Sample the posteriors of several logs by one network; also return the number of simulations.

    Args:
        method: Its name, for reports.
        sampling: The task; further rounds are drawn for the target's own log.
        shown: Summaries of the logs, shape [log_count, summary_count].
        network: Of sbi's posterior_nn.

    Returns:
        Points of shape [log_count, chains * samples, unknown_count], and the number of simulations.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small networks, and reproducible sums
    try:
        with Workers(sampling.processes) as workers, torch.random.fork_rng(devices=[]):
            ask = RememberedSimulations(
                lambda ts: sampling.target.summaries(ts, workers), sampling.checkpoint("simulations")
            )
            posterior = _learn(method, sampling, ask, posterior_nn(**network))
            count = sampling.chains * sampling.samples
            return np.array([_drawn(posterior, count, _as_tensor(x)) for x in shown]), ask.asked
    finally:
        torch.set_num_threads(threads)


def _learn(method: str, s: Sampling, ask: RememberedSimulations, network: Any) -> Any:
    """Simulate points of the prior and learn from them; further rounds are truncated.

    A further round simulates points of the prior inside the region of the previous posterior, and learns from the
    points there, as many as in the first round or more (truncated proposals, Deistler et al. 2022). They are prior
    draws, so no correction is needed: dividing one mixture by another, as in the first BayesSim, often leaves no
    distribution.
    """
    random, count = np.random.default_rng([s.seed, 4]), len(s.centre)
    torch.manual_seed(int(random.integers(2**31)))
    region, posterior, clean = Region(count), None, []
    points = np.zeros((0, count))
    for number in range(s.rounds):
        wanted = s.simulations if number == 0 else max(1, s.simulations // _LATER_ROUNDS)
        if posterior is not None:
            region.narrow(posterior)
        new = region.of_prior(wanted, random)
        if len(new) < wanted:
            raise InputError(
                f"calibrate: round {number + 1} of {method} can't draw the {wanted} points it has to simulate: too "
                f"few of {_MOST:,} draws from the prior and {DRAWN:,} from the previous round's posterior lie in the "
                "region of that posterior. Lower calibrate.rounds, or narrow calibrate.bounds."
            )

        def tell(done: int, number: int = number, wanted: int = wanted) -> None:
            text = f"{method}: round {number + 1} of {s.rounds}, simulation {done} of {wanted}"
            s.report((number + done / wanted) / s.rounds, text)

        clean.append(ask(new, tell))
        points = np.concatenate([points, new])
        near = region.enough(points, s.simulations)
        theta, x = _shown(s, points[near], np.concatenate(clean)[near], random)
        posterior = _trained(method, number, theta, x, network).set_default_x(_as_tensor(s.target.observed))
    return posterior


def _trained(method: str, number: int, theta: torch.Tensor, x: torch.Tensor, network: Any) -> Any:
    """Train a network on these points and return its posterior."""
    count = theta.shape[1]
    prior = torch.distributions.MultivariateNormal(torch.zeros(count), torch.eye(count))
    trainer = NPE(prior, density_estimator=network, tracker=_NoFiles(), show_progress_bars=False)
    with redirect_stdout(StringIO()):  # it prints regardless of its settings
        try:
            trainer.append_simulations(theta, x).train(stop_after_epochs=_PATIENCE)
        except (torch.linalg.LinAlgError, AssertionError) as error:
            raise InputError(
                f"calibrate: round {number + 1} of {method} could not be trained on {len(theta) // _NOISES} "
                f"simulations ({error}). A network needs enough of them that differ. Raise calibrate.simulations, "
                "lower calibrate.rounds, or take another calibrate.posterior."
            ) from error
    return trainer.build_posterior()


class _NoFiles:
    """Replacement of sbi's tracker, which writes a folder into the working directory."""

    log_dir = None

    def log_metric(self, name: str, value: float, step: int | None = None) -> None:
        """Do nothing."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Do nothing."""

    def log_params(self, params: dict[str, Any]) -> None:
        """Do nothing."""

    def add_figure(self, name: str, figure: Any, step: int | None = None) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""


def _as_tensor(shown: _Array) -> torch.Tensor:
    return torch.as_tensor(shown, dtype=torch.float32)[None]


def _drawn(posterior: Any, count: int, shown: torch.Tensor) -> _Array:
    return np.asarray(posterior.sample((count,), x=shown, show_progress_bars=False).double().numpy())


def _shown(
    s: Sampling, points: _Array, clean: _Array, random: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points and summaries for training: finished simulations only, each with several noise realisations."""
    good = np.isfinite(clean).all(axis=1)
    if good.sum() < _FEWEST:
        raise InputError(
            f"calibrate: {good.sum()} of {len(clean)} simulations finished. A posterior that is learnt from them needs "
            f"{_FEWEST}. Raise calibrate.simulations, or narrow calibrate.bounds."
        )
    theta = np.repeat(points[good], _NOISES, axis=0)
    x = s.target.noisy(np.repeat(clean[good], _NOISES, axis=0), random)
    return torch.as_tensor(theta, dtype=torch.float32), torch.as_tensor(x, dtype=torch.float32)


# Neural posterior estimation with a normalising flow


def sample_npe(sampling: Sampling) -> Samples:
    """Sample by one round, or several with truncated proposals."""
    return _sample_learnt("npe", sampling, model="maf")


# BayesSim: a mixture density network (Ramos et al. 2019)


_COMPONENTS = 10
"""Number of components of the mixture, as in the paper."""


def sample_bayessim(sampling: Sampling) -> Samples:
    """Sample by one round, or several with truncated proposals."""
    return _sample_learnt("bayessim", sampling, model="mdn", num_components=_COMPONENTS)
