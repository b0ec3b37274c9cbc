"""The loop of every search that takes minutes: each iteration is saved, a killed search goes on where it was."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from stages.runtime.checkpoint import Checkpoint


class Resumable(Protocol):
    """A search that can be taken apart into iterations, and into plain values and tensors between two of them."""

    def over(self) -> bool:
        """Whether to stop."""

    def step(self) -> None:
        """One iteration; adds to the history."""

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, the history included."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, to the same numbers as if nothing had happened."""


Search = TypeVar("Search", bound=Resumable)


def run_to_end(
    search: Search, checkpoint: Checkpoint, report: Callable[[Search], None] | None = None
) -> Search:
    """Iterate until the search is over, from its checkpoint if there is one; `report` is called after each save."""
    saved = checkpoint.load()
    if saved is not None:
        search.restore(saved)
    while not search.over():
        search.step()
        checkpoint.save(search.state())
        if report is not None:
            report(search)
    return search
