"""Random kills of every stage: the next run repairs, nothing good is lost, nothing wrong is called right."""

import os
import random
import subprocess
import sys
import time

import pytest

from lab.faults import kill_victim
from lab.faults.kill_rounds import KINDS, KillRounds
from lab.faults.kill_stages import CODE, code_key, count
from lab.faults.kill_tally import Tally, keep, read_tallies, tally_of, total_line
from pipelines.dvc.pipeline_file import read_template
from pipelines.project import Project
from pipelines.scans.register import Request
from tests.pipelines.tiny_project import ROOT, environment, write_scan

DOZEN = 12
MANY = 50
LEAVES_ONE = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
)


def seed():
    return int(os.environ.get("KILL_SEED", "6"))


def kill(project, request, folder, number, stages=None):
    """So many kills that found someone alive, in all stages or in the first few, in turn."""
    temporary = folder / "temporary"
    rounds = KillRounds(project, request, environment(project), temporary, stages=stages, in_a_row=3)
    tally = Tally()
    while tally.hits < number:
        rounds.round(tally.rounds, seed(), tally)
        assert tally.rounds < 3 * number + len(rounds.entries), "the kills come too late"
    print("\n".join(tally.lines()))  # noqa: T201 -- the count is what this is for; shown by pytest -s
    assert tally.faults == []
    return rounds, tally


def test_who_outlives_a_killed_run_is_noticed_and_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(kill_victim, "ORPHAN_S", 0.3)
    command = [sys.executable, "-c", f"{LEAVES_ONE}; time.sleep(600)"]
    hit = kill_victim.strike(command, tmp_path, os.environ, "runner", 0.15, random.Random(0))
    assert (hit.phase, hit.exit_code) == ("runner", -9)
    assert [words.split()[-1] for words in hit.orphans] == ["time.sleep(600)"]
    hit = kill_victim.strike(command, tmp_path, os.environ, "group", 0.15, random.Random(0))
    assert hit.orphans == (), "all at once leaves nobody"
    hit = kill_victim.strike([sys.executable, "-c", ""], tmp_path, os.environ, "stage", 0.0, random.Random(0))
    assert (hit.phase, hit.exit_code) == ("too late", 0)


@pytest.mark.parametrize(
    ("work", "share"), [("while True: pass", 1.0), ("time.sleep(600)", kill_victim.WAITING)]
)
def test_a_kill_comes_after_so_much_work_and_waiting_is_a_little_of_it(tmp_path, work, share):
    """A busy machine moves no kill: what counts is what the run has done."""
    command = [sys.executable, "-c", f"import time\n{work}"]
    before, began_s = os.times(), time.monotonic()
    hit = kill_victim.strike(command, tmp_path, os.environ, "runner", 0.3, random.Random(0))
    after = os.times()
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert hit.phase == "runner"
    if share == 1.0:
        assert used_s >= 0.3
    else:
        assert used_s < 0.3 < 0.5 * (0.3 / share) < time.monotonic() - began_s


@pytest.mark.slow
def test_a_dozen_kills(project, tmp_path):
    """Of four stages: all have the same stand-in, and fifty kills of all of them are a test of their own."""
    rounds, _ = kill(project, Request(write_scan(tmp_path, "apple.ply")), tmp_path, DOZEN, stages=4)
    entry = next(entry for entry in rounds.entries if entry.name == "clean")
    assert rounds._examine(entry, False, Tally()) == rounds._after(entry, False) == []
    faces = project.scan_dir("apple") / "clean" / "faces.parquet"
    (faces.parent / "half.tmp").write_text("x")
    faces.unlink()
    faces.write_bytes(b"half")
    (project.scan_dir("apple") / "ingest" / "metrics.json").unlink()
    assert "neither the older nor the newer" in rounds._examine(entry, False, Tally())[0]
    found = " ".join(rounds._after(entry, False))
    for words in ("not the good one", "does not describe", "half.tmp", "ingest/metrics.json lost"):
        assert words in found, "the count sees what is lost, wrong or left behind"


@pytest.mark.slow
@pytest.mark.endurance
def test_fifty_kills_reach_every_stage_and_every_process(project, tmp_path):
    _, tally = kill(project, Request(write_scan(tmp_path, "apple.ply")), tmp_path, MANY)
    assert set(tally.kills) == {entry.name for entry in read_template(project.template)}
    assert set(tally.kinds) == set(KINDS)
    assert {"runner", "server", "dvc", "stage"} <= set(tally.phases)


@pytest.mark.slow
@pytest.mark.endurance
def test_kills_of_every_real_stage(tmp_path):
    """The command itself: the real numerics, coarse; their worker processes and checkpoints take part."""
    every = {entry.name for entry in read_template(Project(ROOT).template)}
    tally = tmp_path / "kills.json"
    options = (
        "--seed",
        str(seed()),
        "--tally",
        str(tally),
        "--folder",
        str(tmp_path / "kills"),
        "--in-a-row",
        "2",
    )
    command = [sys.executable, "-m", "lab.faults.kill_stages", str(2 * len(every)), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (counted,) = read_tallies(tally)
    assert counted.hits >= 2 * len(every) and set(counted.kills) == every


class OneKillEach:
    """In place of real rounds: the first of every version finds a fault."""

    def __init__(self):
        self.good = {}
        self.done = []

    def round(self, number, seed, tally):
        self.done.append((seed, number))
        tally.rounds += 1
        tally.kills["clean"] += 1
        if number == 0:
            tally.faults.append("lost")


def test_a_count_goes_on_in_its_file_and_a_new_code_begins_beside_it(tmp_path, monkeypatch):
    """The file is in git, so that another machine can go on; the sum is over all seeds and versions."""
    monkeypatch.setattr("lab.faults.kill_stages.remember", lambda rounds, code: None)
    path, end_s = tmp_path / "kills.json", float("inf")
    first = OneKillEach()
    count(first, tally_of(path, "old", 1), path, 3, end_s)
    count(first, tally_of(path, "old", 1), path, 5, end_s)
    assert first.done == [(1, number) for number in range(5)], "no round twice"
    count(OneKillEach(), tally_of(path, "new", 1), path, 7, end_s)
    count(OneKillEach(), tally_of(path, "new", 2), path, 8, end_s)
    count(OneKillEach(), tally_of(path, "new", 2), path, 100, end_s=0.0)
    assert [(t.code, t.seed, t.hits) for t in read_tallies(path)] == [
        ("old", 1, 5),
        ("new", 1, 2),
        ("new", 2, 1),
    ]
    assert total_line(read_tallies(path)) == "8 kills in 8 rounds, 3 faults, on 2 versions of the code"


def test_two_processes_keep_their_counts_in_one_file(tmp_path):
    path = tmp_path / "kills.json"
    ours, theirs = tally_of(path, "code", 1), tally_of(path, "code", 2)
    for _ in range(3):
        for tally in (ours, theirs):
            tally.kills["clean"] += 1
            keep(path, tally)
    assert {t.seed: t.hits for t in read_tallies(path)} == {1: 3, 2: 3}
    assert tally_of(path, "code", 2).kills == theirs.kills


def test_a_count_belongs_to_the_code_that_was_killed(monkeypatch):
    assert {"pipelines", "stages", "disect_sim", "params.yaml"} == set(CODE)
    before = code_key()
    monkeypatch.setattr("lab.faults.kill_stages.COARSE", {"clean": {"target_edge_m": 0.01}})
    assert code_key() != before
