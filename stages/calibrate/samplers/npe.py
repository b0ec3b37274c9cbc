"""Neural posterior estimation with a normalising flow, learnt from simulations."""

from stages.calibrate.samplers.learnt import sample_learnt
from stages.calibrate.samplers.sampling import Samples, Sampling


def sample(sampling: Sampling) -> Samples:
    """One round, or several from the posterior of the round before, corrected for it."""
    return sample_learnt("npe", sampling, model="maf")
