"""One stage through DVC: what it says, what it keeps, and that two runs or a kill do no harm."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.dvc.pipeline_file import read_template
from pipelines.dvc.stage import Listeners, Outcome, StageFailedError, TryAgainError, bring_up_to_date
from pipelines.scans.register import Request, register_scan, track_raw_files
from pipelines.scans.status import read_status
from stages.runtime.errors import InputError
from tests.pipelines.tiny_project import dvc, environment, runs, write_scan


def entry_of(project, stage):
    return next(entry for entry in read_template(project.template) if entry.name == stage)


def outputs(project, scan_id="apple"):
    folder = project.scan_dir(scan_id)
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.glob("*/*")) if p.is_file()}


def test_outcomes_and_kept_artifacts(project, tmp_path):
    """Completed, Unchanged, Cached are DVC's sentences; a refusal loses nothing; status agrees."""
    scan = write_scan(tmp_path, "apple.ply", "good words")
    register_scan(project, Request(scan))
    clean = entry_of(project, "clean")
    progress = []
    first = bring_up_to_date(
        project, "apple", clean, listeners=Listeners(on_progress=lambda f, m: progress.append((f, m)))
    )
    assert (first.outcome, first.cached) == (Outcome.COMPLETED, False)
    assert (first.metrics["words"], first.metrics["unit_text"]) == (2, "auto")
    assert "data/scans/apple/clean/faces.parquet" in first.outputs
    assert progress[-1] == (1.0, "writing")
    assert bring_up_to_date(project, "apple", clean).outcome is Outcome.UNCHANGED
    assert [s.state for s in read_status(project, ["apple"])][:2] == ["fresh", "never run"]
    good = outputs(project)

    register_scan(project, Request(scan, overrides={"clean": {"max_faces": 666}}))
    status = read_status(project, ["apple"])[0]
    assert status.state == "stale"
    assert "clean modified" in status.reasons[0]
    with pytest.raises(InputError, match="the scan says bad"):
        bring_up_to_date(project, "apple", clean)
    assert outputs(project) == good
    assert not list(project.scan_dir("apple").glob(".kept-*"))

    register_scan(project, Request(scan, overrides={"clean": {"max_faces": 777}}))
    assert bring_up_to_date(project, "apple", clean).outcome is Outcome.COMPLETED
    register_scan(project, Request(scan, reset=True))
    (project.scan_dir("apple") / ".scratch-clean-of-a-killed-run").mkdir()
    checkpoints = project.scan_dir("apple") / ".checkpoints"
    checkpoints.mkdir()
    for name in ("clean-fit.pt", ".clean-fit.pt.half-written", "precut-fit.pt"):
        write_scan(checkpoints, name)
    again = bring_up_to_date(project, "apple", clean)
    assert (again.outcome, again.cached) == (Outcome.CACHED, True)
    assert not list(project.scan_dir("apple").glob(".scratch-*")), (
        "removed though the stage itself did not run"
    )
    assert [path.name for path in checkpoints.iterdir()] == ["precut-fit.pt"], "a fresh stage needs none"
    shutil.rmtree(checkpoints)
    assert outputs(project) == good
    assert runs(project) == ["apple clean"] * 3


def test_what_a_kill_in_another_stage_left_is_put_back(project, tmp_path):
    """Found by counting kills: a whole run was killed in one stage, and the runs after it were of another."""
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "good words")))
    for stage in ("clean", "tetrahedralize"):
        bring_up_to_date(project, "apple", entry_of(project, stage))
    good, scan_dir = outputs(project), project.scan_dir("apple")
    shelter = scan_dir / ".kept-clean" / "clean"
    shelter.mkdir(parents=True)
    for path in (scan_dir / "clean").iterdir():
        path.rename(shelter / path.name)
    (scan_dir / ".scratch-clean-of-a-killed-run").mkdir()
    bring_up_to_date(project, "apple", entry_of(project, "tetrahedralize"))
    assert outputs(project) == good
    assert not [*scan_dir.glob(".kept-*"), *scan_dir.glob(".scratch-*")]


def test_crash_and_timeout_are_failures(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "crash-clean")))
    with pytest.raises(StageFailedError, match="clean: ZeroDivisionError"):
        bring_up_to_date(project, "apple", entry_of(project, "clean"))
    register_scan(project, Request(write_scan(tmp_path, "pear.ply", "slow-clean")))
    with pytest.raises(StageFailedError, match="timed out after 1 s"):
        bring_up_to_date(project, "pear", replace(entry_of(project, "clean"), timeout_s=1.4))


