"""Posteriors that a network learns from simulations, by sbi: what BayesSim and the flow have in common."""

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sbi.inference import NPE
from sbi.neural_nets import posterior_nn

from disect_sim.errors import InputError
from stages.calibrate.samplers.memory import RememberedSimulations
from stages.calibrate.samplers.sampling import Samples, Sampling
from stages.runtime.parallel import Workers

NOISES = 3
"""Every simulation is shown to the network with so many different noises: noise costs nothing."""
LATER_ROUNDS = 5
"""A later round has this part of the first one's simulations: 500, then 100 each in the paper."""
PATIENCE = 20
"""Training ends after so many epochs without a better loss on the tenth that is held out."""
FEWEST = 50
"""Finished simulations of a first round below which there is nothing to learn."""

Array = NDArray[np.float64]


def sample_learnt(method: str, sampling: Sampling, **network: Any) -> Samples:
    """Points of the posterior that a network has learnt for the target's log."""
    points, asked = learnt_points(method, sampling, np.array([sampling.target.observed]), **network)
    t = points[0].reshape(sampling.chains, sampling.samples, -1)
    return Samples(t, np.full(t.shape[:2], np.nan), 0, asked, False, t)


def learnt_points(method: str, sampling: Sampling, shown: Array, **network: Any) -> tuple[Array, int]:
    """Points of the posteriors of several logs, by one network, and the simulations that it has learnt from.

    Args:
        method: Its name, for reports.
        sampling: The job; the target's own log is the one that further rounds are drawn for.
        shown: What the logs show, shape [log_count, summary_count].
        network: Of sbi's posterior_nn.

    Returns:
        Points of shape [log_count, chains * samples, unknown_count], and the number of simulations.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small networks, and the same sums in the same order everywhere
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
    """Simulate points of the prior, then in further rounds of the posterior so far, and train on all of them."""
    random, count = np.random.default_rng([s.seed, 4]), len(s.centre)
    torch.manual_seed(int(random.integers(2**31)))
    prior = torch.distributions.MultivariateNormal(torch.zeros(count), torch.eye(count))
    trainer = NPE(prior, density_estimator=network, tracker=_NoFiles(), show_progress_bars=False)
    observed = _as_tensor(s.target.observed)
    posterior = None
    for number in range(s.rounds):
        wanted = s.simulations if posterior is None else max(1, s.simulations // LATER_ROUNDS)
        points = (
            random.standard_normal((wanted, count))
            if posterior is None
            else _drawn(posterior, wanted, observed)
        )

        def tell(done: int, number: int = number, wanted: int = wanted) -> None:
            text = f"{method}: round {number + 1} of {s.rounds}, simulation {done} of {wanted}"
            s.report((number + done / wanted) / s.rounds, text)

        theta, x = _shown(s, points, ask(points, tell), random, fewest=FEWEST if posterior is None else 1)
        with redirect_stdout(StringIO()):  # it prints, whatever it is asked
            trainer.append_simulations(theta, x, proposal=posterior)
            try:
                trainer.train(stop_after_epochs=PATIENCE)
            except torch.linalg.LinAlgError as error:  # a mixture wider than its proposal
                raise InputError(
                    f"calibrate: round {number + 1} of {method} could not be trained: its mixture, divided by that of "
                    "the round before, is no distribution. Rounds need simulations enough to learn from. Raise "
                    "calibrate.simulations, lower calibrate.rounds, or take calibrate.posterior=npe."
                ) from error
        posterior = trainer.build_posterior().set_default_x(observed)
    return posterior


class _NoFiles:
    """In place of sbi's own tracker, which writes a folder into the working directory."""

    log_dir = None

    def log_metric(self, name: str, value: float, step: int | None = None) -> None:
        """Nothing."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Nothing."""

    def log_params(self, params: dict[str, Any]) -> None:
        """Nothing."""

    def add_figure(self, name: str, figure: Any, step: int | None = None) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""


def _as_tensor(shown: Array) -> torch.Tensor:
    return torch.as_tensor(shown, dtype=torch.float32)[None]


def _drawn(posterior: Any, count: int, shown: torch.Tensor) -> Array:
    return np.asarray(posterior.sample((count,), x=shown, show_progress_bars=False).double().numpy())


def _shown(
    s: Sampling, points: Array, clean: Array, random: np.random.Generator, *, fewest: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and summaries for training: finished simulations only, each with several noises."""
    good = np.isfinite(clean).all(axis=1)
    if good.sum() < fewest:
        raise InputError(
            f"calibrate: {good.sum()} of {len(clean)} simulations finished. A posterior that is learnt from them needs "
            f"{fewest}. Raise calibrate.simulations, or narrow calibrate.bounds."
        )
    theta = np.repeat(points[good], NOISES, axis=0)
    x = s.target.noisy(np.repeat(clean[good], NOISES, axis=0), random)
    return torch.as_tensor(theta, dtype=torch.float32), torch.as_tensor(x, dtype=torch.float32)
