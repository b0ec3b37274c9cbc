"""The dashboard, a deployment and a run started by API, as separate processes, seen in a browser."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psutil
import pytest

from pipelines.dvc.pipeline_file import read_template
from pipelines.runs.dashboard import SERVER_AUTH
from pipelines.runs.deployment import STOPPED as STOPPED_DEPLOYMENT
from pipelines.runs.server import STOPPED as STOPPED_DASHBOARD
from tests.pipelines.tiny_project import environment, runs, write_scan

LIMIT_S = 240.0
"""Prefect's server takes 10 to 60 s to start on a busy machine."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(project, *arguments):
    log = (project.root / f"{arguments[0]}.log").open("w")
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli.main", *arguments],
        cwd=project.root,
        env=environment(project) | {"PREFECT_API_URL": ""},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def ask(url, data=None, **headers):
    """The answer; what writes needs the token that a page of another origin can't read."""
    body = None if data is None else json.dumps(data).encode()
    if data is not None and not headers:
        token = ask(f"{url.partition('/api')[0]}/api/csrf-token?client=test")["token"]
        headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "test"}
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def wait_for(condition):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        try:
            found = condition()
        except OSError:  # HTTPError too: a busy server answers 503
            found = None
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError("it did not happen in time")


@pytest.fixture
def processes():
    started: list[subprocess.Popen] = []
    yield started
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def refuse_strange_requests(api):
    """Neither a page of another origin nor a program without a token can write; other names of this machine neither."""
    preflight = urllib.request.Request(f"{api}/flow_runs/filter", method="OPTIONS")
    preflight.add_header("Origin", "https://evil.example")
    preflight.add_header("Access-Control-Request-Method", "POST")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(preflight, timeout=60)
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"X-Nothing": "no token"}):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(f"{api}/flow_runs/filter", {}, **headers)


