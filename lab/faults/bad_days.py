"""Whole runs on a bad day: python -m lab.faults.bad_days [WORD ...] [--faketime libfaketime.so.1]

Stand-in stages, everything else as ever: `scan2cut run` with DVC, Prefect and the report. Each day is a function below;
words choose days by name. A day that goes wrong is printed with what was said last; the exit code is their number.
The days on small disks need the right to mount; the clock's days need libfaketime (`pip download libfaketime`, unpack).
"""

import argparse
import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.dvc.pipeline_file import needed_for, read_template
from pipelines.dvc.repair import damaged, recorded_outputs
from pipelines.project import Project
from tests.pipelines.tiny_project import environment, make_tiny_project, runs, write_scan

LIMIT_S = 240.0
TARGET = "precut"
STAGES = ("clean", "tetrahedralize", "precut")


class Bad(Exception):  # noqa: N818 -- a bad day, not an error of this program
    """What went wrong."""


class Day:
    """A project of its own and the commands that run in it."""

    def __init__(self, folder: Path, faketime: str | None = None) -> None:
        self.folder, self.faketime = folder, faketime
        self.project: Project = make_tiny_project(folder)
        self._count = 0
        self._logs = Path(tempfile.mkdtemp(prefix="scan2cut-said-"))  # not on a disk that will be full
        self.environment = environment(self.project) | {"PREFECT_API_URL": ""}

    def start(self, *arguments: str, **extra: str) -> "Command":
        """Start a command of scan2cut."""
        self._count += 1
        log = self._logs / f"{self._count}.txt"
        return Command([sys.executable, "-m", "pipelines.cli.main", *arguments], self, log, extra)

    def dvc(self, *arguments: str) -> "Command":
        """Start dvc."""
        self._count += 1
        return Command([sys.executable, "-m", "dvc", *arguments], self, self._logs / f"{self._count}.txt", {})

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it."""
        end = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end:
                raise Bad(f"{what} did not happen")
            time.sleep(0.05)

    def check_results(self) -> None:
        """Every stage up to the target is recorded and whole."""
        for entry in needed_for(TARGET, read_template(self.project.template)):
            recorded = recorded_outputs(self.project, "apple", entry.name)
            if not recorded or damaged(recorded):
                raise Bad(f"{entry.name}: {'damaged' if recorded else 'not recorded'}")
        left = [p.name for p in self.project.scan_dir("apple").glob(".[sk]*")]
        if left:
            raise Bad(f"left behind: {left}")


class Command:
    """A running command."""

    def __init__(self, command: list[str], day: Day, log: Path, extra: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                cwd=day.project.root,
                env={**day.environment, **extra},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """Output so far."""
        return self._log.read_text(errors="replace")

    def ends(self, *codes: int, words: str = "") -> "Command":
        """Wait; exit code and words must be as expected, and there is no traceback."""
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise Bad(f"it hangs; it said: {self.said[-800:]}") from None
        if code not in codes or words.lower() not in self.said.lower() or "Traceback" in self.said:
            raise Bad(f"exit code {code}, expected {codes} with {words!r}; it said: {self.said[-1500:]}")
        return self


def scan_of(day: Day, text: str = "good slow-clean slow-tetrahedralize slow-precut") -> str:
    return str(write_scan(day.folder, "apple.ply", text))


def two_runs_and_dvc(day: Day) -> None:
    """Two runs of one scan, `dvc status`, `dvc repro` and `dvc gc` beside them."""
    scan = scan_of(day)
    first = day.start("run", scan, "--target", TARGET)
    day.until(lambda: runs(day.project), "a stage")
    second = day.start("run", scan, "--target", TARGET)
    address = "data/scans/apple/dvc.yaml"
    beside = [day.dvc("status", address), day.dvc("repro", address), day.start("status")]
    first.ends(0)
    second.ends(0)
    for command in beside[:2]:  # dvc may say that the scan is busy
        command.ends(0, 255, 1)
    beside[2].ends(0)
    day.check_results()
    twice = [line for line in set(runs(day.project)) if runs(day.project).count(line) > 1]
    if twice:
        raise Bad(f"computed twice: {twice}")


def raw_scan_deleted(day: Day) -> None:
    """The raw scan disappears while the first stage runs; restored, the run goes on."""
    scan = scan_of(day)
    run = day.start("run", scan, "--target", TARGET)
    day.until(lambda: runs(day.project), "a stage")
    raw = day.project.scan_dir("apple") / "apple.ply"
    content = raw.read_bytes()
    raw.unlink()
    run.ends(1, 2, words="apple.ply")
    raw.parent.mkdir(exist_ok=True)
    day.start("run", scan, "--target", TARGET).ends(0)
    if raw.read_bytes() != content:
        raise Bad("another raw scan")
    day.check_results()


def artifact_deleted(day: Day) -> None:
    """A table disappears while the stage that reads it runs."""
    scan = scan_of(day)
    run = day.start("run", scan, "--target", TARGET)
    day.until(lambda: "apple tetrahedralize" in runs(day.project), "tetrahedralize")
    (day.project.scan_dir("apple") / "clean" / "faces.parquet").unlink()
    run.ends(0, 1, 2)  # a message, if the stage reads it after that
    day.start("run", scan, "--target", TARGET).ends(0)
    day.check_results()


def scan_yaml_deleted(day: Day) -> None:
    """scan.yaml disappears while a stage runs."""
    scan = scan_of(day)
    run = day.start("run", scan, "--target", TARGET)
    day.until(lambda: "apple tetrahedralize" in runs(day.project), "tetrahedralize")
    (day.project.scan_dir("apple") / "scan.yaml").unlink()
    run.ends(1, 2, words="scan.yaml")
    day.start("run", scan, "--target", TARGET).ends(0)
    day.check_results()


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Leave no free byte."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 20))
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))
    return filler


def disk_filled(day: Day) -> None:
    """The disk of the whole project fills while a stage runs; with space again the run goes on."""
    scan = scan_of(day)
    run = day.start("run", scan, "--target", TARGET)
    day.until(lambda: "apple tetrahedralize" in runs(day.project), "tetrahedralize")
    filler = fill(day.folder)
    run.ends(1, 2, words="disk")
    day.start("run", scan, "--target", TARGET).ends(1, words="disk is full")
    filler.unlink()
    day.start("run", scan, "--target", TARGET).ends(0)
    day.check_results()


def authenticated_server(day: Day) -> None:
    """A dashboard on 0.0.0.0: nothing without the password, runs with it; a wrong one is a message."""
    port = 42917
    password = {"PREFECT_SERVER_API_AUTH_STRING": "lab:a-long-password"}
    day.start("dashboard", "--host", "0.0.0.0", "--port", str(port)).ends(2, words="AUTH_STRING")
    server = day.start("dashboard", "--host", "0.0.0.0", "--port", str(port), **password)
    api, good = f"http://127.0.0.1:{port}/api", "lab:a-long-password"

    def ask(path: str, auth: str | None, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(
            f"{api}/{path}", data, {"Content-Type": "application/json", **headers}
        )
        if auth:
            request.add_header("Authorization", "Basic " + base64.b64encode(auth.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, b""
        except OSError:
            return 0, b""

    try:
        day.until(lambda: ask("admin/version", good)[0] == 200, "the server")
        found = {auth: ask("admin/version", auth)[0] for auth in (None, "lab:wrong", "lab:", good)}
        if list(found.values()) != [401, 401, 401, 200] or ask("flow_runs/filter", None, b"{}")[0] not in (
            401,
            403,
        ):
            raise Bad(f"answers {found}")
        scan = scan_of(day, "good")
        day.start("run", scan, "--target", "clean", **password).ends(0)
        token = json.loads(ask("csrf-token?client=day", good)[1])["token"]
        headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "day"}
        if json.loads(ask("flow_runs/count", good, b"{}", **headers)[1]) < 1:
            raise Bad("the run is not in the dashboard")
        wrong = {"PREFECT_API_AUTH_STRING": "lab:wrong"}
        day.start("run", scan, "--target", "clean", **wrong).ends(1, 2, words="AUTH_STRING")
    finally:
        os.killpg(server.process.pid, signal.SIGTERM)
        server.process.wait(30)


def clock_jumps(day: Day) -> None:
    """The clock jumps two hours ahead in one stage, and a day back in the next."""
    if not day.faketime:
        raise Bad("not tried: --faketime names no library")
    clock = day.folder / "clock"
    clock.write_text("+0")
    fake = {
        "LD_PRELOAD": day.faketime,
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    scan = scan_of(day)
    run = day.start("run", scan, "--target", TARGET, **fake)
    day.until(lambda: runs(day.project), "a stage")
    clock.write_text("+7200")
    day.until(lambda: "apple tetrahedralize" in runs(day.project), "tetrahedralize")
    clock.write_text("-86400")
    run.ends(0)
    day.start("run", scan, "--target", TARGET).ends(0)
    day.check_results()
    if len(runs(day.project)) != len(STAGES):
        raise Bad(f"stages ran: {runs(day.project)}")


def killed_in_late_stages(day: Day) -> None:
    """kill -9 of everything in optimize, replay and export; the next run ends well and repeats no other stage."""
    text = "good slow-optimize slow-replay slow-export"
    scan = scan_of(day, text)
    for stage in ("optimize", "replay", "export"):
        run = day.start("run", scan)
        day.until(lambda stage=stage: f"apple {stage}" in runs(day.project), stage)  # type: ignore[misc]
        time.sleep(0.7)
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
    day.start("run", scan).ends(0)
    for entry in read_template(day.project.template):
        if damaged(recorded_outputs(day.project, "apple", entry.name)):
            raise Bad(f"{entry.name} is damaged")
    counted = {line: runs(day.project).count(line) for line in runs(day.project)}
    repeated = {line.split()[1] for line, count in counted.items() if count > 1}
    if not repeated <= {"optimize", "replay", "export"}:
        raise Bad(f"repeated: {repeated}")


DAYS: tuple[Callable[[Day], None], ...] = (
    two_runs_and_dvc,
    raw_scan_deleted,
    artifact_deleted,
    scan_yaml_deleted,
    disk_filled,
    authenticated_server,
    clock_jumps,
    killed_in_late_stages,
)


def main() -> int:
    """Number of bad days."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*")
    parser.add_argument("--faketime")
    options = parser.parse_args()
    bad = 0
    for play in DAYS:
        if options.words and not any(word in play.__name__ for word in options.words):
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="scan2cut-day-") as name, contextlib.ExitStack() as stack:
            if play is disk_filled:
                stack.enter_context(small_disk(Path(name), 400))
            try:
                play(Day(Path(name), options.faketime))
                result = "ok  "
            except Bad as error:
                bad += 1
                result = f"BAD   {error}\n     "
        print(f"{result}  {play.__name__}  {time.monotonic() - began:.0f} s", flush=True)
    return bad


if __name__ == "__main__":
    raise SystemExit(main())
