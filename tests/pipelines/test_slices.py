"""A plan of slices: one scan per cut with the fruit's results before it; another thickness stales only the slices."""

import numpy as np
import polars as pl
import pytest
import yaml

from pipelines.cli.slices import _parse_length, _parse_normal
from pipelines.dvc.pipeline_file import scan_entries, slice_scans
from pipelines.dvc.stage import Outcome, bring_up_to_date
from pipelines.scans.manage import remove_scan, rename_scan
from pipelines.scans.register import Request, register_scan
from pipelines.scans.status import read_status
from pipelines.scans.tradeoff import settings_of, take_over
from pipelines.slices import learning
from pipelines.slices import plan as planning
from pipelines.slices.plan import SlicePlan, read_plan, start_from, write_plan
from stages.runtime.catalogue import STAGES
from stages.runtime.errors import InputError
from stages.runtime.scan_file import STAGES_OF_A_SLICE, home_of
from stages.shared.slicing import Division, Piece, Wanted
from tests.pipelines.tiny_project import write_scan


def plan_of(thickness_m: float, count: int, fruit: str = "apple") -> SlicePlan:
    pieces = [Piece(k, (k - 1) * thickness_m, k * thickness_m, 1e-3, 1e-5) for k in range(1, count + 1)]
    last = Piece(count + 1, count * thickness_m, (count + 1) * thickness_m, 0.0, 1e-5)
    division = Division((1.0, 0.0, 0.0), -0.03, (count + 1) * thickness_m, (*pieces, last))
    return SlicePlan(fruit, "whole", Wanted(thickness_m=thickness_m), division)


@pytest.fixture
def no_picture(monkeypatch):
    monkeypatch.setattr(planning, "body_of", lambda project, fruit, of: None)
    monkeypatch.setattr(
        planning, "division_picture", lambda body, division, title: np.zeros((4, 4, 3), np.uint8)
    )
    monkeypatch.setattr(planning, "standing_box", lambda body, division, piece: ([0.0] * 3, [0.1] * 3))


def run_all(project, scan):
    return {e.name: bring_up_to_date(project, scan, e).outcome for e in scan_entries(project, scan)}


def test_the_stages_of_a_slice_are_halve_and_everything_after_it():
    later = {"halve"}
    for name, stage in STAGES.items():
        if later & {read.partition("/")[0] for read in stage.reads}:
            later.add(name)
    assert set(STAGES_OF_A_SLICE) == later


def test_slices_run_on_the_fruits_results_and_another_thickness_leaves_the_fruit_alone(
    project, tmp_path, no_picture
):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    run_all(project, "apple")
    write_plan(project, plan_of(0.01, 2))
    scans = slice_scans(project, "apple")
    assert scans == ["apple-slice-01", "apple-slice-02"]
    for scan in scans:
        assert set(run_all(project, scan)) == set(STAGES_OF_A_SLICE)
    folder = project.scan_dir("apple-slice-01")
    assert home_of(folder, "calibrate/metrics.json") == project.scan_dir("apple")
    assert not (folder / "calibrate").exists() and (folder / "export").is_dir()
    assert set(run_all(project, scans[0]).values()) == {Outcome.UNCHANGED}

    write_plan(project, plan_of(0.012, 2))
    states = {(row.scan, row.stage): row.state for row in read_status(project, ["apple", *scans])}
    assert {state for (scan, _), state in states.items() if scan == "apple"} == {"fresh"}
    assert states["apple-slice-02", "halve"] == "stale"


def test_a_smaller_plan_removes_slices_but_never_measurements(project, tmp_path, no_picture):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    write_plan(project, plan_of(0.01, 3))
    assert write_plan(project, plan_of(0.015, 2)) == ["apple-slice-03"]
    assert read_plan(project, "apple").scans == ("apple-slice-01", "apple-slice-02")
    (project.scan_dir("apple-slice-02") / "measured").mkdir()
    with pytest.raises(InputError, match="measurements"):
        write_plan(project, plan_of(0.03, 1))
    assert read_plan(project, "apple").division.cuts[0].to_m == 0.015, "the former plan is unchanged"
    assert len(slice_scans(project, "apple")) == 2


