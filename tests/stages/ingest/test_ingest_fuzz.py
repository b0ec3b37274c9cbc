"""Damaged logs of every format: each is read or refused with a sentence, nothing else happens."""

import json
import pickle

import numpy as np
import polars as pl
import pytest

from stages.ingest.ingest import ingest
from stages.ingest.log_file import read_log
from stages.runtime.errors import InputError
from tests.stages.force_logs import joints_of, libfranka_text, recording, synthetic_cut, with_params
from tests.stages.ros_logs import write_bag

COLUMNS = {"time": "t", "position": ["x", "y", "z"], "force": ["fx", "fy", "fz"]}
PARAMS = with_params(columns=COLUMNS, allow_pickle=True)
ROUNDS = 40
FORMATS = ("json", "jsonl", "libfranka.csv", "csv", "parquet", "npz", "pkl", "bag", "mcap", "db3")


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory):
    """A whole log of every format, as bytes."""
    folder, cut = tmp_path_factory.mktemp("whole"), synthetic_cut(rate_hz=60.0)
    content = recording(cut)
    flat = dict(
        zip(
            ["t", "x", "y", "z", "fx", "fy", "fz"],
            [cut.time_s, *cut.position_m.T, *cut.reading_n.T],
            strict=True,
        )
    )
    (folder / "log.json").write_text(json.dumps(content))
    keys = ("O_T_EE", "O_F_ext_hat_K")
    lines = [{"time": 1e3 * t, **{k: content[k][i] for k in keys}} for i, t in enumerate(cut.time_s)]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "log.libfranka.csv").write_text(libfranka_text(cut, joints_of(cut), old=False))
    pl.DataFrame(flat).write_csv(folder / "log.csv")
    pl.DataFrame(flat).write_parquet(folder / "log.parquet")
    np.savez_compressed(folder / "log.npz", **flat)
    paper = {"time": cut.time_s, "force": cut.reading_n, "position": cut.position_m}
    (folder / "log.pkl").write_bytes(pickle.dumps(paper))
    for suffix in ("bag", "mcap", "db3"):
        pytest.importorskip("rosbags")
        (folder / suffix).mkdir()
        write_bag(folder / suffix / f"log.{suffix}", cut)
        (folder / suffix / f"log.{suffix}").rename(folder / f"log.{suffix}")
    return {name: (folder / f"log.{name}").read_bytes() for name in FORMATS}


@pytest.mark.parametrize("name", FORMATS)
def test_damage_never_gives_a_traceback(whole_files, tmp_path, name):
    rng = np.random.default_rng(FORMATS.index(name))
    path = tmp_path / f"log.{name}"
    refused = 0
    for damage in range(ROUNDS):
        data = bytearray(whole_files[name])
        if damage % 4 == 0:
            data = data[: rng.integers(1, len(data))]
        else:
            for place in rng.integers(0, len(data), 1 + damage):
                data[place] = rng.integers(256)
        path.write_bytes(data)
        try:
            ingest(read_log(path, PARAMS), with_params(max_gap_s=0.1, tare_window_s=0.4))
        except InputError as error:
            refused += 1
            assert str(error).endswith(".")
    assert refused > ROUNDS / 4
