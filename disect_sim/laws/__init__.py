"""The laws that are chosen by name. A law is added by a file with its kernels and a line in its table.

Importing the tables costs neither Warp nor torch; the kernels load when a run needs them.
"""

from collections.abc import Mapping
from typing import TypeVar

from disect_sim.errors import InputError

Entry = TypeVar("Entry")


def choose(what: str, name: str, table: Mapping[str, Entry]) -> Entry:
    """The entry of that name, or a refusal that says what there is."""
    if name not in table:
        known = ", ".join(map(repr, table))
        raise InputError(f"model: {what} is {name!r}. It must be one of {known}. Choose one.")
    return table[name]
