"""The Prefect dashboard: on this machine only, or wider with an auth string; and finding the one that runs."""

import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from pipelines.project import Project
from pipelines.runs.server import EMBEDDED_SERVER, answers, check_home, loopback_hosts
from stages.runtime.errors import InputError

HOST = "127.0.0.1"
_API_VARIABLE = "PREFECT_API_URL"
_CHOSEN_HERE: set[str] = set()
"""Addresses that this module put there, not the user."""
SERVER_AUTH, CLIENT_AUTH = "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"
"""Secrets are read from the environment only: arguments are visible to every user of the machine."""
_MIN_PASSWORD = 12


def serve_dashboard(
    project: Project, port: int, host: str = HOST, say: Callable[[str], None] = lambda sentence: None
) -> NoReturn:
    """Become Prefect's server, after noting its address for later runs."""
    extra = server_environment(host, port, os.environ)
    _check_port(host, port)
    local = HOST if _is_loopback(host) or host in ("0.0.0.0", "::") else host
    url = f"http://{local}:{port}/api"
    check_home(project.prefect_home)
    say(f"The dashboard comes up at http://{host}:{port} (Ctrl-C stops it).")
    _note(project).write_text(url, encoding="utf-8")
    command = [sys.executable, "-m", "pipelines.runs.server", host, str(port)]
    page_url = url if _is_loopback(host) else "/api"
    os.execve(sys.executable, command, {**os.environ, **extra, "PREFECT_SERVER_UI_API_URL": page_url})


def server_environment(host: str, port: int, environment: Mapping[str, str]) -> dict[str, str]:
    """What a server on this address needs; InputError for a wider address without an auth string."""
    guarded = {"PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true"}
    if _is_loopback(host):
        pages = ",".join(f"http://{name}" for name in sorted(loopback_hosts(port)))
        return {**guarded, "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": pages}
    user, colon, password = environment.get(SERVER_AUTH, "").partition(":")
    if not (user and colon and len(password) >= _MIN_PASSWORD):
        raise InputError(
            f"--host {host} lets other machines start runs here. That needs {SERVER_AUTH}=user:password in the "
            f"environment, with a password of {_MIN_PASSWORD} characters or more. Set it, or leave --host out."
        )
    return {**guarded, "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{host}:{port}"}


def _check_port(host: str, port: int) -> None:
    if not 1 <= port <= 65535:
        raise InputError(f"--port is {port}. A port is a number from 1 to 65535. Give another, e.g. 4200.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InputError(
            f"{host}:{port} can't be listened on ({error.strerror or error}). A dashboard needs a free port of this "
            "machine. If one runs there already, use it; else give another --port."
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def use_running_dashboard(project: Project) -> str | None:
    """The API that the user named, or this project's dashboard if it answers; Prefect is pointed at it."""
    if os.environ.get(SERVER_AUTH):
        os.environ.setdefault(CLIENT_AUTH, os.environ[SERVER_AUTH])
    named = os.environ.get(_API_VARIABLE)
    if named and named not in _CHOSEN_HERE:
        return named
    url = _note(project).read_text(encoding="utf-8").strip() if _note(project).exists() else ""
    if not (url and answers(url)):
        return None
    _point_prefect_at(url)
    return url


def api_url(project: Project) -> str:
    """An API of Prefect that answers: the user's, the dashboard's, else one that is started for this process."""
    found = use_running_dashboard(project)
    if found is None:
        os.environ.pop(_API_VARIABLE, None)
        found = _url_of_prefect_itself()
    if found is None:
        found = EMBEDDED_SERVER.url(project)
        _point_prefect_at(found)
    return found


def is_chosen_here(url: str) -> bool:
    """True if it may be exchanged for another: the user did not name it."""
    return url in _CHOSEN_HERE


def _point_prefect_at(url: str) -> None:
    _CHOSEN_HERE.add(url)
    os.environ[_API_VARIABLE] = url


def _url_of_prefect_itself() -> str | None:
    """From Prefect's own profiles, or from its test harness."""
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    return None if url is None or url in _CHOSEN_HERE else url


def _note(project: Project) -> Path:
    return project.prefect_home / "dashboard_url"
