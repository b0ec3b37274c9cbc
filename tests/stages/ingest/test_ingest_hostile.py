"""Logs that can't be trusted: each is refused with a sentence that says what, the rule and the remedy."""

import json
import os
import pickle
import random
import re
import time
import zipfile

import numpy as np
import polars as pl
import pytest

from stages.ingest.ingest import ingest
from stages.ingest.log_file import read_log
from stages.runtime.errors import InputError
from stages.shared.input_files import time_limit
from tests.stages.force_logs import PARAMS, recording, synthetic_cut, with_params, write_recording

GIGABYTES_2 = 2 * 1024**3


def refusal(path, params=PARAMS, **air) -> str:
    with pytest.raises(InputError) as caught:
        ingest(read_log(path, params), params, source=path.name, **air)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    return sentence


@pytest.fixture
def cut():
    return synthetic_cut()


def edited(tmp_path, cut, edit):
    """The synthetic recording after edit(content), which may return another content."""
    content = recording(cut)
    content = edit(content) or content
    path = tmp_path / "log.json"
    path.write_text(json.dumps(content))
    return path


def put(field, row, value):
    def edit(content):
        if isinstance(content[field][row], list):
            content[field][row][2] = value
        else:
            content[field][row] = value

    return edit


def scaled(field, factor, shift=0.0):
    return lambda content: {**content, field: (factor * np.array(content[field]) + shift).tolist()}


def first(count):
    return lambda content: {k: v[:count] if isinstance(v, list) else v for k, v in content.items()}


def without(start, stop):
    return lambda content: {k: v[:start] + v[stop:] if isinstance(v, list) else v for k, v in content.items()}


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (put("O_F_ext_hat_K", 17, float("nan")), "force .* of sample 17 is missing, NaN"),
        (put("O_F_ext_hat_K", 17, None), "force .* of sample 17 is missing, NaN"),
        (put("O_F_ext_hat_K", 17, float("inf")), "force .* of sample 17"),
        (lambda content: content["O_T_EE"][20].__setitem__(14, None), "position .* of sample 20"),
        (put("time", 5, None), "time of sample 5 is missing"),
        (put("time", 5, "noon"), "time is not a list of numbers"),
        (put("time", 50, 0.0), "time does not increase from sample 49"),
        (scaled("time", -1.0), "time runs backwards"),
        (scaled("time", 1e3), "time_unit=ms"),
        (scaled("time", 1e-3), "clock is in another unit"),
        (scaled("time", 5.0), "At least ingest.min_rate_hz = 50"),
        (without(100, 106), "gap of 3"),
        (first(0), "has 0 samples"),
        (first(1), "has 1 samples"),
        (first(11), "has 11 samples"),
        (scaled("O_F_ext_hat_K", 1e3), "force_unit=mN"),
        (scaled("O_F_ext_hat_K", 1e-3), "no contact was found"),
        (scaled("O_F_ext_hat_K", -1.0), "force_is=exerted"),
        (scaled("O_F_ext_hat_K", 0.0), "exactly zero in 360 of 360"),
        (scaled("O_T_EE", 1e3), "length_unit=mm"),
        (scaled("O_T_EE", 1e-3), "goes down 0.0667 mm"),
        (lambda c: {**c, "O_T_EE": None}, "neither poses nor joint angles"),
        (lambda c: {**c, "O_F_ext_hat_K": None}, "neither a force nor joint angles"),
        (
            lambda c: {**c, "O_F_ext_hat_K": c["O_F_ext_hat_K"][:-1]},
            "O_F_ext_hat_K has 359 samples, the clock has 360",
        ),
        (lambda c: {**c, "O_T_EE": [row[:12] for row in c["O_T_EE"]]}, r"O_T_EE has the shape \(360, 12\)"),
        (lambda c: {**c, "O_T_EE": [*c["O_T_EE"][:-1], [1.0]]}, "O_T_EE is not a list of rows of 16"),
        (lambda c: {**c, "O_T_EE": "none"}, "O_T_EE is 'none'"),
        (lambda c: {**c, "time": 3}, "not a log of a known layout"),
        (lambda c: {"a": 1}, "not a log of a known layout"),
    ],
)
def test_bad_recordings(tmp_path, cut, edit, what):
    sentence = refusal(edited(tmp_path, cut, edit))
    assert re.search(what, sentence), sentence


