"""The catalogue is complete, consistent, and its document is complete."""

from pathlib import Path

import pytest

from pipelines.dvc.pipeline_file import read_template
from pipelines.dvc.template_writer import document
from stages.runtime.artifacts import polars_dtype
from stages.runtime.catalogue import ARTIFACTS, artifacts_of, readers_of
from stages.runtime.describe import SUFFIX

ROOT = Path(__file__).parents[3]
ENTRIES = read_template(ROOT / "pipelines" / "dvc" / "scan.dvc.yaml")


def test_document_lists_every_artifact():
    text = document()
    assert [artifact.path for artifact in ARTIFACTS.values() if artifact.path not in text] == []


@pytest.mark.parametrize("artifact", ARTIFACTS.values(), ids=lambda a: a.name)
def test_entry_is_consistent(artifact):
    assert artifact.path == artifact.name + SUFFIX[artifact.kind]
    assert artifact.producer == artifact.name.split("/")[0]
    assert artifact.meaning
    assert bool(artifact.columns) == (artifact.kind in ("table", "plot"))
    for column in artifact.columns:
        polars_dtype(column.dtype)
        assert column.meaning
        if column.name.endswith("_m"):
            assert column.unit == "m"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_template_writes_exactly_the_catalogue(entry):
    promised = {f"data/scans/${{id}}/{a.path}" for a in artifacts_of(entry.name)}
    assert set(entry.outs) == promised


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_template_reads_exactly_what_the_catalogue_says(entry):
    by_path = {f"data/scans/${{id}}/{a.path}": a for a in ARTIFACTS.values()}
    read = {by_path[dep].name for dep in entry.deps if dep in by_path}
    assert read == {a.name for a in ARTIFACTS.values() if entry.name in readers_of(a)}
