"""The Prefect dashboard: on this machine only, or wider with an auth string; and finding the one that runs."""

import ipaddress
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from disect_sim.errors import InputError
from pipelines.scans.project import Project

HOST = "127.0.0.1"
HEALTH_TIMEOUT_S = 5.0
"""A busy server answers late; a dead one refuses the connection at once."""
SERVER_AUTH, CLIENT_AUTH = "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"
"""Secrets are read from the environment only: arguments are visible to every user of the machine."""
MIN_PASSWORD = 12


def serve_dashboard(project: Project, port: int, host: str = HOST) -> NoReturn:
    """Become `prefect server start`, after noting its address for later runs."""
    extra = server_environment(host, os.environ)
    local = HOST if _is_loopback(host) or host in ("0.0.0.0", "::") else host
    url = f"http://{local}:{port}/api"
    project.prefect_home.mkdir(exist_ok=True)
    _note(project).write_text(url, encoding="utf-8")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)]
    page_url = url if _is_loopback(host) else "/api"
    os.execve(sys.executable, command, {**os.environ, **extra, "PREFECT_SERVER_UI_API_URL": page_url})


def server_environment(host: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What a server on this address needs; InputError for a wider address without an auth string."""
    if _is_loopback(host):
        return {}
    user, colon, password = environment.get(SERVER_AUTH, "").partition(":")
    if not (user and colon and len(password) >= MIN_PASSWORD):
        raise InputError(
            f"--host {host} lets other machines start runs here. That needs {SERVER_AUTH}=user:password in the "
            f"environment, with a password of {MIN_PASSWORD} characters or more. Set it, or leave --host out."
        )
    return {"PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true"}


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def use_running_dashboard(project: Project) -> str | None:
    """Point Prefect at this project's dashboard if it answers; otherwise the embedded API is used."""
    if os.environ.get(SERVER_AUTH):
        os.environ.setdefault(CLIENT_AUTH, os.environ[SERVER_AUTH])
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
