"""The fitting methods by name. A method is added by a file in this folder and a line here.

Importing the table costs neither torch nor SciPy; a method's file is loaded when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch


# The posterior methods by name. A method is added by a file in this folder and a line here.
#
# Importing the table costs nothing; a method's file, and the package that it needs, are loaded when it is used.


EXTRA = "pip install '.[bayes]' -c constraints.txt"
"""Installs the packages that some methods need."""


@dataclass(frozen=True)
class _Sampler:
    """What a method is."""

    function: str
    """Where it is, "module:function"; arguments and result: stages.calibrate.samplers.sampling.sample."""
    meaning: str
    needs: str = ""
    """A package of the extra `bayes`; empty if it needs none."""
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
"""By the name used in params.yaml."""


# How far a simulated profile is from a measured one. All losses are 0 for equal profiles and have no unit.


HUBER_FRACTION = 0.03
"""Residuals below this share of the mean force count squared in pseudo-Huber, larger ones linearly [-]."""
_SOFT_FRACTION = 0.1
"""Width of the soft maximum in log-sum-exp, as a share of the mean force [-]."""
_TINY = 1.0e-12


def l1(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Mean absolute residual over the mean force: the NMAE itself."""
    return (simulated - measured).abs().mean() / scale


def _l2(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Mean squared residual over the squared mean force."""
    return ((simulated - measured) ** 2).mean() / scale**2


def pseudo_huber(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """Like l1 for large residuals and smooth at zero, as second-order methods need it."""
    delta = HUBER_FRACTION * scale
    r = (simulated - measured) / delta
    return HUBER_FRACTION * ((1.0 + r * r).sqrt() - 1.0).mean()


def _inverse_cosine(simulated: torch.Tensor, measured: torch.Tensor, _scale: float) -> torch.Tensor:
    """One minus the cosine of the angle between the profiles: shape counts, size does not."""
    norms = simulated.norm() * measured.norm()
    return 1.0 - (simulated @ measured) / (norms + _TINY)


def _log_sum_exp(simulated: torch.Tensor, measured: torch.Tensor, scale: float) -> torch.Tensor:
    """A soft maximum of the residuals: the worst part of the profile counts most."""
    width = _SOFT_FRACTION * scale
    r = (((simulated - measured) ** 2 + (0.01 * width) ** 2).sqrt() - 0.01 * width) / width
    return _SOFT_FRACTION * (r.logsumexp(dim=0) - r.new_tensor(float(len(r))).log())


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
    "l2": Loss(_l2),
    "pseudo_huber": Loss(pseudo_huber),
    "inverse_cosine": Loss(_inverse_cosine),
    "log_sum_exp": Loss(_log_sum_exp),
}
"""By the name used in params.yaml."""


_PhaseKind = Literal["shared", "individual"]
"""shared: a handful of parameters; individual: one value per spring, with a prior."""


@dataclass(frozen=True)
class _Method:
    """What a method is."""

    function: str
    """Where it is, "module:function"; arguments and result: stages.calibrate.phase.fit."""
    meaning: str
    phases: tuple[_PhaseKind, ...]
    """What it can fit."""
    loss: Literal["any", "smooth", "own"]
    """Which losses it can minimise; own: it has one of its own, and that of params.yaml is not used."""


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
"""By the name used in params.yaml."""


def methods_of(phase: _PhaseKind) -> list[str]:
    """Names of the methods that can do the phase."""
    return [name for name, method in METHODS.items() if phase in method.phases]
