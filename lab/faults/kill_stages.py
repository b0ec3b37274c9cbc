"""Kill real stages on a synthetic scan, coarse settings, at random moments; count what was lost, wrong or left behind.

    python -m lab.faults.kill_stages 1000 --seed 1 [--for-s 3600] [--in-a-row 20] [--tally FILE] [--folder FOLDER]

goes on where the tally ends, which has the counts of every seed and version of the code. Its project, a copy of this
one, and the good results lie in the folder and are made anew when the code has changed. Several seeds may run at once.
"""

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from data.sample.make_sample import apple, write_ply
from lab.faults.kill_rounds import IN_A_ROW, Good, KillRounds
from lab.faults.kill_tally import Tally, keep, read_tallies, tally_of, total_line
from pipelines.project import Project, apply_environment
from pipelines.scans.register import Request
from stages.runtime.files import sha256_of_path, sha256_of_value, write_bytes_atomic
from tests.pipelines.tiny_project import ROOT, environment, make_real_project

CODE = ("pipelines", "stages", "disect_sim", "params.yaml")
"""What the copy of the project is made of, and a count belongs to."""
LOG = ROOT / "data" / "sample" / "synthetic_apple_log.json"
GOOD = "good.json"
"""Beside the project: what every stage must give."""
COARSE: dict[str, dict[str, Any]] = {
    "clean": {"target_edge_m": 0.012},
    "tetrahedralize": {
        "edge_m": 0.05,
        "cut_edge_m": 0.035,
        "epsilon_m": 0.003,
        "max_volume_error_fraction": 0.1,
    },
    "cut": {"dt_s": 0.01},
    "calibrate": {"material": ["edge_toughness"], "forecast_from": 0.0, "draws": 1},
    "tetrahedralize_half": {"edge_m": 0.04, "cut_edge_m": 0.03},
    "optimize": {
        "starts": 1,
        "candidates": 1,
        "iterations": 2,
        "ablation_iterations": 1,
        "inner_iterations": 50,
    },
    "replay": {"frames": 5},
}
"""As little numerics as the stages allow; what they read, write, start and keep is as ever."""
ONE_THREAD = {"OMP_THREAD_LIMIT": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Of every process, since threads that wait for each other use up a busy machine; worker processes are as ever."""


def say(sentence: str) -> None:
    """On the terminal, at once."""
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def code_key() -> str:
    """One number for the code and the settings that are tried."""
    return sha256_of_value({name: sha256_of_path(ROOT / name) for name in CODE} | {"settings": COARSE})[:12]


def prepared(folder: Path, code: str, in_a_row: int) -> KillRounds:
    """The project with its scan; a new one where the folder has none of this code."""
    known = folder / GOOD
    content = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    good = None
    root = folder / "project"
    if content.get("code") == code:
        good = {stage: Good(**value) for stage, value in content["good"].items()}
    else:
        shutil.rmtree(folder, ignore_errors=True)
        root.mkdir(parents=True)
        make_real_project(root)
        ball = trimesh.creation.icosphere(subdivisions=3)
        write_ply(folder / "synthetic.ply", apple(np.asarray(ball.vertices)), np.asarray(ball.faces))
    project = Project(root)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every process would compile the project's copy anew
    os.environ.update(ONE_THREAD)
    apply_environment(project)
    request = Request(folder / "synthetic.ply", LOG, overrides=COARSE)
    return KillRounds(
        project, request, environment(project), folder / "temporary", good, say, in_a_row=in_a_row
    )


def remember(rounds: KillRounds, code: str) -> None:
    """So that the next part need not compute the good results."""
    content = {"code": code, "good": {stage: asdict(value) for stage, value in rounds.good.items()}}
    write_bytes_atomic(rounds.project.root.with_name(GOOD), json.dumps(content).encode())


def count(rounds: KillRounds, tally: Tally, path: Path, wanted: int, end_s: float) -> None:
    """Round after round until the file's counts have so many kills, or the time is over."""
    while sum(t.hits for t in read_tallies(path)) < wanted and time.monotonic() < end_s:
        known = len(tally.faults)
        rounds.round(tally.rounds, tally.seed, tally)
        remember(rounds, tally.code)
        keep(path, tally)
        for fault in tally.faults[known:]:
            say(fault)
        if tally.rounds % 10 == 0:
            say(tally.lines()[0])


def main() -> int:
    """Exit code 1 if something was lost, wrong or left behind on this version of the code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int, help="kills in all, those of the tally included")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tally", type=Path, default=ROOT / "lab" / "notes" / "kills.json")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "kills")
    parser.add_argument(
        "--for-s", type=float, default=float("inf"), help="end this part after so many seconds"
    )
    parser.add_argument(
        "--in-a-row",
        type=int,
        choices=range(1, 101),
        default=IN_A_ROW,
        metavar="N",
        help="most kills of a round",
    )
    options = parser.parse_args()
    end_s = time.monotonic() + options.for_s
    folder = options.folder.absolute() / str(options.seed)
    tally = tally_of(options.tally, code_key(), options.seed)
    rounds = prepared(folder, tally.code, options.in_a_row)
    remember(rounds, tally.code)
    count(rounds, tally, options.tally, options.count, end_s)
    for line in tally.lines():
        say(line)
    say(total_line(read_tallies(options.tally)))
    return 1 if tally.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
