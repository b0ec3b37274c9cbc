"""Checking a table against the columns that its description promises."""

import re

import polars as pl

from disect_sim.errors import InputError
from stages.runtime.describe import Artifact, Column

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
