"""Damaged command lines for lab.faults.fuzz_inputs, each given to a process of its own in a small project.

A command must end with exit code 0, or with 2 and a sentence. Left out are commands that run until they are
stopped, and arguments that say where something is written: a damaged one could name any place.
"""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from pipelines.project import TEMPLATE
from stages.runtime.errors import EXIT_BAD_INPUT, EXIT_DONE, InputError

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "run missing.ply --log missing.json --set clean.scale=0.5",
    "run missing.ply --material apple --id fuji --target clean --json",
    "batch missing.ply other.ply --workers 2 --memory-gb 2.0",
    "calibrate missing --set calibrate.rate_hz=500",
    "export missing --robot panda",
    "status apple --json",
    "validate data/scans/apple/clean/metrics.json",
    "report apple --no-open",
    "view apple --no-open",
    "compare apple apple",
    "pull apple --local",
    "datasets v1 v2",
    "predict apple --log data/scans/apple/apple.ply",
    "probe apple --candidates 5",
    "verify data/scans/apple",
    "executed apple --log data/scans/apple/apple.ply",
    "library add apple",
)
MAX_CPU_S, MAX_COMMAND_S = 10, 60
"""By the CPU, and by the clock: a busy machine is no hang."""

ENDS = (".", ")", "}", "╯")
"""Of a sentence, of JSON, of the frame around what the reader of the command line says."""


def run_damaged(path: Path) -> None:
    """Give a damaged line to `scan2cut` and raise what it refused as an InputError; RuntimeError if it went wrong."""
    project = path.parent / "project"
    _make(project)
    words = path.read_bytes().replace(b"\0", b"").decode("utf-8", "surrogateescape").split(" ")
    said = subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", *(word[:2000] for word in words[:60])],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(project / ".prefect")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        preexec_fn=_limit,
    )
    text = (said.stderr or said.stdout).decode("utf-8", "replace").strip()  # --json and help are on stdout
    if said.returncode == EXIT_DONE and "Traceback" not in text:
        return
    if said.returncode != EXIT_BAD_INPUT or "Traceback" in text or not text.endswith(ENDS):
        raise RuntimeError(f"exit code {said.returncode}: {words}: {text[-600:]}")
    raise InputError("It said what was wrong with the line.")


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))


def _make(project: Path) -> None:
    """A project of DVC, without git, with one scan that nobody can read."""
    (project / ".dvc").mkdir(parents=True)
    (project / ".dvc" / "config").write_text("[core]\n    no_scm = true\n")
    for name in (Path("params.yaml"), TEMPLATE):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    scan = project / "data" / "scans" / "apple"
    scan.mkdir(parents=True)
    (scan / "apple.ply").write_text("no scan")
    (scan / "scan.yaml").write_text(
        "id: apple\nscan: apple.ply\nlog: null\nforce_log: apple.ply\nair_runs: apple.ply\nfurther_logs: apple.ply\n"
        "cut_surface: apple.ply\nmaterial: apple\n"
    )
