"""The guard every stage runs in: exit codes, sentences, nothing half-written, no orphans."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.project import Project
from pipelines.scans.register import Request, register_scan
from stages.runtime.catalogue import artifacts_of
from stages.runtime.files import LIVE_FILE_NAME, TEMPORARY_LINK, remove_abandoned
from tests.pipelines.tiny_project import environment, write_scan


def registered(project: Project, folder: Path, text: str) -> Path:
    """The directory of a freshly registered scan."""
    scan_id = register_scan(project, Request(write_scan(folder, "apple.ply", text)))
    return project.scan_dir(scan_id)


def command(scan_dir: Path) -> list[str]:
    return [sys.executable, "-m", "stages", "clean", f"data/scans/{scan_dir.name}"]


def run_clean(project: Project, scan_dir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = environment(project) | variables
    return subprocess.run(
        command(scan_dir), cwd=project.root, env=env, capture_output=True, text=True, check=False
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_done_writes_every_promised_artifact_and_nothing_else(project, tmp_path):
    scan_dir = registered(project, tmp_path, "good")
    result = run_clean(project, scan_dir)
    assert result.returncode == 0, result.stderr
    assert set(contents(scan_dir / "clean")) == {Path(a.path).name for a in artifacts_of("clean")}
    assert not list(scan_dir.glob(".scratch-*"))
    first = contents(scan_dir / "clean")
    run_clean(project, scan_dir)
    assert contents(scan_dir / "clean") == first, "the same input gives the same bytes"


@pytest.mark.parametrize(
    ("order", "exit_code", "sentence"),
    [
        ("bad-clean", 2, "clean: the scan says bad. It must say good. Change it."),
        ("crash-clean", 1, "clean: ZeroDivisionError: the scan says crash"),
    ],
)
def test_failure_is_a_sentence_and_leaves_older_artifacts(project, tmp_path, order, exit_code, sentence):
    scan_dir = registered(project, tmp_path, "good")
    run_clean(project, scan_dir)
    before = contents(scan_dir / "clean")
    (scan_dir / "apple.ply").write_text(order)
    events = tmp_path / "events.jsonl"
    result = run_clean(project, scan_dir, SCAN2CUT_EVENTS=str(events))
    assert result.returncode == exit_code
    assert result.stderr.splitlines()[0] == sentence
    assert ("Traceback" in result.stderr) == (exit_code == 1)
    last = json.loads(events.read_text().splitlines()[-1])
    assert (last["kind"], last["exit_code"], last["message"]) == ("error", exit_code, sentence)
    assert contents(scan_dir / "clean") == before
    assert not list(scan_dir.glob(".scratch-*"))


def start_slow(project: Project, scan_dir: Path, events: Path, **variables: str) -> subprocess.Popen[str]:
    """A slow stage that has begun: its first progress event is there."""
    process = subprocess.Popen(
        command(scan_dir),
        cwd=project.root,
        env=environment(project) | {"SCAN2CUT_EVENTS": str(events), **variables},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: events.exists() and "progress" in events.read_text())
    return process


def wait_for(condition, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.parametrize("what", ["parameter", "input", "code"])
def test_change_during_the_run_is_noticed(project, tmp_path, what):
    scan_dir = registered(project, tmp_path, "slow-clean")
    process = start_slow(project, scan_dir, tmp_path / "events.jsonl")
    path = {
        "parameter": project.root / "params.yaml",
        "input": scan_dir / "apple.ply",
        "code": project.root / "stages" / "clean" / "topology.py",
    }[what]
    text = path.read_text()
    path.write_text(
        text.replace("max_faces: 2000000", "max_faces: 1000000") if what == "parameter" else text + " \n"
    )
    _, errors = process.communicate()
    assert process.returncode == 75
    assert "changed while clean ran" in errors
    assert not (scan_dir / "clean").exists()


def test_stage_dies_with_its_parent(project, tmp_path):
    scan_dir = registered(project, tmp_path, "slow-clean")
    events = tmp_path / "events.jsonl"
    child_pid = tmp_path / "pid"
    parent_code = (
        "import subprocess, sys, pathlib\n"
        "p = subprocess.Popen(sys.argv[2:]); pathlib.Path(sys.argv[1]).write_text(str(p.pid)); p.wait()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code, str(child_pid), *command(scan_dir)],
        cwd=project.root,
        env=environment(project) | {"SCAN2CUT_EVENTS": str(events)},
    )
    wait_for(lambda: events.exists() and "progress" in events.read_text())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    pid = int(child_pid.read_text())
    wait_for(lambda: not running(pid))
    assert not (scan_dir / "clean").exists()


def test_stage_whose_parent_died_first_writes_nothing(project, tmp_path):
    """dvc can be killed while the stage still imports; asking for its parent's death is then too late."""
    scan_dir = registered(project, tmp_path, "good")
    gone = subprocess.Popen(["true"])
    gone.wait()
    result = run_clean(project, scan_dir, SCAN2CUT_PARENT=str(gone.pid))
    assert result.returncode == 1
    assert f"clean: The parent process {gone.pid} has ended." in result.stderr
    assert "Traceback" not in result.stderr
    assert not (scan_dir / "clean").exists() and not list(scan_dir.glob(".scratch-*"))


