"""A simulated Franka arm as a process of its own, for tests that run an export on it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.arm.serve_arm import _server_command, answers

PLACE = Path(os.environ.get("SCAN2CUT_ARM", "nowhere")).absolute()
"""The folder that pipelines.arm.serve_arm made."""
SERVER, CLIENT = (PLACE / name / "bin" / "python" for name in ("server", "client"))

NEEDS_ARM = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "SCAN2CUT_ARM" not in os.environ,
        reason="SCAN2CUT_ARM names no folder that pipelines.arm.serve_arm made",
    ),
]


@contextmanager
def arm(
    place: Path,
    name: str,
    *,
    height_m: float = -1.0,
    force_n: float = 0.0,
    fruit: Path | None = None,
) -> Iterator[None]:
    """A simulated arm at its ready pose that feels force_n while its end effector is below height_m, or the fruit."""
    with (place / "server.log").open("w") as log:
        server = subprocess.Popen(
            _server_command(SERVER, name, place, height_m, force_n, *([fruit] if fruit else [])),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            assert answers(server), (place / "server.log").read_text()[-2000:]
            yield
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
