"""Measured cuts as a LeRobot data set (format v3.0), written with pyarrow alone.

    python examples/recipes/lerobot_dataset.py OUT data/scans/SCAN [data/scans/SCAN ...]

One episode per force log: the state is position and velocity of the edge and the force on the knife, the action the
position one frame later. Read it with `LeRobotDataset("scan2cut/cuts", root=OUT)`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FPS = 100
PLACE = {
    "data/chunk_index": 0,
    "data/file_index": 0,
    "meta/episodes/chunk_index": 0,
    "meta/episodes/file_index": 0,
}
STATE = [f"{name}_{axis}" for name in ("position_m", "velocity_m_s", "force_n") for axis in "xyz"]
ACTION = [f"position_m_{axis}" for axis in "xyz"]
NUMBERS = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


def episode(scan_dir: Path) -> dict[str, np.ndarray]:
    """Return state and action of a scan's measured cut at FPS."""
    table = pq.read_table(scan_dir / "ingest" / "force.parquet")
    time = table["time_s"].to_numpy()
    columns = [np.array(table[name].to_pylist(), float) for name in ("position_m", "velocity_m_s", "force_n")]
    frames = np.arange(time[0], time[-1], 1.0 / FPS)
    state = np.column_stack([np.interp(frames, time, column) for part in columns for column in part.T])
    return {"observation.state": state[:-1].astype(np.float32), "action": state[1:, :3].astype(np.float32)}


def statistics(values: np.ndarray) -> dict[str, list[float]]:
    """Return what LeRobot normalises with."""
    rows = np.asarray(values, float).reshape(len(values), -1)
    found = {name: getattr(np, name)(rows, axis=0).tolist() for name in ("min", "max", "mean", "std")}
    quantiles = {
        f"q{100 * q:02.0f}": np.quantile(rows, q, axis=0).tolist() for q in (0.01, 0.1, 0.5, 0.9, 0.99)
    }
    return found | {"count": [len(rows)]} | quantiles


def write(out: Path, scan_dirs: list[Path]) -> int:
    """Write the data set and return its number of frames."""
    episodes = [episode(path) for path in scan_dirs]
    lengths = [len(each["action"]) for each in episodes]
    tasks = list(dict.fromkeys(f"cut {path.name}" for path in scan_dirs))
    ends = np.cumsum(lengths)
    columns: dict[str, np.ndarray] = {
        name: np.concatenate([each[name] for each in episodes]) for name in ("observation.state", "action")
    }
    columns["timestamp"] = np.concatenate([np.arange(n, dtype=np.float32) / FPS for n in lengths]).astype(
        np.float32
    )
    columns["frame_index"] = np.concatenate([np.arange(n) for n in lengths])
    columns["episode_index"] = np.repeat(np.arange(len(episodes)), lengths)
    columns["index"] = np.arange(ends[-1])
    columns["task_index"] = np.repeat([tasks.index(f"cut {path.name}") for path in scan_dirs], lengths)
    for folder in ("data/chunk-000", "meta/episodes/chunk-000"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    data = pa.table(
        {
            name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
            if values.ndim == 2
            else values
            for name, values in columns.items()
        }
    )
    pq.write_table(data, out / "data/chunk-000/file-000.parquet")
    rows = [
        {
            "episode_index": i,
            "tasks": [f"cut {scan_dirs[i].name}"],
            "length": lengths[i],
            "dataset_from_index": int(ends[i]) - lengths[i],
            "dataset_to_index": int(ends[i]),
            **PLACE,
        }
        for i in range(len(episodes))
    ]
    pq.write_table(pa.Table.from_pylist(rows), out / "meta/episodes/chunk-000/file-000.parquet")
    _write_tasks(out / "meta/tasks.parquet", tasks)
    features = {"observation.state": _vector(STATE), "action": _vector(ACTION)} | {
        name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in NUMBERS.items()
    }
    info = {
        "codebase_version": "v3.0",
        "robot_type": "franka",
        "total_episodes": len(episodes),
        "total_frames": int(ends[-1]),
        "total_tasks": len(tasks),
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": FPS,
        "splits": {"train": f"0:{len(episodes)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": features,
    }
    (out / "meta/info.json").write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
    stats = {name: statistics(values) for name, values in columns.items()}
    (out / "meta/stats.json").write_text(json.dumps(stats, indent=2) + "\n", encoding="utf-8")
    return int(ends[-1])


def _vector(names: list[str]) -> dict[str, object]:
    return {"dtype": "float32", "shape": [len(names)], "names": names}


def _write_tasks(path: Path, tasks: list[str]) -> None:
    """Write the tasks as pandas would, with the text as index, which is how LeRobot reads them."""
    index = "__index_level_0__"
    table = pa.table({"task_index": list(range(len(tasks))), index: tasks})
    column = {"pandas_type": "int64", "numpy_type": "int64", "metadata": None}
    pandas = {
        "index_columns": [index],
        "column_indexes": [],
        "columns": [
            {"name": "task_index", "field_name": "task_index", **column},
            {
                "name": None,
                "field_name": index,
                "pandas_type": "unicode",
                "numpy_type": "object",
                "metadata": None,
            },
        ],
        "pandas_version": "2.2.0",
    }
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


if __name__ == "__main__":
    folder, *scans = (Path(argument) for argument in sys.argv[1:])
    print(f"{write(folder, scans)} frames in {folder}")
