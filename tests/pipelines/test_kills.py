"""Random kills of every stage: the next run repairs, nothing good is lost, nothing wrong is called right."""

import os

import pytest

from pipelines.template import read_template
from tests.pipelines.kill_harness import KillHarness
from tests.pipelines.tiny_project import write_scan

DOZEN = 12
MANY = 50


def run_harness(project, tmp_path, number):
    seed = int(os.environ.get("KILL_SEED", "6"))
    count = KillHarness(project, write_scan(tmp_path, "apple.ply"), seed).rounds(number)
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
