"""A copy of the project with tiny stages in place of the real ones, to test the pipeline in seconds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pipelines.dvc.pipeline_file import read_template
from pipelines.project import Project, _quiet_environment
from stages.runtime.catalogue import base_of

ROOT = Path(__file__).parents[2]
TINY_STAGE = Path(__file__).with_name("tiny_stage.py.txt")

LIGHT = {
    "clean": {"target_edge_m": 0.006},
    "tetrahedralize": {"edge_m": 0.03, "cut_edge_m": 0.02},
    "cut": {"dt_s": 0.004},
    "calibrate": {"shared_iterations": 1, "individual_iterations": 1},
    "tetrahedralize_half": {"edge_m": 0.02, "cut_edge_m": 0.015},
    "optimize": {"candidates": 1, "iterations": 3, "ablation_iterations": 1},
}
"""Coarse meshes and few iterations: the same code in a quarter of the time."""


def make_tiny_project(folder: Path) -> Project:
    """Everything but data, environments and real stage modules, in a git repository of its own."""
    project = make_real_project(folder)
    for entry in read_template(project.template):
        shutil.copy(TINY_STAGE, stage_file(project, base_of(entry.name)))
    return project


def stage_file(project: Project, stage: str) -> Path:
    """The module of a stage in this project."""
    path = project.root / "stages" / stage / f"{stage}.py"
    assert path.is_file(), f"{path} is not there"
    return path


def make_real_project(folder: Path) -> Project:
    """A copy of this project without its data."""
    for name in ("params.yaml", "dvc.yaml", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    ignore = shutil.ignore_patterns("__pycache__", "tmp", "cache", "config.local")
    for name in (".dvc", "pipelines", "stages", "disect_sim"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    (folder / "data" / "scans").mkdir(parents=True)
    shutil.copy(ROOT / "data" / ".gitignore", folder / "data")
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    return Project(folder)


def commit(project: Project) -> None:
    """Commit everything that git does not ignore."""
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", "add", "-A"], cwd=project.root, check=True)
    subprocess.run(["git", *author, "commit", "-qm", "state"], cwd=project.root, check=True)


def environment(project: Project) -> dict[str, str]:
    """What a shell with the activated environment would have."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, **_quiet_environment(project), "PATH": path}


def dvc(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run DVC in the project."""
    return subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=project.root,
        env=environment(project),
        capture_output=True,
        text=True,
        check=False,
    )


def runs(project: Project) -> list[str]:
    """'<scan> <stage>' for every stage that really ran."""
    record = project.root / "runs.txt"
    return record.read_text().splitlines() if record.exists() else []


def write_scan(folder: Path, name: str, text: str = "good") -> Path:
    """A raw 'scan' for the tiny stages."""
    path = folder / name
    path.write_text(text)
    return path
