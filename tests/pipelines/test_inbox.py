"""The inbox: pairs, half-copied, late, renamed, duplicate and hostile files, memory across restarts."""

import threading

import pytest

from pipelines.dvc.pipeline_file import read_template
from pipelines.many import inbox
from pipelines.many.inbox import Settling, find_deliveries
from pipelines.many.watch import watch
from tests.pipelines.inbox_lab import SETTLE_S, Lab
from tests.pipelines.tiny_project import runs, write_scan


@pytest.fixture
def lab(project, tmp_path):
    return Lab(project, tmp_path)


def test_a_pair_starts_once_when_both_files_have_settled(lab):
    lab.put("apple.ply", "scan")
    lab.put("apple_log.json", "log")
    lab.look()
    lab.look(0.9 * SETTLE_S)
    assert lab.runs.ids == []
    lab.look(0.1 * SETTLE_S)
    assert lab.runs.ids == ["apple"]
    lab.look(100.0)
    assert lab.runs.ids == ["apple"], "a pair is started once"
    stored = lab.project.scan_dir("apple")
    assert (stored / "apple.ply").read_text() == "scan", "safe in the project before it runs"
    assert (stored / "log.json").read_text() == "log"


def test_a_late_log_is_waited_for(lab):
    lab.put("apple.ply", "scan")
    lab.settle()
    lab.look(1000.0)
    assert lab.runs.ids == []
    assert lab.lines == ["apple.ply: waiting for its log."]
    lab.put("apple.csv", "log")
    lab.settle()
    assert lab.runs.ids == ["apple"]


def test_half_copied_files_wait_and_empty_ones_for_ever(lab):
    scan = lab.put("apple.ply", "sc")
    lab.put("apple.json", "")
    lab.settle()
    lab.look(100.0)
    assert lab.runs.ids == [], "an empty log is no log"
    lab.put("apple.json", "log")
    lab.look()
    lab.look(0.8 * SETTLE_S)
    scan.write_text("scan")
    lab.look(0.3 * SETTLE_S)
    assert lab.runs.ids == [], "the scan has just grown"
    lab.look(SETTLE_S)
    assert lab.runs.ids == ["apple"]


def test_a_copy_that_stalled_longer_than_settling_is_run_again_when_it_is_whole(lab):
    scan = lab.put("apple.ply", "good half of")
    lab.put("apple.json", "log")
    lab.settle()
    lab.runs.finish()
    (lab.project.scan_dir("apple") / "dvc.lock").write_text("schema: '2.0'\n")
    scan.write_text("good half of a scan")
    lab.settle()
    assert lab.runs.ids == ["apple", "apple"]
    assert (lab.project.scan_dir("apple") / "apple.ply").read_text() == "good half of a scan"


def test_another_scan_under_a_known_name_is_refused_and_lines(lab):
    scan = lab.put("apple.ply", "one")
    lab.put("apple.json", "log")
    lab.settle()
    lab.runs.finish()
    (lab.project.scan_dir("apple") / "dvc.lock").write_text("schema: '2.0'\n")
    scan.write_text("quite another")
    lab.settle()
    assert lab.runs.ids == ["apple"]
    assert "An id stands for one scan" in lab.lines[-1]
    assert (lab.project.scan_dir("apple") / "apple.ply").read_text() == "one"


def test_renamed_and_duplicate_files_do_not_run_twice(lab):
    lab.put("apple.ply", "scan")
    lab.put("apple.json", "log")
    lab.settle()
    lab.runs.finish()
    lab.look()
    for suffix in (".ply", ".json"):
        (lab.inbox / f"apple{suffix}").rename(lab.inbox / f"renamed{suffix}")
    lab.settle()
    lab.put("copy.ply", "scan")
    lab.put("copy.json", "log")
    lab.settle()
    assert lab.runs.ids == ["apple"]
    assert [line for line in lab.lines if "same content as apple" in line] == [
        "renamed.ply has the same content as apple; skipped.",
        "copy.ply has the same content as apple; skipped.",
    ]


