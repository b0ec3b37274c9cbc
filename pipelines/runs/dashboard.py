"""Serve the Prefect dashboard (other machines' access requires an auth string) and find the running one."""

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
"""API addresses set by this module, not by the user."""
SERVER_AUTH, CLIENT_AUTH = "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"
"""Secrets come only from the environment: arguments are visible to all users of the machine."""
_MIN_PASSWORD = 12


def serve_dashboard(
    project: Project, port: int, host: str = HOST, say: Callable[[str], None] = lambda message: None
) -> NoReturn:
    """Record the dashboard's address for later runs and replace this process by Prefect's server."""
    extra = _server_environment(host, port, os.environ)
    _check_port(host, port)
    local = HOST if _is_loopback(host) or host in ("0.0.0.0", "::") else host
    url = f"http://{local}:{port}/api"
    check_home(project.prefect_home)
    say(f"Starting the dashboard at http://{host}:{port}. Press Ctrl-C to stop.")
    if _is_loopback(host):
        say(f"Running scans with their live pictures: http://{host}:{port}/live")
    _note(project).write_text(url, encoding="utf-8")
    command = [sys.executable, "-m", "pipelines.runs.server", host, str(port)]
    page_url = url if _is_loopback(host) else "/api"
    os.execve(sys.executable, command, {**os.environ, **extra, "PREFECT_SERVER_UI_API_URL": page_url})


def _server_environment(host: str, port: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the server's environment; raise InputError for a non-local address without an auth string."""
    guarded = {"PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true"}
    if _is_loopback(host):
        pages = ",".join(f"http://{name}" for name in sorted(loopback_hosts(port)))
        return {**guarded, "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": pages}
    user, colon, password = environment.get(SERVER_AUTH, "").partition(":")
    if not (user and colon and len(password) >= _MIN_PASSWORD):
        raise InputError(
            f"--host {host} allows other machines to start runs here. This requires {SERVER_AUTH}=user:password in the "
            f"environment, with a password of at least {_MIN_PASSWORD} characters. Set it, or omit --host."
        )
    return {**guarded, "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{host}:{port}"}


def _check_port(host: str, port: int) -> None:
    if not 1 <= port <= 65535:
        raise InputError(f"--port is {port}. It must be from 1 to 65535. Choose another, e.g. 4200.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InputError(
            f"Can't listen on {host}:{port} ({error.strerror or error}). The dashboard needs a free port on this "
            "machine. If it is already running there, use it; otherwise choose another --port."
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def use_running_dashboard(project: Project) -> str | None:
    """Configure Prefect for the API set by the user or this project's dashboard; return its URL, None if neither."""
    if os.environ.get(SERVER_AUTH):
        os.environ.setdefault(CLIENT_AUTH, os.environ[SERVER_AUTH])
    user_url = os.environ.get(_API_VARIABLE)
    if user_url and user_url not in _CHOSEN_HERE:
        return user_url
    url = _note(project).read_text(encoding="utf-8").strip() if _note(project).exists() else ""
    if not (url and answers(url)):
        return None
    _point_prefect_at(url)
    return url


def api_url(project: Project) -> str:
    """Return the URL of a Prefect API: the user's, the dashboard's, or one started for this process."""
    url = use_running_dashboard(project)
    if url is None:
        os.environ.pop(_API_VARIABLE, None)
        url = _url_of_prefect_itself()
    if url is None:
        url = EMBEDDED_SERVER.url(project)
        _point_prefect_at(url)
    return url


def is_chosen_here(url: str) -> bool:
    """Return whether this module chose the URL, so that it may be replaced."""
    return url in _CHOSEN_HERE


def is_embedded(url: str) -> bool:
    """Return whether the URL is that of this process's own server."""
    return url == EMBEDDED_SERVER.address


def _point_prefect_at(url: str) -> None:
    _CHOSEN_HERE.add(url)
    os.environ[_API_VARIABLE] = url


def _url_of_prefect_itself() -> str | None:
    """Return the URL from Prefect's profiles or its test harness."""
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    return None if url is None or url in _CHOSEN_HERE else url


def _note(project: Project) -> Path:
    return project.prefect_home / "dashboard_url"
