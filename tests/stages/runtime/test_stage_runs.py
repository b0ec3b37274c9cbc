"""clean and tetrahedralize as DVC runs them: exit codes, artifacts, and nothing lost when the input is bad."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.runtime.artifacts import read_table
from tests.stages.scan_shapes import PROJECT, SAMPLE

LINKED = ("stages", "disect_sim", "pipelines", "params.yaml", "pyproject.toml")


@pytest.fixture
def scan_dir(tmp_path: Path) -> Path:
    """A registered scan in a project that borrows this one's code."""
    for name in LINKED:
        (tmp_path / name).symlink_to(PROJECT / name)
    directory = tmp_path / "data" / "scans" / "sample"
    directory.mkdir(parents=True)
    (directory / "scan.ply").write_bytes(SAMPLE.read_bytes())
    (directory / "scan.yaml").write_text(
        "id: sample\nscan: scan.ply\nlog: null\nmaterial: apple\ncut_surface: scan.ply\n"
    )
    (directory / "dvc.yaml").symlink_to(PROJECT / "pipelines" / "dvc" / "scan.dvc.yaml")
    return directory


def run(stage: str, scan_dir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stages", stage, "data/scans/sample"],
        cwd=scan_dir.parents[2],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_both_stages_run_and_a_bad_scan_leaves_their_artifacts_alone(scan_dir: Path) -> None:
    for stage in ("clean", "tetrahedralize"):
        done = run(stage, scan_dir)
        assert (done.returncode, done.stderr) == (0, "")
        assert (scan_dir / stage / "preview.png").read_bytes()[:4] == b"\x89PNG"
    faces = read_table(scan_dir, "clean/faces")["vertices"].to_numpy()
    assert faces.max() + 1 == len(read_table(scan_dir, "clean/vertices"))
    assert (read_table(scan_dir, "tetrahedralize/tets")["volume_m3"] > 0.0).all()
    assert json.loads((scan_dir / "clean" / "metrics.json").read_text())["rung"] == "patched"
    # The mesher's own litter must not appear in the project.
    assert not list(scan_dir.parents[2].glob("__*"))

    before = contents(scan_dir / "clean")
    (scan_dir / "scan.ply").write_bytes(SAMPLE.read_bytes()[:5000])
    refused = run("clean", scan_dir)
    assert refused.returncode == 2
    assert refused.stderr.startswith("clean: scan.ply is malformed")
    assert "Traceback" not in refused.stderr
    assert contents(scan_dir / "clean") == before
    assert not list(scan_dir.glob(".scratch*"))
