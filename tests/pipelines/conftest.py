"""Fixtures: a tiny project, and one Prefect test server for the session."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.project import Project, apply_environment
from tests.pipelines.tiny_project import make_real_project, make_tiny_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A fresh tiny project, with this process set up as `scan2cut` would."""
    return entered(make_tiny_project(new_folder(tmp_path)), monkeypatch)


@pytest.fixture
def real_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The same with the real stages; they take minutes even with the settings LIGHT."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return entered(make_real_project(new_folder(tmp_path)), monkeypatch)


def new_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def entered(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Set this process up as `scan2cut` would."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for variable in ("PATH", "PREFECT_HOME"):
        monkeypatch.setenv(variable, os.environ.get(variable, str(project.root / ".prefect")))
    apply_environment(project)
    return project


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """Prefect's own test harness: a temporary database and an API in this process (about 17 s to start, or minutes)."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=900):
        yield


@pytest.fixture
def comes_to_an_end() -> Iterator[None]:
    """A test that would wait for ever fails after two minutes instead."""

    def give_up(*_signal: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
