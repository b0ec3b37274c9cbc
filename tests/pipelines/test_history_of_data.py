"""A scan's dvc.yaml is a real file, so that DVC finds in git's history what every version of the data needs."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pipelines.cli.doctor import examine
from pipelines.dvc.commands import CommandError, cache_dir, cached_file, run_git
from pipelines.dvc.pipeline_file import is_current, listed_while_it_runs, read_template, refresh_pipeline_file
from pipelines.dvc.repair import damaged, md5_of_path, recorded_outputs, recorded_stages
from pipelines.dvc.stage import StageFailedError, bring_up_to_date
from pipelines.project import TEMPLATE, Project
from pipelines.scans.register import Request, register_scan, track_raw_files
from pipelines.scans.status import read_status
from pipelines.versions.history import at_revision, needed_objects
from pipelines.versions.reproduce import pull, push
from stages.runtime.errors import InputError
from stages.runtime.files import parse_yaml, read_mapping
from tests.pipelines.test_dvc_stage import entry_of, outputs
from tests.pipelines.tiny_project import commit, dvc, runs, write_scan


def tag(project: Project, name: str) -> None:
    commit(project)
    subprocess.run(["git", "tag", name], cwd=project.root, check=True)


def clone_at(project: Project, folder, version: str) -> Project:
    clone = Project(folder)
    subprocess.run(["git", "clone", "-q", project.root, clone.root], check=True)
    subprocess.run(["git", "checkout", "-q", version], cwd=clone.root, check=True)
    return clone


@pytest.mark.parametrize("old", ["link", "broken link", "other text", "nothing"])
def test_an_outdated_pipeline_file_is_written_anew(project, tmp_path, old):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    path = project.scan_dir("apple") / "dvc.yaml"
    assert is_current(project, "apple") and refresh_pipeline_file(project, "apple") is None
    path.unlink()
    if "link" in old:
        path.symlink_to(project.template if old == "link" else "nowhere.yaml")
    elif old == "other text":
        path.write_text("stages: {}\n")
    said = refresh_pipeline_file(project, "apple")
    assert (said is None) == (old == "nothing")
    assert not path.is_symlink() and path.read_bytes() == project.template.read_bytes(), (
        "while nothing has run"
    )
    assert project.template.is_file() and not project.template.is_symlink()


def test_status_and_doctor_report_an_outdated_pipeline_file(project, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.cli.doctor.IMPORTS", {})
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    project.template.write_text(project.template.read_text() + "# a newer template\n")
    (found,) = [finding for finding in examine(project) if finding.part == "dvc.yaml of scans"]
    assert found.verdict == "outdated" and "apple" in found.detail
    said: list[str] = []
    before = (project.scan_dir("apple") / "dvc.yaml").read_bytes()
    read_status(project, ["apple"], said.append)
    assert said == [f"data/scans/apple/dvc.yaml does not match {TEMPLATE}; the next run updates it."]
    assert (project.scan_dir("apple") / "dvc.yaml").read_bytes() == before, "a status writes nothing"
    refresh_pipeline_file(project, "apple")
    (found,) = [finding for finding in examine(project) if finding.part == "dvc.yaml of scans"]
    assert found.verdict == "ok"


def test_a_stage_with_another_definition_is_stale_before_the_next_run(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "good words")))
    bring_up_to_date(project, "apple", entry_of(project, "clean"))
    project.template.write_text(
        project.template.read_text().replace("params.yaml: [body, clean]", "params.yaml: [arm, body, clean]")
    )
    states = {row.stage: row for row in read_status(project, ["apple"])}
    assert (states["clean"].state, states["clean"].reasons) == (
        "stale",
        ("data/scans/apple/dvc.yaml is outdated",),
    )
    assert states["precut"].state == "never run"


def test_a_stage_run_brings_an_old_link_up_to_date(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    path = project.scan_dir("apple") / "dvc.yaml"
    path.unlink()
    path.symlink_to(project.template)
    bring_up_to_date(project, "apple", entry_of(project, "clean"))
    assert is_current(project, "apple")


def test_a_pipeline_file_has_the_stages_that_have_run_and_the_one_that_runs(project, tmp_path):
    """Their text is the template's; a stage that fails, and a killed one, does not stay among them."""

    def listed():
        return list(read_mapping(project.scan_dir("apple") / "dvc.yaml")["stages"])

    every = list(read_mapping(project.template)["stages"])
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "crash-ingest")))
    assert listed() == every, "plain `dvc repro` can begin a scan"
    bring_up_to_date(project, "apple", entry_of(project, "clean"))
    assert listed() == ["clean"] and is_current(project, "apple")
    with pytest.raises(StageFailedError):
        bring_up_to_date(project, "apple", entry_of(project, "ingest"))
    assert listed() == ["clean"]
    with listed_while_it_runs(project, "apple", "tetrahedralize"):
        assert listed() == ["clean", "tetrahedralize"] == [n for n in every if n in listed()]
        assert refresh_pipeline_file(project, "apple") is None, (
            "`scan2cut status` meanwhile takes nothing away"
        )
        assert listed() == ["clean", "tetrahedralize"]
        killed_here = (project.scan_dir("apple") / "dvc.yaml").read_bytes()
    (project.scan_dir("apple") / "dvc.yaml").write_bytes(killed_here)
    bring_up_to_date(project, "apple", entry_of(project, "clean"), force=True)
    assert listed() == ["clean"]
    body = read_mapping(project.scan_dir("apple") / "dvc.yaml")["stages"]["clean"]
    assert body == read_mapping(project.template)["stages"]["clean"]
    (project.scan_dir("apple") / "dvc.lock").write_text("half: [")
    with listed_while_it_runs(project, "apple", "halve"):
        pass
    assert listed() == ["clean", "halve"], "of a broken dvc.lock nothing is concluded"


