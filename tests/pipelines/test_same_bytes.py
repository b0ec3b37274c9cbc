"""From nothing to the same bytes: two fresh projects without a cache, every stage, plain `dvc repro`."""

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.dvc.pipeline_file import read_template
from pipelines.project import Project
from pipelines.scans.register import Request, register_scan
from stages.runtime.catalogue import STAGES
from tests.pipelines.tiny_project import LIGHT, ROOT, dvc, make_real_project

SAMPLE = ROOT / "data" / "sample"


def computed(folder: Path) -> dict[str, str]:
    """sha256 of every output of every stage on the coarse sample, by its path."""
    folder.mkdir(parents=True)
    project = make_real_project(folder)
    log = SAMPLE / "synthetic_apple_log.json"
    scan = register_scan(project, Request(SAMPLE / "synthetic_apple.ply", log, overrides=LIGHT))
    done = dvc(project, "repro", f"data/scans/{scan}/dvc.yaml")
    assert done.returncode == 0, done.stderr
    found = {out: digest(project, out.replace("${id}", scan)) for out in outputs(project)}
    shutil.rmtree(folder)
    return found


def outputs(project: Project) -> list[str]:
    entries = read_template(project.template)
    assert {entry.name for entry in entries} == set(STAGES)
    return [out for entry in entries for out in entry.outs]


def digest(project: Project, path: str) -> str:
    place = project.root / path
    files = sorted(p for p in place.rglob("*") if p.is_file()) if place.is_dir() else [place]
    assert files
    content = b"".join(str(p.relative_to(place)).encode() + p.read_bytes() for p in files)
    return hashlib.sha256(content).hexdigest()


@pytest.mark.slow
def test_two_fresh_projects_without_a_cache_give_the_same_bytes(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(computed, (tmp_path / "a" / "project", tmp_path / "another" / "place"))
    assert len(first) > 60
    assert {path for path in first if first[path] != second[path]} == set()
