"""The recipes of examples/recipes write what their readers read; readers that are not installed are skipped."""

import json
import os
import subprocess

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from examples.recipes import lerobot_dataset, mcap_in_rerun, usd_tets
from stages.export.trajectory_files import Trajectory, mcap_bytes

READ = """
import sys
from lerobot.datasets.lerobot_dataset import LeRobotDataset
data = LeRobotDataset("scan2cut/cuts", root=sys.argv[1])
print(len(data), data.num_episodes, data[3]["observation.state"].shape[0], data[3]["task"])
"""


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    series = [
        pl.Series(name, values, dtype=pl.Array(pl.Float64, values.shape[1]) if values.ndim == 2 else None)
        for name, values in columns.items()
    ]
    pl.DataFrame(series).write_parquet(path)


@pytest.fixture
def scans(tmp_path):
    """Two scans with a synthetic log of 0.5 s at 200 Hz and one tet."""
    folders = [tmp_path / name for name in ("apple", "pear")]
    time = np.arange(100) * 0.005
    rows = np.column_stack([0.0 * time, 0.1 - time, time])
    for folder in folders:
        write(
            folder / "ingest/force.parquet",
            time_s=time,
            position_m=rows,
            velocity_m_s=-rows,
            force_n=10 * rows,
        )
        corners = np.array([[0.0, 0, 0], [0.01, 0, 0], [0, 0.01, 0], [0, 0, 0.01]])
        write(folder / "tetrahedralize/nodes.parquet", position_m=corners)
        tets = pl.Series("nodes", [[0, 1, 2, 3]], dtype=pl.Array(pl.Int32, 4))
        pl.DataFrame([tets]).write_parquet(folder / "tetrahedralize/tets.parquet")
    return folders


def test_lerobot_dataset(scans, tmp_path):
    out = tmp_path / "data"
    frames = lerobot_dataset.write(out, scans)
    data = pq.read_table(out / "data/chunk-000/file-000.parquet")
    info = json.loads((out / "meta/info.json").read_text())
    assert len(data) == frames == info["total_frames"] == 2 * 49
    assert set(info["features"]) == set(data.column_names)
    state, action = (np.array(data[name].to_pylist()) for name in ("observation.state", "action"))
    assert np.allclose(action[:48], state[1:49, :3]), "the action is the position one frame later"
    assert np.allclose(state[:49, 7], 10 * state[:49, 1], atol=1e-5)
    episodes = pq.read_table(out / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [(row["dataset_from_index"], row["dataset_to_index"]) for row in episodes] == [(0, 49), (49, 98)]
    reader = os.environ.get("SCAN2CUT_LEROBOT")
    if not reader:
        pytest.skip("SCAN2CUT_LEROBOT names no Python with lerobot>=0.4 (an environment of its own)")
    done = subprocess.run([reader, "-c", READ, out], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == "98 2 9 cut apple", done.stderr


def test_usd_tets(scans, tmp_path):
    geom = pytest.importorskip("pxr.UsdGeom")
    usd = pytest.importorskip("pxr.Usd")
    assert usd_tets.write(scans[0], tmp_path / "fruit.usda") == 1
    stage = usd.Stage.Open(str(tmp_path / "fruit.usda"))
    mesh = geom.TetMesh(stage.GetPrimAtPath("/fruit"))
    assert len(mesh.GetPointsAttr().Get()) == 4
    assert len(mesh.GetSurfaceFaceVertexIndicesAttr().Get()) == 4


def test_mcap_in_rerun(tmp_path):
    pytest.importorskip("rerun")
    names, still = tuple(f"joint{i}" for i in range(7)), np.zeros((5, 7))
    bag = tmp_path / "joint_trajectory.mcap"
    bag.write_bytes(mcap_bytes(Trajectory(names, np.arange(5) * 250_000_000, still, still, still)))
    assert mcap_in_rerun.write(bag, tmp_path / "out.rrd") == 5
