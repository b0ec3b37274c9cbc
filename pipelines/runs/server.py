"""`python -m pipelines.runs.server HOST PORT [--embedded]`: Prefect's server behind the guard of origins.

With --embedded it belongs to the run that started it: without pages, and it ends when its standard input does, which
the kernel closes however that run dies.
"""

import os
import sys
import threading

from pipelines.dvc.stopping import STOP, end_process, say_stopped, stop_on_signals
from pipelines.runs.origin_guard import App, OriginGuard, loopback_hosts

SHUTDOWN_S = 1
"""Open pages hold their connections; the server does not wait longer for them."""
STOPPED = "The dashboard has ended; runs go on without it, and the same command starts it again."
EMBEDDED = "--embedded"
EMBEDDED_ENVIRONMENT = {
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT__SERVER_EPHEMERAL": "1",
    "PREFECT__SERVER_FINAL": "1",
}
"""What Prefect sets for the server that it would start inside a run."""


def main(arguments: list[str]) -> None:
    """Serve until SIGINT or SIGTERM."""
    host, port = arguments[0], int(arguments[1])
    embedded = EMBEDDED in arguments
    if embedded:
        os.environ.update(EMBEDDED_ENVIRONMENT)
        threading.Thread(target=_end_with_standard_input, daemon=True).start()
    else:
        stop_on_signals(lambda: None, STOPPED)
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    settings = get_current_settings().server
    is_local = host in ("127.0.0.1", "localhost", "::1")
    serve(
        OriginGuard(create_app(final=True), loopback_hosts(port) if is_local else None),
        host,
        port,
        keep_alive_s=settings.api.keepalive_timeout,
        log_level="error" if embedded else settings.logging_level.lower(),
    )


def serve(app: App, host: str, port: int, *, keep_alive_s: int, log_level: str) -> None:
    """Serve the application until a signal; then this process ends, however long the application would take."""
    import uvicorn

    uvicorn.run(
        app,
        host=host,
        port=port,
        lifespan="on",
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=SHUTDOWN_S,
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
