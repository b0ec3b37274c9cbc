"""The recording for other viewers: what was written can be read back by their own libraries."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.report.viewer import _GRAIN_M, WEDGE, _viewer_data, blade_points, need, read_recording
from stages.runtime.errors import InputError
from tests.pipelines.report_scene import FRAMES, METRICS, ROWS, make_project, make_scan


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    project = make_project(tmp_path_factory.mktemp("replay") / "project")
    make_scan(project, "apple", factor=0.06)
    return read_recording(project, "apple")


def test_packed_positions_are_within_half_a_grain(recording):
    import base64

    import numpy as np

    packed = np.frombuffer(base64.b64decode(_viewer_data(recording)["vertices"]), "<i2").reshape(-1, 3)
    exact = recording.vertices["position_m"].to_numpy()
    # Half a grain of rounding, and single precision of the table.
    assert np.abs(packed * _GRAIN_M - exact).max() <= 0.5 * _GRAIN_M + 1e-8


def test_blade_is_closed_and_of_its_size():
    points = blade_points(METRICS["replay"])
    edges = [(face[i], face[(i + 1) % 3]) for face in WEDGE for i in range(3)]
    assert sorted(edges) == sorted((b, a) for a, b in edges)
    assert max(p[2] for p in points) - min(p[2] for p in points) == METRICS["replay"]["blade_length_m"]


def test_a_missing_viewer_is_named_with_its_extra():
    with pytest.raises(InputError, match=r"scan2cut\[holodeck\]"):
        need("holodeck_of_nobody", "holodeck")


def test_usd_file(recording, tmp_path):
    usd = pytest.importorskip("pxr.Usd")
    geom = pytest.importorskip("pxr.UsdGeom")
    from pipelines.report.viewer import write_usd

    stage = usd.Stage.Open(str(write_usd(recording, tmp_path / "cut.usda")))
    fruit = geom.Mesh(stage.GetPrimAtPath("/cut/fruit"))
    assert len(fruit.GetPointsAttr().GetTimeSamples()) == FRAMES
    assert len(fruit.GetPointsAttr().Get(stage.GetEndTimeCode())) == ROWS
    assert geom.GetStageMetersPerUnit(stage) == 1.0
    with pytest.raises(InputError, match=r"\.usdc"):
        write_usd(recording, tmp_path / "cut.obj")


def test_rerun_file(recording, tmp_path):
    pytest.importorskip("rerun")
    from pipelines.report.viewer import write_rrd

    path = write_rrd(recording, tmp_path / "cut.rrd")
    rerun = Path(sys.executable).with_name("rerun")
    if not rerun.exists():
        pytest.skip("rerun's own checker is not beside this Python")
    result = subprocess.run(
        [rerun, "rrd", "verify", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
