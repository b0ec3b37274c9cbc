"""Artifacts are validated, atomic and deterministic."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipelines.cli.show import validate_file
from stages.runtime import files
from stages.runtime.artifacts import read_metrics, read_table, write_json, write_picture, write_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.version import ARTIFACT_FORMAT

NAME = "clean/vertices"


def vertices(positions: object, dtype: object = pl.Float64, width: int = 3) -> pl.DataFrame:
    return pl.DataFrame({"position_m": pl.Series(positions, dtype=pl.Array(dtype, width))})


GOOD = vertices([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])


@given(hnp.arrays(np.float64, st.tuples(st.integers(0, 20), st.just(3)), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=25, deadline=None)
def test_round_trip(tmp_path_factory, positions):
    folder = tmp_path_factory.mktemp("round_trip")
    write_table(folder, NAME, vertices(positions))
    assert np.array_equal(read_table(folder, NAME)["position_m"].to_numpy().reshape(-1, 3), positions)


def test_same_content_gives_the_same_bytes(tmp_path):
    first = write_table(tmp_path / "a", NAME, GOOD).read_bytes()
    second = write_table(tmp_path / "b", NAME, GOOD.clone()).read_bytes()
    assert first == second
    again = write_table(tmp_path / "b", NAME, read_table(tmp_path / "a", NAME))
    assert again.read_bytes() == first


def test_metadata(tmp_path):
    path = write_table(tmp_path, NAME, GOOD)
    metadata = validate_file(path).metadata
    assert metadata["artifact"] == NAME
    assert metadata["schema"] == ARTIFACTS[NAME].schema
    assert json.loads(metadata["units"]) == {"position_m": "m"}
    assert metadata["format"] == str(ARTIFACT_FORMAT)
    assert set(metadata) == {"artifact", "schema", "units", "format"}, "nothing of where it comes from"


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (vertices([[0, 1, 2]], pl.Float32), "must be array[f64,3]"),
        (vertices([[0.0, 1.0]], width=2), "must be array[f64,3]"),
        (vertices([[0.0, float("nan"), 2.0]]), "1 NaN or infinite values"),
        (vertices([[0.0, float("inf"), 2.0], [float("nan")] * 3]), "4 NaN or infinite values"),
        (vertices([[0.0, 1.0, 2.0], None]), "missing values"),
        (vertices([[0.0, None, 2.0]]), "missing values"),
        (GOOD.rename({"position_m": "position"}), "must have exactly position_m"),
        (GOOD.with_columns(extra=pl.lit(1)), "must have exactly position_m"),
    ],
)
def test_frame_that_breaks_the_contract_is_refused(tmp_path, frame, words):
    with pytest.raises(InputError) as caught:
        write_table(tmp_path, NAME, frame)
    assert words in str(caught.value)
    assert "Rerun the stage clean." in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def corrupt(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return {
        "empty": b"",
        "text": b"this is not a table",
        "truncated": data[:middle],
        "middle lost": data[: middle - 20] + data[middle + 20 :],
    }[how]


@pytest.mark.parametrize("how", ["empty", "text", "truncated", "middle lost"])
def test_corrupt_parquet_is_refused(tmp_path, how):
    path = write_table(tmp_path, NAME, GOOD)
    path.write_bytes(corrupt(path.read_bytes(), how))
    with pytest.raises(InputError, match=r"Rerun its stage|Rerun the stage clean"):
        read_table(tmp_path, NAME)


def test_no_flipped_bit_ends_in_a_panic(tmp_path):
    """Some do in polars; a panic is no Exception, so nothing here would catch it."""
    path = write_table(tmp_path, NAME, vertices(np.zeros((500, 3))))
    good = path.read_bytes()
    refused = 0
    for bit in range(8 * len(good)):
        if bit % 8 < 3:  # the low ones change numbers a little: counts, lengths, offsets
            data = bytearray(good)
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            try:
                read_table(tmp_path, NAME)
            except InputError:
                refused += 1
    assert refused > 100


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_table(tmp_path, NAME)


@pytest.mark.parametrize("metadata", [{}, {"scan2cut.schema": "0" * 12}])
def test_another_schema_is_refused(tmp_path, metadata):
    path = tmp_path / "clean" / "vertices.parquet"
    path.parent.mkdir()
    GOOD.write_parquet(path, metadata=metadata)
    with pytest.raises(InputError, match="must have the columns described in stages/clean"):
        read_table(tmp_path, NAME)


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_table(tmp_path, NAME, GOOD)
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_table(tmp_path, NAME, vertices([[9.0, 9.0, 9.0]]))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_metrics_are_sorted_plain_and_finite(tmp_path):
    path = write_json(tmp_path, "clean/metrics", {"b": np.float64(1.5), "a": np.arange(2), "c": {"d": True}})
    assert path.read_text() == json.dumps({"a": [0, 1], "b": 1.5, "c": {"d": True}}, indent=2) + "\n"
    assert read_metrics(path) == {"a": [0, 1], "b": 1.5, "c": {"d": True}}
    with pytest.raises(InputError, match="clean/metrics: volume_m3 is nan"):
        write_json(tmp_path, "clean/metrics", {"volume_m3": float("nan")})


def test_picture_must_be_png(tmp_path):
    with pytest.raises(ValueError, match="not a PNG"):
        write_picture(tmp_path, "clean/preview", b"GIF89a")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("clean/metrics.json", b"[1]", "must be a JSON object"),
        ("clean/metrics.json", b"{", "can't be read as JSON"),
        ("clean/preview.png", b"GIF89a", "not a PNG"),
        ("somewhere/else.json", b"{}", "must be an artifact"),
    ],
)
def test_validate_refuses(tmp_path, name, content, words):
    path = tmp_path / name
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        validate_file(path)


def test_validate_knows_a_renamed_table_by_its_metadata(tmp_path):
    path = write_table(tmp_path, NAME, GOOD).rename(tmp_path / "renamed.parquet")
    valid = validate_file(path)
    assert valid.artifact.name == NAME
    assert valid.rows == 2
