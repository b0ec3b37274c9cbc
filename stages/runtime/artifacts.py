"""Read and write artifacts: validated, atomic, byte-identical for equal content."""

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
from stages.runtime.scan_file import home_of
from stages.runtime.version import ARTIFACT_FORMAT


def read_parquet(path: Path) -> pl.DataFrame:
    """Read a table; raise PolarsError or OSError if the file is corrupt."""
    with _panics_as_errors():
        return pl.read_parquet(path)


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """Convert panics of polars' Rust code, which are not Exceptions, to PolarsError."""
    try:
        yield
    except pl.exceptions.PanicException as error:
        raise pl.exceptions.ComputeError(str(error)) from error


def write_curves(folder: Path, table: pl.DataFrame, png: bytes) -> dict[str, str]:
    """Write force.csv and force.png of a comparison atomically; return their paths as `table` and `picture`."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    table.write_csv(buffer)
    for name, content in (("force.csv", buffer.getvalue()), ("force.png", png)):
        write_bytes_atomic(folder / name, content)
    return {"table": str(folder / "force.csv"), "picture": str(folder / "force.png")}


# Validation of tables.


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
    """Return the polars type of a catalogue dtype such as f64 or array[f64,3]."""
    match = _ARRAY.fullmatch(dtype)
    if match:
        return pl.Array(_SCALARS[match[1]], int(match[2]))
    return _SCALARS[dtype]()


def check_table(artifact: Artifact, frame: pl.DataFrame, source: str) -> None:
    """Reject a frame whose columns, types or values differ from the artifact's description."""
    columns = [column for column in artifact.columns if not column.optional or column.name in frame.columns]
    expected = [column.name for column in columns]
    if frame.columns != expected:
        raise InputError(
            f"{source}: the columns are {_list(frame.columns)}. {artifact.name} must have exactly "
            f"{_list(expected)}, in this order. {_remedy(artifact)}"
        )
    for column in columns:
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
            f"{source}: column {column.name} has {missing} missing values. None are allowed. "
            f"{_remedy(artifact)}"
        )
    if flat.dtype.is_float():
        not_finite = int((~flat.is_finite()).sum())
        if not_finite:
            raise InputError(
                f"{source}: column {column.name} has {not_finite} NaN or infinite values. "
                f"All must be finite. {_remedy(artifact)}"
            )


def _remedy(artifact: Artifact) -> str:
    return f"Rerun the stage {artifact.producer}."


def _list(names: list[str]) -> str:
    return ", ".join(names) or "(none)"


PREFIX = "scan2cut."
"""Prefix of scan2cut's keys in the metadata of Parquet files."""
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def artifact(name: str, kind: Kind | None = None) -> Artifact:
    """Return the catalogue's entry; raise KeyError for an unknown name (a programming error, not bad input)."""
    entry = ARTIFACTS[name]
    if kind is not None and entry.kind != kind:
        raise KeyError(f"{name} is a {entry.kind}, not a {kind}")
    return entry


def read_table(scan_dir: Path, name: str) -> pl.DataFrame:
    """Read a table and validate it against the catalogue; raise InputError if it is invalid."""
    entry = artifact(name, "table")
    return read_table_file(home_of(scan_dir, entry.path) / entry.path, entry)


def read_table_file(path: Path, entry: Artifact) -> pl.DataFrame:
    """Read and validate one Parquet file as the given artifact."""
    metadata = read_metadata(path)
    schema = metadata.get(PREFIX + "schema")
    if schema != entry.schema:
        raise InputError(
            f"{path}: its schema is {schema or 'missing'}. {entry.name} must have the columns described in "
            f"stages/{entry.producer}, schema {entry.schema}. Rerun the stage {entry.producer}."
        )
    try:
        frame = read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from error
    check_table(entry, frame, str(path))
    return frame


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a Parquet file; raise InputError if the file is missing or corrupt."""
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
        f"{path} can't be read as Parquet ({reason}). It must be a valid Parquet file. Rerun its stage."
    )


def write_table(
    scan_dir: Path,
    name: str,
    frame: pl.DataFrame,
    *,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Validate and write a table; return its path. Notes are additional metadata of the stage."""
    entry = artifact(name, "table")
    check_table(entry, frame, name)
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", metadata=_metadata(entry, notes))
    path = scan_dir / entry.path
    write_bytes_atomic(path, buffer.getvalue())
    return path


def read_notes(scan_dir: Path, name: str) -> dict[str, str]:
    """Return the notes in a table's metadata; empty if there are none."""
    path = artifact(name, "table").path
    text = read_metadata(home_of(scan_dir, path) / path).get(PREFIX + "notes", "{}")
    notes: dict[str, str] = json.loads(text)
    return notes


def _metadata(entry: Artifact, notes: Mapping[str, str] | None) -> dict[str, str]:
    """Return the metadata of a table, without provenance, so that equal content gives equal files and downstream stages
    stay fresh.
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
    """Write metrics or provenance as sorted JSON; reject NaN and infinity."""
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
    raise TypeError(f"{where} is a {type(value).__name__}, which JSON can't represent")


def read_metrics(path: Path) -> dict[str, Any]:
    """Read a metrics file; raise InputError if it is not a JSON object of finite values."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        plain: Any = _plain(str(path), content)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} can't be read as JSON ({error}). Rerun the stage that writes it."
        ) from error
    if not isinstance(content, dict):
        raise InputError(
            f"{path} contains a {type(content).__name__}. Metrics must be a JSON object. Rerun the stage."
        )
    metrics: dict[str, Any] = plain
    return metrics


def write_csv(scan_dir: Path, name: str, csv: str) -> Path:
    """Write CSV text with the columns of the catalogue."""
    entry = artifact(name, "plot")
    check_csv_header(entry, csv, name)
    path = scan_dir / entry.path
    write_bytes_atomic(path, csv.encode())
    return path


def check_csv_header(entry: Artifact, csv: str, source: str) -> None:
    """Reject CSV text whose header differs from the artifact's columns."""
    expected = ",".join(column.name for column in entry.columns)
    header = csv.partition("\n")[0]
    if header != expected:
        raise InputError(
            f"{source}: the first line is {header[:200]!r}. {entry.name} must begin with {expected!r}. "
            f"Rerun the stage {entry.producer}."
        )


def write_picture(scan_dir: Path, name: str, png: bytes) -> Path:
    """Write a PNG picture."""
    entry = artifact(name, "picture")
    if not png.startswith(PNG_SIGNATURE):
        raise ValueError(f"{name}: the bytes are not a PNG")
    path = scan_dir / entry.path
    write_bytes_atomic(path, png)
    return path
