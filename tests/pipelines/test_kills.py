"""Random kills of every stage: the next run repairs, nothing good is lost, nothing wrong is called right."""

import os

import pytest

from data.sample.make_variations import write_variations
from pipelines.dvc.template import read_template
from pipelines.many.batch_requests import batch_requests
from pipelines.scans.register import Request
from tests.pipelines.kill_harness import KillHarness
from tests.pipelines.tiny_project import LIGHT, write_scan

DOZEN = 12
MANY = 50


def seed():
    return int(os.environ.get("KILL_SEED", "6"))


def run_harness(project, tmp_path, number):
    count = KillHarness(project, Request(write_scan(tmp_path, "apple.ply")), seed()).rounds(number)
    print(count.lines())  # noqa: T201 -- the count is what the harness is for; shown by pytest -s
    assert count.hits >= number
    return count


@pytest.mark.slow
def test_a_dozen_kills(project, tmp_path):
    run_harness(project, tmp_path, DOZEN)


@pytest.mark.slow
@pytest.mark.endurance
def test_fifty_kills_reach_every_stage_and_every_process(project, tmp_path):
    count = run_harness(project, tmp_path, MANY)
    assert set(count.kills) == {entry.name for entry in read_template(project.template)}
    assert set(count.victims) == {"runner", "dvc", "stage"}
    assert {"runner", "dvc", "stage"} <= set(count.phases)


@pytest.mark.slow
@pytest.mark.endurance
def test_a_kill_of_every_real_stage(real_project, tmp_path):
    """The real numerics, on a synthetic scan and coarse meshes: their worker processes and checkpoints take part."""
    scans = write_variations(tmp_path / "variations", 1)
    (request,) = batch_requests(real_project, [str(scan) for scan in scans], LIGHT)
    count = KillHarness(real_project, request, seed()).round_of_real_stages()
    print(count.lines())  # noqa: T201
    assert count.hits == len(read_template(real_project.template))
