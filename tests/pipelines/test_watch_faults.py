"""No file and no fault ends the watcher; its exit code tells of them, and a good delivery is not blamed."""

import contextlib
import threading

import pytest

from pipelines.many import inbox as inbox_module
from pipelines.many import watch as watch_module
from pipelines.many.watch import watch
from pipelines.runs.run_summary import RunResult
from pipelines.scans.register import PlaceError
from tests.pipelines.inbox_lab import Lab
from tests.pipelines.tiny_project import write_scan


@pytest.fixture
def lab(project, tmp_path):
    return Lab(project, tmp_path)


def put_two(lab, monkeypatch, error):
    """An apple, whose registration raises this error, and a pear, whose does not; returns the real registration."""
    real = watch_module.register_scan

    def register(project, request):
        if request.scan_id == "apple":
            raise error
        return real(project, request)

    monkeypatch.setattr(watch_module, "register_scan", register)
    for name in ("apple", "pear"):
        lab.put(f"{name}.ply", f"scan of {name}")
        lab.put(f"{name}.json", "log")
    return real


def test_no_delivery_ends_the_watcher_or_those_after_it(lab, monkeypatch):
    """An error that nobody thought of is said, the exit code of --once tells, and the next delivery runs."""
    put_two(lab, monkeypatch, ZeroDivisionError("nobody thought of this"))
    locked = lab.inbox / "locked"
    locked.mkdir()
    monkeypatch.setattr(inbox_module, "_in_folder", refusing(inbox_module._in_folder, locked))
    lab.settle()
    assert lab.runs.ids == ["pear"]
    assert "apple.ply: ZeroDivisionError: nobody thought of this" in lab.lines
    assert "Can't read locked (Permission denied). Change its owner or permissions." in lab.lines
    assert lab.watcher.exit_code == 2
    lab.runs.futures[-1].set_exception(ZeroDivisionError("in the run"))
    lab.look()
    assert lab.watcher.idle and "pear: failed. ZeroDivisionError: in the run" in lab.lines


def refusing(list_folder, locked):
    def listed(inbox, folder):
        if folder == locked:
            raise PermissionError(13, "Permission denied")
        return list_folder(inbox, folder)

    return listed


@pytest.mark.parametrize(("exit_code", "worst"), [(0, 0), (1, 1), (2, 2)])
def test_the_watcher_knows_the_worst_it_has_seen(lab, exit_code, worst):
    lab.put("apple.ply", "scan")
    lab.put("apple.json", "log")
    lab.settle()
    lab.runs.finish(exit_code, "because" if exit_code else None)
    lab.look()
    assert lab.watcher.exit_code == worst


@pytest.mark.parametrize(("manifest", "exit_code"), [("scan: [1\n", 2), ("scan: a.ply\n", 0)])
def test_once_ends_with_the_exit_code_of_the_worst(project, tmp_path, monkeypatch, manifest, exit_code):
    monkeypatch.setattr(watch_module, "scan_pool", lambda *_: contextlib.nullcontext())
    write_scan(tmp_path, "order.scan2cut.yaml", manifest)
    choices = {"scans_at_once": 1, "settle_s": 0.1, "say": print, "stop": threading.Event()}
    assert watch(project, tmp_path, once=True, **choices) == exit_code


def test_a_memory_that_can_not_be_written_is_said_before_anything_begins(project, tmp_path, monkeypatch):
    monkeypatch.setattr(watch_module, "scan_pool", lambda *_: pytest.fail("it began"))
    (project.scans_dir.parent / "inbox_memory.jsonl").symlink_to("/proc/nowhere/memory.jsonl")
    choices = {"scans_at_once": 1, "settle_s": 0.1, "say": print, "stop": threading.Event()}
    with pytest.raises(OSError, match="No such file"):
        watch(project, tmp_path, once=True, **choices)


def test_a_place_that_may_not_be_written_is_no_verdict_on_the_delivery(lab, monkeypatch):
    """Refused for ever would be the good scan, not the read-only folder."""
    real = put_two(lab, monkeypatch, PlaceError("The disk is read-only."))
    lab.settle()
    read_only = RunResult()
    read_only.fail(PlaceError("The disk is read-only."))
    lab.runs.futures[-1].set_result(read_only)
    lab.look()
    assert "apple.ply: The disk is read-only." in lab.lines
    assert "pear: failed. The disk is read-only." in lab.lines
    assert lab.watcher.exit_code == 2 and lab.project.scan_ids() == ["pear"]
    monkeypatch.setattr(watch_module, "register_scan", real)
    lab.restart()
    lab.settle()
    assert lab.runs.ids == ["pear", "apple", "pear"], "both are tried again"


def test_an_inbox_that_is_away_for_a_moment_is_waited_for(lab):
    lab.inbox.rmdir()
    lab.look()
    lab.look()
    assert len(lab.lines) == 1 and "retrying" in lab.lines[0]
    lab.inbox.mkdir()
    lab.put("apple.ply", "scan")
    lab.put("apple.json", "log")
    lab.settle()
    assert lab.runs.ids == ["apple"]
