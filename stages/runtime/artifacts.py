"""Reading and writing artifacts: validated, atomic, byte-identical for the same content."""

import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.describe import Artifact, Column, Kind
from stages.runtime.errors import InputError
from stages.runtime.files import write_bytes_atomic
from stages.runtime.version import ARTIFACT_FORMAT

# Reading Parquet files that may be damaged.


def read_parquet(path: Path) -> pl.DataFrame:
    """The table; PolarsError or OSError if the file is damaged."""
    with _panics_as_errors():
        return pl.read_parquet(path)


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """Within this, a panic of polars' Rust code is a PolarsError; by itself it is no Exception and ends everything."""
    try:
        yield
    except pl.exceptions.PanicException as error:
        raise pl.exceptions.ComputeError(str(error)) from error


# Two curves that a command compares outside of the pipeline: a table and a picture in a folder of their own.


def write_curves(folder: Path, table: pl.DataFrame, png: bytes) -> dict[str, str]:
    """Write force.csv and force.png, each whole at any time; where they are, as `table` and `picture`."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    table.write_csv(buffer)
    for name, content in (("force.csv", buffer.getvalue()), ("force.png", png)):
        write_bytes_atomic(folder / name, content)
    return {"table": str(folder / "force.csv"), "picture": str(folder / "force.png")}


# Checking a table against the columns that its description promises.


_SCALARS = {
    "f64": pl.Float64,
    "f32": pl.Float32,
    "i64": pl.Int64,
    "i32": pl.Int32,
    "i8": pl.Int8,
    "bool": pl.Boolean,
    "str": pl.String,
}
_ARRAY = re.compile(r"array\[(\w+),(\d+)\]")


def polars_dtype(dtype: str) -> pl.DataType:
    """The polars type for a catalogue dtype such as f64 or array[f64,3]."""
    match = _ARRAY.fullmatch(dtype)
    if match:
        return pl.Array(_SCALARS[match[1]], int(match[2]))
    return _SCALARS[dtype]()


def check_table(artifact: Artifact, frame: pl.DataFrame, source: str) -> None:
    """Refuse a frame whose columns, types or values break the artifact's contract."""
    expected = [column.name for column in artifact.columns]
    if frame.columns != expected:
        raise InputError(
            f"{source}: the columns are {_list(frame.columns)}. {artifact.name} must have exactly "
            f"{_list(expected)}, in this order. {_remedy(artifact)}"
        )
    for column in artifact.columns:
        _check_column(artifact, column, frame[column.name], source)


def _check_column(artifact: Artifact, column: Column, series: pl.Series, source: str) -> None:
    if series.dtype != polars_dtype(column.dtype):
        raise InputError(
            f"{source}: column {column.name} is {series.dtype}. It must be {column.dtype}. "
            f"{_remedy(artifact)}"
        )
    flat = series.explode() if isinstance(series.dtype, pl.Array) else series
    missing = series.null_count() or (flat.null_count() if len(series) else 0)
    if missing:
        raise InputError(
            f"{source}: column {column.name} has {missing} missing values, none are allowed. "
            f"{_remedy(artifact)}"
        )
    if flat.dtype.is_float():
        not_finite = int((~flat.is_finite()).sum())
        if not_finite:
            raise InputError(
                f"{source}: column {column.name} has {not_finite} values that are NaN or infinite. "
                f"All must be finite. {_remedy(artifact)}"
            )


def _remedy(artifact: Artifact) -> str:
    return f"Run the stage {artifact.producer} again."


def _list(names: list[str]) -> str:
    return ", ".join(names) or "(none)"


