"""Random kills of every stage: the next run repairs, nothing good is lost, nothing wrong is called right."""

import os
import random
import subprocess
import sys

import pytest

from data.sample.make_variations import write_variations
from pipelines.dvc.template import read_template
from pipelines.many.batch_requests import batch_requests
from pipelines.scans.register import Request
from scripts import kill_victim
from scripts.kill_rounds import KINDS, KillRounds, Tally
from tests.pipelines.tiny_project import LIGHT, environment, write_scan

DOZEN = 12
MANY = 50
LEAVES_ONE = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
)


def seed():
    return int(os.environ.get("KILL_SEED", "6"))


def kill(project, request, folder, number, stages=None):
    """So many kills that found someone alive, in all stages or in the first few, in turn."""
    rounds = KillRounds(project, request, environment(project), folder / "temporary", stages=stages)
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
    hit = kill_victim.strike(command, tmp_path, os.environ, "runner", 1.5, random.Random(0))
    assert (hit.phase, hit.exit_code) == ("runner", -9)
    assert [words.split()[-1] for words in hit.orphans] == ["time.sleep(600)"]
    hit = kill_victim.strike(command, tmp_path, os.environ, "group", 1.5, random.Random(0))
    assert hit.orphans == (), "all at once leaves nobody"
    hit = kill_victim.strike([sys.executable, "-c", ""], tmp_path, os.environ, "stage", 0.0, random.Random(0))
    assert (hit.phase, hit.exit_code) == ("too late", 0)


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
def test_kills_of_every_real_stage(real_project, tmp_path):
    """The real numerics, on a synthetic scan and coarse meshes: their worker processes and checkpoints take part."""
    scans = write_variations(tmp_path / "variations", 1)
    (request,) = batch_requests(real_project, [str(scan) for scan in scans], LIGHT)
    _, tally = kill(real_project, request, tmp_path, 2 * len(read_template(real_project.template)))
    assert set(tally.kills) == {entry.name for entry in read_template(real_project.template)}


@pytest.mark.slow
def test_a_count_is_of_one_seed_and_of_one_code(tmp_path):
    """Refused before anything is computed."""
    state = tmp_path / "kills.json"
    state.write_text('{"seed": 2, "code": "another", "tally": {}, "good": {}}')
    command = [sys.executable, "-m", "scripts.kill_stages", "1000", "--state", str(state), "--seed"]
    for given, words in (("1", "Give --seed 2"), ("2", "another code")):
        said = subprocess.run([*command, given], capture_output=True, text=True, check=False)
        assert said.returncode == 2 and words in said.stderr and "Traceback" not in said.stderr
