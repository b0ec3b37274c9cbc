"""Synthetic logs of executed cuts against the motion they were made from. Nothing here was measured."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stages.export.executed import compare_executed
from stages.runtime.artifacts import write_table
from stages.runtime.errors import InputError
from tests.stages.synthetic_cut import PARAMS, body_tables, certified_folder, motion_table

MOTION, BODY = motion_table(), body_tables()


@pytest.fixture(scope="module")
def scan_dir(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("scan") / "apple"
    certified_folder(directory / "export" / "cut", MOTION, PARAMS)
    for name, frame in zip(("halve/vertices", "halve/faces"), BODY, strict=True):
        write_table(directory, name, frame)
    return directory


def write_log(scan_dir: Path, path: Path, *, factor: float, motion: str = "cut", bias: float = 4.0) -> Path:
    """A log as run_cut.py writes it, whose force is the predicted one times a factor, with a bias and noise."""
    folder = scan_dir / "export" / "cut" / "certified"
    document = json.loads((folder / "cut.json").read_text())
    begin = next(round(1000 * p["start_s"]) for p in document["timing"]["phases"] if p["phase"] == "cut")
    force = np.zeros((document["timing"]["samples"], 3))
    cut = pl.read_parquet(folder / "motion.parquet")["force_n"].to_numpy()
    force[begin : begin + len(cut)] = factor * cut @ np.array(document["frames"]["O_T_C"])[:3, :3].T
    force += np.random.default_rng(0).normal(0.0, 0.2, force.shape)
    wrench = np.concatenate([-(force + np.array([0.0, 0.0, bias])), np.zeros_like(force)], axis=1)
    header = {
        "motion": motion,
        "content_sha256": document["certificate"]["content_sha256"],
        "ended": "finished",
    }
    content = {
        "motion_step": list(range(len(force))),
        "O_F_ext_hat_K": wrench.tolist(),
        "scan2cut": {"scan": "synthetic", **header},
    }
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("factor", "held", "inside"),
    [(1.1, True, True), (1.24, True, True), (1.8, False, False), (0.5, False, False)],
)
def test_prediction_that_holds_and_one_that_does_not(scan_dir, tmp_path, factor, held, inside):
    found = compare_executed(scan_dir, write_log(scan_dir, tmp_path / f"cut{factor}.json", factor=factor))
    assert found["held"] is held and ("did NOT hold" in found["verdict"]) is not held
    assert found["mean_measured_n"] / found["mean_predicted_n"] == pytest.approx(factor, rel=0.03)
    # 90 of 100 cuts are within a factor exp(1.6449 * 0.187) = 1.361 of the predicted force.
    assert found["inside_band"] is inside
    assert f"{'inside' if inside else 'outside'} the 90 % band (0.73 to 1.36)" in found["verdict"]
    table = pl.read_csv(found["table"])
    assert table.columns == ["time_s", "measured_n", "predicted_n"] and len(table) == len(MOTION)
    assert Path(found["picture"]).read_bytes().startswith(b"\x89PNG")
    assert "--log" in found["calibrate_with"] and "ingest.board_height_m=0.03" in found["calibrate_with"]
    assert Path(found["calibrate_with"].split()[2]).is_file()


def test_air_cut_is_the_tare(scan_dir, tmp_path):
    cut = write_log(scan_dir, tmp_path / "cut.json", factor=1.0, bias=9.0)
    air = write_log(scan_dir, tmp_path / "air.json", factor=0.0, motion="air_cut", bias=9.0)
    found = compare_executed(scan_dir, cut, air)
    assert found["held"] and found["mean_error_fraction"] < 0.05
    empty = write_log(scan_dir, tmp_path / "empty.json", factor=0.0)
    assert "was the fruit there?" in compare_executed(scan_dir, empty, air)["verdict"]
    content = json.loads(cut.read_text())
    content["scan2cut"]["simulated"] = True
    content["O_T_EE"] = [[0.0] * 14 + [height, 1.0] for height in (0.1, 0.02914, 0.05)]
    cut.write_text(json.dumps(content))
    found = compare_executed(scan_dir, cut, air)
    assert found["verdict"].startswith("A simulated robot, nothing was")
    assert "ingest.board_height_m=0.0291'" in found["calibrate_with"], "an edge below the board is refused"
    with pytest.raises(InputError, match="of the wrong motion"):
        compare_executed(scan_dir, air)


@pytest.mark.parametrize("ended", ["Ctrl-C was pressed.", "The force reached 60 N, more than 44 N."])
def test_a_log_that_ended_early_is_not_judged_and_not_fitted(scan_dir, tmp_path, ended):
    log = write_log(scan_dir, tmp_path / "cut.json", factor=1.0)
    content = json.loads(log.read_text())
    content["scan2cut"]["ended"] = ended
    log.write_text(json.dumps(content))
    found = compare_executed(scan_dir, log)
    assert found["held"] is False and found["calibrate_with"] == ""
    assert ended.rstrip(".") in found["verdict"] and "not judged" in found["verdict"]


def test_an_empty_board_is_not_judged_and_not_fitted(scan_dir, tmp_path):
    """Also if the arm reads more than in air, but not where the fruit was: 30 N of friction along the way."""
    log = write_log(scan_dir, tmp_path / "empty.json", factor=0.0)
    content = json.loads(log.read_text())
    rubbing = np.array(content["O_F_ext_hat_K"])
    rubbing[:, 1] += 30.0 * np.sin(np.arange(len(rubbing)) / 40.0)
    for wrench in (content["O_F_ext_hat_K"], rubbing.tolist()):
        log.write_text(json.dumps(content | {"O_F_ext_hat_K": wrench}))
        found = compare_executed(scan_dir, log)
        assert found["held"] is False and found["calibrate_with"] == "", found["verdict"]
        assert "was the fruit there?" in found["verdict"]


def test_logs_of_other_exports_and_other_files_are_refused(scan_dir, tmp_path):
    log = write_log(scan_dir, tmp_path / "cut.json", factor=1.0)
    content = json.loads(log.read_text())
    content["scan2cut"]["content_sha256"] = "0" * 64
    log.write_text(json.dumps(content))
    with pytest.raises(InputError, match="recorded with another export"):
        compare_executed(scan_dir, log)
    log.write_text("{}")
    with pytest.raises(InputError, match=r"is not a log of run_cut\.py"):
        compare_executed(scan_dir, log)
    with pytest.raises(InputError, match="has no certified motion"):
        compare_executed(tmp_path, log)
