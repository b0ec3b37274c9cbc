"""Ctrl-C and kills of a whole run: soon over, one line, nobody left behind."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from pipelines.dvc import repair, stopping
from pipelines.dvc.stage import bring_up_to_date
from pipelines.dvc.stopping import StoppedError
from pipelines.runs import dashboard, run_request, server
from pipelines.runs.run_summary import RunResult
from pipelines.runs.server import STOPPED, EmbeddedServer, ServerError, check_home
from pipelines.scans.register import Request, register_scan
from tests.pipelines.test_dvc_stage import entry_of
from tests.pipelines.test_faults import in_namespace
from tests.pipelines.tiny_project import ROOT, environment, runs, write_scan

LIMIT_S = 240.0
STUCK = """
import subprocess, sys, threading
from pipelines.dvc.stopping import inside_flow, running_stage, stop_on_signals
child = subprocess.Popen(["sleep", "1000"])
stop_on_signals(lambda: None)
with running_stage("apple", "calibrate"), inside_flow():
    threading.Thread(target=print, args=(child.pid,), kwargs={"flush": True}).start()
    threading.Lock().acquire() and threading.Event().wait()
"""
"""A run that looks at nothing: its main thread waits for ever, as one that waits for other threads does."""


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_even_a_stuck_run_ends_with_one_line_and_its_children(number, exit_code):
    stuck = subprocess.Popen(
        [sys.executable, "-c", STUCK], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    child = psutil.Process(int(stuck.stdout.readline()))
    stuck.send_signal(number)
    _, said = stuck.communicate(timeout=60)
    assert stuck.returncode == exit_code
    assert said == "Stopped in calibrate. Run the same command to resume.\n"
    assert psutil.wait_procs([child], timeout=10)[1] == []


@pytest.fixture
def stop(monkeypatch):
    monkeypatch.setattr(stopping, "_STATE", stopping._State())
    yield stopping.STOP
    stopping.STOP.clear()


def test_a_stage_that_is_stopped_leaves_what_was_there(project, tmp_path, stop, monkeypatch):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "good slow-clean")))
    entry = entry_of(project, "clean")
    bring_up_to_date(project, "apple", entry)
    before = (project.scan_dir("apple") / "clean" / "metrics.json").read_bytes()
    seen, groups = [], []
    popen = subprocess.Popen

    def start(command, **options):
        child = popen(command, **options)
        if "pipelines.dvc.child" in command:
            groups.append(os.getpgid(child.pid))
        return child

    def stop_at_once(fraction, message):
        seen.append(fraction)
        stop.set()

    monkeypatch.setattr(subprocess, "Popen", start)
    from pipelines.dvc.stage import Listeners

    with pytest.raises(StoppedError):
        bring_up_to_date(project, "apple", entry, force=True, listeners=Listeners(on_progress=stop_at_once))
    assert groups and os.getpgid(0) not in groups, "Ctrl-C reaches the runner alone"
    assert seen and (project.scan_dir("apple") / "clean" / "metrics.json").read_bytes() == before
    with pytest.raises(StoppedError):
        bring_up_to_date(project, "apple", entry)
    assert len(runs(project)) == 2, "nothing begins any more"
    stop.clear()
    assert not list(project.state_dir.glob("*.events.jsonl"))
    (project.state_dir / "apple.events.jsonl").write_text('{"kind": "error", "left by": "a killed run"}\n')
    bring_up_to_date(project, "apple", entry)
    assert not list(project.state_dir.glob("*.events.jsonl")), "events lie in the project and are swept"


def test_a_stopped_run_has_an_exit_code_of_its_own():
    for error in (StoppedError(), KeyboardInterrupt()):
        result = RunResult()
        result.fail(error)
        assert (result.exit_code, result.error) == (130, "Stopped. Run the same command to resume.")


def test_a_folder_that_prefect_could_not_use_is_a_sentence(tmp_path):
    check_home(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0, "nobody else reads the run history"
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        check_home(tmp_path / "file")
    (tmp_path / "prefect.db").write_bytes(b"SQLite format 3\0 and then rubbish" * 100)
    with pytest.raises(ServerError, match="Move the file away"):
        check_home(tmp_path)
    (tmp_path / "prefect.db").unlink()
    sqlite3.connect(tmp_path / "prefect.db").close()
    check_home(tmp_path)


def test_a_full_disk_under_prefects_folder_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(repair, "_MIN_FREE_BYTES", 10**18)
    with pytest.raises(OSError, match="No space left"):
        check_home(tmp_path)


def test_prefects_folder_is_looked_at_before_a_server_starts(project, monkeypatch):
    monkeypatch.setenv("PREFECT_HOME", str(project.prefect_home))
    project.prefect_home.mkdir()
    (project.prefect_home / "prefect.db").write_bytes(b"rubbish" * 100)
    monkeypatch.setattr(server.subprocess, "Popen", lambda *_, **__: pytest.fail("it was started"))
    monkeypatch.setattr(dashboard.os, "execve", lambda *_: pytest.fail("it was started"))
    for start in (EmbeddedServer().url, lambda p: dashboard.serve_dashboard(p, server._free_port())):
        with pytest.raises(ServerError, match="Move the file away"):
            start(project)


def test_a_read_only_folder_of_prefect_is_a_sentence(project):
    """Prefect itself would try for minutes."""
    project.prefect_home.mkdir()
    write_scan(project.root, "apple.ply")
    said = in_namespace(
        project.root,
        "mount --bind .prefect .prefect && mount -o remount,ro,bind .prefect",
        *("env", f"PREFECT_HOME={project.prefect_home}", "PREFECT_API_URL="),
        *(sys.executable, "-m", "pipelines.cli.main", "run", "apple.ply", "--target", "clean"),
    )
    assert said.returncode == 1
    assert f"error: The disk is read-only ({project.prefect_home}" in said.stderr


def test_a_server_that_ends_at_once_is_a_sentence_with_its_last_words(project, monkeypatch):
    broken = "import sys; sys.exit('no such table: flow')"
    real = subprocess.Popen
    monkeypatch.setattr(
        server.subprocess, "Popen", lambda _, **how: real([sys.executable, "-c", broken], **how)
    )
    with pytest.raises(ServerError, match="no such table: flow"):
        EmbeddedServer().url(project)
    monkeypatch.setattr(server, "_START_LIMIT_S", 0.0)
    with pytest.raises(ServerError, match=r"did not answer within 0 s .* overloaded"):
        EmbeddedServer().url(project)


@pytest.mark.parametrize(("alive", "tries"), [(False, 2), (True, 1)])
def test_a_run_whose_dashboard_died_goes_on_without_it(project, monkeypatch, alive, tries):
    urls = iter(["http://dashboard/api", "http://embedded/api"])
    asked = []

    def flow_at(url, *_arguments):
        asked.append(url)
        return ConnectionError("Connection refused") if len(asked) == 1 else None

    monkeypatch.setattr(run_request, "api_url", lambda _project: next(urls))
    monkeypatch.setattr(run_request, "is_chosen_here", lambda _url: True)
    monkeypatch.setattr(run_request, "answers", lambda _url: alive)
    monkeypatch.setattr(run_request, "_run_flow_at", flow_at)
    result = RunResult("apple")
    run_request.run_flow(project, result, None, force=False, verbose=False)
    assert len(asked) == tries and bool(result.error) == alive


def test_a_wrong_password_is_a_message(project, monkeypatch):
    error = RuntimeError("Client error '401 Unauthorized'")
    error.response = SimpleNamespace(status_code=401)
    monkeypatch.setattr(run_request, "api_url", lambda _project: "http://lab/api")
    monkeypatch.setattr(run_request, "_run_flow_at", lambda *given: error)
    result = RunResult("apple")
    run_request.run_flow(project, result, None, force=False, verbose=False)
    assert result.exit_code == 2 and "http://lab/api rejects the password" in result.error
    assert "PREFECT_API_AUTH_STRING" in result.error


def start_slow_run(project, scan):
    """A real `scan2cut run`, with the server that it starts, in the middle of its first stage."""
    run = subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli.main", "run", str(scan)],
        cwd=project.root,
        env=environment(project) | {"PREFECT_API_URL": "", "SCAN2CUT_PATIENCE_S": "60"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + LIMIT_S
    family = []
    while time.monotonic() < end and run.poll() is None:
        family = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
        if any("stages clean" in words(process) for process in family):
            break
        time.sleep(0.1)
    assert any("pipelines.runs.server" in words(process) for process in family)
    return run, family


def words(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.slow
def test_a_whole_run_with_its_server_stopped_and_killed(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply", "good slow-clean slow-clean")
    run, family = start_slow_run(project, scan)
    os.killpg(run.pid, signal.SIGINT)  # what a terminal does
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert said.strip().splitlines()[-1] == "Stopped in clean. Run the same command to resume."
    assert "Traceback" not in said
    assert psutil.wait_procs(family, timeout=10)[1] == []
    with sqlite3.connect(project.prefect_home / "prefect.db") as database:
        assert database.execute("SELECT state_type FROM flow_run").fetchall() == [("CANCELLED",)]

    run, family = start_slow_run(project, scan)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    assert psutil.wait_procs(family, timeout=10)[1] == [], "its server, dvc and the stage die with it"


@pytest.mark.slow
def test_a_whole_run_whose_server_is_killed_goes_on(project, tmp_path):
    """In one go: without a new server, Prefect's client waits for minutes, and the flow begins anew."""
    run, family = start_slow_run(project, write_scan(tmp_path, "apple.ply", "good slow-clean slow-clean"))
    next(process for process in family if "pipelines.runs.server" in words(process)).kill()
    _, said = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 0, said
    assert "is gone" not in said and "Traceback" not in said
    assert runs(project).count("apple clean") == 1
    with sqlite3.connect(project.prefect_home / "prefect.db") as database:
        assert database.execute("SELECT state_type FROM flow_run").fetchall() == [("COMPLETED",)]


STUBBORN = """
import asyncio, sys
from pipelines.runs.server import STOPPED, serve
from pipelines.dvc.stopping import stop_on_signals

async def app(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    print("up", flush=True)
    await receive()
    await asyncio.sleep(1000)

stop_on_signals(lambda: None, STOPPED)
serve(app, "127.0.0.1", int(sys.argv[1]), keep_alive_s=5, log_level="error")
"""
"""A dashboard whose services do not come to an end."""


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_even_a_stuck_dashboard_ends_with_one_line(number, exit_code):
    command = [sys.executable, "-c", STUBBORN, str(server._free_port())]
    stuck = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert stuck.stdout.readline() == "up\n"
    stuck.send_signal(number)
    _, said = stuck.communicate(timeout=60)
    assert (stuck.returncode, said) == (exit_code, f"{STOPPED}\n")