def test_scratch_of_the_dead_is_removed_and_that_of_the_living_is_not(project, tmp_path):
    scan_dir = registered(project, tmp_path, "slow-clean")
    process = start_slow(project, scan_dir, tmp_path / "events.jsonl")
    (held,) = scan_dir.glob(".scratch-clean-*")
    (scan_dir / ".scratch-clean-dead").mkdir()
    (scan_dir / ".scratch-precut-dead").mkdir()
    remove_abandoned(scan_dir)
    assert {path.name for path in scan_dir.glob(".scratch-*")} == {held.name}
    process.kill()
    process.wait()
    remove_abandoned(scan_dir)
    assert not list(scan_dir.glob(".scratch-*"))


def test_temporary_files_of_a_stage_go_with_its_scratch(project, tmp_path):
    """Those of a killed one too, and its picture."""
    scan_dir = registered(project, tmp_path, "slow-clean")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = start_slow(project, scan_dir, tmp_path / "events.jsonl", TMPDIR=str(temporary))
    (scan_dir / LIVE_FILE_NAME).write_bytes(b"picture")
    remove_abandoned(scan_dir)
    assert (scan_dir / LIVE_FILE_NAME).exists() and len(list(temporary.rglob("forgotten.txt"))) == 1
    process.kill()
    process.wait()
    (scan_dir / f".{LIVE_FILE_NAME}.x7").write_bytes(b"half a picture")
    remove_abandoned(scan_dir)
    assert list(temporary.iterdir()) == list(scan_dir.glob(f"*{LIVE_FILE_NAME}*")) == []
    assert run_clean(project, scan_dir, TMPDIR=str(temporary)).returncode == 0
    assert list(temporary.iterdir()) == []


def test_a_killed_process_that_the_kernel_still_takes_apart_holds_nothing(tmp_path):
    """Its lock lasts as long as its memory is being freed: 15 s for 1.5 GB on a busy machine. The kills found this."""
    killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    names = {process: f".scratch-clean-{process}-a7" for process in (os.getpid(), killed.pid)}
    locks = []
    for name in names.values():
        (tmp_path / name).mkdir()
        locks.append(os.open(tmp_path / name, os.O_RDONLY))
        fcntl.flock(locks[-1], fcntl.LOCK_EX)
    remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(names.values())
    killed.kill()
    while running(killed.pid):
        time.sleep(0.01)
    remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {names[os.getpid()]}, "the living keeps its own"
    killed.wait()
    for lock in locks:
        os.close(lock)


def test_a_link_to_another_folder_is_not_followed(tmp_path):
    for name in ("mine", "scan2cut-mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kept.txt").write_text("x")
    (tmp_path / "scan2cut-link").symlink_to(tmp_path / "scan2cut-mine")
    for target in ("mine", "scan2cut-link", "scan2cut-gone"):
        scratch = tmp_path / ".scratch-clean-dead"
        scratch.mkdir()
        (scratch / TEMPORARY_LINK).symlink_to(tmp_path / target)
        remove_abandoned(tmp_path)
        assert not scratch.exists()
    assert len(list(tmp_path.rglob("kept.txt"))) == 2


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id: other\n", "scan is None"),
        ("id: other\nscan: a.ply\ncut_surface: a.ply\nmaterial: apple\n", "the directory is 'apple'"),
        ("id: apple\nscan: a.ply\ncut_surface: a.ply\nmaterial: mud\n", "Material 'mud' is unknown"),
        ("id: apple\nscan: a.ply\ncut_surface: b.ply\nmaterial: apple\n", "Both must name the same file"),
        ("id: apple\nscan: a.ply\ncut_surface: a.ply\nmaterial: apple\n", "a.ply can't be read"),
    ],
)
def test_faulty_scan_file(project, content, words):
    scan_dir = project.scan_dir("apple")
    scan_dir.mkdir()
    (scan_dir / "dvc.yaml").write_bytes(project.template.read_bytes())
    (scan_dir / "scan.yaml").write_text(content)
    result = run_clean(project, scan_dir)
    assert result.returncode == 2
    assert words in result.stderr


def test_half_written_files_of_killed_processes_are_swept(tmp_path):
    """write_bytes_atomic that is killed leaves its temporary file; one that another process is writing stays."""
    killed = (
        "import os, sys; from pathlib import Path; from stages.runtime.files import write_bytes_atomic\n"
        "os.replace = lambda *paths: os.kill(os.getpid(), 9)\n"
        "write_bytes_atomic(Path(sys.argv[1]), b'new')"
    )
    for name in ("scan.yaml", "report.html"):
        assert subprocess.run([sys.executable, "-c", killed, tmp_path / name], check=False).returncode == -9
    older, newer = tmp_path.iterdir()
    os.utime(older, (0.0, 0.0))
    (tmp_path / ".checkpoints").mkdir()
    (tmp_path / "dvc.lock").write_text("x")
    remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {newer.name, ".checkpoints", "dvc.lock"}
