"""Langevin dynamics with a preconditioner as in RMSprop and steps that shrink (Welling and Teh 2011; Li et al. 2016).

One gradient per step, no rejection: the variance is too large by about a quarter of the step, which shrinks. The
preconditioner learns during burn-in and is then left alone: one that follows the chain would change what it samples.
"""

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.samplers.chains import Chain, Points, run_chains
from stages.calibrate.samplers.sampling import Samples, Sampling

MEMORY = 0.95
"""Of the mean of squared gradients, per step."""
TINY = 1.0e-8
"""Added to its root."""
DECAY = 1.0 / 3.0
"""Steps fall with this power of their number: the best rate for means of a smooth target."""
LONGEST = 3.0
"""A drift longer than this [Laplace standard deviations] is cut to it; only starts far outside have such."""

Array = NDArray[np.float64]


def sample(sampling: Sampling) -> Samples:
    """Chains in processes."""
    return run_chains("sgld", run, sampling)


def step_size(sampling: Sampling, iteration: int) -> float:
    """Of an iteration, from 0."""
    scale: float = (1.0 + iteration / max(1, sampling.burn_in)) ** -DECAY
    return sampling.step * scale


def run(chain: Chain) -> Points:
    """One chain, burn-in included."""
    s = chain.sampling
    z, count = chain.start, s.burn_in + s.samples
    value, gradient = chain.target(z)
    square, learnt, points = np.ones_like(z), np.zeros_like(z), []
    for iteration in range(count):
        if iteration < s.burn_in:
            square = MEMORY * square + (1.0 - MEMORY) * gradient**2
            scale = 1.0 / (np.sqrt(square) + TINY)
            if iteration >= s.burn_in // 2:
                learnt += np.log(scale)
        elif iteration == s.burn_in:
            scale = np.exp(learnt / max(1, s.burn_in - s.burn_in // 2))
        step = step_size(s, iteration)
        random = np.random.default_rng([s.seed, 1, chain.number, iteration])
        drift = np.clip(0.5 * step * scale * gradient, -LONGEST, LONGEST)
        moved = z + drift + np.sqrt(step * scale) * random.standard_normal(len(z))
        new_value, new_gradient = chain.target(moved)
        if np.isfinite(new_value):  # a simulation that does not finish has no probability: stay
            z, value, gradient = moved, new_value, new_gradient
        points.append((z, value))
        chain.report(iteration + 1)
        if chain.over():
            break
    return points
