"""Logs of further cuts: kept with the scan in their order, added to, and replaced only when asked."""

import pytest

from pipelines.many.inbox import find_deliveries
from pipelines.scans.register import Request, register_scan, track_raw_files
from stages.runtime.errors import InputError
from stages.runtime.scan_file import read_scan_file
from stages.shared.input_files import further_logs
from tests.pipelines.tiny_project import write_scan


def cut(tmp_path, name, airs=()):
    folder = tmp_path / name
    folder.mkdir()
    for air in airs:
        write_scan(folder, air, f"{name} {air}")
    return write_scan(folder, "cut.json", name)


def stored(project):
    folder = project.scan_dir("apple") / "further_logs"
    return {path.name: path.read_text() for path in sorted(folder.glob("*"))}


def test_cuts_are_kept_in_order_with_their_air_runs(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply")
    logs = [cut(tmp_path, "first"), cut(tmp_path, "second", ["air1.json"]), cut(tmp_path, "third")]
    register_scan(project, Request(scan, logs[0], further=tuple(logs[1:])))
    assert stored(project) == {
        "2-log.json": "second",
        "2-air-air1.json": "second air1.json",
        "3-log.json": "third",
    }
    known = read_scan_file(project.scan_dir("apple"))
    assert (known.log, known.further_logs) == ("log.json", "further_logs")
    found = further_logs(project.scan_dir("apple") / known.further_logs)
    assert [(each.number, each.log.name, len(each.air)) for each in found] == [
        (2, "2-log.json", 1),
        (3, "3-log.json", 0),
    ]
    track_raw_files(project, "apple")
    assert (project.scan_dir("apple") / "further_logs.dvc").exists()


def test_a_cut_may_be_added_but_not_exchanged_unnoticed(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply")
    first, second, third = (cut(tmp_path, name) for name in ("first", "second", "third"))
    register_scan(project, Request(scan, first))
    assert read_scan_file(project.scan_dir("apple")).further_logs == "apple.ply"
    register_scan(project, Request(scan, first, further=(second,)))
    register_scan(project, Request(scan, first, further=(second, third)))
    register_scan(project, Request(scan, first))
    assert list(stored(project).values()) == ["second", "third"]
    with pytest.raises(InputError, match="differ from those already registered"):
        register_scan(project, Request(scan, first, further=(third, second)))
    assert list(stored(project).values()) == ["second", "third"]
    register_scan(project, Request(scan, first, further=(third,), replace=True))
    assert list(stored(project).values()) == ["third"]
    register_scan(project, Request(scan, first, replace=True))
    assert not (project.scan_dir("apple") / "further_logs").exists()


def test_a_log_that_is_not_there_is_refused(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply")
    with pytest.raises(InputError, match="Give the path of a force log"):
        register_scan(project, Request(scan, cut(tmp_path, "first"), further=(tmp_path / "none.json",)))
    assert not project.scan_dir("apple").exists()


def test_a_manifest_names_several(tmp_path):
    for name in ("apple.ply", "a.json", "b.json"):
        write_scan(tmp_path, name, name)
    (tmp_path / "apple.scan2cut.yaml").write_text("scan: apple.ply\nlog: [a.json, b.json]\n")
    (found,) = find_deliveries(tmp_path)
    assert found.log is not None and found.log.name == "a.json"
    assert [path.name for path in found.further] == ["b.json"]
    assert found.waits_for is None


def test_a_log_given_twice_is_refused(project, tmp_path):
    scan, first = write_scan(tmp_path, "apple.ply"), cut(tmp_path, "first")
    copy = write_scan(tmp_path, "copy.json", "first")
    for further in ((first,), (copy,)):
        with pytest.raises(InputError, match="the same log as"):
            register_scan(project, Request(scan, first, further=further))
    assert not project.scan_dir("apple").exists()