def test_a_known_motion_and_what_was_learnt_survive_another_plan(project, tmp_path, no_picture):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    write_plan(project, plan_of(0.01, 1))
    start_from(project, "apple-slice-01", [[0.1, 10.0, 1.0], [0.1, 9.0, 1.0]])
    planning.set_slice(project, "apple-slice-01", {"transport": {"amplitude": 1.2}})
    write_plan(project, plan_of(0.012, 1))
    content = yaml.safe_load((project.scan_dir("apple-slice-01") / "scan.yaml").read_text())
    assert content["optimize"]["first_motion"] == [[0.1, 10.0, 1.0], [0.1, 9.0, 1.0]]
    assert content["transport"] == {"amplitude": 1.2}
    start_from(project, "apple-slice-01", [[0.2, 1.0, 1.0]])
    content = yaml.safe_load((project.scan_dir("apple-slice-01") / "scan.yaml").read_text())
    assert len(content["optimize"]["first_motion"]) == 2, "a start that is known already is kept"


def test_a_chosen_motion_stays_with_its_cut_and_that_of_the_fruit_with_the_fruit(
    project, tmp_path, no_picture
):
    """The fruit's own cut was chosen from a curve, too: its motion and duration are not those of the slices."""
    point = {"descent_s": 0.7, "max_acceleration_along_m_s2": 2.5, "first_motion": [[0.1, 10.0, 1.0]] * 2}
    chosen = settings_of(point)
    scan = write_scan(tmp_path, "apple.ply")
    register_scan(project, Request(scan, overrides={"optimize": {**chosen["optimize"], "final_strokes": 2}}))

    def settings():
        return yaml.safe_load((project.scan_dir("apple-slice-01") / "scan.yaml").read_text())["optimize"]

    write_plan(project, plan_of(0.01, 1))
    assert settings()["final_strokes"] == 2
    assert not {"duration_s", "first_motion", "iterations"} & set(settings())
    start_from(project, "apple-slice-01", [[0.2, 9.0, 1.0]])
    take_over(project, "apple", {"slices": [point]})
    before = settings()
    assert before["iterations"] == 1 and before["duration_s"] == 0.7 and before["confirm"] is False
    write_plan(project, plan_of(0.01, 1))
    assert settings() == before, "the same plan keeps the chosen motion, so that nothing becomes stale"
    write_plan(project, plan_of(0.012, 1))
    other = settings()
    assert other["first_motion"] == point["first_motion"], "another cut starts from it"
    assert "duration_s" not in other and other["iterations"] > 1


def test_a_slice_takes_no_settings_of_its_own(project, tmp_path, no_picture):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    write_plan(project, plan_of(0.01, 1))
    with pytest.raises(InputError, match="slice 1 of apple"):
        register_scan(
            project,
            Request(
                write_scan(tmp_path, "apple.ply"),
                scan_id="apple-slice-01",
                overrides={"cut": {"speed_m_s": 0.1}},
            ),
        )
    assert (
        register_scan(project, Request(write_scan(tmp_path, "apple.ply"), scan_id="apple-slice-01"))
        == "apple-slice-01"
    )


def test_bad_plans_are_rejected_with_a_message(project, tmp_path, no_picture):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    with pytest.raises(InputError, match="no plan of slices"):
        read_plan(project, "apple")
    with pytest.raises(InputError, match="no scan 'pear'"):
        read_plan(project, "pear")
    write_plan(project, plan_of(0.01, 1))
    with pytest.raises(InputError, match="itself a slice"):
        planning.check_fruit(project, "apple-slice-01")
    (project.scan_dir("apple") / "slices" / "plan.json").write_text("{")
    with pytest.raises(InputError, match="can't be read"):
        read_plan(project, "apple")


