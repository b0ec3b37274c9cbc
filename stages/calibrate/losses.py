"""How far a simulated profile is from a measured one. All losses are 0 for equal profiles and have no unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line checks names against LOSSES, and must not import torch
    import torch

HUBER_FRACTION = 0.03
"""Residuals below this share of the mean force count squared in pseudo-Huber, larger ones linearly [-]."""
SOFT_FRACTION = 0.1
"""Width of the soft maximum in log-sum-exp, as a share of the mean force [-]."""
TINY = 1.0e-12


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
    return HUBER_FRACTION * ((1.0 + r * r).sqrt() - 1.0).mean()


def inverse_cosine(simulated: torch.Tensor, measured: torch.Tensor, _scale: float) -> torch.Tensor:
    """One minus the cosine of the angle between the profiles: shape counts, size does not."""
    norms = simulated.norm() * measured.norm()
    return 1.0 - (simulated @ measured) / (norms + TINY)


def log_sum_exp(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """A soft maximum of the residuals: the worst part of the profile counts most."""
    width = SOFT_FRACTION * scale
    r = (((simulated - measured) ** 2 + (0.01 * width) ** 2).sqrt() - 0.01 * width) / width
    return SOFT_FRACTION * (r.logsumexp(dim=0) - r.new_tensor(float(len(r))).log())


@dataclass(frozen=True)
class Loss:
    """A loss and what a fitting method must know of it."""

    function: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
    """(simulated [N], measured [N], mean measured force [N]) → loss; profiles of shape [sample_count]."""
    smooth: bool = True
    """False if it has a kink where the fit is perfect."""

    def __call__(self, simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
        """The loss [-]."""
        return self.function(simulated, measured, scale)


LOSSES = {
    "l1": Loss(l1, smooth=False),
    "l2": Loss(l2),
    "pseudo_huber": Loss(pseudo_huber),
    "inverse_cosine": Loss(inverse_cosine),
    "log_sum_exp": Loss(log_sum_exp),
}
"""By the name used in params.yaml."""
