"""Remove, rename and history of scans; status during a run; misspelt names."""

import json
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from pipelines.dvc.stage import bring_up_to_date
from pipelines.project import lock_holder, scan_lock
from pipelines.report.build import record_and_report
from pipelines.scans.manage import dependents, remove_scan, rename_scan
from pipelines.scans.register import Request, register_scan
from pipelines.scans.status import read_status
from pipelines.versions.history import scan_history
from stages.runtime.errors import InputError, did_you_mean
from stages.runtime.files import read_mapping
from stages.shared.fitting import share_done
from tests.pipelines.test_cli import scan2cut
from tests.pipelines.test_dvc_stage import entry_of
from tests.pipelines.tiny_project import commit, environment, runs, write_scan


def ready(project, tmp_path, text="good", stages=("clean", "tetrahedralize")):
    scan_id = register_scan(project, Request(write_scan(tmp_path, "apple.ply", text)))
    return [bring_up_to_date(project, scan_id, entry_of(project, stage)) for stage in stages]


def test_remove_says_what_goes_and_leaves_the_rest(project, tmp_path):
    ready(project, tmp_path, stages=("clean",))
    register_scan(project, Request(write_scan(tmp_path, "pear.ply", "good too")))
    measured = project.scan_dir("apple") / "measured" / "cut_7.csv"
    measured.parent.mkdir()
    measured.write_text("1,2\n")
    asked = scan2cut(project, "remove", "apple")
    assert asked.returncode == 2 and "Add --yes" in asked.stderr and measured.exists()
    listed = dependents(project, "apple")
    assert listed.stages == ("clean",) and listed.by_people == ("data/scans/apple/measured/cut_7.csv",)
    assert not listed.committed and "cut_7.csv" in " ".join(listed.lines())
    done = scan2cut(project, "remove", "apple", "--yes", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["scan"] == "apple"
    assert project.scan_ids() == ["pear"] and [p.name for p in project.scans_dir.iterdir()] == ["pear"]
    assert scan2cut(project, "remove", "aple", "--yes").returncode == 2


def test_a_running_scan_is_neither_removed_nor_renamed(project, tmp_path):
    ready(project, tmp_path, stages=())
    with scan_lock(project, "apple", lambda: None, "calibrate"):
        for change in (lambda: remove_scan(project, "apple"), lambda: rename_scan(project, "apple", "fuji")):
            with pytest.raises(InputError, match=r"A run is using 'apple' \(stage calibrate\)"):
                change()
    assert project.scan_ids() == ["apple"] and lock_holder(project, "apple") is None


def test_a_renamed_scan_keeps_its_results(project, tmp_path):
    ready(project, tmp_path)
    assert rename_scan(project, "apple", "fuji-7") == ()
    assert project.scan_ids() == ["fuji-7"]
    states = {row.stage: row.state for row in read_status(project)}
    assert states["clean"] == states["tetrahedralize"] == "fresh"
    before = runs(project)
    bring_up_to_date(project, "fuji-7", entry_of(project, "tetrahedralize"))
    assert runs(project) == before, "nothing is computed again"
    assert read_mapping(project.scan_dir("fuji-7") / "scan.yaml")["id"] == "fuji-7"
    assert (project.scan_dir("fuji-7") / "report.html").is_file()


def test_results_that_name_the_old_id_are_made_again(project, tmp_path):
    ready(project, tmp_path)
    metrics = project.scan_dir("apple") / "tetrahedralize" / "metrics.json"
    metrics.write_text('{"path": "data/scans/apple/tetrahedralize"}')
    assert rename_scan(project, "apple", "fuji") == ("tetrahedralize",)
    assert {r.stage: r.state for r in read_status(project)}["tetrahedralize"] == "never run"


@pytest.mark.parametrize(
    ("new", "sentence"), [("pear", "exists already"), ("Fuji 7", "gives the scan id"), ("../x", "gives the")]
)
def test_a_wrong_new_name_changes_nothing(project, tmp_path, new, sentence):
    ready(project, tmp_path, stages=())
    register_scan(project, Request(write_scan(tmp_path, "pear.ply", "good too")))
    with pytest.raises(InputError, match=sentence):
        rename_scan(project, "apple", new)
    assert project.scan_ids() == ["apple", "pear"]


def test_history_lists_runs_and_commits(project, tmp_path):
    reports = ready(project, tmp_path)
    record_and_report(project, "apple", reports, None)
    commit(project)
    request = Request(
        project.scan_dir("apple") / "apple.ply", scan_id="apple", overrides={"clean": {"unit": "mm"}}
    )
    register_scan(project, request)
    record_and_report(project, "apple", [], "clean: rejected")
    with (project.scan_dir("apple") / "runs.jsonl").open("a") as file:
        file.write('{"finished": ')  # a power cut
    rows = scan_history(project, "apple")
    first, second = (row for row in rows if row["what"].startswith("run"))
    assert first["changes"] == ["first recorded run"] and first["computed"] == ["clean", "tetrahedralize"]
    assert second["changes"] == ["clean.unit: unset → mm"] and "rejected" in second["what"]
    assert any(row["what"].startswith("commit ") for row in rows)
    shown = scan2cut(project, "history", "apple")
    assert shown.returncode == 0 and "clean.unit" in shown.stdout
    assert {row.state for row in read_status(project) if row.stage == "tetrahedralize"} == {"fresh"}


def test_only_the_running_stage_runs(project, tmp_path):
    ready(project, tmp_path, "slow-precut", ("clean", "ingest", "tetrahedralize", "precut"))
    entry = entry_of(project, "precut")
    thread = threading.Thread(target=lambda: bring_up_to_date(project, "apple", entry, force=True))
    count = len(runs(project))
    thread.start()
    try:
        end = time.monotonic() + 60.0
        while len(runs(project)) == count and time.monotonic() < end:
            time.sleep(0.02)
        states = {row.stage: (row.state, row.reasons) for row in read_status(project, ["apple"])}
    finally:
        thread.join()
    assert states["precut"] == ("running", ()), states
    assert {states[name][0] for name in ("clean", "ingest", "tetrahedralize")} == {"fresh"}
    assert states["simulate"][0] == "never run"
    assert [name for name, (state, _) in states.items() if state == "running"] == ["precut"]


def test_status_names_the_stage_that_dvc_runs_by_hand(project, tmp_path):
    ready(project, tmp_path, "slow-tetrahedralize", ("clean", "ingest"))
    address = "data/scans/apple/dvc.yaml"
    template = project.template.read_text()
    (project.root / address).write_text(template)
    command = [sys.executable, "-m", "dvc", "repro", "--single-item", f"{address}:tetrahedralize"]
    count = len(runs(project))
    with subprocess.Popen(
        command, cwd=project.root, env=environment(project), stdout=subprocess.DEVNULL
    ) as child:
        end = time.monotonic() + 60.0
        while len(runs(project)) == count and time.monotonic() < end:
            time.sleep(0.02)
        states = {row.stage: row.state for row in read_status(project, ["apple"])}
        assert child.wait(60) == 0
    assert [name for name, state in states.items() if state == "running"] == ["tetrahedralize"], states
    assert states["clean"] == "fresh"


def test_status_of_many_scans_is_a_line_each(project, tmp_path):
    ready(project, tmp_path, stages=("clean",))
    for name in ("pear", "fig", "kiwi"):
        register_scan(project, Request(write_scan(tmp_path, f"{name}.ply", f"good {name}")))
    params = project.root / "params.yaml"
    params.write_text(params.read_text().replace("max_faces: 2000000", "max_faces: 1000000"))
    shown = scan2cut(project, "status").stdout
    assert len([line for line in shown.splitlines() if "apple" in line]) == 1
    assert "params.yaml" in shown and "clean" in shown
    rows = json.loads(scan2cut(project, "status", "--json").stdout)
    assert {row["stage"] for row in rows if row["state"] == "stale"} == {"clean"}


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("status", "aple"), "apple"),
        (("run", "aplpe"), "apple"),
        (("run", "apple", "--target", "optimise"), "optimize"),
        (("run", "apple", "--material", "potatoe"), "potato"),
        (("materials", "tomatoe"), "tomato"),
        (("run", "apple", "--set", "clena.unit=mm"), "clean"),
        (("run", "apple", "--set", "clean.untit=mm"), "unit"),
        (("statsu",), "status"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_right_one(project, tmp_path, arguments, meant):
    ready(project, tmp_path, stages=())
    result = scan2cut(project, *arguments)
    assert result.returncode == 2
    assert f"Did you mean '{meant}'" in " ".join(result.stderr.split()), result.stderr


def test_far_names_get_no_suggestion():
    assert did_you_mean("zzz", ["apple", "pear"]) == "" and did_you_mean("x", []) == ""


def test_another_log_is_not_called_another_scan(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply")
    register_scan(project, Request(scan, write_scan(tmp_path, "cut.json", "a log")))
    with pytest.raises(InputError) as error:
        register_scan(project, Request(scan, write_scan(tmp_path, "other.json", "another log")))
    text = str(error.value)
    assert "An id stands for one scan" not in text and "give both logs" in text and "--replace" in text


def test_progress_of_a_search_never_jumps():
    shares = [share_done(step, 12) for step in range(13)]
    assert shares[0] == 0.0 and shares[-1] == 1.0
    assert max(b - a for a, b in pairwise(shares)) < 0.35
    assert shares[3] > 0.6, "a fit usually converges after three steps"
