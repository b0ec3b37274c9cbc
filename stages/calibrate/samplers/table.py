"""The posterior methods by name. A method is added by a file in this folder and a line here.

Importing the table costs nothing; a method's file, and the package that it needs, are loaded when it is used.
"""

from dataclasses import dataclass

EXTRA = "pip install '.[bayes]' -c constraints.txt"
"""Installs the packages that some methods need."""


@dataclass(frozen=True)
class Sampler:
    """What a method is."""

    function: str
    """Where it is, "module:function"; arguments and result: stages.calibrate.samplers.sampling.sample."""
    meaning: str
    needs: str = ""
    """A package of the extra `bayes`; empty if it needs none."""
    uses_likelihood: bool = True
    """False if it learns from simulations and their noise instead."""


POSTERIORS = {
    "laplace": Sampler("", "normal around the most probable point; nothing is sampled"),
    "grid": Sampler(
        "stages.calibrate.samplers.grid:sample", "brute force on a grid, for at most three unknowns"
    ),
    "sgld": Sampler(
        "stages.calibrate.samplers.sgld:sample", "Langevin steps, preconditioned as in RMSprop, that shrink"
    ),
    "nuts": Sampler(
        "stages.calibrate.samplers.nuts:sample",
        "Hamiltonian Monte Carlo without U-turns, by Pyro",
        needs="pyro",
    ),
    "bayessim": Sampler(
        "stages.calibrate.samplers.bayessim:sample",
        "mixture density network learnt from simulations, by sbi",
        needs="sbi",
        uses_likelihood=False,
    ),
    "npe": Sampler(
        "stages.calibrate.samplers.npe:sample",
        "normalising flow learnt from simulations, by sbi",
        needs="sbi",
        uses_likelihood=False,
    ),
}
"""By the name used in params.yaml."""
