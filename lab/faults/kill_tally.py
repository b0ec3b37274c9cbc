"""Counts of kills: of one seed on one version of the code, and a file in git that has those of all of them.

A count goes on in its file from any machine; when the code changes, the next count begins beside the older ones.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.project import file_lock
from stages.runtime.files import write_bytes_atomic

COUNTERS = ("kinds", "kills", "phases", "found", "outcomes")


@dataclass
class Tally:
    """What was done and seen with one seed on one version of the code."""

    code: str = ""
    """Hash of code and settings, shortened."""
    seed: int = 0
    day: str = ""
    """Of the last round."""
    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """By stage; only those that found someone alive."""
    kinds: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    """The last process that had been started when the kill came, or "too late"."""
    found: Counter[str] = field(default_factory=Counter)
    """The stage's files right after the kill: usual, other, missing (kept aside or in the cache)."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """How the run after the kill ended."""
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def hits(self) -> int:
        """Kills that found someone alive."""
        return self.kills.total()

    def lines(self) -> list[str]:
        """For people."""
        per_kill = self.seconds / max(1, self.hits)
        first = (
            f"{self.hits} kills in {self.rounds} rounds, {len(self.faults)} faults, {per_kill:.1f} s a kill"
        )
        return [first, *(f"{name}: {dict(getattr(self, name))}" for name in COUNTERS), *self.faults]


def read_tallies(path: Path) -> list[Tally]:
    """All counts in the file; none if it is not there."""
    return [_tally(entry) for entry in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def _tally(entry: dict[str, Any]) -> Tally:
    tally = Tally(**{f.name: entry[f.name] for f in fields(Tally)})
    for name in COUNTERS:
        setattr(tally, name, Counter(getattr(tally, name)))
    return tally


def tally_of(path: Path, code: str, seed: int) -> Tally:
    """The file's count of this code and seed, or the beginning of one."""
    found = [tally for tally in read_tallies(path) if (tally.code, tally.seed) == (code, seed)]
    return found[0] if found else Tally(code, seed)


def keep(path: Path, tally: Tally) -> None:
    """Put this count in its place in the file; other processes may be keeping theirs."""
    tally.day = f"{datetime.now(UTC):%Y-%m-%d}"
    tally.seconds = round(tally.seconds, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(path.with_name(f".{path.name}.lock")):
        others = [t for t in read_tallies(path) if (t.code, t.seed) != (tally.code, tally.seed)]
        entries = ",\n".join(json.dumps(vars(t)) for t in (*others, tally))
        write_bytes_atomic(path, f"[\n{entries}\n]\n".encode())


def total_line(tallies: Iterable[Tally]) -> str:
    """One line about all of them."""
    counts = list(tallies)
    kills, rounds = sum(t.hits for t in counts), sum(t.rounds for t in counts)
    faults, versions = sum(len(t.faults) for t in counts), len({t.code for t in counts})
    return f"{kills} kills in {rounds} rounds, {faults} faults, on {versions} versions of the code"
