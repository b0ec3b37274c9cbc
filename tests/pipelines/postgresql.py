"""A PostgreSQL server for the length of a test, from the system's own package (Debian: apt-get install postgresql)."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

ACCOUNT = "postgres"
"""PostgreSQL refuses to run as root; Debian's package makes this account."""


def programs() -> Path | None:
    """The folder with initdb and pg_ctl; None if PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return debian[-1].parent if debian else None


def why_not() -> str:
    """Why no server can be started here, in a sentence; empty if one can."""
    if programs() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)."
    if os.geteuid() == 0 and _account() is None:
        return f"PostgreSQL does not run as root, and there is no account {ACCOUNT}."
    return ""


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A new, empty database on a free port of this machine; yields the address that Prefect's server takes."""
    found = programs()
    assert found is not None, why_not()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="scan2cut-pg-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, ACCOUNT)
        data = str(folder / "data")
        _run(found / "initdb", folder, "-D", data, "-U", "lab", "--auth=trust", "-E", "UTF8", "--no-sync")
        options = f"-p {port} -h 127.0.0.1 -k {folder} -F"
        _run(found / "pg_ctl", folder, "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start")
        try:
            yield f"postgresql+asyncpg://lab@127.0.0.1:{port}/postgres"
        finally:
            _run(found / "pg_ctl", folder, "-D", data, "-m", "immediate", "-w", "stop")


def _account() -> str | None:
    try:
        return pwd.getpwnam(ACCOUNT).pw_name
    except KeyError:
        return None


def _run(program: Path, folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        user=ACCOUNT if os.geteuid() == 0 else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{program.name} {' '.join(arguments)}: {done.stderr}"
