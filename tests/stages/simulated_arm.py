"""A simulated Franka arm as a process of its own, for tests that run an export on it."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from scripts.serve_arm import server_command

PLACE = Path(os.environ.get("SCAN2CUT_ARM", "nowhere")).absolute()
"""The folder that scripts.serve_arm made."""
SERVER, CLIENT = (PLACE / name / "bin" / "python" for name in ("server", "client"))
PORT = 1337
"""libfranka knows no other."""

NEEDS_ARM = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "SCAN2CUT_ARM" not in os.environ, reason="SCAN2CUT_ARM names no folder that scripts.serve_arm made"
    ),
]


@contextmanager
def arm(
    place: Path, name: str, *, height_m: float = -1.0, force_n: float = 0.0, reflex_n: float = np.inf
) -> Iterator[None]:
    """A simulated arm at its ready pose that feels force_n while its end effector is below height_m."""
    with (place / "server.log").open("w") as log:
        server = subprocess.Popen(
            server_command(SERVER, name, place, height_m, force_n, reflex_n),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + 60.0
            while time.monotonic() < deadline and server.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                        break
                time.sleep(0.2)
            assert server.poll() is None, (place / "server.log").read_text()[-2000:]
            time.sleep(1.0)
            yield
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
