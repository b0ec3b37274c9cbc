"""No-contact runs are found beside the log, kept with it, and replaced only when asked."""

import os

import pytest
import yaml

from pipelines.scans.register import Request, register_scan, track_raw_files
from stages.runtime.errors import InputError
from stages.runtime.scan_file import read_scan_file
from tests.pipelines.tiny_project import write_scan


def log_folder(tmp_path, airs):
    folder = tmp_path / "logs"
    folder.mkdir(exist_ok=True)
    for name in airs:
        write_scan(folder, name, f"air {name}")
    return write_scan(folder, "cut.json", "cut")


def stored(project, scan_id="apple"):
    folder = project.scan_dir(scan_id) / "air"
    return {path.name: path.read_text() for path in sorted(folder.glob("*"))}


def test_runs_beside_the_log_are_taken(project, tmp_path):
    log = log_folder(tmp_path, ["air1.json", "air2.json", "air.csv", "other.json"])
    register_scan(project, Request(write_scan(tmp_path, "apple.ply"), log))
    assert stored(project) == {"air1.json": "air air1.json", "air2.json": "air air2.json"}
    scan = read_scan_file(project.scan_dir("apple"))
    assert (scan.force_log, scan.air_runs) == ("log.json", "air")
    track_raw_files(project, "apple")
    assert (project.scan_dir("apple") / "air.dvc").exists()
    assert not (project.scan_dir("apple") / ".gitignore").exists(), "already ignored by data/.gitignore"


def test_given_runs_win_and_must_not_change_unnoticed(project, tmp_path):
    log = log_folder(tmp_path, ["air.json", "extra.json"])
    scan = write_scan(tmp_path, "apple.ply")
    given = (tmp_path / "logs" / "extra.json",)
    register_scan(project, Request(scan, log, air=given))
    assert stored(project) == {"extra.json": "air extra.json"}
    (project.scan_dir("apple") / "dvc.lock").write_text("schema: '2.0'\n")
    before = (project.scan_dir("apple") / "scan.yaml").read_bytes()
    with pytest.raises(InputError, match="replace them"):
        register_scan(project, Request(scan, log))
    register_scan(project, Request(scan))
    register_scan(project, Request(scan, log, air=given))
    assert stored(project) == {"extra.json": "air extra.json"}
    assert (project.scan_dir("apple") / "scan.yaml").read_bytes() == before
    register_scan(project, Request(scan, log, replace=True))
    assert stored(project) == {"air.json": "air air.json"}


def test_without_runs_the_scan_itself_is_the_dependency(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply")
    register_scan(project, Request(scan))
    content = yaml.safe_load((project.scan_dir("apple") / "scan.yaml").read_text())
    assert (content["log"], content["force_log"], content["air_runs"]) == (None, "apple.ply", "apple.ply")
    register_scan(project, Request(scan, log_folder(tmp_path, [])))
    content = yaml.safe_load((project.scan_dir("apple") / "scan.yaml").read_text())
    assert (content["log"], content["force_log"], content["air_runs"]) == (
        "log.json",
        "log.json",
        "apple.ply",
    )


def test_bad_runs_are_refused_before_anything_is_written(project, tmp_path):
    scan, log = write_scan(tmp_path, "apple.ply"), log_folder(tmp_path, [])
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        os.truncate(file.fileno(), 2 * 1024**3)
    for request, sentence in (
        (Request(scan, log, air=(tmp_path / "none.json",)), "not a readable file"),
        (Request(scan, air=(log,)), "Give it with --log"),
        (Request(scan, log, air=(huge,)), "At most 100 MB"),
        (Request(scan, write_scan(tmp_path, "empty.json", "")), "is empty"),
    ):
        with pytest.raises(InputError, match=sentence):
            register_scan(project, request)
    assert list(project.scans_dir.iterdir()) == []


def test_names_that_repeat_or_are_odd_become_numbers(project, tmp_path):
    log = log_folder(tmp_path, ["air (1).json"])
    scan = write_scan(tmp_path, "apple.ply")
    register_scan(project, Request(scan, log))
    assert stored(project) == {"001.json": "air air (1).json"}
    register_scan(project, Request(scan, log, air=(log, log), replace=True))
    assert list(stored(project)) == ["001.json", "002.json"]