@pytest.mark.parametrize(
    ("exit_code", "again"),
    [(0, False), (2, False), (1, True), (None, True)],
    ids=["done", "refused", "failed", "killed"],
)
def test_what_was_done_is_remembered_across_restarts(lab, exit_code, again):
    lab.put("apple.ply", "scan")
    lab.put("apple.json", "log")
    lab.settle()
    if exit_code is not None:
        lab.runs.finish(exit_code, "because" if exit_code else None)
    lab.look()
    lab.settle()
    assert lab.runs.ids == ["apple"]
    lab.restart()
    lab.settle()
    assert lab.runs.ids == (["apple", "apple"] if again else ["apple"])


def test_a_half_written_line_of_the_memory_is_passed_over(lab):
    lab.put("apple.ply", "scan")
    lab.put("apple.json", "log")
    lab.settle()
    lab.runs.finish()
    lab.look()
    memory = lab.project.root / "data" / "inbox_memory.jsonl"
    with memory.open("a") as file:
        file.write('{"key": "half')
    lab.restart()
    lab.settle()
    assert lab.runs.ids == ["apple"]
    lab.put("pear.ply", "another")
    lab.put("pear.json", "log")
    lab.settle()
    lab.runs.finish()
    lab.look()
    lab.restart()
    lab.settle()
    assert lab.runs.ids == ["apple", "pear"], "the line after the broken one is whole"


def test_a_refused_new_scan_is_not_kept(lab):
    lab.put("apple.ply", "scan")
    lab.put("apple.json", "log")
    lab.settle()
    lab.runs.finish(2, "not a scan")
    lab.look()
    assert lab.project.scan_ids() == []
    assert lab.lines[-1] == "apple: rejected. not a scan"


def test_a_folder_of_its_own_brings_air_runs_and_gives_the_name(lab):
    lab.put("Fuji 7/scan.ply", "scan")
    lab.put("Fuji 7/cut.json", "log")
    lab.put("Fuji 7/air1.json", "air")
    lab.settle()
    assert lab.runs.ids == ["fuji-7"]
    assert (lab.project.scan_dir("fuji-7") / "air" / "air1.json").read_text() == "air"


def test_a_manifest_says_what_belongs_together(lab):
    lab.put(
        "order.scan2cut.yaml",
        "scan: a.ply\nlog: b.json\nid: fuji\nmaterial: potato\nsettings: {clean: {unit: mm}}\n",
    )
    lab.settle()
    assert lab.lines == ["order.scan2cut.yaml: waiting for a.ply, b.json."]
    lab.put("a.ply", "scan")
    lab.put("b.json", "log")
    lab.settle()
    assert lab.runs.ids == ["fuji"]
    text = (lab.project.scan_dir("fuji") / "scan.yaml").read_text()
    assert "material: potato" in text and "unit: mm" in text


def test_a_manifest_may_say_that_there_is_no_log(lab):
    lab.put("order.scan2cut.yaml", "scan: a.ply\n")
    lab.put("a.ply", "scan")
    lab.settle()
    assert lab.runs.ids == ["a"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("scan: ../../secret.ply\n", "may only list files in its own folder"),
        ("scan: /etc/passwd\n", "may only list files in its own folder"),
        (f"scan: {300 * 'a'}.ply\n", "at most 255 bytes"),
        (f"scan: apple.ply\nair: [{128 * 'ä'}.json]\n", "at most 255 bytes"),
        ("scan: a.ply\nshell: rm\n", "unknown key 'shell'"),
        ("log: a.json\n", "has no scan"),
        ("scan: [1\n", "not valid YAML"),
        ("a: &a [1]\nscan: *a\n", "which is not allowed"),
        ("scan: a.ply\nsettings: 3\n", "settings is"),
        ("scan: a.ply\nsettings: {1: {a: b}}\n", "settings is"),
        ("scan: a.ply\nid: 2001-99-99\n", "not valid YAML"),
        ("scan: a.ply\nid: 2001-09-09\n", "id is '2001-09-09'"),
        ("scan: a.ply\nid: " + "9" * 5000 + "\n", "not valid YAML"),
        ("scan: a.ply\nmaterial: [apple]\n", "material is"),
        ("scan: a.ply\nsettings: {optimize: {max_speed_m_s: 2.0}}\n", "can only be set on this machine"),
        ("scan: a.ply\nair: 3\n", "must be a list"),
        ("scan: a.ply\nair: air.json\n", "must be a list"),
        ('scan: "a\\0b.ply"\n', "may only list files in its own folder"),
    ],
)
def test_a_bad_manifest_is_lines_once_and_nothing_runs(lab, text, sentence):
    lab.put("order.scan2cut.yaml", text)
    lab.settle()
    lab.settle()
    assert len(lab.lines) == 1 and sentence in lab.lines[0]
    assert lab.runs.ids == []


