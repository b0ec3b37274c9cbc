"""Kill real stages on a synthetic scan, coarse settings, at random moments; count what was lost, wrong or left behind.

    python -m scripts.kill_stages 1000 --seed 1 --state build/kills.json [--for-s 3600]

goes on where the state file ends. Its project, a copy of this one, lies beside the state file.
"""

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from data.sample.make_variations import write_variations
from disect_sim.errors import InputError
from pipelines.many.batch_requests import batch_requests
from pipelines.scans.project import Project, apply_environment
from scripts.kill_rounds import Good, KillRounds, Tally
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.hashing import sha256_of_path, sha256_of_value
from tests.pipelines.tiny_project import LIGHT, ROOT, environment, make_real_project

CODE = ("pipelines", "stages", "disect_sim", "params.yaml")
"""What the copy of the project is made of, and a count belongs to."""


def say(sentence: str) -> None:
    """On the terminal, at once."""
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def code_key() -> str:
    """One number for the code and the settings that are tried."""
    return sha256_of_value({name: sha256_of_path(ROOT / name) for name in CODE} | {"settings": LIGHT})


def load(state: Path, seed: int) -> tuple[Tally, dict[str, Good] | None]:
    """An earlier part of the count, or the beginning of one."""
    if not state.exists():
        return Tally(), None
    content = json.loads(state.read_text(encoding="utf-8"))
    for name, mine, remedy in (
        ("seed", seed, f"Give --seed {content['seed']}, or another --state"),
        ("code", code_key(), "Give another --state"),
    ):
        if content[name] != mine:
            raise InputError(
                f"{state} counts kills of another {name}. A count is of one {name}. {remedy}, or delete it."
            )
    tally = Tally(**{f.name: content["tally"][f.name] for f in fields(Tally)})
    for name in ("kills", "kinds", "phases", "found", "outcomes"):
        setattr(tally, name, Counter(getattr(tally, name)))
    return tally, {stage: Good(**value) for stage, value in content["good"].items()}


def save(state: Path, seed: int, tally: Tally, good: dict[str, Good]) -> None:
    """So that the next part goes on here."""
    content: dict[str, Any] = {"seed": seed, "code": code_key(), "tally": asdict(tally)}
    content["good"] = {stage: asdict(value) for stage, value in good.items()}
    write_bytes_atomic(state, json.dumps(content).encode())


def prepared(folder: Path, good: dict[str, Good] | None) -> KillRounds:
    """The project with its scan; a new one if nothing is known of it."""
    root = folder / "project"
    if good is None:
        shutil.rmtree(folder, ignore_errors=True)
        root.mkdir(parents=True)
        make_real_project(root)
        write_variations(folder / "scans", 1)
    project = Project(root)
    apply_environment(project)
    scans = sorted((folder / "scans").glob("*.ply"))
    (request,) = batch_requests(project, [str(scan) for scan in scans], LIGHT)
    return KillRounds(project, request, environment(project), folder / "temporary", good, say)


def main() -> int:
    """Exit code 1 if something was lost, wrong or left behind, 2 if the arguments can't be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int, help="kills in all, those of earlier parts included")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path, default=Path("build/kills.json"))
    parser.add_argument(
        "--for-s", type=float, default=float("inf"), help="end this part after so many seconds"
    )
    options = parser.parse_args()
    end = time.monotonic() + options.for_s
    try:
        tally, good = load(options.state, options.seed)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    rounds = prepared(options.state.absolute().with_suffix(""), good)
    save(options.state, options.seed, tally, rounds.good)
    while tally.hits < options.count and time.monotonic() < end:
        known = len(tally.faults)
        rounds.round(tally.rounds, options.seed, tally)
        save(options.state, options.seed, tally, rounds.good)
        for fault in tally.faults[known:]:
            say(fault)
        if tally.rounds % 10 == 0:
            say(tally.lines()[0])
    for line in tally.lines():
        say(line)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
