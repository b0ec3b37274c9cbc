"""The stage ingest: the truth of a synthetic cut comes back, real logs read what is known of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stages.ingest.force_recovery import force_on_knife
from stages.ingest.ingest import _further_table, empty_table, force_table, ingest, metrics
from stages.ingest.log_file import EXERTED, read_log
from stages.runtime.artifacts import read_metrics, read_notes, read_table
from stages.runtime.catalogue import artifacts_of
from stages.shared.input_files import LOGS_NOTE
from tests.real_data import real_file
from tests.stages.force_logs import (
    CONTACT_M,
    LOWEST_M,
    PARAMS,
    ROOT,
    synthetic_cut,
    with_params,
    write_recording,
)

TURNED = np.array([[-1, 0, 0], [0, 0, 1], [0, 1, 0]])
"""Base frame to cutting frame with the blade along base y."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A synthetic cut, its log, and three no-contact runs of it."""
    folder = tmp_path_factory.mktemp("logs")
    cut = synthetic_cut(seed=1)
    log = read_log(write_recording(folder / "cut.json", cut), PARAMS)
    airs = {
        f"air{i}.json": read_log(
            write_recording(folder / f"air{i}.json", synthetic_cut(seed=10 + i, air=True, first_s=12447.0)),
            PARAMS,
        )
        for i in range(3)
    }
    return cut, log, airs


def test_further_logs_become_rows_of_their_own(tmp_path):
    """In order, each as it would be alone; a folder that is none has no rows."""
    cuts = [synthetic_cut(seed=seed) for seed in (3, 4)]
    for number, cut in enumerate(cuts, start=2):
        write_recording(tmp_path / f"{number}-log.json", cut)
    write_recording(tmp_path / "3-air-air.json", synthetic_cut(seed=5, air=True))
    table = _further_table(tmp_path, PARAMS)
    second, third = table.partition_by("log", maintain_order=True)
    assert (second["log"][0], third["log"][0]) == (2, 3)
    alone = force_table(ingest(read_log(tmp_path / "2-log.json", PARAMS), PARAMS))
    assert second.drop("log").equals(alone)
    # The run in air swings by 1 N; the window takes one number away.
    assert third["air_n"].to_numpy()[:, 1].std() > 0.3 > second["air_n"].to_numpy()[:, 1].std()
    assert _further_table(tmp_path / "3-log.json", PARAMS).is_empty()


@pytest.mark.parametrize("tare", ["air", "window"])
def test_truth_of_a_synthetic_cut_comes_back(logs, tare):
    cut, log, airs = logs
    result = ingest(log, with_params(tare=tare), air_runs=airs)
    truth = cut.cutting_n @ TURNED.T
    moving = result.valid & (np.arange(len(truth)) > result.descent.top + 20)
    # By air: the noise of 0.1 N less the low-pass, and its blur of the kink at contact (0.6 N). By window: the arm's
    # reading swings by 0.5 N along the way, which one number can't take away.
    worst = 0.8 if tare == "air" else 1.4
    assert np.abs(result.filtered_n - truth)[moving].max() < worst
    assert np.sqrt(((result.filtered_n - truth)[moving] ** 2).mean()) < worst / 4
    # Contact is seen where the force reaches 0.5 N, 0.2 mm deep, less 20 ms of blur at 60 mm/s.
    assert result.position_m[result.onset, 1] == pytest.approx(CONTACT_M - LOWEST_M + 0.001, abs=0.0015)
    assert np.allclose(result.net_n + result.tare.force_n, result.raw_n, atol=1e-12)


def test_air_runs_make_it_better_than_the_window(logs):
    _, log, airs = logs
    by_air = ingest(log, PARAMS, air_runs=airs)
    by_window = ingest(log, PARAMS)
    assert by_air.residual_n < 0.5 * by_window.residual_n
    assert "3 no-contact runs" in by_air.tare.method
    assert "before contact" in by_window.tare.method


