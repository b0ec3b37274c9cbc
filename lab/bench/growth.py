"""What grows with the number of scans: python -m lab.bench.growth [COUNT ...] [--only WORD] [--keep DIR]

A project with stand-in stages has one finished scan, which is copied COUNT times (10, 100 and 1,000) with its dvc.lock,
as long as a real one; results are hard links. Prints CPU and wall seconds of every command, its children included:
`status` in a new clone (every dvc.lock is parsed, every result hashed), after runs (dvc.lock is noted),
again, and after an edit of the code; the start of a run and of a batch of two scans in which the first stage is fresh;
`dvc repro` of one scan and of everything with nothing to do; the table of all scans. A command that takes longer than
20 minutes is ended and shown as such.
"""

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipelines.dvc.freshness import note_recorded
from pipelines.project import Project
from pipelines.scans.register import Request, register_scan, track_raw_files
from tests.pipelines.tiny_project import dvc, environment, make_tiny_project, write_scan

COUNTS = (10, 100, 1000)
LIMIT_S = 1200.0
FIRST = "scan0000"
SCAN2CUT = [sys.executable, "-m", "pipelines.cli.main"]
DVC = [sys.executable, "-m", "dvc"]


def finished_scan(folder: Path) -> Project:
    """A project with one scan of which every stage has run."""
    project = make_tiny_project(folder)
    register_scan(project, Request(write_scan(folder, f"{FIRST}.ply")))
    done = dvc(project, "repro", f"data/scans/{FIRST}/dvc.yaml")
    if done.returncode:
        raise RuntimeError(done.stderr)
    track_raw_files(project, FIRST)
    return project


def copy_to(project: Project, count: int) -> None:
    """Copy the first scan until there are this many."""
    source = project.scan_dir(FIRST)
    for number in range(1, count):
        name = f"scan{number:04}"
        if project.scan_dir(name).exists():
            continue
        for path in sorted(source.rglob("*")):
            target = project.scan_dir(name) / path.relative_to(source)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif path.name in ("dvc.lock", "scan.yaml"):
                target.parent.mkdir(parents=True, exist_ok=True)
                text = path.read_text().replace(f"scans/{FIRST}", f"scans/{name}")
                target.write_text(text.replace(f"id: {FIRST}", f"id: {name}"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, target)


def measured(project: Project, command: list[str]) -> str:
    """Run the command; CPU and wall seconds, its children included."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    env = {**environment(project), "PYTHONPATH": str(project.root)}
    try:
        result = subprocess.run(
            command, cwd=project.root, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return f"> {LIMIT_S:.0f} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    failed = "" if result.returncode == 0 else f" exit {result.returncode}: {result.stderr.strip()[-200:]}"
    return f"{cpu:.1f} ({time.monotonic() - begun:.1f}){failed}"


def commands() -> dict[str, list[str]]:
    """The command lines, by what they are called in the table."""
    run = [*SCAN2CUT, "run", FIRST, "--target", "clean"]
    return {
        "status, new clone": [*SCAN2CUT, "status"],
        "status, after runs": [*SCAN2CUT, "status"],
        "status, again": [*SCAN2CUT, "status"],
        "status, code edited": [*SCAN2CUT, "status"],
        "run, all fresh": run,
        "batch of two, all fresh": [*SCAN2CUT, "batch", FIRST, "scan0001", "--target", "clean"],
        "dvc repro of one scan": [*DVC, "repro", f"data/scans/{FIRST}/dvc.yaml"],
        "dataset table": [sys.executable, "-m", "pipelines.versions.figures_table"],
        "dvc repro of everything": [*DVC, "repro"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("counts", type=int, nargs="*", default=COUNTS)
    parser.add_argument("--only", default="", help="commands whose name contains this")
    parser.add_argument("--keep", type=Path, help="folder of the project; kept")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="scan2cut-growth-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        project = Project(folder) if (folder / "params.yaml").exists() else finished_scan(folder)
        lock_kb = (project.scan_dir(FIRST) / "dvc.lock").stat().st_size / 1e3
        print(f"dvc.lock of {lock_kb:.0f} kB; load average {os.getloadavg()[0]:.1f}; CPU (wall) [s]")
        for count in options.counts:
            copy_to(project, count)
            edited = project.root / "stages" / "shared" / "surface.py"
            text = edited.read_text()
            for name, command in commands().items():
                if options.only not in name:
                    continue
                if name in ("status, new clone", "status, after runs"):
                    for note in project.state_dir.glob("*.seen.json"):
                        note.unlink()
                if name == "status, after runs":
                    for scan_id in project.scan_ids():
                        note_recorded(project, scan_id)
                edited.write_text(f"{text}# edited\n" if name == "status, code edited" else text)
                print(f"{count:5} scans  {name:24} {measured(project, command)}", flush=True)
            edited.write_text(text)


if __name__ == "__main__":
    main()
