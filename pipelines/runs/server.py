"""`python -m pipelines.runs.server HOST PORT [--embedded]`: Prefect's server behind a check of request origins.

With --embedded it belongs to the run that started it: it serves no pages and ends when its standard input is closed,
which the kernel does however that run ends. EmbeddedServer starts it.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from pipelines.dvc.repair import check_disk_space
from pipelines.dvc.stopping import STOP, StoppedError, end_child, end_process, say_stopped, stop_on_signals
from pipelines.project import Project

# Origin check. A browser sends a page's requests to any address, including localhost; without the check every web page
# that a user of this machine opens could start runs.


_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_POLICY_VIOLATION = 1008
"""WebSocket close code."""


def loopback_hosts(port: int) -> frozenset[str]:
    """Return the allowed values of the header Host on this machine."""
    return frozenset(f"{name}:{port}" for name in _LOOPBACK_NAMES)


class _OriginGuard:
    """ASGI middleware that passes on only requests from its own address."""

    def __init__(self, app: _App, hosts: frozenset[str] | None) -> None:
        """`hosts` are the allowed values of the header Host; None allows all, for a server with a password."""
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass the request on, or reject it with a message."""
        message = self._rejection(scope) if scope["type"] in ("http", "websocket") else None
        if message is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": message[:120]})
        else:
            await _forbid(message, send)

    def _rejection(self, scope: _Scope) -> str | None:
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        host, origin = headers.get("host", "").lower(), headers.get("origin", "").lower()
        if self._hosts is not None and host not in self._hosts:
            return (
                f"The request is for host {host[:80]!r}. This server only answers for "
                f"{', '.join(sorted(self._hosts))}. Use one of these addresses."
            )
        page = origin.partition("://")[2]
        if origin and page != host and page not in (self._hosts or ()):
            return (
                f"The request comes from a page of {origin[:80]!r}. Only pages of this server may send requests. "
                f"Open http://{host[:80]} instead."
            )
        return None


async def _forbid(message: str, send: _Send) -> None:
    body = json.dumps({"detail": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})


_SHUTDOWN_S = 1
"""Time the server waits for open connections."""
STOPPED = "Stopped the dashboard. Runs continue without it; run the same command to restart it."
_EMBEDDED = "--embedded"
_EMBEDDED_ENVIRONMENT = {
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}
"""Settings that Prefect uses for its ephemeral server."""


def main(arguments: list[str]) -> None:
    """Serve until SIGINT or SIGTERM."""
    host, port = arguments[0], int(arguments[1])
    embedded = _EMBEDDED in arguments
    if embedded:
        os.environ.update(_EMBEDDED_ENVIRONMENT)
        threading.Thread(target=_end_with_standard_input, daemon=True).start()
    else:
        stop_on_signals(lambda: None, STOPPED)
    import prefect
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    # The second user interface advertises itself on every page and calls an analytics host: not even offered.
    prefect.__ui_v2_static_path__ = Path("/nonexistent")

    settings = get_current_settings().server
    is_local = host in ("127.0.0.1", "localhost", "::1")
    app: Any = create_app(final=True)
    if is_local and not embedded:  # elsewhere only Prefect's own pages ask for the password
        from pipelines.runs.dashboard_artifacts import WithLivePage

        app = WithLivePage(app, Project(Path(os.environ["PREFECT_HOME"]).parent))
    serve(
        _OriginGuard(app, loopback_hosts(port) if is_local else None),
        host,
        port,
        keep_alive_s=settings.api.keepalive_timeout,
        log_level="error" if embedded else settings.logging_level.lower(),
    )


def serve(app: _App, host: str, port: int, *, keep_alive_s: int, log_level: str) -> None:
    """Serve the application until a signal; then end this process without waiting for the application."""
    import uvicorn

    uvicorn.run(
        app,
        host=host,
        port=port,
        lifespan="on",
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        log_level=log_level,
    )
    if STOP.is_set():
        say_stopped()
        end_process()


def _end_with_standard_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])


# Embedded server of a run, used when no dashboard is running.


