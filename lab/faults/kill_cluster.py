"""A lab of several machines: python -m lab.faults.kill_cluster [--workers 5] [--scans 5] [--keep DIR]

A Dask scheduler and workers are processes of their own, each worker with a folder of its own and nothing shared but the
git repository and the DVC remote. A batch runs on them up to a stand-in stage that waits 20 s. Two acts:

1. a worker is killed in the middle of a stage: the batch must end well, by the other workers;
2. the scheduler is killed in the middle of a stage: the batch must end within two minutes, with a message;
   after a restart of scheduler and workers the same command must finish.

After each act every result is compared with its record in dvc.lock, and with the same scan computed alone.
Prints a line per check; the exit code is the number of failed ones.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.dvc.pipeline_file import needed_for, read_template
from pipelines.dvc.repair import damaged, recorded_outputs, recorded_stages
from pipelines.project import Project
from tests.pipelines.tiny_project import commit, dvc, environment, make_tiny_project, stage_file, write_scan

TARGET = "tetrahedralize"
SLOW = "slow-tetrahedralize"
"""Order of the stand-in stage in the middle of which the kill comes."""
END_S = 120.0
"""After the death of the scheduler."""
LIMIT_S = 900.0


class Lab:
    """A scheduler and workers, as processes with folders of their own."""

    def __init__(self, folder: Path, project: Project, workers: int) -> None:
        self._folder, self._project, self._count = folder, project, workers
        self._note = folder / "scheduler.json"
        self.scheduler: subprocess.Popen[bytes]
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> str:
        """Start all and return the scheduler's address."""
        self._note.unlink(missing_ok=True)
        quiet = ["--scheduler-file", str(self._note), "--no-dashboard"]
        self.scheduler = self._process(["scheduler", "--host", "127.0.0.1", "--port", "0", *quiet])
        wait_for(self._note.exists, 60.0, "the scheduler")
        options = ["--nthreads", "1", "--no-nanny", *quiet]
        self.workers = [
            self._process(
                ["worker", *options, "--local-directory", str(place)], SCAN2CUT_WORKSPACE=str(place)
            )
            for place in map(self.place, range(self._count))
        ]
        address: str = json.loads(self._note.read_text())["address"]
        return address

    def place(self, number: int) -> Path:
        """The folder of a worker."""
        folder = self._folder / f"machine{number}"
        folder.mkdir(exist_ok=True)
        return folder

    def busy(self, stage: str) -> Iterator[int]:
        """Yield the workers that have begun this stage."""
        for number in range(self._count):
            for record in self.place(number).glob("*/runs.txt"):
                if any(line.split()[1] == stage for line in record.read_text().splitlines()):
                    yield number

    def end(self) -> None:
        """End all processes."""
        for process in [*self.workers, self.scheduler]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _process(self, arguments: list[str], **extra: str) -> subprocess.Popen[bytes]:
        with (self._folder / "dask.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                cwd=self._project.root,
                env={**environment(self._project), **extra},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def wait_for(condition: Callable[[], object], limit_s: float, what: str) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come within {limit_s:.0f} s")
        time.sleep(0.2)


def batch(project: Project, scans: list[Path], address: str | None, output: Path) -> subprocess.Popen[bytes]:
    """Start `scan2cut batch`."""
    cluster = ["--dask", address] if address else []
    names = [str(scan) for scan in scans]
    command = [sys.executable, "-m", "pipelines.cli.main", "batch", *names, "--target", TARGET, *cluster]
    with output.open("wb") as file:
        return subprocess.Popen(
            [*command, "--workers", str(len(scans))],
            cwd=project.root,
            env=environment(project),
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


class Tally:
    """Checks that were made."""

    def __init__(self) -> None:
        self.failed = 0

    def check(self, good: bool, what: str) -> None:
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'}  {what}", flush=True)


def results(project: Project, scans: list[Path]) -> dict[str, object]:
    """Hashes of all outputs, by scan and stage; None where one is missing or damaged."""
    stages = [entry.name for entry in needed_for(TARGET, read_template(project.template))]
    found: dict[str, object] = {}
    for scan in (path.stem for path in scans):
        recorded = recorded_stages(project.scan_dir(scan))
        for stage in stages:
            whole = stage in recorded and not damaged(recorded_outputs(project, scan, stage))
            found[f"{scan} {stage}"] = recorded[stage]["outs"] if whole else None
    return found


def act(lab: Lab, project: Project, scans: list[Path], kill: str, tally: Tally, folder: Path) -> None:
    """Run a batch, kill in the middle of a stage, see what happens."""
    begun = time.monotonic()
    address = lab.start()
    output = folder / f"{kill}.txt"
    run = batch(project, scans, address, output)
    try:
        wait_for(lambda: list(lab.busy(TARGET)) or run.poll() is not None, 300.0, "a stage on a worker")
        time.sleep(5.0)
        victim = next(lab.busy(TARGET), None)
        tally.check(
            victim is not None and run.poll() is None, f"{kill}: a worker is in the middle of a stage"
        )
        killed = lab.scheduler if kill == "scheduler" else lab.workers[victim or 0]
        os.killpg(killed.pid, signal.SIGKILL)
        struck = time.monotonic()
        try:
            code: int | None = run.wait(END_S if kill == "scheduler" else LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        took = time.monotonic() - struck
        said = output.read_text(errors="replace")
        tally.check("Traceback" not in said, f"{kill} killed: no traceback")
        if kill == "scheduler":
            tally.check(code == 1, f"scheduler killed: exit code {code} after {took:.0f} s")
            words = [line for line in said.splitlines() if "Restart scheduler and workers" in line]
            tally.check(bool(words), f"scheduler killed: it says {words[:1]}")
        else:
            tally.check(code == 0, f"worker killed: exit code {code} after {took:.0f} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        lab.end()
    if kill == "scheduler":
        again = batch(project, scans, lab.start(), folder / "again.txt")
        try:
            tally.check(
                again.wait(LIMIT_S) == 0, "scheduler and workers restarted: the same command finishes"
            )
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(again.pid, signal.SIGKILL)
            lab.end()
    whole = results(project, scans)
    tally.check(None not in whole.values(), f"{kill} killed: {len(whole)} stages recorded, none damaged")
    print(f"      {time.monotonic() - begun:.0f} s", flush=True)


def main() -> None:
    """Run both acts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--scans", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder, which is kept")
    parser.add_argument("--only", choices=["worker", "scheduler"])
    options = parser.parse_args()
    tally = Tally()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="scan2cut-lab-"))
        )
        (folder / "project").mkdir(parents=True)
        project = make_tiny_project(folder / "project")
        waits = stage_file(project, TARGET)
        waits.write_text(waits.read_text().replace("range(20)", "range(200)"))
        dvc(project, "remote", "add", "--local", "--default", "lab", str(folder / "remote"))
        commit(project)
        for kill in [options.only] if options.only else ["worker", "scheduler"]:
            (folder / kill).mkdir()
            scans = [
                write_scan(folder, f"{kill}{number}.ply", f"{SLOW} {kill} {number}")
                for number in range(options.scans)
            ]
            act(Lab(folder / kill, project, options.workers), project, scans, kill, tally, folder)
            far = results(project, scans)
            (folder / f"{kill}-alone").mkdir()
            alone = make_tiny_project(folder / f"{kill}-alone")
            waits = stage_file(alone, TARGET)
            waits.write_text(waits.read_text().replace("range(20)", "range(200)"))
            tally.check(
                batch(alone, scans, None, folder / "alone.txt").wait(LIMIT_S) == 0, "the same scans alone"
            )
            near = results(alone, scans)
            tables = [name for name in far if _tables(far[name]) != _tables(near[name])]
            tally.check(not tables, f"{kill} killed: the same bytes as alone, except {tables}")
    sys.exit(tally.failed)


def _tables(outs: object) -> dict[str, str]:
    """Hashes of the tables; provenance has times."""
    listed = outs if isinstance(outs, list) else []
    return {out["path"]: out["md5"] for out in listed if out["path"].endswith(".parquet")}


if __name__ == "__main__":
    main()
