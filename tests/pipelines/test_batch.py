"""Many scans at once give the same as one by one."""

import os

import pytest

from pipelines.batch import run_batch
from pipelines.batch_requests import batch_requests
from pipelines.cluster import described
from pipelines.project import apply_environment
from pipelines.register import Request
from pipelines.reproduce import RANDOM, SAME, reproduce
from pipelines.template import read_template
from tests.pipelines.tiny_project import commit, make_real_project, make_tiny_project, runs, write_scan

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]
LIGHT = {
    "clean": {"target_edge_m": 0.006},
    "tetrahedralize": {"edge_m": 0.03, "cut_edge_m": 0.02},
    "simulate": {"dt_s": 0.004},
    "calibrate": {"dt_s": 0.004, "shared_iterations": 1, "individual_iterations": 1},
    "tetrahedralize_half": {"edge_m": 0.02, "cut_edge_m": 0.015},
    "transport": {"dt_s": 0.004},
    "optimize": {"dt_s": 0.004, "candidates": 1, "iterations": 3, "ablation_iterations": 1},
    "replay": {"dt_s": 0.004},
}
"""Coarse meshes and few iterations: the same code in a hundredth of the time."""


def test_two_at_once_and_one_by_one(project, tmp_path):
    """Stand-in stages, two projects: dvc.lock, with the hash of every output, comes out the same."""
    names = ["apple", "pear"]
    requests = [Request(write_scan(tmp_path, f"{name}.ply", f"good {name}")) for name in names]
    requests.append(Request(write_scan(tmp_path, "lemon.ply", "bad-clean")))
    told = []
    results = run_batch(project, requests, scans_at_once=2, tell=told.append)
    assert [result.error for result in results[:2]] == [None] * 2
    assert results[2].exit_code == 2 and "the scan says bad" in results[2].error, "one failure stops nobody"
    assert project.scan_ids() == sorted(names)
    count = len(read_template(project.template))
    assert len(runs(project)) == 2 * count + 1
    assert sum("completed" in line for line in told) == 2 * count

    folder = tmp_path / "again"
    folder.mkdir()
    other = make_tiny_project(folder)
    for request in requests[:2]:
        assert run_batch(other, [request], scans_at_once=1, tell=told.append)[0].error is None
    for name in names:
        assert described(project, name) == described(other, name)


@pytest.mark.endurance
def test_eight_variations_of_the_sample(tmp_path, monkeypatch):
    """The real stages, all of them, on synthetic scans. Then each stage alone again, in a clone: the same bytes.

    The mesher is random, so its mesh is taken as recorded and everything computed from it is compared.
    """
    from data.sample.make_variations import write_variations

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder = tmp_path / "project"
    folder.mkdir()
    project = make_real_project(folder)
    for variable in ("PATH", "PREFECT_HOME"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    apply_environment(project)
    commit(project)
    count = int(os.environ.get("BATCH_SCANS", "8"))
    scans = write_variations(tmp_path / "variations", count)
    stages = read_template(project.template)
    light = {name: values for name, values in LIGHT.items() if name in {entry.name for entry in stages}}
    requests = batch_requests(project, [str(scan) for scan in scans], light)
    told = []
    results = run_batch(
        project, requests, scans_at_once=int(os.environ.get("BATCH_WORKERS", "4")), tell=told.append
    )
    assert [result.error for result in results] == [None] * count, told
    verdicts = list(reproduce(project, []))
    assert len(verdicts) == count * len(stages)
    random = {entry.name for entry in stages if entry.random}
    other = [v for v in verdicts if v.verdict != (RANDOM if v.stage in random else SAME)]
    assert other == []
