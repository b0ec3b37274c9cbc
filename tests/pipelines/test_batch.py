"""Many scans at once give the same as one by one."""

import os

import pytest

from data.sample.make_variations import write_variations
from pipelines.dvc.clone import text_files
from pipelines.dvc.pipeline_file import read_template
from pipelines.many.batch import batch_requests, run_batch
from pipelines.scans.register import Request
from pipelines.versions.reproduce import SAME, reproduce
from tests.pipelines.tiny_project import LIGHT, commit, make_tiny_project, runs, write_scan

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]


@pytest.mark.endurance
def test_two_at_once_and_one_by_one(project, tmp_path):
    """Stand-in stages, two projects: dvc.lock, with the hash of every output, comes out the same."""
    names = ["apple", "pear"]
    requests = [Request(write_scan(tmp_path, f"{name}.ply", f"good {name}")) for name in names]
    requests.append(Request(write_scan(tmp_path, "lemon.ply", "bad-clean")))
    lines = []
    results = run_batch(project, requests, scans_at_once=2, say=lines.append)
    assert [result.error for result in results[:2]] == [None] * 2
    assert results[2].exit_code == 2 and "the scan says bad" in results[2].error, "one failure stops nobody"
    assert project.scan_ids() == sorted(names)
    count = len(read_template(project.template))
    assert len(runs(project)) == 2 * count + 1
    assert sum(": Completed" in line for line in lines) == 2 * count

    folder = tmp_path / "again"
    folder.mkdir()
    other = make_tiny_project(folder)
    for request in requests[:2]:
        assert run_batch(other, [request], scans_at_once=1, say=lines.append)[0].error is None
    for name in names:
        assert text_files(project, name) == text_files(other, name)


@pytest.mark.endurance
def test_eight_variations_of_the_sample(real_project, tmp_path):
    """The real stages, all of them, on synthetic scans. Then each stage alone again, in a clone: the same bytes."""
    project = real_project
    commit(project)
    count = int(os.environ.get("BATCH_SCANS", "8"))
    scans = write_variations(tmp_path / "variations", count)
    stages = read_template(project.template)
    requests = batch_requests(project, [str(scan) for scan in scans], LIGHT)
    lines = []
    results = run_batch(
        project, requests, scans_at_once=int(os.environ.get("BATCH_WORKERS", "4")), say=lines.append
    )
    assert [result.error for result in results] == [None] * count, lines
    verdicts = list(reproduce(project, []))
    assert len(verdicts) == count * len(stages)
    assert [verdict for verdict in verdicts if verdict.verdict != SAME] == []
