"""Outcome of a run: a message with a remedy instead of an exception; and the error type for bad input."""

from dataclasses import dataclass
from enum import Enum

LONGEST = 1500
"""Maximum length of a message; the middle of a longer one is cut."""


class InputError(ValueError):
    """Input the user can correct. The message says what was wrong (value), what the rule is, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= LONGEST else f"{message[:600]} ... {message[-600:]}")


class OutcomeKind(Enum):
    """Possible outcomes of a run."""

    COMPLETE = "The knife finished its motion."
    NOTHING_CUT = (
        "The knife finished its motion but cut nothing. Lower the end height or raise cut_spring_softness."
    )
    MESH_INVERTED = "Elements turned inside out. Refine the mesh at the cut or shorten dt."
    NEWTON_STALLED = "Newton's method stalled. Shorten dt, raise sdf_tip or lower sdf_mu."
    DIVERGED = "Positions ran away. Shorten dt."
    KNIFE_JAMMED = (
        "The force on the knife passed the limit. Lower sdf_mu or cut_spring_ke, or raise force_limit_n."
    )
    KNIFE_STOPPED = (
        "The edge met a rigid region, which it can't cut. Move the cut beside it or end the motion above it."
    )


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run with place and time."""

    kind: OutcomeKind
    detail: str = ""
    step: int | None = None
    node: int | None = None

    @property
    def ok(self) -> bool:
        """True if the knife finished its motion."""
        return self.kind in (OutcomeKind.COMPLETE, OutcomeKind.NOTHING_CUT, OutcomeKind.MESH_INVERTED)

    def __str__(self) -> str:
        where = (
            ""
            if self.step is None
            else f" (step {self.step}" + ("" if self.node is None else f", node {self.node}") + ")"
        )
        return f"{self.kind.value}{' ' + self.detail if self.detail else ''}{where}"
