"""How far a simulated profile is from a measured one. All losses are 0 for equal profiles and have no unit."""

from collections.abc import Callable

import torch

HUBER_FRACTION = 0.03
"""Residuals below this share of the mean force count squared in pseudo-Huber, larger ones linearly [-]."""
SOFT_FRACTION = 0.1
"""Width of the soft maximum in log-sum-exp, as a share of the mean force [-]."""
TINY = 1.0e-12

Loss = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
"""(simulated [N], measured [N], mean measured force [N]) → loss; profiles of shape [sample_count]."""


def l1(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Mean absolute residual over the mean force: the NMAE itself."""
    return (simulated - measured).abs().mean() / scale


def l2(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Mean squared residual over the squared mean force."""
    return ((simulated - measured) ** 2).mean() / scale**2


def pseudo_huber(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Like l1 for large residuals and smooth at zero, as second-order methods need it."""
    delta = HUBER_FRACTION * scale
    r = (simulated - measured) / delta
    return HUBER_FRACTION * (torch.sqrt(1.0 + r * r) - 1.0).mean()


def inverse_cosine(simulated: torch.Tensor, measured: torch.Tensor, _scale: float) -> torch.Tensor:
    """One minus the cosine of the angle between the profiles: shape counts, size does not."""
    norms = simulated.norm() * measured.norm()
    return 1.0 - (simulated @ measured) / (norms + TINY)


def log_sum_exp(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """A soft maximum of the residuals: the worst part of the profile counts most."""
    width = SOFT_FRACTION * scale
    r = (torch.sqrt((simulated - measured) ** 2 + (0.01 * width) ** 2) - 0.01 * width) / width
    count = torch.tensor(float(len(r)), dtype=r.dtype)
    return SOFT_FRACTION * (torch.logsumexp(r, dim=0) - torch.log(count))


LOSSES: dict[str, Loss] = {
    "l1": l1,
    "l2": l2,
    "pseudo_huber": pseudo_huber,
    "inverse_cosine": inverse_cosine,
    "log_sum_exp": log_sum_exp,
}
"""By the name used in params.yaml."""
