"""The Prefect dashboard on this machine only, and finding the one that runs."""

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import NoReturn

from pipelines.project import Project

HOST = "127.0.0.1"
HEALTH_TIMEOUT_S = 1.0


def serve_dashboard(project: Project, port: int) -> NoReturn:
    """Become `prefect server start` on the loopback, after noting its address for later runs."""
    url = f"http://{HOST}:{port}/api"
    project.prefect_home.mkdir(exist_ok=True)
    _note(project).write_text(url, encoding="utf-8")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    os.execve(sys.executable, command, {**os.environ, "PREFECT_SERVER_UI_API_URL": url})


def use_running_dashboard(project: Project) -> str | None:
    """Point Prefect at this project's dashboard if it answers; otherwise the embedded API is used."""
    if os.environ.get("PREFECT_API_URL"):
        return os.environ["PREFECT_API_URL"]
    if not _note(project).exists():
        return None
    url = _note(project).read_text(encoding="utf-8").strip()
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=HEALTH_TIMEOUT_S):
            os.environ["PREFECT_API_URL"] = url
            return url
    except (OSError, urllib.error.URLError):
        return None


def _note(project: Project) -> Path:
    return project.prefect_home / "dashboard_url"