def test_links_hidden_files_and_partial_names_are_not_looked_at(lab, tmp_path):
    secret = write_scan(tmp_path, "secret.ply", "secret")
    (lab.inbox / "link.ply").symlink_to(secret)
    lab.put("link.json", "log")
    lab.put(".apple.ply.Xy12", "rsync")
    lab.put("apple.ply.part", "browser")
    lab.put("apple.json", "log")
    (lab.inbox / "self").symlink_to(".")
    (lab.inbox / "loop").symlink_to("loop")
    (lab.inbox / "away").symlink_to(tmp_path)
    write_scan(tmp_path, "secret.json", "log")
    assert find_deliveries(lab.inbox) == []


def test_two_logs_are_a_question_not_a_guess(lab):
    for name in ("apple.ply", "apple.json", "apple_log.csv"):
        lab.put(name, "x")
    lab.settle()
    assert lab.runs.ids == []
    assert "has 2 logs" in lab.lines[0]


def test_a_file_that_vanishes_starts_again_from_zero(tmp_path):
    settling, path = Settling(5.0), tmp_path / "a"
    path.write_text("x")
    assert not settling.is_whole([path], 0.0)
    path.unlink()
    assert not settling.is_whole([path], 5.0)
    path.write_text("x")
    assert not settling.is_whole([path], 6.0)
    assert settling.is_whole([path], 11.0)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_the_watcher_itself_runs_what_is_there_and_only_once(project, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    write_scan(inbox, "apple.ply", "good")
    write_scan(inbox, "apple.json", "log")
    write_scan(inbox, "pear.ply", "waits")
    lines = []
    choices = {
        "scans_at_once": 1,
        "settle_s": 0.3,
        "say": lines.append,
        "stop": threading.Event(),
        "once": True,
    }
    write_scan(inbox, "lemon.ply", "bad-clean")
    write_scan(inbox, "lemon.json", "log")
    assert watch(project, inbox, **choices) == 2, "the exit code says that one was refused"
    assert "apple: done." in lines and "pear.ply: waiting for its log." in lines
    stages = [entry.name for entry in read_template(project.template)]
    assert sorted(runs(project)) == sorted(["lemon clean", *(f"apple {stage}" for stage in stages)])
    assert watch(project, inbox, **choices) == 0
    assert len(runs(project)) == len(stages) + 1


def test_a_broken_manifest_is_parsed_once(tmp_path, monkeypatch):
    """0.8 MB of broken YAML took 3 CPU-s at every look of the watcher."""
    manifest = tmp_path / "apple.scan2cut.yaml"
    manifest.write_text("a: [" + "1, " * 20_000)
    parsed = []
    real = inbox.read_mapping
    monkeypatch.setattr(inbox, "read_mapping", lambda path: parsed.append(path) or real(path))
    problems = {inbox.find_deliveries(tmp_path)[0].problem for _ in range(5)}
    assert len(problems) == 1 and "not valid YAML" in str(problems) and len(parsed) == 1
    manifest.write_text("scan: apple.ply\n")
    assert inbox.find_deliveries(tmp_path)[0].waits_for == "apple.ply" and len(parsed) == 2
    manifest.write_text("a: [" + "1, " * 300_000)
    assert (
        "A manifest has a few lines" in str(inbox.find_deliveries(tmp_path)[0].problem) and len(parsed) == 2
    )
