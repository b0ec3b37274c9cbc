"""A busy day at the inbox: scans come in bursts, slowly, under other names and before their logs; each runs once."""

import shutil
import threading
import time

import pytest

from tests.pipelines.tiny_project import runs, write_scan
from tests.pipelines.watch_process import WatchProcess, alive

SETTLE_S = 3.0
"""Ten times the pause between two parts of a slow copy, since a busy machine makes pauses longer."""
PART_S = 0.3
LATE_S = 2.0 * SETTLE_S
LIMIT_S = 1500.0
"""Some 6 s of CPU time per scan, on a machine that has other work."""


def text(name):
    return f"good scan of {name}"


def in_a_burst(inbox, name):
    write_scan(inbox, f"{name}.json", "log")
    write_scan(inbox, f"{name}.ply", text(name))


def slowly(inbox, name):
    write_scan(inbox, f"{name}_log.csv", "log")
    content = text(name)
    with (inbox / f"{name}.ply").open("w") as file:
        for start in range(0, len(content), 4):
            file.write(content[start : start + 4])
            file.flush()
            time.sleep(PART_S)


def under_another_name(inbox, name):
    """As browsers and rsync do: the name comes when the file is whole."""
    for final, temporary in ((f"{name}.ply", f"{name}.ply.part"), (f"{name}.json", f".{name}.json.x7")):
        write_scan(inbox, temporary, text(name))
        time.sleep(PART_S)
        (inbox / temporary).rename(inbox / final)


def log_late(inbox, name):
    write_scan(inbox, f"{name}.ply", text(name))
    time.sleep(LATE_S)
    write_scan(inbox, f"{name}.json", "log")


def in_a_folder(inbox, name):
    folder = inbox / name
    folder.mkdir()
    write_scan(folder, "scan.ply", text(name))
    time.sleep(PART_S)
    write_scan(folder, "cut.json", "log")


def by_manifest(inbox, name):
    write_scan(inbox, f"order-{name}.scan2cut.yaml", f"scan: raw-{name}.ply\nid: {name}\n")
    time.sleep(LATE_S)
    write_scan(inbox, f"raw-{name}.ply", text(name))


WAYS = (in_a_burst, slowly, under_another_name, log_late, in_a_folder, by_manifest)
EACH = 4


@pytest.mark.slow
@pytest.mark.endurance
def test_each_of_24_scans_runs_once(project, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    names = {f"{way.__name__.replace('_', '-')}-{i}": way for way in WAYS for i in range(EACH)}
    options = ("--target", "clean", "--settle-s", str(SETTLE_S), "--workers", "2", "--memory-gb", "0.2")
    with WatchProcess(project, inbox, tmp_path / "said.txt", *options) as watcher:
        deliveries = [threading.Thread(target=way, args=(inbox, name)) for name, way in names.items()]
        for delivery in deliveries:
            delivery.start()
        for delivery in deliveries:
            delivery.join()
        watcher.wait_until(lambda: len(watcher.finished()) >= len(names), LIMIT_S)
        assert sorted(watcher.finished()) == sorted(names)
        for name in list(names)[:EACH]:
            (inbox / f"{name}.ply").rename(inbox / f"renamed-{name}.ply")
            (inbox / f"{name}.json").rename(inbox / f"renamed-{name}.json")
        for suffix in (".ply", ".json"):
            shutil.copy(inbox / f"under-another-name-0{suffix}", inbox / f"copied{suffix}")
        watcher.wait_until(
            lambda: sum("same content" in line for line in watcher.lines()) == EACH + 1, LIMIT_S
        )
        assert watcher.end() == 130
    assert sorted(runs(project)) == sorted(f"{name} clean" for name in names)
    assert project.scan_ids() == sorted(names)
    for name in names:
        assert next(project.scan_dir(name).glob("*.ply")).read_text() == text(name)
    with WatchProcess(project, inbox, tmp_path / "again.txt", "--once", *options) as watcher:
        assert watcher.process.wait(LIMIT_S) == 0
    assert len(runs(project)) == len(names), "a new watcher knows what was done"


@pytest.mark.slow
def test_deliveries_go_on_when_the_server_dies(project, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    options = ("--target", "clean", "--settle-s", "0.5", "--workers", "1", "--memory-gb", "0.2")
    with WatchProcess(project, inbox, tmp_path / "said.txt", *options) as watcher:
        for number in range(2):
            in_a_burst(inbox, f"apple-{number}")
            watcher.wait_until(lambda wanted=number + 1: len(watcher.finished()) == wanted, LIMIT_S)
            (server,) = watcher.servers()
            server.kill()
            watcher.wait_until(lambda server=server: not alive(server), 60)
        assert watcher.process.poll() is None
        assert [line for line in watcher.lines() if ": done." in line] == ["apple-0: done.", "apple-1: done."]
        assert watcher.end() == 130
    assert runs(project) == ["apple-0 clean", "apple-1 clean"]
