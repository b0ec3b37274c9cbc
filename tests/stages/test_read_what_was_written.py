"""For every reader of logs and scans: what was written is read back as it was, or refused with a sentence."""

import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from disect_sim.errors import InputError
from stages.clean.scan_file import read_scan
from stages.ingest.log_file import read_log
from tests.stages.force_logs import SyntheticCut, recording, with_params
from tests.stages.ros_logs import write_bag

EXAMPLES = 15
FEW = 3
"""Examples of ROS recordings, which take a second each to write."""
NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)
NAMES = ("x", "y", "z", "fx", "fy", "fz")
IN_COLUMNS = with_params(columns={"time": "t", "position": NAMES[:3], "force": NAMES[3:]}, allow_pickle=True)
IN_ARRAYS = with_params(columns={"time": "time", "position": "position", "force": "force"})
Rows = np.ndarray
"""Six numbers per sample: position and force."""


def logs() -> st.SearchStrategy[Rows]:
    return st.integers(2, 12).flatmap(lambda n: arrays(np.float64, (n, 6), elements=NUMBERS))


def times(rows: Rows) -> np.ndarray:
    return np.arange(len(rows)) / 128.0  # exact in nanoseconds and in decimal text


def frame(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame({"t": times(rows), **{name: rows[:, i] for i, name in enumerate(NAMES)}})


def as_cut(rows: Rows) -> SyntheticCut:
    return SyntheticCut(times(rows), rows[:, :3], rows[:, 3:], rows[:, 3:])


def write_csv(path: Path, rows: Rows) -> None:
    frame(rows).write_csv(path)


def write_parquet(path: Path, rows: Rows) -> None:
    frame(rows).write_parquet(path)


def write_npz(path: Path, rows: Rows) -> None:
    np.savez(path, time=times(rows), position=rows[:, :3], force=rows[:, 3:])


def write_pickle(path: Path, rows: Rows) -> None:
    path.write_bytes(
        pickle.dumps(
            {"time": times(rows), "position": rows[:, :3], "force": np.pad(rows[:, 3:], ((0, 0), (0, 3)))}
        )
    )


def write_json(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps(recording(as_cut(rows))))


def write_ros(path: Path, rows: Rows) -> None:
    write_bag(path, as_cut(rows))


LOGS: dict[str, tuple[Callable[[Path, Rows], None], object]] = {
    "log.csv": (write_csv, IN_COLUMNS),
    "log.parquet": (write_parquet, IN_COLUMNS),
    "log.npz": (write_npz, IN_ARRAYS),
    "log.pkl": (write_pickle, IN_COLUMNS),
    "log.json": (write_json, with_params()),
    "log.bag": (write_ros, with_params()),
    "log.mcap": (write_ros, with_params()),
    "log.db3": (write_ros, with_params()),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_as_it_was_written(name: str) -> None:
    write, params = LOGS[name]
    examples = FEW if write is write_ros else EXAMPLES
    read = 0

    @settings(max_examples=examples)
    @given(rows=logs())
    def check(rows: Rows) -> None:
        nonlocal read
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            write(path, rows)
            try:
                log = read_log(path, params)  # type: ignore[arg-type]
            except InputError as error:
                assert str(error).endswith(".")
                return
        read += 1
        assert np.allclose(log.time_s - log.time_s[0], times(rows), rtol=0.0, atol=1e-6)
        assert np.allclose(log.position_m, rows[:, :3], rtol=1e-12, atol=1e-12)
        assert log.force_n is not None
        assert np.allclose(log.force_factor * log.force_n, rows[:, 3:], rtol=1e-12, atol=1e-12)

    check()
    assert read > examples // 2, "most of them are logs"


def obj(vertices: np.ndarray, faces: np.ndarray) -> str:
    lines = [f"v {x!r} {y!r} {z!r}" for x, y, z in vertices.tolist()]
    return "\n".join(lines + [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in faces.tolist()]) + "\n"


def off(vertices: np.ndarray, faces: np.ndarray) -> str:
    lines = ["OFF", f"{len(vertices)} {len(faces)} 0"]
    lines += [f"{x!r} {y!r} {z!r}" for x, y, z in vertices.tolist()]
    return "\n".join(lines + [f"3 {a} {b} {c}" for a, b, c in faces.tolist()]) + "\n"


def ply(vertices: np.ndarray, faces: np.ndarray) -> str:
    head = f"ply\nformat ascii 1.0\nelement vertex {len(vertices)}\nproperty double x\nproperty double y\n"
    head += (
        f"property double z\nelement face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    return head + "".join(line + "\n" for line in off(vertices, faces).splitlines()[2:])


def xyz(vertices: np.ndarray, _faces: np.ndarray) -> str:
    return "".join(f"{x!r} {y!r} {z!r}\n" for x, y, z in vertices.tolist())


def pcd(vertices: np.ndarray, faces: np.ndarray) -> str:
    count = len(vertices)
    head = "VERSION .7\nFIELDS x y z\nSIZE 8 8 8\nTYPE F F F\nCOUNT 1 1 1\n"
    return f"{head}WIDTH {count}\nHEIGHT 1\nPOINTS {count}\nDATA ascii\n{xyz(vertices, faces)}"


SCANS = {"scan.obj": obj, "scan.off": off, "scan.ply": ply, "scan.xyz": xyz, "scan.pcd": pcd}


@pytest.mark.parametrize("name", SCANS)
def test_a_scan_is_read_as_it_was_written(name: str) -> None:
    read = 0

    @settings(max_examples=EXAMPLES)
    @given(seed=st.integers(0, 10**6), count=st.integers(300, 400), scale=st.floats(1e-3, 1e3))
    def check(seed: int, count: int, scale: float) -> None:
        nonlocal read
        draw = np.random.default_rng(seed)
        vertices = draw.uniform(-scale, scale, (count, 3))
        order = draw.permutation(count)
        faces = np.stack([order, np.roll(order, 1), np.roll(order, 2)], axis=1)  # every vertex is used
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_text(SCANS[name](vertices, faces))
            try:
                scan = read_scan(path, max_faces=10_000)
            except InputError as error:
                assert str(error).endswith(".")
                return
        read += 1
        assert np.allclose(scan.vertices, vertices, rtol=1e-6, atol=1e-6 * scale)
        if not scan.is_cloud:
            assert np.array_equal(scan.faces, faces)

    check()
    assert read > EXAMPLES // 2, "most of them are scans"
