"""Reading Parquet files that may be damaged."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl


def read_parquet(path: Path) -> pl.DataFrame:
    """The table; PolarsError or OSError if the file is damaged."""
    with panics_as_errors():
        return pl.read_parquet(path)


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Within this, a panic of polars' Rust code is a PolarsError; by itself it is no Exception and ends everything."""
    try:
        yield
    except pl.exceptions.PanicException as error:
        raise pl.exceptions.ComputeError(str(error)) from error