def test_the_cache_may_lie_anywhere(project, tmp_path):
    """compare SCAN@REVISION and the repair of damaged files ask DVC where its cache is."""
    assert dvc(project, "cache", "dir", "--local", "../elsewhere").returncode == 0
    assert cache_dir(project).resolve() == (project.root / ".." / "elsewhere").resolve()
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    bring_up_to_date(project, "apple", entry_of(project, "clean"))
    tag(project, "v1")
    recorded = recorded_outputs(project, "apple", "clean")
    faces = next(item for item in recorded if item.path.name == "faces.parquet")
    assert cached_file(cache_dir(project), faces.md5).is_file()
    shutil.rmtree(project.scan_dir("apple") / "clean")
    past = at_revision(project, "apple", "v1", tmp_path / "scratch")
    assert (past.scan_dir("apple") / "clean" / "faces.parquet").is_file()


@pytest.mark.slow
def test_two_versions_of_the_data(project, tmp_path):
    """What docs/operations.md says works: diff, push, gc and pull over tags."""
    assert dvc(project, "remote", "add", "--default", "lab", str(tmp_path / "remote")).returncode == 0
    log = write_scan(tmp_path, "l.json")
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "good words"), log))
    for entry in read_template(project.template):
        bring_up_to_date(project, "apple", entry)
    track_raw_files(project, "apple")
    assert dvc(project, "repro").returncode == 0
    tag(project, "v1")
    first, computed = outputs(project), runs(project)
    params = project.root / "params.yaml"
    params.write_text(params.read_text().replace("max_faces: 2000000", "max_faces: 1000000"))
    assert dvc(project, "repro").returncode == 0
    tag(project, "v2")
    second = outputs(project)
    assert first != second

    changed = json.loads(dvc(project, "params", "diff", "v1", "v2", "--json").stdout)
    assert changed["params.yaml"]["clean.max_faces"] == {"old": 2000000, "new": 1000000, "diff": -1000000}
    metrics = dvc(project, "metrics", "diff", "v1", "v2", "--json")
    assert metrics.returncode == 0, metrics.stderr
    assert "number" in json.loads(metrics.stdout)["data/scans/apple/clean/metrics.json"]
    different = dvc(project, "diff", "v1", "v2").stdout
    assert "clean/vertices.parquet" in different
    assert "clean/faces.parquet" not in different, "the same content is the same file"
    shown = dvc(project, "plots", "show", "--json", "data/scans/apple/calibrate/history_plot.csv")
    assert shown.returncode == 0, shown.stderr

    unneeded = cached_file(cache_dir(project), md5_of_path(write_scan(project.root, "unneeded.bin", "x")))
    assert dvc(project, "add", "unneeded.bin").returncode == 0
    (project.root / "unneeded.bin.dvc").unlink()
    assert unneeded.is_file()
    assert dvc(project, "gc", "--workspace", "--all-tags", "--force").returncode == 0
    assert not unneeded.exists(), "what no version needs is gone"
    for version in ("v1", "v2"):
        assert not [path for path in cached_in(project, version) if not path.is_file()]
    pushed = dvc(project, "push", "--all-tags")
    assert pushed.returncode == 0 and "pushed" in pushed.stdout, pushed.stderr
    shutil.rmtree(cache_dir(project))

    for version, good in (("v1", first), ("v2", second)):
        clone = clone_at(project, tmp_path / version, version)
        assert not (clone.scan_dir("apple") / "apple.ply").exists()
        pulled = dvc(clone, "pull")
        assert pulled.returncode == 0, pulled.stderr
        assert outputs(clone) == good, "byte for byte"
        assert (clone.scan_dir("apple") / "apple.ply").read_text() == "good words"
        assert "up to date" in dvc(clone, "status").stdout
        recorded = runs(clone)
        assert dvc(clone, "repro").returncode == 0
        assert runs(clone) == recorded, "nothing ran; the record itself came with git"
        assert outputs(clone) == good
    assert len(computed) == len(read_template(project.template))


