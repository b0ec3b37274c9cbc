"""Small tables as text."""

import polars as pl


def plot_text(table: pl.DataFrame, columns: list[str]) -> str:
    """A few columns as CSV for `dvc plots`, which can't read Parquet."""
    return table.select(columns).write_csv(float_precision=6)