def test_motion_is_measured_from_the_board_and_its_velocity_follows(logs):
    cut, log, _ = logs
    result = ingest(log, PARAMS)
    assert result.position_m[:, 1].min() == pytest.approx(PARAMS.board_clearance_m, abs=1e-6)
    assert np.allclose(result.position_m[:, [0, 2]], 0.0, atol=1e-12)
    # The fall between two moments is the integral of the velocity.
    time, fall = result.time_s, result.velocity_m_s[:, 1]
    integral = np.concatenate([[0.0], np.cumsum(0.5 * np.diff(time) * (fall[1:] + fall[:-1]))])
    assert np.allclose(integral, result.position_m[:, 1] - result.position_m[0, 1], atol=2e-4)
    given = ingest(log, with_params(board_height_m=0.004))
    assert given.position_m[0, 1] == pytest.approx(cut.position_m[0, 2] - 0.004, abs=1e-12)
    assert given.board.startswith("given")


def test_rest_before_the_descent_is_not_valid(logs):
    _, log, airs = logs
    result = ingest(log, PARAMS, air_runs=airs)
    assert not result.valid[: result.descent.top].any()
    assert result.valid[result.descent.top :].mean() > 0.98


def test_uncertainty_grows_with_the_force(logs):
    _, log, _ = logs
    exact = ingest(log, with_params(scale_error_fraction=0.0, repeatability_n=0.0))
    assert np.allclose(exact.uncertainty_n, exact.residual_n)
    result = ingest(log, PARAMS)
    assert result.uncertainty_n.argmax() == result.filtered_norm_n.argmax()


def test_table_and_metrics_keep_the_contract(logs):
    _, log, airs = logs
    result = ingest(log, PARAMS, air_runs=airs)
    frame = force_table(result)
    assert frame.schema == empty_table().schema
    assert (frame["time_s"].diff().drop_nulls() > 0).all()
    force = frame["force_n"].to_numpy()
    assert np.allclose(np.linalg.norm(force, axis=1), frame["force_norm_n"].to_numpy())
    found = metrics(result, log.source_format, len(airs))
    assert found["samples"] == len(frame) == 360
    assert found["rate_hz"] == pytest.approx(200.0, rel=0.01)
    # 25 N times the norm of (0.2, 0.1, 1), almost reached 40 mm deep.
    assert found["peak_force_n"] == pytest.approx(25.0 * np.sqrt(1.05), rel=0.03)


def make_scan(folder: Path, log: Path | None, airs: tuple[Path, ...] = ()) -> Path:
    """A registered scan in a project that borrows this one's code."""
    for name in ("stages", "disect_sim", "pipelines", "params.yaml"):
        (folder / name).symlink_to(ROOT / name)
    scan = folder / "data" / "scans" / "apple"
    scan.mkdir(parents=True)
    (scan / "apple.ply").write_text("raw scan, not read by ingest")
    (scan / "dvc.yaml").symlink_to(ROOT / "pipelines" / "dvc" / "scan.dvc.yaml")
    if airs:
        (scan / "air").mkdir()
        for i, air in enumerate(airs):
            (scan / "air" / f"{i}.json").write_bytes(air.read_bytes())
    if log:
        (scan / "log.json").write_bytes(log.read_bytes())
    name = "log.json" if log else None
    content = {
        "id": "apple",
        "scan": "apple.ply",
        "log": name,
        "force_log": name or "apple.ply",
        "air_runs": "air" if airs else "apple.ply",
        "further_logs": "apple.ply",
        "cut_surface": "apple.ply",
        "material": "apple",
    }
    (scan / "scan.yaml").write_text(json.dumps(content))
    return scan


