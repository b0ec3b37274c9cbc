"""Wall-clock time of every stage on one scan, in a temporary copy of the project."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pipelines.dvc.pipeline_file import read_template
from pipelines.project import Project
from pipelines.scans.register import Request, register_scan


@dataclass(frozen=True)
class Subject:
    """A scan to measure."""

    name: str
    path: Path


def stage_times(root: Path, subject: Subject) -> dict[str, float]:
    """Stage → seconds, each run as DVC would run it but without DVC; the user's data is never touched."""
    with tempfile.TemporaryDirectory(prefix="scan2cut-bench-") as folder:
        project = _copy(root, Path(folder))
        scan_id = register_scan(project, Request(subject.path))
        times = {}
        for entry in read_template(project.template):
            command = [sys.executable, "-m", "stages", entry.name, f"data/scans/{scan_id}"]
            start = time.perf_counter()
            subprocess.run(command, cwd=project.root, check=True, env=dict(os.environ))
            times[entry.name] = time.perf_counter() - start
        return times


def _copy(root: Path, folder: Path) -> Project:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("pipelines", "stages", "disect_sim"):
        shutil.copytree(root / name, folder / name, ignore=ignore)
    shutil.copy(root / "params.yaml", folder / "params.yaml")
    return Project(folder)
