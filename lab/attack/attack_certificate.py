"""Try to get a motion certified that breaks a limit: random and directed edits of an exported cut.

    python -m lab.attack.attack_certificate 10000 --seed 1 --state build/attack.json

Every edit changes joints, document, motion or settings of a certified synthetic cut of the Panda, renews all copies as
someone would who wants it to pass, and asks the checks on numbers. What they let through goes to motion_judge.
A directed edit is bisected to the largest size that passes, which is judged. Edit N of seed S is always the same, on
any number of --processes. With --state a stopped search goes on where it was, and says how far it is. Exit code 1 if a
certified motion breaks a limit.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from lab.attack.attack_edits import EDITS, Edit
from lab.attack.attack_export import Attack, base_attack
from lab.attack.motion_judge import violations
from stages.export.certificate import first_failure
from stages.runtime.errors import InputError
from stages.runtime.files import write_bytes_atomic

BISECTIONS = 5
SAVE_EVERY = 50


@dataclass
class Tally:
    """What the edits came to."""

    done: int = 0
    certified: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """By the first check that failed."""
    broken: list[str] = field(default_factory=list)
    """Certified, but the judge objects: must stay empty."""
    passed: Counter[str] = field(default_factory=Counter)
    """Certified, by the kind of edit."""


def attempt(edit: Edit, base: Attack, size: float) -> tuple[str, list[str]]:
    """Reason for the refusal, or nothing and what the judge says."""
    try:
        changed = edit(base, size)
        failed = first_failure(changed.files, changed.demand)
    except (
        InputError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        StopIteration,
        np.linalg.LinAlgError,
    ) as error:
        return f"unreadable: {type(error).__name__}", []
    if failed is not None:
        return failed.name, []
    return "", violations(changed.case())


@dataclass
class Search:
    """One drawn edit in the sizes that were tried: what a process does at a time."""

    number: int
    name: str
    tried: list[tuple[float, str, list[str]]]
    """Size, reason for the refusal, and what the judge says of it if there is none."""


def draw(seed: int, number: int) -> tuple[str, Edit, float, bool, np.random.Generator]:
    """Kind, edit, largest size and whether it is directed; and what draws the rest."""
    names = [name for name, (_, often) in sorted(EDITS.items()) for _ in range(often)]
    generator = np.random.default_rng([seed, number])
    name = names[generator.integers(len(names))]
    edit, largest = EDITS[name][0](generator)
    return name, edit, largest, bool(generator.random() < 0.5), generator


def numbers(seed: int, first: int, count: int) -> Iterator[int]:
    """Of the searches from `first` until `count` edits are done; a directed one counts once per size."""
    while first < count:
        yield first
        first += BISECTIONS if draw(seed, first)[3] else 1


def search(seed: int, number: int, base: Attack) -> Search:
    """Try the edit in one random size, or bisect to the largest that passes."""
    name, edit, largest, directed, generator = draw(seed, number)
    found = Search(number, name, [])
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS if directed else 1):
        share = 0.5 * (low + high) if directed else 10.0 ** generator.uniform(-6.0, 0.0)
        reason, wrong = attempt(edit, base, share * largest)
        found.tried.append((share * largest, reason, wrong))
        low, high = (low, share) if reason else (share, high)
    return found


def attack(
    count: int,
    *,
    seed: int,
    base: Attack,
    tally: Tally | None = None,
    save: Callable[[Tally], None] | None = None,
    processes: int = 1,
) -> Tally:
    """Try edits until `count` are done; the result does not depend on the number of processes."""
    tally = tally or Tally()
    wanted = list(numbers(seed, tally.done, count))
    if processes == 1:
        _add(tally, (search(seed, number, base) for number in wanted), seed, save)
        return tally
    with ProcessPoolExecutor(processes, get_context("spawn"), _keep, (seed, base)) as pool:
        _add(tally, pool.map(_search_kept, wanted), seed, save)
    return tally


_kept: list[tuple[int, Attack]] = []
"""Of a process of the pool: seed and the export that is edited."""


def _keep(seed: int, base: Attack) -> None:
    _kept[:] = [(seed, base)]


def _search_kept(number: int) -> Search:
    seed, base = _kept[0]
    return search(seed, number, base)


def _add(tally: Tally, found: Iterable[Search], seed: int, save: Callable[[Tally], None] | None) -> None:
    for one in found:
        for size, reason, wrong in one.tried:
            tally.done += 1
            if reason:
                tally.refused[reason] += 1
                continue
            tally.certified += 1
            tally.passed[one.name] += 1
            if wrong:
                what = ", ".join(wrong)
                tally.broken.append(f"seed {seed}, edit {one.number}, {one.name} {size:g}: {what}")
        if save and tally.done // SAVE_EVERY != one.number // SAVE_EVERY:
            save(tally)
    if save:
        save(tally)


def report(tally: Tally) -> str:
    """For people."""
    lines = [
        f"{tally.done} edits: {sum(tally.refused.values())} refused, {tally.certified} certified, "
        f"{len(tally.broken)} certified that break a limit",
        "refused first by:",
        *(f"  {count:6d}  {name}" for name, count in tally.refused.most_common()),
        "certified, by kind of edit:",
        *(f"  {count:6d}  {name}" for name, count in tally.passed.most_common()),
        *tally.broken,
    ]
    return "\n".join(lines)


def load(path: Path, seed: int) -> Tally:
    """The state of an earlier search with this seed, or a new one."""
    if not path.exists():
        return Tally()
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["seed"] != seed:
        raise InputError(
            f"{path} is of seed {content['seed']}, not {seed}. A search goes on with its own seed. Give --seed."
        )
    return Tally(
        content["done"],
        content["certified"],
        Counter(content["refused"]),
        content["broken"],
        Counter(content["passed"]),
    )


def main() -> int:
    """Exit code 1 if something slipped through, 2 if the arguments can't be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()

    def save(tally: Tally) -> None:
        plain = tally.__dict__ | {"seed": options.seed}
        options.state.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(options.state, json.dumps(plain).encode())
        sys.stderr.write(report(tally).partition("\n")[0] + "\n")

    try:
        tally = load(options.state, options.seed) if options.state else Tally()
        tally = attack(
            options.count,
            seed=options.seed,
            base=base_attack(),
            tally=tally,
            save=save if options.state else None,
            processes=options.processes,
        )
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(report(tally) + "\n")
    return 1 if tally.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
