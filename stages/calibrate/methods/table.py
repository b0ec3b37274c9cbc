"""The fitting methods by name. A method is added by a file in this folder and a line here.

Importing the table costs neither torch nor SciPy; a method's file is loaded when it is used.
"""

from dataclasses import dataclass
from typing import Literal

PhaseKind = Literal["shared", "individual"]
"""shared: a handful of parameters; individual: one value per spring, with a prior."""


@dataclass(frozen=True)
class Method:
    """What a method is."""

    function: str
    """Where it is, "module:function"; arguments and result: stages.calibrate.phase.fit."""
    meaning: str
    phases: tuple[PhaseKind, ...]
    """What it can fit."""
    loss: Literal["any", "smooth", "own"]
    """Which losses it can minimise; own: it has one of its own, and that of params.yaml is not used."""


METHODS = {
    "lbfgs": Method(
        "stages.calibrate.methods.lbfgs:fit",
        "limited-memory quasi-Newton with a line search",
        ("shared", "individual"),
        loss="smooth",
    ),
    "gauss_newton": Method(
        "stages.calibrate.methods.gauss_newton:fit",
        "Levenberg–Marquardt; no gradients, one simulation per parameter and iteration",
        ("shared",),
        loss="own",
    ),
    "adam": Method(
        "stages.calibrate.methods.adam:fit",
        "first-order steps that shrink, back to the best point when lost",
        ("shared", "individual"),
        loss="any",
    ),
}
"""By the name used in params.yaml."""


def methods_of(phase: PhaseKind) -> list[str]:
    """Names of the methods that can do the phase."""
    return [name for name, method in METHODS.items() if phase in method.phases]
