"""An exported folder checked by itself: a copy holds, and no edit of it passes, not even one that renews the hashes."""

import json
import os
import shutil
import subprocess
import sys
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
            "certificate in cut.json agrees with the checks repeated here",
        ),
        (
            "cut.json",
            '"joint_stiffness_nm_rad": 14250.0,\n   "deflection_m"',
            '"joint_stiffness_nm_rad": 100.0,\n   "deflection_m"',
            "certificate in cut.json agrees with the checks repeated here",
        ),
        (
            "cut.json",
            '"peak_force_n": 4',
            '"peak_force_n": 1',
            "certificate in cut.json agrees with the checks repeated here",
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


def plant_link(folder: Path) -> None:
    (folder / "json").symlink_to(folder.parent)


def plant_package(folder: Path) -> None:
    (folder / "json").mkdir()
    (folder / "json" / "__init__.py").write_text("raise SystemExit('foreign code')")


def plant_bytecode(folder: Path) -> None:
    (folder / "__pycache__").mkdir()


def plant_dangling(folder: Path) -> None:
    (folder / "notes.txt").symlink_to(folder / "nowhere")


def plant_pipe(folder: Path) -> None:
    os.mkfifo(folder / "air.json")


def plant_file(folder: Path) -> None:
    (folder / "air_cut" / "air.json").write_text("{}")


def replace_by_link(folder: Path) -> None:
    (folder / "CHECKLIST.md").rename(folder.parent / "CHECKLIST.md")
    (folder / "CHECKLIST.md").symlink_to(folder.parent / "CHECKLIST.md")


@pytest.mark.parametrize(
    ("plant", "entry"),
    [
        (plant_link, "json"),
        (plant_package, "json"),
        (plant_bytecode, "__pycache__"),
        (plant_dangling, "notes.txt"),
        (plant_pipe, "air.json"),
        (plant_file, "air_cut/air.json"),
        (replace_by_link, "CHECKLIST.md"),
    ],
)
def test_only_regular_listed_files_and_nothing_is_imported_before_that_is_known(copy, plant, entry):
    plant(copy)
    verdict = verify(copy).verdict
    assert verdict.startswith("Refused") and entry in verdict and "Export again" in verdict
    done = subprocess.run(
        [sys.executable, copy / "run_cut.py"], capture_output=True, text=True, check=False, cwd=copy
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert f"REFUSED: {entry}" in done.stdout and "foreign code" not in done.stdout


def test_module_that_the_list_allows_does_not_shadow_the_library(copy):
    """A resealed folder that lists json.py: verify refuses the name, and the run script takes Python's own json."""
    (copy / "json.py").write_text("raise SystemExit('foreign code')")
    document = json.loads((copy / "cut.json").read_text())
    document["siblings_sha256"]["json.py"] = ""
    reseal(copy, document)
    assert "json.py" in verify(copy).verdict
    done = subprocess.run([sys.executable, copy / "run_cut.py"], capture_output=True, text=True, check=False)
    assert "foreign code" not in done.stdout + done.stderr


def with_more_verdict(folder: Path, document: dict) -> None:
    document["certificate"]["verdict"] += " Safe without a fence."


def without_checks(folder: Path, document: dict) -> None:
    document["certificate"]["checks"] = []


def with_better_value(folder: Path, document: dict) -> None:
    check = next(c for c in document["certificate"]["checks"] if c["name"] == "torque with the cutting force")
    check["value"] *= 0.5


def with_other_digest(folder: Path, document: dict) -> None:
    document["provenance"]["params_sha256"] = "0" * 64


def with_verified_saving(folder: Path, document: dict) -> None:
    document["saving"]["verified"] = True


def with_lower_thresholds(folder: Path, document: dict) -> None:
    document["collision"]["cut"]["force_n"][0] -= 1e-3


def with_other_warning(folder: Path, document: dict) -> None:
    document["warning"] = "No fence needed."


def with_more_entries(folder: Path, document: dict) -> None:
    document["note"] = "Safe without a fence."


def with_other_script(folder: Path, document: dict) -> None:
    path = folder / "cut_stream.py"
    path.write_text(path.read_text().replace("LOUD_SAMPLES = 10", "LOUD_SAMPLES = 10**9"))


def without_script(folder: Path, document: dict) -> None:
    (folder / "franka_arm.py").unlink()
    del document["siblings_sha256"]["franka_arm.py"]


def with_other_checklist(folder: Path, document: dict) -> None:
    path = folder / "CHECKLIST.md"
    path.write_text(path.read_text().replace("Fence or light curtain closed", "Fence open"))


def with_second_message(folder: Path, document: dict) -> None:
    from rosbags.rosbag2 import Reader, StoragePlugin, Writer

    from stages.export.trajectory_files import _message_types

    path = folder / "joint_trajectory.mcap"
    with Reader(path) as reader:
        ((connection, _, raw),) = reader.messages()
    with Writer(folder.parent / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        out = writer.add_connection(connection.topic, connection.msgtype, typestore=_message_types())
        writer.write(out, 0, raw)
        writer.write(out, 1, raw)
    next((folder.parent / "bag").glob("*.mcap")).replace(path)


def with_false_efforts(folder: Path, document: dict) -> None:
    """Halve the torques in motion.mcap, in place."""
    from rosbags.rosbag2 import Reader

    from stages.export.trajectory_files import _JOINT_STATES, TYPES, _message_types

    path, store = folder / "motion.mcap", _message_types()
    data = path.read_bytes()
    with Reader(path) as reader:
        raws = [bytes(raw) for c, _, raw in reader.messages() if c.topic == _JOINT_STATES]
    for raw in raws:
        message = store.deserialize_cdr(raw, TYPES[_JOINT_STATES])
        message.effort = 0.5 * message.effort
        data = data.replace(raw, bytes(store.serialize_cdr(message, TYPES[_JOINT_STATES])), 1)
    assert data != path.read_bytes()
    path.write_bytes(data)


def with_wandering_move(folder: Path, document: dict) -> None:
    path = folder / "air_cut" / "to_ready.csv"
    head, *lines = path.read_text().splitlines()
    rows = np.array([[float(v) for v in line.split(",")] for line in lines])
    rows[:, 1] += 0.01 * np.sin(np.pi * np.linspace(0.0, 1.0, len(rows))) ** 4
    path.write_text("\n".join([head, *(",".join(map(repr, row)) for row in rows.tolist())]) + "\n")


def with_a_jump(folder: Path, document: dict) -> None:
    """The file that people play begins at the start of the motion: up to a radian from where the arm is."""
    shutil.copyfile(folder / "motion_1khz.csv", folder / "joint_1khz.csv")


def with_trajectory_from_the_start(folder: Path, document: dict) -> None:
    from dataclasses import replace

    from stages.export.trajectory_files import mcap_bytes, read_yaml, yaml_bytes

    path = folder / "air_cut" / "joint_trajectory.yaml"
    whole = read_yaml(path.read_bytes())
    cut = replace(
        whole,
        time_ns=whole.time_ns[:-100],
        **{name: getattr(whole, name)[100:] for name in ("position", "velocity", "acceleration")},
    )
    path.write_bytes(yaml_bytes(cut))
    path.with_suffix(".mcap").write_bytes(mcap_bytes(cut))


def with_faster_clock(folder: Path, document: dict) -> None:
    """The time column of a move, which the run script does not read but another player does."""
    path = folder / "to_start.csv"
    path.write_text(path.read_text().replace("\n0.002,", "\n0.0011,"))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (with_more_verdict, "verdict"),
        (without_checks, "number of checks"),
        (with_better_value, "torque with the cutting force"),
        (with_other_digest, "provenance"),
        (with_verified_saving, "saving"),
        (with_lower_thresholds, "collision"),
        (with_other_warning, "warning"),
        (with_more_entries, "note"),
        (with_other_script, "cut_stream.py"),
        (without_script, "franka_arm.py"),
        (with_other_checklist, "CHECKLIST.md"),
        (with_second_message, "joint_trajectory.mcap can't be read (ValueError: it has 2 messages"),
        (with_false_efforts, "motion.mcap"),
        (with_wandering_move, "distance from the direct move"),
        (with_faster_clock, "to_start.csv"),
        (with_a_jump, "joint_1khz.csv"),
        (with_trajectory_from_the_start, "begin and end at the ready pose"),
    ],
)
def test_claims_are_computed_again(copy, change, part):
    """Someone changed a claim and renewed every hash."""
    document = json.loads((copy / "cut.json").read_text())
    change(copy, document)
    reseal(copy, document)
    failed = verify(copy).failed
    assert failed and any(part in check.sentence() for check in failed), [c.sentence() for c in failed]


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("joint_trajectory.mcap", lambda data: data[: len(data) // 2]),
        ("motion.mcap", lambda data: data[:-400]),
        ("motion.mcap", lambda data: b""),
        ("joint_trajectory.yaml", lambda data: data + b"---\n{}\n"),
        ("joint_trajectory.yaml", lambda data: b"[\n" * 200_000),
        ("joint_trajectory.yaml", lambda data: b"a: &a [1, 1]\nb: [*a, *a]\n"),
        ("motion_1khz.csv", lambda data: data.replace(b"0.001,", b"0.001,1e999x", 1)),
        ("waypoints.parquet", lambda data: data[:100]),
        ("motion.parquet", lambda data: data[:100]),
        ("cut.json", lambda data: data.replace(b'"certificate"', b'"scan": "other", "certificate"')),
        ("cut.json", lambda data: data.replace(b'"mass_kg": 0.4', b'"mass_kg": Infinity')),
        ("cut.json", lambda data: data.replace(b'"mass_kg": 0.4', b'"mass_kg": 1e999')),
        ("cut.json", lambda data: data.replace(b'"mass_kg": 0.4', b'"mass_kg": NaN')),
        ("cut.json", lambda data: b'{"a":' * 100_000),
        ("cut.json", lambda data: b"[]"),
    ],
)
def test_damaged_files_are_named_without_a_traceback(copy, name, spoil):
    (copy / name).write_bytes(spoil((copy / name).read_bytes()))
    (check,) = verify(copy).failed
    assert check.name == "files readable" and name in check.note, check.sentence()
    if name == "cut.json":
        done = subprocess.run(
            [sys.executable, copy / "run_cut.py"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (2, "") and "REFUSED: " in done.stdout


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
    name = ["motion_1khz.csv", "air_cut/motion_1khz.csv", "to_start.csv", "air_cut/to_ready.csv"][
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
        if verify(folder).certified:
            found.append(f"{seed}: {what}")
        shutil.rmtree(folder)
    return found


def test_a_few_edits_with_fitting_hashes_are_refused(good, tmp_path):
    assert survivors(good, tmp_path, range(2)) == []


@pytest.mark.slow
def test_a_hundred_edits_with_fitting_hashes_are_refused(good, tmp_path):
    assert survivors(good, tmp_path, range(1000, 1100)) == []