def test_broken_pipeline_shows_what_dvc_said(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    with pytest.raises(StageFailedError, match=r"DVC could not run the stage(.|\n)*vertices"):
        bring_up_to_date(project, "apple", entry_of(project, "tetrahedralize"))


def test_change_during_the_run_can_be_tried_again(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "slow-clean")))

    def edit(fraction: float, message: str) -> None:
        if 0.1 < fraction < 0.2:
            path = project.root / "params.yaml"
            path.write_text(path.read_text().replace("max_faces: 2000000", "max_faces: 1900000"))

    clean = entry_of(project, "clean")
    with pytest.raises(TryAgainError, match="parameters changed while clean ran"):
        bring_up_to_date(project, "apple", clean, listeners=Listeners(on_progress=edit))
    assert bring_up_to_date(project, "apple", clean).outcome is Outcome.COMPLETED


@pytest.mark.slow
def test_two_runs_of_one_scan_at_once(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "slow-clean")))
    outcomes, lines = [], []

    def one() -> None:
        listeners = Listeners(on_line=lines.append)
        outcomes.append(
            bring_up_to_date(project, "apple", entry_of(project, "clean"), listeners=listeners).outcome
        )

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [Outcome.COMPLETED, Outcome.UNCHANGED]
    assert runs(project) == ["apple clean"]
    assert "Another run is using this scan; waiting for it to finish." in lines


@pytest.mark.slow
def test_run_waits_for_a_plain_dvc_repro(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "slow-clean")))
    plain = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "data/scans/apple/dvc.yaml:clean"],
        cwd=project.root,
        env=environment(project),
    )
    while not runs(project):
        time.sleep(0.1)
    report = bring_up_to_date(project, "apple", entry_of(project, "clean"))
    assert plain.wait() == 0
    assert report.outcome is Outcome.UNCHANGED
    assert runs(project) == ["apple clean"]


def processes_in(folder):
    """Command lines of the processes that work in a folder; other tests run meanwhile, in folders of their own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_bytes())
    return found


@pytest.mark.slow
def test_killed_in_the_middle_then_rerun(project, tmp_path):
    """kill -9 of the runner: dvc and the stage die with it, older artifacts come back, the rerun succeeds."""
    scan = write_scan(tmp_path, "apple.ply", "slow-clean")
    register_scan(project, Request(scan))
    clean = entry_of(project, "clean")
    bring_up_to_date(project, "apple", clean)
    good = outputs(project)
    register_scan(project, Request(scan, overrides={"clean": {"unit": "mm"}}))
    code = (
        "import sys; from pathlib import Path; from pipelines.project import Project\n"
        "from pipelines.dvc.pipeline_file import read_template; from pipelines.dvc.stage import *\n"
        "p = Project(Path(sys.argv[1])); e = read_template(p.template)[0]; bring_up_to_date(p, 'apple', e)"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", code, str(project.root)], cwd=project.root, env=environment(project)
    )
    while len(runs(project)) < 2:
        time.sleep(0.1)
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    until = time.monotonic() + 10.0
    while processes_in(project.root) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_in(project.root) == []
    register_scan(project, Request(scan, reset=True))
    assert bring_up_to_date(project, "apple", clean).outcome in (Outcome.UNCHANGED, Outcome.CACHED)
    assert outputs(project) == good
    register_scan(project, Request(scan, overrides={"clean": {"unit": "mm"}}))
    assert bring_up_to_date(project, "apple", clean).metrics["unit_text"] == "mm"


@pytest.mark.slow
def test_plain_repro_rebuilds_every_scan_and_agrees_with_the_flow(project, tmp_path):
    for name in ("apple", "pear"):
        register_scan(project, Request(write_scan(tmp_path, f"{name}.ply", f"good {name}")))
    track_raw_files(project, "apple")
    result = dvc(project, "repro")
    assert result.returncode == 0, result.stderr
    order = runs(project)
    assert sorted(order) == sorted(
        f"{s} {e.name}" for s in ("apple", "pear") for e in read_template(project.template)
    )
    for name in ("apple", "pear"):
        stages = [line.split()[1] for line in order if line.startswith(name)]
        assert stages == [entry.name for entry in read_template(project.template)]
    columns = (project.root / "data" / "dataset.csv").read_text().splitlines()[0].split(",")
    assert columns[0] == "scan"
    assert {"clean.unit_text", "clean.words", "precut.words"} <= set(columns)
    assert "up to date" in dvc(project, "status").stdout
    assert {s.state for s in read_status(project)} == {"fresh"}
    for entry in read_template(project.template):
        assert bring_up_to_date(project, "pear", entry).outcome is Outcome.UNCHANGED

    params = project.root / "params.yaml"
    params.write_text(params.read_text().replace("max_faces: 2000000", "max_faces: 1000000"))
    assert {s.scan for s in read_status(project) if s.state == "stale"} == {"apple", "pear"}
    for entry in read_template(project.template):
        bring_up_to_date(project, "apple", entry)
    states = {(s.scan, s.stage): s.state for s in read_status(project)}
    assert states["apple", "clean"] == "fresh"
    assert states["pear", "clean"] == "stale"
    assert dvc(project, "repro").returncode == 0
    assert "up to date" in dvc(project, "status").stdout
