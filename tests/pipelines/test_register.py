"""Registering: safe ids, one id one scan, nothing changed when something is refused."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from pipelines.cli.run import parse_overrides
from pipelines.project import scan_lock
from pipelines.scans.register import (
    REGISTERING,
    Request,
    assumed_material,
    check_not_replaced,
    register_scan,
    registered_scan,
    scan_id_of,
    track_raw_files,
)
from stages.runtime import files
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_file
from stages.runtime.scan_file import read_scan_file
from tests.pipelines.tiny_project import write_scan


@pytest.mark.parametrize(
    ("name", "scan_id"),
    [
        ("apple.ply", "apple"),
        ("My Apple (2).STL", "my-apple-2"),
        ("../013_apple.ply", "013_apple"),
        ("${id}.ply", "id"),
        ("Äpfel.ply", "pfel"),
        ("a" * 100 + ".ply", "a" * 64),
    ],
)
def test_id_from_the_file_name(name, scan_id):
    assert scan_id_of(Path(name)) == scan_id


@pytest.mark.parametrize("name", ["....ply", "---.ply", "日本.ply"])
def test_name_without_usable_characters_is_refused(name):
    with pytest.raises(InputError, match="Set one with --id"):
        scan_id_of(Path(name))


def test_registration_makes_a_complete_directory(project, tmp_path):
    scan = write_scan(tmp_path, "My Apple.PLY")
    log = write_scan(tmp_path, "cut.json", "{}")
    scan_id = register_scan(
        project, Request(scan, log, material="potato", overrides={"clean": {"unit": "mm"}})
    )
    track_raw_files(project, scan_id)
    folder = project.scan_dir(scan_id)
    assert scan_id == "my-apple"
    assert (folder / "my-apple.ply").read_text() == "good"
    assert not (folder / "dvc.yaml").is_symlink(), "DVC does not follow links in git's history"
    assert (folder / "dvc.yaml").read_bytes() == project.template.read_bytes()
    assert (folder / "my-apple.ply.dvc").exists()
    assert (folder / "log.json.dvc").exists()
    identity = read_scan_file(folder)
    assert (identity.scan, identity.log, identity.material) == ("my-apple.ply", "log.json", "potato")
    assert yaml.safe_load((folder / "scan.yaml").read_text())["clean"] == {"unit": "mm"}
    visible = subprocess.run(
        ["git", "status", "--short", "-uall", "data"],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ".ply\n" not in visible, "raw scans are ignored by git"
    assert "scan.yaml" in visible, "the description may be committed"
    assert not list(folder.glob(".gitignore")), "outputs are pre-ignored in data/.gitignore"


def test_a_scan_is_known_by_its_id_its_directory_and_its_cut_mesh(project, tmp_path):
    scan_id = register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    folder = project.scan_dir(scan_id)
    for name in (scan_id, str(folder), str(folder / "precut")):
        source, found = registered_scan(project, name)
        assert found == scan_id and source.parent == folder and source.is_file()
    assert registered_scan(project, "other.ply") == (Path("other.ply"), None)


def test_same_file_again_is_the_same_scan_and_keeps_its_choices(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply")
    register_scan(project, Request(scan, material="potato", overrides={"clean": {"unit": "mm"}}))
    before = (project.scan_dir("apple") / "scan.yaml").read_bytes()
    register_scan(project, Request(scan))
    assert (project.scan_dir("apple") / "scan.yaml").read_bytes() == before
    register_scan(project, Request(scan, overrides={"clean": {"scale": 2}}))
    content = yaml.safe_load((project.scan_dir("apple") / "scan.yaml").read_text())
    assert content["clean"] == {"unit": "mm", "scale": 2}
    register_scan(project, Request(scan, reset=True))
    assert yaml.safe_load((project.scan_dir("apple") / "scan.yaml").read_text())["clean"] == {}


def test_other_content_under_the_same_id_is_refused_unless_replaced(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply", "one")
    register_scan(project, Request(scan))
    folder = project.scan_dir("apple")
    scan.write_text("two")
    with pytest.raises(InputError, match="An id stands for one scan"):
        register_scan(project, Request(scan))
    assert (folder / "apple.ply").read_text() == "one"
    register_scan(project, Request(scan, replace=True))
    assert (folder / "apple.ply").read_text() == "two"


def test_a_scan_is_bound_to_its_content_before_any_stage_has_run(project, tmp_path):
    """Two files of one name would otherwise share a directory, and both report the figures of one of them."""
    scan = write_scan(tmp_path, "apple.ply", "one")
    register_scan(project, Request(scan, write_scan(tmp_path, "cut.json", "log")))
    folder = project.scan_dir("apple")
    for request in (
        Request(write_scan(tmp_path, "apple.ply", "two")),
        Request(folder / "apple.ply", write_scan(tmp_path, "cut.json", "another log")),
    ):
        with pytest.raises(InputError, match="--replace"):
            register_scan(project, request)
    assert (folder / "apple.ply").read_text() == "one" and (folder / "log.json").read_text() == "log"


def test_two_processes_can_not_register_two_files_under_one_id(project, tmp_path):
    register = (
        "import sys; from pathlib import Path; from pipelines.project import Project\n"
        "from pipelines.scans.register import Request, register_scan\n"
        "register_scan(Project(Path(sys.argv[1])), Request(Path(sys.argv[2])))"
    )
    both = []
    for text in ("one", "two"):
        (tmp_path / text).mkdir()
        scan = write_scan(tmp_path / text, "apple.ply", text)
        command = [sys.executable, "-c", register, str(project.root), str(scan)]
        both.append(subprocess.Popen(command, cwd=project.root, stderr=subprocess.PIPE, text=True))
    said = [process.communicate()[1] for process in both]
    refused = [text for text in said if "An id stands for one scan" in text]
    assert len(refused) == 1, said
    winner = "two" if said[0] else "one"
    assert (project.scan_dir("apple") / "apple.ply").read_text() == winner


def test_one_registration_waits_for_another(project, tmp_path):
    """Not only where two happen to begin in the same millisecond."""
    request = Request(write_scan(tmp_path, "apple.ply"))
    waiting = threading.Thread(target=register_scan, args=(project, request))
    with scan_lock(project, REGISTERING, lambda: None):
        waiting.start()
        waiting.join(1.0)
        assert waiting.is_alive() and project.scan_ids() == []
    waiting.join(60.0)
    assert project.scan_ids() == ["apple"]


def test_a_scan_that_was_replaced_meanwhile_is_not_spoken_of(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply", "one")
    register_scan(project, Request(scan))
    digest = sha256_of_file(scan)
    check_not_replaced(project, "apple", digest)
    scan.write_text("two")
    register_scan(project, Request(scan, replace=True))
    with pytest.raises(InputError, match="was replaced by another command"):
        check_not_replaced(project, "apple", digest)


def test_what_a_killed_registration_left_is_swept(project, tmp_path):
    left = project.scans_dir / ".scratch-register-x7"
    left.mkdir()
    (left / "pear.ply").write_text("half a sc")
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    assert [path.name for path in project.scans_dir.iterdir()] == ["apple"]


def test_damaged_stored_scan_is_corrected_by_the_same_file(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply", "good scan")
    register_scan(project, Request(scan))
    track_raw_files(project, "apple")
    stored, _ = registered_scan(project, "apple")
    (project.scan_dir("apple") / "dvc.lock").write_text("schema: '2.0'\n")
    stored.chmod(0o644)
    stored.write_text("good sc@n")
    register_scan(project, Request(scan))
    assert stored.read_text() == "good scan"


def test_replacing_by_another_format_leaves_one_file(project, tmp_path):
    for name, text in (("apple.ply", "one"), ("apple.stl", "two")):
        register_scan(project, Request(write_scan(tmp_path, name, text), replace=True))
        track_raw_files(project, "apple")
    folder = project.scan_dir("apple")
    assert {path.name for path in folder.glob("apple.*")} == {"apple.stl", "apple.stl.dvc"}


def test_cutting_surface_becomes_a_dependency(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply")
    register_scan(project, Request(scan, surface=write_scan(tmp_path, "wave.ply", "a wave")))
    content = yaml.safe_load((project.scan_dir("apple") / "scan.yaml").read_text())
    assert content["cut_surface"] == content["precut"]["surface_file"] == "surface.ply"
    assert read_scan_file(project.scan_dir("apple")).cut_surface == "surface.ply"


def test_the_file_of_a_region_is_stored_with_its_digest(project, tmp_path):
    scan, stone = write_scan(tmp_path, "apple.ply"), write_scan(tmp_path, "stone.stl", "a stone")
    body = {"regions": [{"name": "stone", "shape": "file", "file": str(stone)}]}
    register_scan(project, Request(scan, overrides={"body": body}))
    folder = project.scan_dir("apple")
    region = yaml.safe_load((folder / "scan.yaml").read_text())["body"]["regions"][0]
    assert region["file"] == "stone.stl"
    assert region["sha256"] == sha256_of_file(folder / "stone.stl") == sha256_of_file(stone)
    track_raw_files(project, "apple")
    assert (folder / "stone.stl.dvc").exists()
    register_scan(project, Request(scan))  # the registered region stays
    assert yaml.safe_load((folder / "scan.yaml").read_text())["body"]["regions"] == [region]
    stone.write_text("another stone")
    with pytest.raises(InputError, match="--replace"):
        register_scan(project, Request(scan, overrides={"body": body}))


def refused_requests(folder: Path) -> dict[str, Request]:
    scan = write_scan(folder, "apple.ply")
    loop = folder / "loop.ply"
    loop.symlink_to(loop)
    return {
        "missing": Request(folder / "none.ply"),
        "directory": Request(folder),
        "symlink loop": Request(loop),
        "metafile": Request(write_scan(folder, "apple.dvc")),
        "bad id": Request(scan, scan_id="../apple"),
        "material": Request(scan, material="granite"),
        "stage": Request(scan, overrides={"fry": {"oil": 1}}),
        "value": Request(scan, overrides={"clean": {"unit": "mile"}}),
        "key": Request(scan, overrides={"clean": {"units": "mm"}}),
        "log": Request(scan, log=folder / "none.json"),
        "surface": Request(scan, overrides={"precut": {"surface_file": "none.ply"}}),
    }


@pytest.mark.parametrize(
    "case",
    [
        "missing",
        "directory",
        "symlink loop",
        "metafile",
        "bad id",
        "material",
        "stage",
        "value",
        "key",
        "log",
        "surface",
    ],
)
def test_refused_request_leaves_no_trace(project, tmp_path, case):
    with pytest.raises(InputError) as caught:
        register_scan(project, refused_requests(tmp_path)[case])
    assert str(caught.value).endswith(".")
    assert list(project.scans_dir.iterdir()) == []


def test_overrides_are_yaml():
    parsed = parse_overrides(
        ["clean.unit=mm", "clean.scale=0.5", "precut.plane_normal=[1, 0, 0]", "clean.rotation_deg="]
    )
    assert parsed == {
        "clean": {"unit": "mm", "scale": 0.5, "rotation_deg": None},
        "precut": {"plane_normal": [1, 0, 0]},
    }


@pytest.mark.parametrize("setting", ["unit=mm", "clean.unit", "=1", "clean.=1", "clean.unit=[1"])
def test_setting_that_cannot_be_read(setting):
    with pytest.raises(InputError, match="--set"):
        parse_overrides([setting])


def test_a_first_run_reads_the_raw_scan_once_to_hash_it(project, tmp_path, monkeypatch):
    """As `scan2cut run` does in its process: register, remember the hash, check at the end that nobody replaced it."""
    hashed = []
    digest = files.hashlib.file_digest

    def counted(file, algorithm):
        hashed.append(Path(file.name))
        return digest(file, algorithm)

    monkeypatch.setattr(files.hashlib, "file_digest", counted)
    monkeypatch.setattr(files, "_DIGESTS", {})
    scan = write_scan(tmp_path, "apple.ply")
    time.sleep(1.5 * files._SETTLED_S)
    scan_id = register_scan(project, Request(scan))
    before = sha256_of_file(scan)
    time.sleep(1.5 * files._SETTLED_S)
    for _ in range(2):
        check_not_replaced(project, scan_id, before)
    stored = project.scan_dir(scan_id) / "apple.ply"
    assert [hashed.count(scan), hashed.count(stored)] == [1, 1]


def test_the_material_is_assumed_from_the_name_of_the_file():
    """A banana must not silently become an apple."""
    assert assumed_material(Path("011_Banana_16k.ply")) == "banana"
    assert assumed_material(Path("scan7.ply")) == "apple"
