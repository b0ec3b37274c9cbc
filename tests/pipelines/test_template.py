"""The template is the only list of stages."""

from pathlib import Path

import pytest

from pipelines.dvc.pipeline_file import needed_for, read_template, resolve, upstream

ROOT = Path(__file__).parents[2]


def test_order_and_edges_come_from_the_files():
    entries = read_template(ROOT / "pipelines" / "dvc" / "scan.dvc.yaml")
    names = [entry.name for entry in entries]
    assert names[:4] == ["clean", "ingest", "tetrahedralize", "precut"]
    by_name = {entry.name: entry for entry in entries}
    assert upstream(by_name["clean"], entries) == []
    assert upstream(by_name["ingest"], entries) == []
    assert upstream(by_name["tetrahedralize"], entries) == ["clean"]
    assert upstream(by_name["precut"], entries) == ["clean", "tetrahedralize"]


def test_order_does_not_depend_on_the_order_in_the_file(tmp_path):
    path = tmp_path / "dvc.yaml"
    path.write_text(
        "stages:\n  b: {cmd: x, deps: [a.out], outs: [b.out]}\n  a: {cmd: x, outs: [a.out: {cache: true}]}\n"
    )
    assert [entry.name for entry in read_template(path)] == ["a", "b"]


def test_every_stage_has_limits_for_the_flow():
    entries = read_template(ROOT / "pipelines" / "dvc" / "scan.dvc.yaml")
    assert len(entries) > 10
    for entry in entries:
        assert entry.retries >= 1
        assert entry.timeout_s >= 60
        assert len(entry.metrics) == 1


def test_resolve():
    assert resolve("data/scans/${id}/${scan}", {"id": "a", "scan": "a.ply"}) == "data/scans/a/a.ply"
    with pytest.raises(KeyError):
        resolve("${unknown}", {})


def test_a_target_brings_what_it_needs_and_nothing_else():
    entries = read_template(ROOT / "pipelines" / "dvc" / "scan.dvc.yaml")
    needed = [entry.name for entry in needed_for("calibrate", entries)]
    assert set(needed) == {"clean", "ingest", "tetrahedralize", "precut", "calibrate"}
    assert needed[-1] == "calibrate" and needed.index("clean") < needed.index("precut")
    assert [entry.name for entry in needed_for("clean", entries)] == ["clean"]