def run_stage(scan: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stages", "ingest", "data/scans/apple"],
        cwd=scan.parents[2],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def contents(scan: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((scan / "ingest").iterdir())}


def test_stage_writes_everything_and_a_bad_log_changes_nothing(tmp_path):
    log = write_recording(tmp_path / "cut.json", synthetic_cut(seed=1))
    airs = tuple(
        write_recording(tmp_path / f"air{i}.json", synthetic_cut(seed=i + 2, air=True)) for i in (1, 2)
    )
    scan = make_scan(tmp_path, log, airs)
    done = run_stage(scan)
    assert (done.returncode, done.stderr) == (0, "")
    before = contents(scan)
    assert set(before) == {Path(a.path).name for a in artifacts_of("ingest")}
    assert read_metrics(scan / "ingest" / "metrics.json")["air_runs"] == 2
    notes = read_notes(scan, "ingest/force")
    for key in (
        "robot",
        "source_format",
        "sha256 of log.json",
        "sha256 of 0.json",
        "units_found",
        "tare",
        "filter",
    ):
        assert notes[key]
    assert notes[LOGS_NOTE] == notes["sha256 of log.json"]
    assert "y = base z (up)" in notes["frame"]
    assert read_table(scan, "ingest/force").height == 360

    (scan / "log.json").write_text(log.read_text()[:5000])
    refused = run_stage(scan)
    assert refused.returncode == 2
    assert refused.stderr.startswith("ingest: log.json is not valid JSON")
    assert "Traceback" not in refused.stderr
    assert contents(scan) == before


def test_scan_without_a_log_gives_an_empty_table(tmp_path):
    scan = make_scan(tmp_path, None)
    done = run_stage(scan)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_metrics(scan / "ingest" / "metrics.json") == {"samples": 0, "source_format": None}
    table = read_table(scan, "ingest/force")
    assert table.height == 0
    assert table.schema == empty_table().schema


@pytest.mark.parametrize(
    ("fruit", "rate_hz", "contact_base_m", "peak_n"),
    [("apple", 193.4, 0.0504, 46.8), ("cucumber", 193.4, 0.0496, 19.9), ("potato", 97.5, 0.0601, 40.6)],
)
def test_real_cuts(fruit, rate_hz, contact_base_m, peak_n):
    """Contact heights were read from plots of the raw logs: 50, 50 and 60 mm above the base."""
    folder = real_file("panda", fruit)
    airs = {path.name: read_log(path, PARAMS) for path in sorted(folder.glob("air*.json"))}
    log = read_log(folder / "cut.json", PARAMS)
    above_base = with_params(board_height_m=0.0)
    result = ingest(log, above_base, air_runs=airs)
    found = metrics(result, log.source_format, len(airs))
    assert found["rate_hz"] == pytest.approx(rate_hz, abs=0.1)
    assert found["onset_height_m"] == pytest.approx(contact_base_m, abs=0.0005)
    assert found["peak_force_n"] == pytest.approx(peak_n, abs=0.1)
    # Moving in air the logs read 1.3 to 3.7 N; what is left after tare is within the repeatability of
    # 0.17 N times a few, as each run has friction of its own.
    assert 1.3 < found["tare_n"] < 3.7
    assert found["tare_residual_n"] < 0.8
    by_window = ingest(log, above_base)
    assert by_window.position_m[by_window.onset, 1] == pytest.approx(contact_base_m, abs=0.001)
    assert by_window.filtered_norm_n.max() == pytest.approx(peak_n, abs=0.6)


def test_known_mass_reads_its_weight():
    """500 g read +4.84 N of 4.905 N, in the sign of a force that the robot exerts: it holds the mass up."""

    def mean_upward(grams: int) -> float:
        log = read_log(real_file("panda", "known_mass", f"log_panda_mass{grams}g.json"), PARAMS)
        force, source = force_on_knife(log, "log")
        assert (source, log.force_factor) == ("logged force", EXERTED)
        return float(force[:, 2].mean())

    pull = mean_upward(500) - mean_upward(0)
    assert pull == pytest.approx(-4.84, abs=0.01)
    assert -pull == pytest.approx(0.5 * 9.81, rel=0.02)