def test_limits_can_be_moved_by_the_user(tmp_path, cut):
    path = edited(tmp_path, cut, without(100, 106))
    assert len(ingest(read_log(path, PARAMS), with_params(max_gap_s=0.05)).time_s) == 354
    slow = synthetic_cut(rate_hz=45.0)
    path = write_recording(tmp_path / "slow.json", slow)
    refusal(path)
    ingest(read_log(path, PARAMS), with_params(min_rate_hz=40.0, max_gap_s=0.1))


def test_zeros_near_a_singularity_are_marked(tmp_path, cut):
    def edit(content):
        for row in range(200, 210):
            content["O_F_ext_hat_K"][row] = [0.0] * 6

    result = ingest(read_log(edited(tmp_path, cut, edit), PARAMS), PARAMS)
    assert not result.valid[200:210].any()
    assert result.valid[210:].all()
    # Between its neighbours, not zero: 10 samples of 5 ms on a slope of about 100 N/s.
    assert np.abs(result.net_n[200:210] - synthetic_net(cut)[200:210]).max() < 2.5


def synthetic_net(cut):
    return cut.cutting_n @ np.array([[-1, 0, 0], [0, 0, 1], [0, 1, 0]]).T


def test_knife_that_starts_in_the_fruit_cannot_be_tared(tmp_path, cut):
    begin = int(np.flatnonzero(cut.position_m[:, 2] < 0.0515)[0])
    sentence = refusal(edited(tmp_path, cut, without(0, begin)))
    assert "before contact" in sentence or "no contact" in sentence


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("log.json", b"", "is empty"),
        ("log.csv", b"", "is empty"),
        ("log.json", b"{", "not valid JSON"),
        ("log.json", b'{"time": [1, 2', "not valid JSON"),
        ("log.json", b"[1, 2, 3]", "unknown format|not a log"),
        ("log.json", b'{"a":' + b"[" * 200_000, "nests lists too deeply"),
        ("log.json", b'{"a":' + b'{"a":' * 100_000, "nests lists too deeply"),
        ("log.csv", b"time,x\n", "must name the motion"),
        ("log.csv", b"a,b\n1,2,3,4\n\xff", "unknown format|can't be read"),
        ("log.parquet", b"PAR1 torn", "can't be read as Parquet"),
        ("log.npz", b"PK\x03\x04 torn", "can't be read as NPZ"),
        ("log.bin", bytes(range(256)) * 10, "unknown format"),
        ("log.txt", b"hello", "unknown format"),
        ("log.json", bytes(1000), "unknown format"),
    ],
)
def test_bad_files(tmp_path, name, content, what):
    path = tmp_path / name
    path.write_bytes(content)
    sentence = refusal(path)
    assert re.search(what, sentence), sentence


def test_missing_file(tmp_path):
    assert "does not exist" in refusal(tmp_path / "log.json")


@pytest.mark.parametrize("name", ["log.json", "log.csv", "log.parquet", "log.npz", "log.bag", "log.pkl"])
def test_two_gigabytes_of_zeros_are_not_loaded(tmp_path, name):
    path = tmp_path / name
    with path.open("wb") as file:
        os.truncate(file.fileno(), GIGABYTES_2)
    assert "2147 MB. At most 100 MB" in refusal(path, with_params(allow_pickle=True))


def test_archives_that_unpack_to_too_much(tmp_path):
    zeros = np.zeros(3_000_000)
    np.savez_compressed(tmp_path / "log.npz", t=zeros)
    pl.DataFrame({"t": zeros}).write_parquet(tmp_path / "log.parquet", compression="zstd")
    small = with_params(max_bytes=1_000_000)
    for name in ("log.npz", "log.parquet"):
        assert (tmp_path / name).stat().st_size < 1_000_000
    assert "24 MB when unpacked" in refusal(tmp_path / "log.npz", small)
    assert "MB when unpacked" in refusal(tmp_path / "log.parquet", small)


