"""Fitting methods, posterior methods and losses by name.

To add one, add its function and a line here. Importing the tables loads neither torch nor SciPy; a method's module, and
the package that it needs, are imported when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch


# Posterior methods


EXTRA = "pip install '.[bayes]' -c constraints.txt"
"""Command that installs the packages of some methods."""


@dataclass(frozen=True)
class _Sampler:
    """A posterior method."""

    function: str
    """Location, "module:function"; arguments and result: stages.calibrate.samplers.sampling.sample."""
    meaning: str
    needs: str = ""
    """Package of the extra `bayes`; empty if it needs none."""
    uses_likelihood: bool = True
    """False if it learns from simulations and their noise instead."""


POSTERIORS = {
    "laplace": _Sampler("", "normal around the most probable point; nothing is sampled"),
    "grid": _Sampler(
        "stages.calibrate.samplers.grid:sample_grid", "brute force on a grid, for at most three unknowns"
    ),
    "sgld": _Sampler(
        "stages.calibrate.samplers.chains:sample_sgld",
        "Langevin steps, preconditioned as in RMSprop, that shrink",
    ),
    "nuts": _Sampler(
        "stages.calibrate.samplers.nuts:sample_nuts",
        "Hamiltonian Monte Carlo without U-turns, by Pyro",
        needs="pyro",
    ),
    "bayessim": _Sampler(
        "stages.calibrate.samplers.learnt:sample_bayessim",
        "mixture density network learnt from simulations, by sbi",
        needs="sbi",
        uses_likelihood=False,
    ),
    "npe": _Sampler(
        "stages.calibrate.samplers.learnt:sample_npe",
        "normalising flow learnt from simulations, by sbi",
        needs="sbi",
        uses_likelihood=False,
    ),
}
"""Posterior methods by the name used in params.yaml."""


# Losses: 0 for equal profiles, dimensionless


HUBER_FRACTION = 0.03
"""Fraction of the mean force below which residuals count squared in pseudo-Huber, larger ones linearly [-]."""
_SOFT_FRACTION = 0.1
"""Width of the soft maximum in log-sum-exp, as a fraction of the mean force [-]."""
_TINY = 1.0e-12


def l1(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Return mean absolute residual / mean force: the NMAE."""
    return (simulated - measured).abs().mean() / scale


def _l2(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Return mean squared residual / squared mean force."""
    return ((simulated - measured) ** 2).mean() / scale**2


def pseudo_huber(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the pseudo-Huber loss: like l1 for large residuals and smooth at zero, for second-order methods."""
    delta = HUBER_FRACTION * scale
    r = (simulated - measured) / delta
    return HUBER_FRACTION * ((1.0 + r * r).sqrt() - 1.0).mean()


def _inverse_cosine(simulated: torch.Tensor, measured: torch.Tensor, _scale: float) -> torch.Tensor:
    """Return one minus the cosine of the angle between the profiles: depends on shape, not size."""
    norms = simulated.norm() * measured.norm()
    return 1.0 - (simulated @ measured) / (norms + _TINY)


def _log_sum_exp(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Return a soft maximum of the residuals, dominated by the worst part of the profile."""
    width = _SOFT_FRACTION * scale
    r = (((simulated - measured) ** 2 + (0.01 * width) ** 2).sqrt() - 0.01 * width) / width
    return _SOFT_FRACTION * (r.logsumexp(dim=0) - r.new_tensor(float(len(r))).log())


@dataclass(frozen=True)
class Loss:
    """A loss and its smoothness."""

    function: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
    """(simulated [N], measured [N], mean measured force [N]) → loss; profiles of shape [sample_count]."""
    smooth: bool = True
    """False if it has a kink where the fit is perfect."""

    def __call__(self, simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the loss [-]."""
        return self.function(simulated, measured, scale)


LOSSES = {
    "l1": Loss(l1, smooth=False),
    "l2": Loss(_l2),
    "pseudo_huber": Loss(pseudo_huber),
    "inverse_cosine": Loss(_inverse_cosine),
    "log_sum_exp": Loss(_log_sum_exp),
}
"""Losses by the name used in params.yaml."""


_PhaseKind = Literal["shared", "individual"]
"""shared: a handful of parameters; individual: one value per spring, with a prior."""


@dataclass(frozen=True)
class _Method:
    """A fitting method."""

    function: str
    """Location, "module:function"; arguments and result: stages.calibrate.phase.fit."""
    meaning: str
    phases: tuple[_PhaseKind, ...]
    """Phases it can fit."""
    loss: Literal["any", "smooth", "own"]
    """Losses it can minimise; own: it has its own, and that of params.yaml is not used."""


METHODS = {
    "lbfgs": _Method(
        "stages.calibrate.springs.torch_methods:fit_lbfgs",
        "limited-memory quasi-Newton with a line search",
        ("shared", "individual"),
        loss="smooth",
    ),
    "gauss_newton": _Method(
        "stages.calibrate.springs.gauss_newton:fit_gauss_newton",
        "Levenberg–Marquardt; no gradients, one simulation per parameter and iteration",
        ("shared",),
        loss="own",
    ),
    "adam": _Method(
        "stages.calibrate.springs.torch_methods:fit_adam",
        "first-order steps that shrink, back to the best point when lost",
        ("shared", "individual"),
        loss="any",
    ),
}
"""Fitting methods by the name used in params.yaml."""


def methods_of(phase: _PhaseKind) -> list[str]:
    """Return the names of the methods that can fit the phase."""
    return [name for name, method in METHODS.items() if phase in method.phases]
