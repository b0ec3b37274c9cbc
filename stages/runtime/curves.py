"""Two curves that a command compares outside of the pipeline: a table and a picture in a folder of their own."""

import io
from pathlib import Path

import polars as pl

from stages.runtime.atomic_file import write_bytes_atomic


def write_curves(folder: Path, table: pl.DataFrame, png: bytes) -> dict[str, str]:
    """Write force.csv and force.png, each whole at any time; where they are, as `table` and `picture`."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    table.write_csv(buffer)
    for name, content in (("force.csv", buffer.getvalue()), ("force.png", png)):
        write_bytes_atomic(folder / name, content)
    return {"table": str(folder / "force.csv"), "picture": str(folder / "force.png")}
