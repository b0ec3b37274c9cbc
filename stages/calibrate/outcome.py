"""How a fit ended, as a word and a sentence with the remedy."""

from enum import Enum


class FitOutcome(Enum):
    """How a fit ended, and what to do about it."""

    CONVERGED = ("converged", "The loss no longer falls.")
    NOISE = (
        "at the log's noise",
        "The mean error is below what the log repeats to (calibrate.enough_n).",
    )
    STALLED = (
        "stalled",
        "The simulations near the best point do not finish. Raise the lower bound of sdf_tip, lower the upper one of "
        "sdf_mu, or shorten cut.dt_s.",
    )
    BUDGET = (
        "budget used",
        "The loss was still falling. Raise calibrate.shared_iterations or calibrate.individual_iterations.",
    )
    DIVERGED = (
        "diverged",
        "The loss grew far above its best value, which was kept. Lower calibrate.learning_rate.",
    )
    NO_LOG = (
        "no log, nominal parameters",
        "Give the force log of a cut: scan2cut run SCAN --log FILE.",
    )

    def __init__(self, word: str, remedy: str) -> None:
        self.word, self.remedy = word, remedy
