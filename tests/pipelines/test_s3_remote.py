"""A DVC remote over the S3 protocol, with a real server (moto's) in a process of its own."""

import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.util import find_spec

import pytest

from pipelines.dvc.commands import CommandError, cache_dir
from pipelines.dvc.pipeline_file import read_template
from pipelines.dvc.stage import bring_up_to_date
from pipelines.runs.server import _free_port
from pipelines.scans.register import Request, register_scan, track_raw_files
from pipelines.versions.reproduce import pull
from tests.pipelines.test_dvc_stage import outputs
from tests.pipelines.test_history_of_data import clone_at, tag
from tests.pipelines.tiny_project import dvc, runs, write_scan

MISSING = [name for name in ("moto", "flask", "dvc_s3") if find_spec(name) is None]
BUCKET = "lab"
LIMIT_S = 60.0
SECRET = "a-secret-of-this-test"


@pytest.fixture
def s3(tmp_path, monkeypatch):
    """The server's address; keys are in the environment, as docs/operations.md says."""
    for name, value in (
        ("ACCESS_KEY_ID", "lab"),
        ("SECRET_ACCESS_KEY", SECRET),
        ("DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    with (tmp_path / "moto.txt").open("wb") as said:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        make_bucket(address)
        yield address, server
    finally:
        server.kill()
        server.wait()


def make_bucket(address):
    """PUT /bucket; the server needs some seconds to come up."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
            with urllib.request.urlopen(request, timeout=LIMIT_S):
                return
        except urllib.error.URLError:
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.endurance
@pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (pip install 'moto[s3,server]' dvc-s3)"
)
def test_push_fresh_clone_pull_repro(project, tmp_path, s3):
    address, server = s3
    assert dvc(project, "remote", "add", "--default", "lab", f"s3://{BUCKET}/scan2cut").returncode == 0
    assert dvc(project, "remote", "modify", "lab", "endpointurl", address).returncode == 0
    assert SECRET not in (project.root / ".dvc" / "config").read_text()
    register_scan(
        project, Request(write_scan(tmp_path, "apple.ply", "good words"), write_scan(tmp_path, "l.json"))
    )
    for entry in read_template(project.template):
        bring_up_to_date(project, "apple", entry)
    track_raw_files(project, "apple")
    assert dvc(project, "repro").returncode == 0
    tag(project, "v1")
    good = outputs(project)
    pushed = dvc(project, "push", "--all-tags")
    assert pushed.returncode == 0 and "pushed" in pushed.stdout, pushed.stderr
    shutil.rmtree(cache_dir(project))

    for fetch in (lambda clone: pull(clone, []), lambda clone: dvc(clone, "pull")):
        clone = clone_at(project, tmp_path / "clone", "v1")
        assert not (clone.scan_dir("apple") / "apple.ply").exists()
        fetch(clone)
        assert outputs(clone) == good, "byte for byte"
        assert (clone.scan_dir("apple") / "apple.ply").read_text() == "good words"
        recorded = runs(clone)
        assert dvc(clone, "repro").returncode == 0
        assert runs(clone) == recorded, "nothing ran"
        shutil.rmtree(clone.root)

    clone = clone_at(project, tmp_path / "clone", "v1")
    server.kill()
    server.wait()
    with pytest.raises(CommandError) as caught:
        pull(clone, [])
    assert SECRET not in str(caught.value)
