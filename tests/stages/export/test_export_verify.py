"""An exported folder checked by itself: a copy holds, and no edit of it passes, not even one that renews the hashes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from stages.export.certificate import verify
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_file, sha256_of_value
from tests.stages.synthetic_cut import PARAMS, certified_folder, motion_table

MOTION = motion_table()


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    return certified_folder(tmp_path_factory.mktemp("export") / "cut", MOTION, PARAMS)


@pytest.fixture
def copy(good, tmp_path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "elsewhere"))


def reseal(folder: Path, document: dict) -> None:
    """Write the document with hashes and seal that fit, as someone would who wants it to pass."""
    certificate = document.pop("certificate")
    for name in document["siblings_sha256"]:
        document["siblings_sha256"][name] = sha256_of_file(folder / name)
    certificate["content_sha256"] = sha256_of_value(document)
    (folder / "cut.json").write_text(json.dumps(document | {"certificate": certificate}))


def test_copy_anywhere_holds_and_says_what_it_could_not_see(copy):
    found = verify(copy)
    assert found.certified, found.verdict
    assert found.verdict.endswith("Not run: sha256 of the upstream files, independent dynamics.")
    reseal(copy, json.loads((copy / "cut.json").read_text()))
    assert verify(copy).certified


def test_an_export_of_another_version_says_how_to_export_again(copy):
    reseal(copy, json.loads((copy / "cut.json").read_text()) | {"schema_version": 2})
    verdict = verify(copy).verdict
    assert "another version of scan2cut wrote it" in verdict
    assert "Export again with 'scan2cut run SCAN'" in verdict


@pytest.mark.parametrize(
    ("name", "before", "after", "reason"),
    [
        ("CHECKLIST.md", "Before", "After", "sha256 of the sibling files"),
        (
            "cut.json",
            '"mass_kg": 0.4',
            '"mass_kg": 0.5',
            "certificate is valid and belongs to this document",
        ),
        (
            "cut.json",
            '"certified": true',
            '"certified": false',
            "certificate is valid and belongs to this document",
        ),
        (
            "cut.json",
            '"joint_stiffness_nm_rad": 14250.0,\n   "deflection_m"',
            '"joint_stiffness_nm_rad": 100.0,\n   "deflection_m"',
            "loads in the certificate agree with the files",
        ),
        (
            "cut.json",
            '"peak_force_n": 4',
            '"peak_force_n": 1',
            "loads in the certificate agree with the files",
        ),
        (
            "cut.json",
            '"certificate": {',
            '"certificate": 7, "was": {',
            "certificate is valid and belongs to this document",
        ),
        ("cut.json", '"frames"', '"frame"', "files readable"),
        ("cut.json", "{", "", "files readable"),
        ("to_start.csv", "t,q1", "t,q9", "files readable"),
        ("motion.parquet", None, None, "files readable"),
    ],
)
def test_edited_files_are_named(copy, name, before, after, reason):
    path = copy / name
    if before is None:
        path.unlink()
    else:
        changed = path.read_text().replace(before, after, 1)
        assert changed != path.read_text()
        path.write_text(changed)
    found = verify(copy)
    assert reason in {check.name for check in found.failed} and found.verdict.startswith("Refused: ")


def test_folder_that_is_no_export(tmp_path):
    with pytest.raises(InputError, match=r"has no cut\.json.*certified, or a copy of it"):
        verify(tmp_path)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda d: d["tool"].update(mass_kg=2.4), "tool"),
        (lambda d: d["tool"].update(com_in_flange_m=[0.0, 0.0, 0.5]), "tool"),
        (lambda d: d["limits"].update(acceleration_rad_s2=[1e3] * 7), "limits"),
        (lambda d: d["timing"]["phases"][2].update(start_s=0.0), "timing"),
        (lambda d: d["robot"]["control"].update(run_script="pylibfranka"), "robot"),
        (lambda d: d.update(ready_pose_rad=[0.0] * 7), "ready_pose_rad"),
        (lambda d: d["air_cut"].update(start_pose_rad=[0.0] * 7), "air_cut"),
        (lambda d: d["demand"]["params"].update(tool_mass_kg=1.0), "tool"),
    ],
)
def test_what_the_run_script_takes_from_the_document_is_held_against_the_cell(copy, change, part):
    """Load, limits of a stop, tare, library and poses: numbers that are in no other file, with hashes that fit."""
    document = json.loads((copy / "cut.json").read_text())
    change(document)
    reseal(copy, document)
    (check,) = (c for c in verify(copy).failed if c.name == "cut.json agrees with cell, robot and motion")
    assert part in check.note and "export again" in check.sentence()


def test_an_air_cut_that_is_the_cut_is_refused(copy):
    """Every file of the air cut is that of the cut, and the document says so: no air cut at all."""
    document = json.loads((copy / "cut.json").read_text())
    for name in document["siblings_sha256"]:
        if name.startswith("air_cut/"):
            shutil.copyfile(copy / name.removeprefix("air_cut/"), copy / name)
    document["air_cut"] = {"lift_m": 0.0, "start_pose_rad": document["start_pose_rad"]}
    reseal(copy, document)
    assert "cut.json agrees with cell, robot and motion" in {check.name for check in verify(copy).failed}


def edited(document: dict, rng: np.random.Generator) -> str:
    """One number of what the document states, changed by enough to matter; returns which."""
    choices = [
        ("frames", "O_T_C", 2, 3, 0.003),
        ("frames", "F_T_E", 2, 3, 0.003),
        ("tool", "blade_length_m", None, None, 0.01),
        ("air_cut", "lift_m", None, None, 0.01),
        ("collision", "cut", "torque_nm", 0, 500.0),
        ("collision", "cut", "force_n", 2, -50.0),
        ("collision", "air_cut", "force_n", 1, 300.0),
        ("robot", "name", None, None, None),
        ("waypoints", 5, "q_rad", 3, 1e-4),
        ("timing", "samples", None, None, 1),
    ]
    first, second, third, fourth, by = choices[rng.integers(len(choices))]
    if by is None:
        document[first][second] = "fr3"
    elif third is None:
        document[first][second] += by
    else:
        document[first][second][third][fourth] += by if by != 500.0 else 500.0 * (1.0 + rng.random())
    return f"{first}.{second}"


def joints_edited(folder: Path, rng: np.random.Generator) -> str:
    """A bump in one of the joint files, as smooth as the motion or a jump."""
    name = ["joint_1khz.csv", "air_cut/joint_1khz.csv", "to_start.csv", "air_cut/to_ready.csv"][
        rng.integers(4)
    ]
    head, *lines = (folder / name).read_text().splitlines()
    rows = np.array([[float(v) for v in line.split(",")] for line in lines])
    joint, size = int(rng.integers(1, 8)), float(rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-1.0, 0.3))
    shape = (
        np.sin(np.pi * np.linspace(0.0, 1.0, len(rows))) ** 4 if rng.random() < 0.5 else np.zeros(len(rows))
    )
    if not shape.any():
        shape[int(rng.integers(5, len(rows) - 5))] = 0.05
    rows[:, joint] += size * shape
    (folder / name).write_text("\n".join([head, *(",".join(f"{v:.17g}" for v in r) for r in rows)]) + "\n")
    return name


def survivors(good: Path, place: Path, seeds: range) -> list[str]:
    """Edits with fitting hashes that verify all the same."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        folder = Path(shutil.copytree(good, place / str(seed)))
        document = json.loads((folder / "cut.json").read_text())
        what = edited(document, rng) if seed % 2 else joints_edited(folder, rng)
        reseal(folder, document)
        if verify(folder).certified and not harmless(folder, what):
            found.append(f"{seed}: {what}")
        shutil.rmtree(folder)
    return found


def harmless(folder: Path, name: str) -> bool:
    """A detour of a move to or from the ready pose that keeps every limit is allowed: it is certified as it is."""
    return name in ("to_start.csv", "air_cut/to_ready.csv")


def test_a_few_edits_with_fitting_hashes_are_refused(good, tmp_path):
    assert survivors(good, tmp_path, range(2)) == []


@pytest.mark.slow
def test_a_hundred_edits_with_fitting_hashes_are_refused(good, tmp_path):
    assert survivors(good, tmp_path, range(1000, 1100)) == []