@pytest.mark.parametrize("text", ["5", "5 inch", "five mm", "nanmm", "1e999mm", ""])
def test_a_length_needs_a_number_and_a_unit(text):
    with pytest.raises(InputError, match="--thickness"):
        _parse_length(text, "--thickness")


def test_lengths_and_directions():
    assert _parse_length("5mm", "") == pytest.approx(0.005)
    assert _parse_length(" 0.5 cm", "") == pytest.approx(0.005)
    assert _parse_normal("1,0,-1") == (1.0, 0.0, -1.0)
    with pytest.raises(InputError, match="three numbers"):
        _parse_normal("1,0")


def test_a_fruit_with_slices_is_neither_removed_nor_renamed(project, tmp_path, no_picture):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    write_plan(project, plan_of(0.01, 1))
    for change in (lambda: remove_scan(project, "apple"), lambda: rename_scan(project, "apple", "pear")):
        with pytest.raises(InputError, match="has 1 slices"):
            change()
    with pytest.raises(InputError, match="is a slice"):
        rename_scan(project, "apple-slice-01", "pear")
    remove_scan(project, "apple-slice-01")
    remove_scan(project, "apple")
    assert project.scan_ids() == []


@pytest.fixture
def executed(project, tmp_path, no_picture, monkeypatch):
    """A plan of three slices whose logs say what `measured` says; the prediction is 20 N times the planned factor."""
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    write_plan(project, plan_of(0.01, 3))
    measured = {}

    def compare(scan_dir, log, air):
        factor = learning._planned_factor(project, scan_dir.name)
        return {
            "mean_measured_n": measured[scan_dir.name[-2:]],
            "mean_predicted_n": 20.0 * factor,
            "simulated": True,
            "table": "force.csv",
        }

    monkeypatch.setattr(learning, "compare_executed", compare)
    monkeypatch.setattr(learning, "read_table", lambda scan_dir, name: pl.DataFrame({"force_n": [1.0]}))
    monkeypatch.setattr(learning, "_picture", lambda *_: np.zeros((4, 4, 3), np.uint8))
    return measured


def test_an_executed_slice_changes_the_remaining_ones_only(project, tmp_path, executed):
    executed |= {"01": 40.0, "02": 36.0}
    first = learning.add_executed(project, "apple", 1, tmp_path / "log.json", None)
    assert first["amplitude"]["factor"] == pytest.approx(np.sqrt(2.0)) and first["remaining"] == [2, 3]
    assert "more force than planned" in first["replan"]
    learning.replan(project, "apple", first["amplitude"], first["remaining"])
    factors = [learning._planned_factor(project, scan) for scan in read_plan(project, "apple").scans]
    assert factors == pytest.approx([1.0, 1.4142, 1.4142])
    second = learning.add_executed(project, "apple", 2, tmp_path / "log.json", None)
    assert second["executed"]["2"]["ratio"] == pytest.approx(36.0 / 20.0), "against the calibrated model"
    assert second["amplitude"]["slices"] == 2 and second["remaining"] == [3]
    again = learning.add_executed(project, "apple", 2, tmp_path / "log.json", None)
    assert again["amplitude"] == second["amplitude"], "a second log of a slice replaces the first"


def test_bad_logs_of_slices_are_rejected_and_change_nothing(project, tmp_path, executed):
    executed["01"] = 0.0
    with pytest.raises(InputError, match="1 to 3"):
        learning.add_executed(project, "apple", 4, tmp_path / "log.json", None)
    with pytest.raises(InputError, match="must be positive"):
        learning.add_executed(project, "apple", 1, tmp_path / "log.json", None)
    assert learning.read_executed(project, "apple") == {}
    (project.scan_dir("apple") / "slices" / "learnt.json").write_text("{}")
    with pytest.raises(InputError, match="Remove it"):
        learning.read_executed(project, "apple")
