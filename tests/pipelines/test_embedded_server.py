"""The server process of a run, with a few lines in the place of Prefect's application: it is up in a second."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psutil
import pytest

from pipelines.runs.server import EmbeddedServer, answers
from tests.pipelines.tiny_project import ROOT

LIMIT_S = 120.0
"""Some seconds on a machine that has nothing else to do."""
APPLICATION = """
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

def create_app(final):
    return application
"""
SETTINGS = """
from types import SimpleNamespace

def get_current_settings():
    return SimpleNamespace(server=SimpleNamespace(api=SimpleNamespace(keepalive_timeout=5), logging_level="ERROR"))
"""
RUN = """
import sys, time
from pathlib import Path
from pipelines.runs.server import EmbeddedServer
from pipelines.project import Project
server = EmbeddedServer()
server.url(Project(Path(sys.argv[1])))
print(server._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def light(project, tmp_path, monkeypatch):
    """The project; processes that are started from here find a small `prefect` before the real one."""
    api = tmp_path / "light" / "prefect" / "server" / "api"
    api.mkdir(parents=True)
    for folder in (api, api.parent, api.parents[1]):
        (folder / "__init__.py").touch()
    (api / "server.py").write_text(APPLICATION)
    (api.parents[1] / "settings.py").write_text(SETTINGS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "light"), str(ROOT)]))
    monkeypatch.setenv("PREFECT_HOME", str(project.prefect_home))
    return project


def test_it_ends_with_its_run_however_that_ends(light):
    """kill -9 leaves the run no time to say anything."""
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, light.root],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    server = psutil.Process(int(run.stdout.readline()))
    try:
        assert os.getpgid(server.pid) != os.getpgid(run.pid), "Ctrl-C of a terminal reaches the run alone"
        run.kill()
        run.wait()
        assert psutil.wait_procs([server], timeout=30)[1] == []
    finally:
        if server.is_running():
            server.kill()


def test_it_answers_this_machine_alone_and_comes_up_again_at_its_address(light):
    server = EmbeddedServer()
    try:
        url = server.url(light)
        assert answers(url) and server.url(light) == url
        for header in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            request = urllib.request.Request(f"{url}/health", headers=header)
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(request, timeout=60)
        first = server._process
        first.kill()
        end = time.monotonic() + LIMIT_S
        while (server._process is first or not answers(url)) and time.monotonic() < end:
            time.sleep(0.05)
        assert server._process is not first and server.url(light) == url, (
            "another one, which nobody asked for"
        )
    finally:
        second = server._process
        server.end()
    assert second.poll() is not None
    time.sleep(0.5)
    assert server._process is None and not answers(url), "one that was ended stays away"
