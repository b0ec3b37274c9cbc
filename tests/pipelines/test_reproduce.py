"""Computing every stage again gives the same bytes; versions of the dataset can be listed and compared."""

import shutil
import subprocess

import pytest

from pipelines.dvc.pipeline_file import read_template
from pipelines.dvc.stage import bring_up_to_date
from pipelines.scans.register import Request, register_scan, track_raw_files
from pipelines.versions.history import changes_between, changes_table, list_versions
from pipelines.versions.reproduce import DIFFERENT, SAME, reproduce
from stages.runtime.errors import InputError
from tests.pipelines.test_dvc_stage import outputs
from tests.pipelines.tiny_project import commit, stage_file, write_scan


def run_all(project, scan_id="apple"):
    for entry in read_template(project.template):
        bring_up_to_date(project, scan_id, entry)
    track_raw_files(project, scan_id)


@pytest.mark.slow
def test_reproduce_computes_every_stage_and_names_what_differs(project, tmp_path):
    stage = stage_file(project, "precut")
    stage.write_text(stage.read_text().replace('"words": len(orders)', '"words": time.time_ns()'))
    commit(project)
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    run_all(project)
    good = outputs(project)
    verdicts = {verdict.stage: verdict for verdict in reproduce(project, ["apple"])}
    assert verdicts["precut"].verdict == DIFFERENT
    assert verdicts["precut"].differing == ("metrics.json", "provenance.json")
    assert list(verdicts) == [entry.name for entry in read_template(project.template)]
    others = set(verdicts) - {"precut", "precut_half"}  # an instance runs the same module
    assert {verdicts[name].verdict for name in others} == {SAME}
    assert outputs(project) == good, "the results themselves were not touched"


def test_versions_of_the_dataset(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply", "good words")
    register_scan(project, Request(scan))
    metrics = project.scan_dir("apple") / "clean" / "metrics.json"
    metrics.parent.mkdir()
    metrics.write_text('{"volume_m3": 1.63e-4, "unit": "mm"}')
    lock = project.scan_dir("apple") / "dvc.lock"
    lock.write_text("stages: {clean: {outs: [{path: a, md5: '1'}]}, precut: {outs: [{path: b, md5: '2'}]}}\n")
    commit(project)
    subprocess.run(["git", "tag", "v1"], cwd=project.root, check=True)
    register_scan(project, Request(scan, overrides={"clean": {"unit": "mm"}}))
    register_scan(project, Request(write_scan(tmp_path, "pear.ply")))
    metrics.write_text('{"volume_m3": 2.0e-4, "unit": "mm"}')
    lock.write_text("stages: {clean: {outs: [{path: a, md5: '9'}]}, precut: {outs: [{path: b, md5: '2'}]}}\n")
    params = project.root / "params.yaml"
    params.write_text(params.read_text().replace("max_faces: 2000000", "max_faces: 1000000"))
    commit(project)

    versions = list_versions(project)
    assert [version.scans for version in versions] == [2, 2, 1] or [v.scans for v in versions] == [2, 1, 2]
    assert {"now", "v1"} <= {version.name for version in versions}
    changes = changes_between(project, "v1", "HEAD")
    assert changes.params == ("clean.max_faces: 2000000 → 1000000",)
    apple, pear = changes.scans
    assert (apple.kind, apple.stages, apple.raw) == ("changed", ("clean",), ())
    assert apple.settings == ("clean.unit: unset → mm",)
    assert changes.as_json()["scans"][0]["metrics"] == ["clean.volume_m3: 0.000163 → 0.0002"]
    (_, _, cells) = changes_table(changes).columns
    assert "clean: volume [cm³]: 163 → 200" in list(cells.cells)[1].splitlines()
    assert (pear.scan, pear.kind) == ("pear", "added")
    assert changes_between(project, "HEAD", "now").scans == ()
    shutil.rmtree(project.scan_dir("pear"))
    assert [(c.scan, c.kind) for c in changes_between(project, "HEAD", "now").scans] == [("pear", "removed")]
    assert changes_between(project, "HEAD", "v1").scans[1].kind == "removed"
    with pytest.raises(InputError, match="git ls-tree failed"):
        changes_between(project, "v1", "no-such-version")
