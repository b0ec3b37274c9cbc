"""The Prefect dashboard on this machine only, and finding the one that runs."""

import os
import subprocess
import sys
import urllib.error
import urllib.request

from pipelines.project import Project

HOST = "127.0.0.1"
HEALTH_TIMEOUT_S = 1.0


def serve_dashboard(project: Project, port: int) -> int:
    """Run `prefect server start` on the loopback until it is stopped; returns its exit code."""
    url = f"http://{HOST}:{port}/api"
    project.prefect_home.mkdir(exist_ok=True)
    note = project.prefect_home / "dashboard_url"
    note.write_text(url, encoding="utf-8")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    try:
        return subprocess.run(command, cwd=project.root, check=False).returncode
    except KeyboardInterrupt:
        return 0
    finally:
        note.unlink(missing_ok=True)


def use_running_dashboard(project: Project) -> str | None:
    """Point Prefect at this project's dashboard if it answers; otherwise the embedded API is used."""
    if os.environ.get("PREFECT_API_URL"):
        return os.environ["PREFECT_API_URL"]
    note = project.prefect_home / "dashboard_url"
    if not note.exists():
        return None
    url = note.read_text(encoding="utf-8").strip()
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=HEALTH_TIMEOUT_S):
            os.environ["PREFECT_API_URL"] = url
            return url
    except (OSError, urllib.error.URLError):
        return None
