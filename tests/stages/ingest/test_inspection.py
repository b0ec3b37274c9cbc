"""A look at logs and scans before a run: all that is missing at once, with settings that work."""

import json

import numpy as np
import pytest
import trimesh
from typer.testing import CliRunner

from pipelines.cli.main import app
from stages.clean.clean import inspect_scan
from stages.ingest.ingest import ingest
from stages.ingest.inspection import inspect_log
from stages.ingest.log_file import read_log
from stages.runtime.params import load_params
from tests.stages.calibration_scenes import ROOT

PARAMS = load_params(ROOT / "params.yaml").ingest
SAMPLE = ROOT / "data" / "sample" / "synthetic_apple_log.json"


@pytest.fixture(scope="module")
def sample():
    """Time [s], position [m] and exerted force [N] of the bundled synthetic log, z up."""
    content = json.loads(SAMPLE.read_text())
    pose, force = np.array(content["O_T_EE"]), np.array(content["O_F_ext_hat_K"])
    return np.array(content["time"]), pose[:, 12:15], force[:, :3]


def table(path, sample, *, header, clock=1.0, length=1.0, order=(0, 1, 2), sign=1.0):
    time, position, force = sample
    columns = [clock * time] if "t" in header.split(",")[0] else []
    rows = np.column_stack([*columns, length * position[:, order], sign * force[:, order]])
    np.savetxt(path, rows, delimiter=",", header=header, comments="")
    return path


def test_a_good_log_needs_nothing():
    found = inspect_log(SAMPLE, PARAMS, {})
    assert found.readable and not found.problems and not found.settings
    facts = dict(found.facts)
    assert "200 Hz" in facts["samples"] and "exerted" in facts["logged force"]
    assert found.picture.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("header", "how", "settings"),
    [
        ("time,x,y,z,fx,fy,fz", {"sign": -1.0}, {}),
        ("t_ms,pos_x,pos_y,pos_z,force_x,force_y,force_z", {"clock": 1e3, "sign": -1.0}, {"time_unit": "ms"}),
        ("time,x,y,z,fx,fy,fz", {"length": 1e3, "sign": -1.0}, {"length_unit": "mm"}),
        ("time,x,y,z,fx,fy,fz", {"sign": 1.0}, {"force_is": "exerted"}),
        (
            "timestamp,tcp_x,tcp_y,tcp_z,Fx,Fy,Fz",
            {"clock": 1e9, "length": 1e3, "order": (0, 2, 1), "sign": -1.0},
            {"time_unit": "ns", "length_unit": "mm", "up_axis": "y", "blade_axis": "z"},
        ),
    ],
)
def test_what_a_table_lacks_comes_with_settings_that_work(tmp_path, sample, header, how, settings):
    """All of it at once: with the proposed settings the log gives the force of the original one."""
    path = table(tmp_path / "own.csv", sample, header=header, **how)
    found = inspect_log(path, PARAMS, {})
    assert found.readable and found.problems
    assert {key: value for key, value in found.settings.items() if key != "columns"} == settings
    params = PARAMS.changed(**found.settings)
    record = ingest(read_log(path, params), params)
    expected = ingest(read_log(SAMPLE, PARAMS), PARAMS)
    assert np.linalg.norm(record.filtered_n, axis=1) == pytest.approx(
        np.linalg.norm(expected.filtered_n, axis=1), abs=1e-6
    )


def test_what_can_not_be_guessed_is_asked_for(tmp_path, sample):
    clockless = table(tmp_path / "own.csv", sample, header="x,y,z,fx,fy,fz")
    found = inspect_log(clockless, PARAMS, {})
    assert not found.readable and "ingest.sample_rate_hz=RATE" in found.problems[-1]
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n3,4\n")
    assert "None of the columns look like" in inspect_log(tmp_path / "odd.csv", PARAMS, {}).problems[-1]
    (tmp_path / "what.bin").write_bytes(b"\x00\x01nothing")
    assert "unknown format" in inspect_log(tmp_path / "what.bin", PARAMS, {}).problems[0]


def test_a_scan_is_described_with_its_unit(tmp_path):
    ball = trimesh.creation.icosphere(radius=0.04)
    ball.export(tmp_path / "ball.ply")
    params = load_params(ROOT / "params.yaml").clean
    found = inspect_scan(tmp_path / "ball.ply", params)
    assert not found.problems and "80 × 80 × 80 mm" in dict(found.facts)["size"]
    ball.apply_scale(100.0)
    ball.export(tmp_path / "large.ply")
    found = inspect_scan(tmp_path / "large.ply", params)
    assert "ambiguous" in found.problems[0] and found.settings == {"unit": "cm"}


def test_the_command_says_all_and_its_exit_code_follows(tmp_path, sample, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = table(tmp_path / "own.csv", sample, header="t_ms,x,y,z,fx,fy,fz", clock=1e3, length=1e3, sign=-1.0)
    answer = CliRunner().invoke(app, ["inspect", str(path), "--json"])
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert "--set 'ingest.time_unit=ms'" in found["set"] and "--set 'ingest.length_unit=mm'" in found["set"]
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n3,4\n")
    assert CliRunner().invoke(app, ["inspect", str(tmp_path / "odd.csv")]).exit_code == 2
