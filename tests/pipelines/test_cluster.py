"""The same flow on a Dask cluster: workers with clones of their own, artifacts through the DVC remote."""

import logging
from types import SimpleNamespace

import pytest

from pipelines.dvc.clone import Source, find_source, result_files, text_files, write_text_files
from pipelines.dvc.pipeline_file import needed_for, read_template
from pipelines.dvc.repair import damaged, recorded_outputs
from pipelines.dvc.stage import StageFailedError
from pipelines.many.batch import run_batch
from pipelines.runs.run_request import dask_cluster
from pipelines.scans.register import Request, register_scan
from stages.runtime.errors import InputError
from tests.pipelines.tiny_project import commit, dvc, runs, write_scan

TARGET = "tetrahedralize"
"""Enough to see data go from worker to worker; more stages only take longer."""


@pytest.fixture
def shared(project, tmp_path):
    """A committed project with a directory as its DVC remote."""
    dvc(project, "remote", "add", "--local", "--default", "lab", str(tmp_path / "remote"))
    commit(project)
    return project


def test_uncommitted_code_and_a_missing_remote_are_refused(project, tmp_path):
    commit(project)
    with pytest.raises(InputError, match="no default DVC remote"):
        find_source(project)
    dvc(project, "remote", "add", "--local", "--default", "lab", str(tmp_path / "remote"))
    source = find_source(project)
    assert (source.repository, source.remote_url) == (str(project.root), str(tmp_path / "remote"))
    with pytest.raises(InputError, match=r"https://\*\*\*@git\.example contains a password") as caught:
        find_source(project, "https://lab:geheim@git.example")
    assert "geheim" not in str(caught.value)
    params = project.root / "params.yaml"
    params.write_text(params.read_text() + "\n")
    with pytest.raises(InputError, match="uncommitted changes"):
        find_source(project)


def test_what_travels_is_text_and_stays_in_its_scan(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    files = text_files(project, "apple")
    assert set(files) == {"scan.yaml"}
    changed = {**files, "dvc.lock": "l", "clean/metrics.json": "m", "apple.ply.dvc": "d"}
    assert result_files(changed) == {"dvc.lock": "l", "clean/metrics.json": "m"}, (
        "what comes back from a worker"
    )
    for name in ("../pear/scan.yaml", "/etc/passwd"):
        with pytest.raises(InputError, match="outside the directory of scan"):
            write_text_files(project, "apple", {**files, name: "x"})


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_two_workers_without_a_shared_disk(shared, tmp_path):
    pytest.importorskip("prefect_dask", reason="needs the extra dask")
    names = ("apple", "pear")
    scans = [write_scan(tmp_path, f"{name}.ply", f"good {name}") for name in names]
    lines = []
    with dask_cluster(shared, "local", None, 2) as cluster:
        results = run_batch(
            shared,
            [Request(scan) for scan in scans],
            scans_at_once=2,
            say=lines.append,
            target=TARGET,
            cluster=cluster,
        )
    assert [result.error for result in results] == [None, None], lines
    stages = [entry.name for entry in needed_for(TARGET, read_template(shared.template))]
    assert runs(shared) == [], "nothing was computed in this directory"
    for name, result in zip(names, results, strict=True):
        assert [report.name for report in result.stages] == stages
        for stage in stages:
            assert (
                recorded_outputs(shared, name, stage) and damaged(recorded_outputs(shared, name, stage)) == []
            )
    there = {name: text_files(shared, name) for name in names}
    again = run_batch(
        shared, [Request(scan) for scan in scans], scans_at_once=1, say=lines.append, target=TARGET
    )
    assert [report.cached for result in again for report in result.stages] == [True] * 2 * len(stages)
    assert {name: text_files(shared, name) for name in names} == there, "here and there agree"


def test_a_lost_scheduler_is_a_message(project, tmp_path, monkeypatch):
    """Dask gives back a future that is not done; tried with real processes by `lab.faults.kill_cluster`."""
    from prefect.states import Running

    from pipelines.runs import flow

    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    entry = read_template(project.template)[0]
    future = SimpleNamespace(wait=lambda: None, state=Running())
    task = SimpleNamespace(submit=lambda *given, wait_for: future)
    monkeypatch.setattr(flow, "_task_for", lambda entry: task)
    source = Source("repository", "commit", "remote")
    with pytest.raises(StageFailedError, match=r"clean of apple ran on a worker\. .*Restart scheduler"):
        flow._run_entry(project, "apple", entry, False, False, source, [])


def test_dask_prints_no_tracebacks(shared):
    """Neither now nor after Prefect has set up its logging, which enables loggers again."""
    distributed = pytest.importorskip("distributed")
    with dask_cluster(shared, "tcp://127.0.0.1:1", None, 1):
        for name in ("distributed", "distributed.client"):
            kinds = {type(handler) for handler in logging.getLogger(name).handlers}
            assert kinds == {logging.NullHandler}, distributed.__name__
