"""BayesSim: a mixture of normals whose numbers a network learns from simulations (Ramos et al. 2019)."""

from stages.calibrate.samplers.learnt import sample_learnt
from stages.calibrate.samplers.sampling import Samples, Sampling

COMPONENTS = 10
"""Normals of the mixture, as in the paper."""


def sample(sampling: Sampling) -> Samples:
    """One round, or several from the posterior of the round before, corrected for it."""
    return sample_learnt("bayessim", sampling, model="mdn", num_components=COMPONENTS)