def cached_in(project: Project, version: str) -> list:
    """Where the cache has the outputs of a version; metrics are in git instead."""
    text = run_git(project.root, "show", f"{version}:data/scans/apple/dvc.lock").decode()
    outs = [out for stage in parse_yaml(text)["stages"].values() for out in stage["outs"]]
    assert len(outs) > 30
    cache = cache_dir(project)
    return [cached_file(cache, o["md5"]) for o in outs if not o["path"].endswith("metrics.json")]


@pytest.mark.slow
def test_a_partly_run_scan_can_be_pulled(project, tmp_path):
    """By DVC's own pull and checkout, and by ours; each notices what is lost."""
    remote = tmp_path / "remote"
    assert dvc(project, "remote", "add", "--default", "lab", str(remote)).returncode == 0
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "good words")))
    for stage in ("clean", "ingest"):
        bring_up_to_date(project, "apple", entry_of(project, stage))
    track_raw_files(project, "apple")
    tag(project, "v1")
    good = outputs(project)
    pushed = dvc(project, "push", "--all-tags")
    assert pushed.returncode == 0 and "missing version info" not in pushed.stderr

    clone = clone_at(project, tmp_path / "clone", "v1")
    pulled = dvc(clone, "pull")
    assert pulled.returncode == 0, pulled.stderr
    assert outputs(clone) == good
    assert dvc(clone, "repro", "data/scans/apple/dvc.yaml").returncode == 0
    assert runs(clone) == runs(project), "what has not run is not begun"
    assert dvc(clone, "metrics", "show").stderr == ""
    shutil.rmtree(clone.root)
    clone = clone_at(project, tmp_path / "clone", "v1")
    fetched = pull(clone, [])
    assert fetched == [
        "data/scans/apple/apple.ply.dvc",
        "data/scans/apple/dvc.yaml:clean",
        "data/scans/apple/dvc.yaml:ingest",
    ]
    assert outputs(clone) == good
    assert set(recorded_stages(clone.scan_dir("apple"))) == {"clean", "ingest"}
    assert bring_up_to_date(clone, "apple", entry_of(clone, "clean")).cached
    for back in (lambda: pull(clone, [], local=True), lambda: dvc(clone, "checkout").check_returncode()):
        (clone.scan_dir("apple") / "clean" / "faces.parquet").unlink()
        back()
        assert damaged(recorded_outputs(clone, "apple", "clean")) == []

    register_scan(project, Request(write_scan(tmp_path, "pear.ply")))
    tag(project, "v2")
    shutil.rmtree(clone.root)
    clone = clone_at(project, tmp_path / "clone", "v2")
    assert dvc(clone, "pull").returncode != 0, (
        "if DVC can pull a scan that never ran, docs/operations.md is outdated"
    )
    pull(clone, [])
    assert outputs(clone) == good

    faces = next(i for i in recorded_outputs(clone, "apple", "clean") if i.path.name == "faces.parquet")
    cached_file(remote, faces.md5).unlink()
    shutil.rmtree(clone.root)
    clone = clone_at(project, tmp_path / "clone", "v1")
    assert "faces.parquet" in dvc(clone, "pull").stderr
    with pytest.raises(CommandError, match=r"faces\.parquet"):
        pull(clone, ["apple"])
    with pytest.raises(CommandError, match=r"faces\.parquet"):
        pull(clone, ["apple"], local=True)


def test_push_sends_what_every_tag_needs_and_proves_it(project, tmp_path):
    """The remote is not in the first tag's configuration: `dvc push --all-tags` leaves that tag's data out."""
    remote = tmp_path / "remote"
    with pytest.raises(InputError, match="dvc remote add"):
        push(project)
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "good words")))
    bring_up_to_date(project, "apple", entry_of(project, "clean"))
    track_raw_files(project, "apple")
    with (project.root / ".dvc" / "config").open("a") as config:
        config.write("# remote = none yet\n")
    tag(project, "v1")
    old = recorded_outputs(project, "apple", "clean")
    assert dvc(project, "remote", "add", "--default", "lab", str(remote)).returncode == 0
    (tmp_path / "new").mkdir()
    register_scan(project, Request(write_scan(tmp_path / "new", "apple.ply", "other words"), replace=True))
    bring_up_to_date(project, "apple", entry_of(project, "clean"), force=True)
    track_raw_files(project, "apple")
    tag(project, "v2")
    done = {each.version: each for each in push(project)}
    assert set(done) == {"now", "v1", "v2"} and not any(each.missing for each in done.values())
    assert [done[v].knows_remote for v in ("v1", "v2")] == [False, True]
    cached = [item for item in old if item.path.name != "metrics.json"]
    assert len(cached) > 3 and all(cached_file(remote, item.md5).is_file() for item in cached)

    lost = next(item for item in cached if item.md5 not in needed_objects(project, "v2"))
    for place in (remote, cache_dir(project)):
        cached_file(place, lost.md5).unlink(missing_ok=True)
    again = {each.version: each.missing for each in push(project)}
    assert [Path(path).name for path in again["v1"]] == [lost.path.name] and again["v2"] == ()
