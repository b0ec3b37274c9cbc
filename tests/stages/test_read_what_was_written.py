"""For every reader of logs and scans: what was written is read back as it was, or refused with a sentence."""

import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stages.clean.scan_file import read_scan
from stages.ingest.log_file import read_log
from stages.runtime.errors import InputError
from stages.shared.input_files import CLOUD_SUFFIXES, LOG_FORMATS, MESH_SUFFIXES
from tests.stages.force_logs import (
    SyntheticCut,
    kth_tables,
    libfranka_text,
    recording,
    synthetic_cut,
    with_params,
    write_kth,
)
from tests.stages.ros_logs import write_bag
from tests.stages.scan_writers import WRITERS

EXAMPLES = 15
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking: a failing file is small as it is, and writing and reading it again takes minutes."""
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


def write_lines(path: Path, rows: Rows) -> None:
    content = recording(as_cut(rows))
    fields = (1e3 * times(rows), content["O_T_EE"], content["O_F_ext_hat_K"])
    samples = zip(*fields, strict=True)
    lines = [json.dumps({"time": t, "O_T_EE": pose, "O_F_ext_hat_K": wrench}) for t, pose, wrench in samples]
    path.write_text("\n".join(lines))


def write_archive(path: Path, rows: Rows) -> None:
    write_kth(path, kth_tables(as_cut(rows)))


def write_ros(path: Path, rows: Rows) -> None:
    write_bag(path, as_cut(rows))


LOGS: dict[str, tuple[str, Callable[[Path, Rows], None], object]] = {
    "log.csv": ("tables", write_csv, IN_COLUMNS),
    "log.parquet": ("tables", write_parquet, IN_COLUMNS),
    "log.npz": ("tables", write_npz, IN_ARRAYS),
    "log.zip": ("kth_sawing", write_archive, with_params()),
    "log.pkl": ("paper_pickle", write_pickle, IN_COLUMNS),
    "log.json": ("franka_json", write_json, with_params()),
    "log.jsonl": ("franka_json", write_lines, with_params()),
    "log.bag": ("ros_recording", write_ros, with_params()),
    "log.mcap": ("ros_recording", write_ros, with_params()),
    "log.db3": ("ros_recording", write_ros, with_params()),
}
"""By the name of the file: format, writer, parameters of the reader."""


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_as_it_was_written(name: str) -> None:
    _, write, params = LOGS[name]
    examples = FEW if write is write_ros else EXAMPLES
    read = 0

    @settings(max_examples=examples, phases=PHASES)
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


@pytest.mark.parametrize("old", [False, True], ids=["new", "before 0.9.1"])
def test_a_log_of_libfranka_is_read_as_it_was_written(old: bool, tmp_path: Path) -> None:
    """It has joints and torques, so what is compared is those."""
    cut = synthetic_cut(rate_hz=2.0)
    header = libfranka_text(cut, np.zeros((len(cut.time_s), 7)), old=old).splitlines()[0]
    path = tmp_path / "log.csv"

    @settings(max_examples=EXAMPLES, phases=PHASES)
    @given(
        rows=st.integers(2, 12).flatmap(lambda n: arrays(np.float64, (n, 14), elements=st.floats(-1e3, 1e3)))
    )
    def check(rows: Rows) -> None:
        between = ["", *["8"] * 43] if old else ["8"] * 43
        lines = [
            ",".join([repr(1e3 * t), "1", *map(repr, row[:7]), *["9"] * 28, *map(repr, row[7:]), *between])
            for t, row in zip(times(rows).tolist(), rows.tolist(), strict=True)
        ]
        path.write_text("\n".join([header, *lines]) + "\n")
        log = read_log(path, with_params())
        assert np.allclose(log.time_s, times(rows), rtol=0.0, atol=1e-9)
        assert np.array_equal(log.joints_rad, rows[:, :7])  # type: ignore[arg-type]
        assert np.array_equal(log.external_torque_nm, rows[:, 7:])  # type: ignore[arg-type]

    check()


def test_every_format_is_among_these() -> None:
    assert {known for known, _, _ in LOGS.values()} | {"libfranka_csv"} == set(LOG_FORMATS)
    assert {Path(name).suffix for name in WRITERS} == {*MESH_SUFFIXES, *CLOUD_SUFFIXES}


@pytest.mark.parametrize("name", WRITERS)
def test_a_scan_is_read_as_it_was_written(name: str) -> None:
    read = 0

    @settings(max_examples=EXAMPLES, phases=PHASES)
    @given(seed=st.integers(0, 10**6), count=st.integers(300, 400), scale=st.floats(1e-3, 1e3))
    def check(seed: int, count: int, scale: float) -> None:
        nonlocal read
        draw = np.random.default_rng(seed)
        vertices = draw.uniform(-scale, scale, (count, 3))
        order = draw.permutation(count)
        faces = np.stack([order, np.roll(order, 1), np.roll(order, 2)], axis=1)  # every vertex is used
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(WRITERS[name](vertices, faces))
            try:
                scan = read_scan(path, max_faces=10_000)
            except InputError as error:
                assert str(error).endswith(".")
                return
        read += 1
        # STL, glTF and binary PCD hold 32-bit numbers: 6e-8 of the largest
        if scan.is_cloud:
            assert np.allclose(scan.vertices, vertices, rtol=0.0, atol=1e-6 * scale)
        else:
            assert np.allclose(scan.vertices[scan.faces], vertices[faces], rtol=0.0, atol=1e-6 * scale)

    check()
    assert read > EXAMPLES // 2, "most of them are scans"
