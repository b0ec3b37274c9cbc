"""Fitted values mean something under the damage law they were fitted with, so the tables that hold them name it."""

from pathlib import Path

from disect_sim.errors import InputError
from stages.runtime.artifacts import read_notes

DAMAGE_LAW = "damage_law"
"""Key of the note."""


def check_damage_law(scan_dir: Path, table: str, law: str, stage: str) -> None:
    """Refuse to use the table's values under another law."""
    fitted = read_notes(scan_dir, table).get(DAMAGE_LAW, "not stated")
    if fitted != law:
        raise InputError(
            f"{stage}.damage_law is {law!r}, but {table} holds values for {fitted!r}. Softness has another meaning and "
            f"unit under each. Give calibrate, transport, optimize and replay the same damage_law."
        )