class Bomb:
    """Would write a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_pickle_bomb_does_not_go_off(tmp_path, protocol):
    trace, path = tmp_path / "trace", tmp_path / "log.pkl"
    path.write_bytes(pickle.dumps({"time": Bomb(trace)}, protocol=protocol))
    assert "allow_pickle" in refusal(path)
    assert "asks for posix.mkdir" in refusal(path, with_params(allow_pickle=True))
    assert not trace.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x05",
        b"\x80\x04garbage",
        pickle.dumps([1, 2]),
        pickle.dumps({"time": 1, "force": "x", "position": []}),
    ],
)
def test_broken_pickles(tmp_path, data):
    path = tmp_path / "log.pkl"
    path.write_bytes(data)
    refusal(path, with_params(allow_pickle=True))


@pytest.mark.parametrize(
    ("array", "edit"),
    [
        (np.array([None, 1.0], dtype=object), ()),
        (np.zeros(3, dtype=[("address", "V8")]), ()),
        (np.zeros(3), (b"f8", b"V8")),  # bytes that NumPy could be told to take for the addresses of objects
        (np.zeros(3), (b"f8", b"O8")),
        (np.zeros((2, 3)), (b"K\x02K\x03", b"K\xffK\xff")),
    ],
)
def test_pickled_arrays_that_are_not_plain_numbers(tmp_path, array, edit):
    path = tmp_path / "log.pkl"
    data = pickle.dumps(dict.fromkeys(("time", "force", "position"), array), protocol=2)
    path.write_bytes(data.replace(*edit) if edit else data)
    assert "can't be read as a pickle of arrays" in refusal(path, with_params(allow_pickle=True))


def test_pickled_objects_in_a_numpy_archive(tmp_path):
    path = tmp_path / "log.npz"
    np.savez(path, t=np.array([Bomb(tmp_path / "trace")], dtype=object))
    assert "without pickled objects" in refusal(
        path, with_params(columns={"time": "t", "position": "t", "force": "t"})
    )
    assert not (tmp_path / "trace").exists()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t.npy", "no array")
    refusal(path, with_params(columns={"time": "t", "position": "t", "force": "t"}))


def test_air_run_that_touched_something(tmp_path, cut):
    log = read_log(write_recording(tmp_path / "cut.json", cut), PARAMS)
    with pytest.raises(InputError, match="touched something"):
        ingest(log, PARAMS, air_runs={"air.json": log})


def test_tare_by_air_needs_a_run(tmp_path, cut):
    log = read_log(write_recording(tmp_path / "cut.json", cut), PARAMS)
    with pytest.raises(InputError, match="Give it with --air"):
        ingest(log, with_params(tare="air"))


def test_board_above_the_edge(tmp_path, cut):
    log = read_log(write_recording(tmp_path / "cut.json", cut), PARAMS)
    with pytest.raises(InputError, match="can't go below the board"):
        ingest(log, with_params(board_height_m=0.03))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time": 10**400}, "time is not a list of numbers"),
        ({"F_T_EE": []}, "F_T_EE"),
        ({"O_F_ext_hat_K": ["1.0"] * 6}, "it contains text"),
        ({"O_T_EE": [-1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0.5, 0, 0.2, 1]}, "left-handed"),
    ],
)
def test_states_that_are_no_states(tmp_path, change, reason):
    pose = [1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0.5, 0, 0.2, 1]
    state = {"time": 1, "O_T_EE": pose, "F_T_EE": pose, "O_F_ext_hat_K": [0.0] * 6, "q": [0.0] * 7} | change
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(state | {"time": change.get("time", n)}) + "\n" for n in range(50)))
    assert reason in refusal(path)


def test_json_that_needs_far_more_memory_than_its_size(tmp_path):
    path = tmp_path / "log.json"
    path.write_text('{"time": [' + ",".join(["[]"] * 5_000_000) + "]}")
    assert "unpacks to more than 160 MB" in refusal(path, with_params(max_bytes=16_000_000))


def test_a_table_of_commas(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("," * 20_000_000)
    assert "20000001 columns. At most 10000" in refusal(path)


def test_damaged_footers_of_parquet_are_sentences(tmp_path, capfd):
    path = tmp_path / "log.parquet"
    pl.DataFrame({"time": [0.1, 0.2], "name": ["é", "ö"]}).write_parquet(path)
    good, draw = path.read_bytes(), random.Random(29)
    footer = int.from_bytes(good[-8:-4], "little")
    for _ in range(200):
        data = bytearray(good)
        for _ in range(draw.choice((1, 2, 5))):
            data[-9 - draw.randrange(footer)] = draw.randrange(256)
        path.write_bytes(data)
        refusal(path)
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize("compression", ["ZSTD", "LZ4"])
def test_a_recording_that_unpacks_to_gigabytes_is_refused(tmp_path, compression):
    """Three messages with a frame_id of 400 MB: 50 kB to 5 MB on disk."""
    writer = pytest.importorskip("mcap.writer")
    parts = {
        "std_msgs/Header": "builtin_interfaces/Time stamp\nstring frame_id",
        "builtin_interfaces/Time": "int32 sec\nuint32 nanosec",
        "geometry_msgs/Wrench": "geometry_msgs/Vector3 force\ngeometry_msgs/Vector3 torque",
        "geometry_msgs/Pose": "geometry_msgs/Vector3 position\ngeometry_msgs/Quaternion orientation",
        "geometry_msgs/Vector3": "float64 x\nfloat64 y\nfloat64 z",
        "geometry_msgs/Quaternion": "float64 x\nfloat64 y\nfloat64 z\nfloat64 w",
    }
    known = "".join(f"\n{'=' * 80}\nMSG: {name}\n{fields}" for name, fields in parts.items())
    length = 400_000_000
    text = length.to_bytes(4, "little") + bytes(length)
    path = tmp_path / "bomb.mcap"
    with path.open("wb") as file:
        bomb = writer.Writer(file, compression=writer.CompressionType[compression], chunk_size=2**20)
        bomb.start("ros2")
        channels = {}
        for kind in ("Wrench", "Pose"):
            definition = f"std_msgs/Header header\ngeometry_msgs/{kind} {kind.lower()}{known}"
            schema = bomb.register_schema(f"geometry_msgs/msg/{kind}Stamped", "ros2msg", definition.encode())
            channels[kind] = bomb.register_channel(f"/{kind}", "cdr", schema)
        for second in range(3):
            body = bytes([0, 1, 0, 0]) + second.to_bytes(4, "little") + bytes(4) + text + bytes(56)
            bomb.add_message(channels["Wrench"], second * 10**9, body, second * 10**9)
        bomb.add_message(channels["Pose"], 0, bytes(100), 0)
        bomb.finish()
    del text, body
    assert "unpacks to more than 1000 MB" in refusal(path)


def test_a_table_of_empty_lines_is_refused(tmp_path):
    """50 MB of them took 2.3 GB of memory."""
    path = tmp_path / "log.csv"
    path.write_bytes(b"time,x\n" + b"\n" * 3_000_000)
    assert "has 3,000,001 lines. At most 2,000,000 are read." in refusal(path)


def test_reading_that_takes_too_long_is_refused():
    def forever():
        while True:
            pass

    began = time.process_time()
    with (
        pytest.raises(InputError, match=r"log\.csv takes more than 0\.2 s of CPU time"),
        time_limit("log.csv", 0.2),
    ):
        forever()
    assert time.process_time() - began < 5.0
    with time_limit("log.csv", 0.2):
        pass
    end = time.process_time() + 0.4
    while time.process_time() < end:  # nothing comes afterwards
        pass
