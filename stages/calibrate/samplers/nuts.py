"""No-U-Turn Hamiltonian Monte Carlo by Pyro. The mass matrix is Laplace's: chains run in its coordinates."""

from typing import Any

import numpy as np
import torch
from pyro.infer import NUTS

from stages.calibrate.samplers.chains import Chain, Points, Whitened, run_chains
from stages.calibrate.samplers.sampling import Samples, Sampling

_MOST_DOUBLINGS = 5
"""Maximum number of doublings of a path: at most 31 gradients per point."""
_ACCEPTED = 0.8
"""Target acceptance probability; the step is adapted to it during burn-in."""
_NAME = "z"


def sample_nuts(sampling: Sampling) -> Samples:
    """Sample chains in processes."""
    return run_chains("nuts", run, sampling)


def run(chain: Chain) -> Points:
    """Run one chain, burn-in included."""
    s = chain.sampling
    kernel = NUTS(
        potential_fn=lambda at: _Potential.apply(at[_NAME], chain.target),
        step_size=0.5,
        adapt_mass_matrix=False,
        target_accept_prob=_ACCEPTED,
        max_tree_depth=_MOST_DOUBLINGS,
    )
    points: Points = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.default_rng([s.seed, 3, chain.number]).integers(2**31)))
        kernel.initial_params = {_NAME: torch.as_tensor(chain.start)}
        kernel.setup(s.burn_in)
        at = kernel.initial_params
        for iteration in range(s.burn_in + s.samples):
            at = kernel.sample(at)
            z = at[_NAME].detach().numpy().copy()
            points.append((z, chain.target.known.get(z.tobytes(), np.nan)))
            chain.report(iteration + 1)
            if chain.over():
                break
    kernel.cleanup()
    return points


class _Potential(torch.autograd.Function):
    """Minus the log-probability, with the simulator's own gradient."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, target: Whitened) -> torch.Tensor:
        value, gradient = target(z.detach().numpy().copy())
        ctx.gradient = torch.as_tensor(-gradient)
        return torch.as_tensor(-value, dtype=z.dtype)

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> tuple[torch.Tensor, None]:
        return bars[0] * ctx.gradient, None
