"""What makes a stage stale, asked of DVC: what its result depends on, and nothing else."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.dvc.freshness import note_recorded
from pipelines.project import Project
from pipelines.scans.register import Request, register_scan
from pipelines.scans.status import read_status
from stages.runtime.catalogue import STAGES
from tests.pipelines.tiny_project import commit, dvc, make_tiny_project, runs, write_scan

pytestmark = pytest.mark.slow

SCAN = "data/scans/apple/dvc.yaml"
EVERY = set(STAGES)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with one scan all of whose stages (stand-ins) are fresh."""
    folder = tmp_path_factory.mktemp("staleness")
    (folder / "project").mkdir()
    project = make_tiny_project(folder / "project")
    register_scan(project, Request(write_scan(folder, "apple.ply")))
    done = dvc(project, "repro", SCAN)
    assert done.returncode == 0, done.stderr
    commit(project)
    assert stale(project) == set()
    return project


def stale(project: Project) -> set[str]:
    """The stages of which DVC says that something of their own changed; `scan2cut status` says the same, with why."""
    answer = dvc(project, "status", "--json", SCAN)
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout.strip().splitlines()[-1])
    by_dvc = {name.rpartition(":")[2]: sorted(phrases(changes)) for name, changes in said.items()}
    for _ in range(2):  # the second time from what the first has kept
        ours = {row.stage: sorted(row.reasons) for row in read_status(project) if row.state == "stale"}
        assert ours == by_dvc
    return set(by_dvc)


def phrases(changes: list[Any]) -> list[str]:
    """DVC's changes in the words of `scan2cut status`."""
    found = [change for change in changes if isinstance(change, str)]
    for group in (group for change in changes if isinstance(change, dict) for group in change.values()):
        for path, how in group.items():
            words = (
                ", ".join(f"{key} {value}" for key, value in how.items()) if isinstance(how, dict) else how
            )
            found.append(f"{path} {words}")
    return found


def edit(project: Project, name: str, change: Callable[[str], str]) -> Callable[[], None]:
    """Change a file of the project; the returned function puts it back."""
    path = project.root / name
    before = path.read_text(encoding="utf-8")
    after = change(before)
    assert after != before
    path.write_text(after, encoding="utf-8")
    return lambda: path.write_text(before, encoding="utf-8") and None


def commented(text: str) -> str:
    return text + "# a comment\n"


CUTTING = {"simulate", "calibrate", "transport", "optimize", "export", "replay"}


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("stages/runtime/stage_io.py", commented, set()),
        ("stages/runtime/catalogue.py", commented, set()),
        ("stages/runtime/version.py", commented, set()),
        ("stages/runtime/version.py", lambda t: re.sub(r"(ARTIFACT_FORMAT = )\d+", r"\g<1>99", t), EVERY),
        ("pipelines/runs/flow.py", commented, set()),
        ("params.yaml", commented, set()),
        ("stages/clean/clean.py", commented, {"clean"}),
        ("stages/precut/precut.py", commented, {"precut", "precut_half"}),
        ("stages/precut_half/description.py", commented, {"precut_half"}),
        ("stages/shared/robots/robot.py", commented, {"ingest", "optimize", "export"}),
        ("stages/shared/robots/panda.json", lambda t: t + "\n", {"ingest", "optimize", "export"}),
        ("params.yaml", lambda t: t.replace("robot: panda ", "robot: fr3 ", 1), {"optimize", "export"}),
        ("disect_sim/kernels/springs.py", commented, CUTTING - {"export"}),
        ("disect_sim/torch_module.py", commented, {"calibrate"}),
        ("params.yaml", lambda t: t.replace("  unit: auto ", "  unit: mm ", 1), {"clean"}),
        (
            "params.yaml",
            lambda t: t.replace("board_clearance_m: 0.001  ", "board_clearance_m: 0.002  ", 1),
            CUTTING,
        ),
        (
            "data/scans/apple/scan.yaml",
            lambda t: re.sub(r"(?m)^material: apple$", "material: potato", t),
            {stage.name for stage in STAGES.values() if stage.uses_material},
        ),
    ],
)
def test_an_edit_makes_stale_what_depends_on_it_and_nothing_else(fresh, name, change, expected):
    put_back = edit(fresh, name, change)
    try:
        assert stale(fresh) == expected
    finally:
        put_back()
    assert stale(fresh) == set()


def test_a_new_column_reaches_the_readers_of_its_table_and_nobody_else(fresh):
    """Of the force log's table: calibrate reads it, and export reads the record of what calibrate read."""
    new = 'Column("temperature_c", "f64", "°C", "of the knife"),'
    put_back = edit(
        fresh,
        "stages/ingest/description.py",
        lambda t: t.replace('Column("time_s"', f'{new}\n            Column("time_s"', 1),
    )
    try:
        assert stale(fresh) == {"ingest"}
        before = len(runs(fresh))
        assert dvc(fresh, "repro", SCAN).returncode == 0
        assert {line.split()[1] for line in runs(fresh)[before:]} == {"ingest", "calibrate", "export"}
    finally:
        put_back()
        assert dvc(fresh, "repro", SCAN).returncode == 0


RESULT = "data/scans/apple/clean"


@pytest.mark.parametrize("kind", ["deleted", "other bytes", "same size", "not in cache", "raw", "command"])
def test_status_agrees_with_dvc_about_files(fresh, kind):
    """A deleted or changed output makes its stage and its readers stale; so does one that the cache has lost."""
    name = {"raw": "data/scans/apple/apple.ply", "command": "data/scans/apple/dvc.lock"}.get(
        kind, f"{RESULT}/faces.parquet"
    )
    path = fresh.root / name
    before, status = path.read_bytes(), path.stat()
    moved = None
    if kind == "deleted":
        path.unlink()
    elif kind == "not in cache":
        moved = next(fresh.root.glob(f".dvc/cache/files/md5/*/{hashlib.md5(before).hexdigest()[2:]}"))
        moved.rename(path.with_name("aside"))
    elif kind == "command":
        path.write_bytes(before.replace(b"stages clean data", b"stages  clean data"))
    else:
        path.chmod(0o644)
        path.write_bytes(before[::-1] if kind == "same size" else before + b"x")
    if kind == "same size":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**7))
    try:
        assert "clean" in stale(fresh)
    finally:
        if moved is not None:
            path.with_name("aside").rename(moved)
        path.unlink(missing_ok=True)
        path.write_bytes(before)
    assert stale(fresh) == set()


def test_what_status_has_kept_may_be_lost_or_broken(fresh):
    """The notes of `status` are only for speed."""
    notes = list((fresh.root / ".dvc" / "tmp" / "scan2cut").glob("*.seen.json"))
    assert notes
    for text in ("", "{", "[]", '{"lock": 1}', '{"lock": "", "stages": {"clean": 1}, "hashes": {}}'):
        notes[0].write_text(text)
        assert {row.state for row in read_status(fresh)} == {"fresh"}
    notes[0].unlink()
    note_recorded(fresh, "apple")
    assert json.loads(notes[0].read_text())["stages"].keys() == EVERY
    assert stale(fresh) == set()


def test_every_stage_is_tracked(fresh):
    """No test above could pass because a stage is missing from the scan's pipeline."""
    lock = (Path(fresh.root) / "data" / "scans" / "apple" / "dvc.lock").read_text(encoding="utf-8")
    assert all(f"  {stage}:" in lock for stage in EVERY)
