"""A refused cut or a warning is in the table, the headlines, `--json`, the exit code, the state and the report."""

import json

import pytest

from pipelines.cli.terminal import run_table
from pipelines.dvc.stage import Outcome, StageReport
from pipelines.report.page import Note, refusal_of_run, result_word
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.decision import decision
from pipelines.runs.flow import REFUSED, final_state
from pipelines.runs.run_summary import RunResult, headlines
from stages.runtime.errors import EXIT_DONE, EXIT_REFUSED
from tests.pipelines.report_scene import make_project, make_scan

NOT_CUT = "The nominal cut did not happen: 0 % of what the edge passed is parted."
INSIDE_OUT = "3 elements turned inside out in the nominal cut."
GO, NO_GO = (
    {"certified": True, "verdict": "Certified."},
    {"certified": False, "verdict": "Refused: it hovers."},
)
SIMULATING = ("simulate", "transport", "optimize", "replay")


def reports(**metrics):
    return [
        StageReport(name, Outcome.COMPLETED, 1.0, (f"data/{name}/a",), found)
        for name, found in metrics.items()
    ]


def result_of(**metrics) -> RunResult:
    result = RunResult("plum", stages=reports(**metrics))
    result.judge()
    return result


@pytest.mark.parametrize("stage", SIMULATING)
def test_a_cut_that_did_not_happen_ends_the_run_with_exit_code_3(stage):
    result = result_of(clean={}, **{stage: {"refused": NOT_CUT}})
    assert result.exit_code == EXIT_REFUSED
    assert NOT_CUT in result.in_words
    assert result.as_json()["ok"] is False
    assert result.as_json()["refused"] == f"{stage}: {NOT_CUT}"
    assert json.dumps(result.as_json())
    assert result_word(result.stages[1]) == "Completed, refused"
    state = final_state(result.stages)
    assert state.name == REFUSED and NOT_CUT in state.message
    assert f"Refused: {stage}: {NOT_CUT}" in headlines({r.name: r.metrics for r in result.stages})


def test_a_refused_certificate_has_exit_code_3():
    result = result_of(export=NO_GO)
    assert result.exit_code == EXIT_REFUSED
    assert result.in_words == "NOT certified. Refused: it hovers."


def test_the_exported_cut_decides():
    """The nominal cut, with parameters before any log, may fail where the certified one succeeds."""
    result = result_of(simulate={"refused": NOT_CUT}, export=GO)
    assert result.exit_code == EXIT_DONE
    assert result.as_json()["warnings"] == [f"Refused: simulate: {NOT_CUT}"]
    assert refusal_of_run({"simulate": {"refused": NOT_CUT}, "export": NO_GO}) == NO_GO["verdict"]


@pytest.mark.parametrize("stage", SIMULATING)
def test_inverted_elements_are_a_warning_everywhere(stage):
    result = result_of(**{stage: {"warning": INSIDE_OUT}})
    assert result.exit_code == EXIT_DONE
    assert result.as_json()["warnings"] == [f"Warning: {stage}: {INSIDE_OUT}"]
    assert result_word(result.stages[0]) == "Completed, warning"


def test_the_table_of_the_terminal(tmp_path):
    result = result_of(simulate={"refused": NOT_CUT}, replay={"warning": INSIDE_OUT})
    column = run_table(make_project(tmp_path), result).columns[1]
    assert list(column.cells) == ["Completed, refused", "Completed, warning"]


@pytest.mark.parametrize("stage", SIMULATING)
def test_the_report(tmp_path, stage):
    project = make_project(tmp_path)
    folder = make_scan(project, "plum")
    path = folder / stage / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"refused": NOT_CUT, "warning": INSIDE_OUT}))
    texts = [getattr(block, "text", "") for block in decision(ScanData(project, "plum")).blocks]
    assert f"{stage}: {NOT_CUT}" in texts
    assert f"{stage}: {INSIDE_OUT}" in texts


def test_the_report_without_an_export(tmp_path):
    project = make_project(tmp_path)
    folder = make_scan(project, "plum")
    path = folder / "simulate" / "metrics.json"
    path.write_text(json.dumps({"refused": NOT_CUT}))
    export = folder / "export" / "metrics.json"
    export.write_text(json.dumps({"outcome": "none"}))
    notes = [block for block in decision(ScanData(project, "plum")).blocks if isinstance(block, Note)]
    assert any(NOT_CUT in note.text and note.tone == "bad" for note in notes)