PREFIX = "scan2cut."
"""Before every key of ours in a Parquet file's metadata."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def artifact(name: str, kind: Kind | None = None) -> Artifact:
    """The catalogue's entry; KeyError for a name that isn't in it (a programming error, not bad input)."""
    entry = ARTIFACTS[name]
    if kind is not None and entry.kind != kind:
        raise KeyError(f"{name} is a {entry.kind}, not a {kind}")
    return entry


def read_table(scan_dir: Path, name: str) -> pl.DataFrame:
    """Read a table and check it against the catalogue; InputError if it breaks the contract."""
    entry = artifact(name, "table")
    return read_table_file(scan_dir / entry.path, entry)


def read_table_file(path: Path, entry: Artifact) -> pl.DataFrame:
    """Read one Parquet file as the given artifact."""
    metadata = read_metadata(path)
    found = metadata.get(PREFIX + "schema")
    if found != entry.schema:
        raise InputError(
            f"{path}: its schema is {found or 'not stated'}. {entry.name} must have the columns that "
            f"stages/{entry.producer} describes today, schema {entry.schema}. Run the stage {entry.producer} again."
        )
    try:
        frame = read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from error
    check_table(entry, frame, str(path))
    return frame


def read_metadata(path: Path) -> dict[str, str]:
    """The key-value metadata of a Parquet file; InputError if the file is missing or broken."""
    if not path.is_file():
        raise InputError(
            f"{path} does not exist. Run the stage that writes it: 'scan2cut run' or 'dvc repro'."
        )
    try:
        with _panics_as_errors():
            return dict(pl.read_parquet_metadata(path))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:200]
    return InputError(
        f"{path} can't be read as Parquet ({reason}). It must be a whole Parquet file. Run its stage again."
    )


def write_table(
    scan_dir: Path,
    name: str,
    frame: pl.DataFrame,
    *,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Check the frame against the catalogue and write it; returns the path. Notes are the stage's own metadata."""
    entry = artifact(name, "table")
    check_table(entry, frame, name)
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", metadata=_metadata(entry, notes))
    path = scan_dir / entry.path
    write_bytes_atomic(path, buffer.getvalue())
    return path


def read_notes(scan_dir: Path, name: str) -> dict[str, str]:
    """The notes that the stage left in a table's metadata; empty if there are none."""
    text = read_metadata(scan_dir / artifact(name, "table").path).get(PREFIX + "notes", "{}")
    notes: dict[str, str] = json.loads(text)
    return notes


def _metadata(entry: Artifact, notes: Mapping[str, str] | None) -> dict[str, str]:
    """What the file says of itself. Nothing of where it comes from: that is in the stage's provenance.json, so that
    the same content is the same file, and whoever reads it stays fresh.
    """
    values = {
        "artifact": entry.name,
        "schema": entry.schema,
        "units": json.dumps({column.name: column.unit for column in entry.columns}),
        "format": str(ARTIFACT_FORMAT),
    }
    if notes:
        values["notes"] = json.dumps(notes, sort_keys=True)
    return {PREFIX + key: value for key, value in values.items()}


def write_json(scan_dir: Path, name: str, content: dict[str, Any]) -> Path:
    """Write metrics or provenance as small, sorted JSON; NaN and infinity are refused."""
    entry = artifact(name)
    if entry.kind not in ("metrics", "provenance"):
        raise KeyError(f"{name} is a {entry.kind}, not metrics or provenance")
    plain = {key: _plain(f"{name}: {key}", value) for key, value in content.items()}
    path = scan_dir / entry.path
    write_bytes_atomic(path, (json.dumps(plain, indent=2, sort_keys=True) + "\n").encode())
    return path


def _plain(where: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(f"{where}.{key}", item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(where, item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(where, value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} is {value}. A metric must be finite. Check the input of this stage.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{where} is a {type(value).__name__}, which JSON can't hold")


def read_metrics(path: Path) -> dict[str, Any]:
    """Read a metrics file; InputError if it isn't a JSON object of finite values."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        plain: Any = _plain(str(path), content)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} can't be read as JSON ({error}). Run the stage that writes it again."
        ) from error
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds a {type(content).__name__}. Metrics must be a JSON object. Run the stage again."
        )
    metrics: dict[str, Any] = plain
    return metrics


def write_csv(scan_dir: Path, name: str, csv: str) -> Path:
    """Write CSV text with the columns that the catalogue promises."""
    entry = artifact(name, "plot")
    check_csv_header(entry, csv, name)
    path = scan_dir / entry.path
    write_bytes_atomic(path, csv.encode())
    return path


def check_csv_header(entry: Artifact, csv: str, source: str) -> None:
    """Refuse CSV text whose first line does not name the artifact's columns."""
    expected = ",".join(column.name for column in entry.columns)
    found = csv.partition("\n")[0]
    if found != expected:
        raise InputError(
            f"{source}: the first line is {found[:200]!r}. {entry.name} must begin with {expected!r}. "
            f"Run the stage {entry.producer} again."
        )


def write_picture(scan_dir: Path, name: str, png: bytes) -> Path:
    """Write PNG bytes."""
    entry = artifact(name, "picture")
    if not png.startswith(PNG_SIGNATURE):
        raise ValueError(f"{name}: the bytes are not a PNG")
    path = scan_dir / entry.path
    write_bytes_atomic(path, png)
    return path