_HOST = "127.0.0.1"
_START_LIMIT_S = 600.0
"""Timeout for a server that hangs at start-up. Starting takes 18 s on an idle machine, minutes on an overloaded one; a
server that exits is detected immediately."""
_END_LIMIT_S = 3.0
_POLL_S = 0.1
_DATABASE_VARIABLES = ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL")


class ServerError(RuntimeError):
    """Prefect's server can't start; the message gives reason and remedy."""


class EmbeddedServer:
    """Prefect server of this process; started on first use, restarted at the same address if it dies.

    Prefect's client retries for a minute, so a run survives a restart.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""
        """URL of its API, once it has been started."""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        """Set when the server was ended intentionally."""

    def url(self, project: Project) -> str:
        """Return the API's URL; start the server if necessary."""
        self._ended.clear()
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                check_home(Path(os.environ.get("PREFECT_HOME", project.prefect_home)))
                self._start(project, _free_port())
            return self.address

    def end(self) -> None:
        """Terminate the server; kill it after _END_LIMIT_S."""
        self._ended.set()
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        end_child(process, _END_LIMIT_S)

    def kill(self) -> None:
        """Kill the server."""
        self._ended.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _start(self, project: Project, port: int) -> None:
        with tempfile.TemporaryFile() as output:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "pipelines.runs.server", _HOST, str(port), _EMBEDDED],
                env={**os.environ, "PREFECT_API_URL": ""},
                stdin=subprocess.PIPE,  # never written to; the server ends when it is closed
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C must not end the server before the run is reported to it
            )
            self.address = f"http://{_HOST}:{port}/api"
            atexit.register(self.end)
            end = time.monotonic() + _START_LIMIT_S
            while not answers(self.address):
                if STOP.is_set() or self._ended.is_set():
                    self.kill()
                    raise StoppedError
                is_late = time.monotonic() > end
                if process.poll() is not None or is_late:
                    end_child(process)
                    output.seek(0)
                    raise ServerError(
                        _start_failure(project, output.read().decode(errors="replace"), is_late=is_late)
                    )
                time.sleep(_POLL_S)
        threading.Thread(target=self._replace, args=(process, project, port), daemon=True).start()

    def _replace(self, process: subprocess.Popen[bytes], project: Project, port: int) -> None:
        """Restart the server when it dies, unless it was ended or replaced; give up if it can't start."""
        process.wait()
        with self._lock, contextlib.suppress(ServerError, StoppedError, OSError):
            if self._process is process and not (self._ended.is_set() or STOP.is_set()):
                self._start(project, port)


EMBEDDED_SERVER = EmbeddedServer()


def answers(url: str, timeout_s: float = 5.0) -> bool:
    """Return whether a healthy Prefect API answers at the URL."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=timeout_s):
            return True
    except (OSError, urllib.error.URLError, ValueError):
        return False


def check_home(home: Path) -> None:
    """Raise OSError or ServerError if Prefect can't use the folder; Prefect itself would retry for minutes."""
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # another user's folder
        home.chmod(0o700)  # run history, logs and settings are nobody else's
    with tempfile.TemporaryFile(dir=home):
        pass
    check_disk_space(home)
    database = home / "prefect.db"
    if any(os.environ.get(name) for name in _DATABASE_VARIABLES) or not database.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(database, timeout=5.0)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise ServerError(_unreadable(database, error)) from error
    except sqlite3.DatabaseError as error:
        raise ServerError(_unreadable(database, error)) from error


def _unreadable(database: Path, error: Exception) -> str:
    return (
        f"Prefect's run history {database} can't be read ({error}). It must be a SQLite database. Move the file away; "
        "a new one is created. It contains no scans or results."
    )


def _start_failure(project: Project, output: str, *, is_late: bool) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    reason = lines[-1][:300] if lines else "no output"
    if is_late:
        return (
            f"Prefect's server did not answer within {_START_LIMIT_S:.0f} s ({reason}). A run needs it. If the machine "
            "is overloaded, try again later, or keep a server running with 'scan2cut dashboard'."
        )
    return (
        f"Prefect's server did not start ({reason}). It needs a free port and {project.prefect_home}. If the error "
        "persists, move that folder away; it contains only the run history."
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