@pytest.mark.slow
def test_a_run_started_by_api(project, processes):
    api = f"http://127.0.0.1:{free_port()}/api"
    processes.append(start(project, "dashboard", "--port", api.split(":")[2].split("/")[0]))
    wait_for(lambda: ask(f"{api}/health"))
    refuse_strange_requests(api)
    project.inbox_dir.mkdir(parents=True)
    write_scan(project.inbox_dir, "apple.ply", "good slow-calibrate")
    processes.append(start(project, "deploy", "--name", "lab", "--workers", "1"))

    def deployed():
        said = (project.root / "deploy.log").read_text()
        assert processes[1].poll() is None, said
        return ask(f"{api}/deployments/filter", {})

    deployment = wait_for(deployed)[0]
    assert deployment["name"] == "lab"
    assert set(deployment["parameter_openapi_schema"]["properties"]) >= {
        "scan",
        "log",
        "material",
        "settings",
    }

    order = {"parameters": {"scan": "apple.ply"}, "idempotency_key": "once"}
    asking = f"{api}/deployments/{deployment['id']}/create_flow_run"
    first = wait_for(
        lambda: ask(asking, order)
    )  # a busy server answers 503; the key makes asking again harmless
    assert wait_for(lambda: ask(asking, order))["id"] == first["id"]
    seen = set()

    live = set()

    def finished():
        with urllib.request.urlopen(api.removesuffix("/api") + "/live", timeout=60) as answer:
            live.update(line for line in answer.read().decode().splitlines() if line.startswith("<h2>"))
        keys = {"artifacts": {"key": {"any_": ["apple-05-calibrate"]}}}
        seen.update(item["data"] for item in ask(f"{api}/artifacts/filter", keys))
        run = ask(f"{api}/flow_runs/{first['id']}")
        assert run["state_type"] not in ("FAILED", "CRASHED", "CANCELLED"), run["state"]["message"]
        return run if run["state_type"] == "COMPLETED" else None

    run = wait_for(finished)
    assert run["name"] == "apple", "named after its scan"
    record = json.loads((project.scan_dir("apple") / "run.json").read_text())
    assert len(record["stages"]) == len(read_template(project.template)), (
        "written for the report, as by scan2cut run"
    )
    assert (project.scan_dir("apple") / "apple.ply.dvc").is_file()
    tasks = ask(f"{api}/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    assert {task["name"] for task in tasks} == {entry.name for entry in read_template(project.template)}
    assert len(seen) >= 2, "the progress moved"
    assert "<h2>apple: calibrate</h2>" in live
    found = ask(f"{api}/artifacts/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    kinds = {item["key"]: item for item in found}
    assert len(kinds) == 1 + len(tasks) and {item["type"] for item in found} == {"markdown"}
    assert "data:image/png;base64," in kinds["apple-01-clean"]["data"]
    text = kinds["apple-00-summary"]["data"]
    assert f"/artifacts/artifact/{kinds['apple-05-calibrate']['id']}" in text
    logged = ask(f"{api}/logs/filter", {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200})
    said = "\n".join(line["message"] for line in logged)
    assert "Summary with live picture: http" in said and "exec python -m stages" not in said
    pages = ask(api.removesuffix("/api") + "/ui-settings")
    assert pages["available_uis"] == ["v1"], "the other interface is not advertised"
    look_in_browser(api.removesuffix("/api"), kinds["apple-00-summary"]["id"])


@pytest.mark.slow
def test_ctrl_c_ends_deployment_and_dashboard_with_one_line_each(project, processes):
    api = f"http://127.0.0.1:{free_port()}/api"
    processes.append(start(project, "dashboard", "--port", api.split(":")[2].split("/")[0]))
    wait_for(lambda: ask(f"{api}/health"))
    project.inbox_dir.mkdir(parents=True)
    write_scan(project.inbox_dir, "pear.ply", "endless-clean")
    write_scan(project.inbox_dir, "plum.txt", "no scan")
    processes.append(start(project, "deploy", "--name", "lab", "--workers", "2"))
    deployment = wait_for(lambda: ask(f"{api}/deployments/filter", {}))[0]
    asking = f"{api}/deployments/{deployment['id']}/create_flow_run"
    endless = wait_for(lambda: ask(asking, {"parameters": {"scan": "pear.ply"}, "idempotency_key": "1"}))
    refused = wait_for(lambda: ask(asking, {"parameters": {"scan": "plum.txt"}, "idempotency_key": "2"}))

    def state(run):
        return ask(f"{api}/flow_runs/{run['id']}")["state"]

    wait_for(lambda: state(refused)["name"] == "Refused")
    assert "plum.txt" in state(refused)["message"]
    wait_for(lambda: runs(project) == ["pear clean"])
    family = psutil.Process(processes[1].pid).children(recursive=True)
    assert family
    os.killpg(processes[1].pid, signal.SIGINT)
    assert processes[1].wait(60) == 130
    said = (project.root / "deploy.log").read_text()
    assert said.splitlines()[-1] == STOPPED_DEPLOYMENT and "Traceback" not in said
    assert psutil.wait_procs(family, timeout=10)[1] == []
    assert state(endless)["type"] == "CANCELLED"
    os.killpg(processes[0].pid, signal.SIGINT)
    assert processes[0].wait(60) == 130
    said = (project.root / "dashboard.log").read_text()
    assert said.splitlines()[-1] == STOPPED_DASHBOARD and "Traceback" not in said


@pytest.mark.slow
def test_a_run_cancelled_by_api_and_a_queued_one_with_a_name(project, processes):
    api = f"http://127.0.0.1:{free_port()}/api"
    processes.append(start(project, "dashboard", "--port", api.split(":")[2].split("/")[0]))
    wait_for(lambda: ask(f"{api}/health"))
    project.inbox_dir.mkdir(parents=True)
    write_scan(project.inbox_dir, "pear.ply", "endless-tetrahedralize")
    write_scan(project.inbox_dir, "fig.ply", "good")
    processes.append(start(project, "deploy", "--name", "lab", "--workers", "1"))
    deployment = wait_for(lambda: ask(f"{api}/deployments/filter", {}))[0]
    asking = f"{api}/deployments/{deployment['id']}/create_flow_run"
    endless = wait_for(lambda: ask(asking, {"parameters": {"scan": "pear.ply"}, "idempotency_key": "1"}))
    wait_for(lambda: runs(project)[-1:] == ["pear tetrahedralize"])
    order = {"parameters": {"scan": "fig.ply", "target": "clean"}, "idempotency_key": "2"}
    queued = wait_for(lambda: ask(asking, order))
    wait_for(lambda: ask(f"{api}/flow_runs/{queued['id']}")["name"] == "fig up to clean")
    assert ask(f"{api}/flow_runs/{queued['id']}")["state"]["type"] in ("SCHEDULED", "PENDING")

    ask(f"{api}/flow_runs/{endless['id']}/set_state", {"state": {"type": "CANCELLING"}})
    wait_for(lambda: ask(f"{api}/flow_runs/{endless['id']}")["state"]["type"] == "CANCELLED")
    of_run = {"flow_runs": {"id": {"any_": [endless["id"]]}}}

    def states():
        found = {task["name"]: task["state"]["type"] for task in ask(f"{api}/task_runs/filter", of_run)}
        return found if "RUNNING" not in found.values() else None

    assert wait_for(states)["tetrahedralize"] == "CANCELLED"
    wait_for(lambda: ask(f"{api}/flow_runs/{queued['id']}")["state"]["type"] == "COMPLETED")
    assert "fig clean" in runs(project), "the queue goes on"
    stages = [
        p for p in psutil.process_iter(["cmdline"]) if str(project.root) in " ".join(p.info["cmdline"] or [])
    ]
    assert not any("stages tetrahedralize" in " ".join(p.info["cmdline"]) for p in stages)


@pytest.mark.slow
def test_a_run_whose_dashboard_is_killed_waits_for_seconds_and_says_so(project, tmp_path, processes):
    api = f"http://127.0.0.1:{free_port()}/api"
    processes.append(start(project, "dashboard", "--port", api.split(":")[2].split("/")[0]))
    wait_for(lambda: ask(f"{api}/health"))
    scan = write_scan(tmp_path, "apple.ply", "good slow-clean")
    processes.append(start(project, "run", str(scan), "--target", "tetrahedralize"))
    wait_for(lambda: runs(project))
    os.killpg(processes[0].pid, signal.SIGKILL)
    began = time.monotonic()
    assert processes[1].wait(LIMIT_S) == 0
    said = (project.root / "run.log").read_text()
    assert time.monotonic() - began < 120.0, "36 s on a machine with work; 260 s with Prefect's own waiting"
    assert f"Lost the Prefect server at {api}; continuing without it." in said
    assert "Traceback" not in said and "EventsWorker" not in said
    assert runs(project) == ["apple clean", "apple tetrahedralize"], "nothing is computed twice"


def look_in_browser(url, summary_id):
    """The summary as a person sees it, if this machine has a browser."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return
    if chromium is None:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(f"{url}/artifacts/artifact/{summary_id}", timeout=120_000)
        link = page.get_by_role("link", name="clean").first
        link.wait_for(timeout=120_000)
        page.goto(str(link.get_attribute("href")), timeout=120_000)
        page.get_by_text("unit text").first.wait_for(timeout=120_000)
        browser.close()


def test_a_wider_bind_without_a_password_ends_before_it_listens(project):
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pipelines.cli.main",
            "dashboard",
            "--host",
            "0.0.0.0",
            "--port",
            str(free_port()),
        ],
        cwd=project.root,
        env={k: v for k, v in environment(project).items() if k != SERVER_AUTH},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 2
    assert SERVER_AUTH in result.stderr


def test_deploy_without_a_dashboard_says_so(project):
    result = subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", "deploy"],
        cwd=project.root,
        env=environment(project) | {"PREFECT_API_URL": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 2
    assert "Start it in another terminal" in result.stderr
