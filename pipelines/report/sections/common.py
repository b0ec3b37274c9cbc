"""What several sections do: pictures with captions, metrics as tables, notes for what is not there."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from pipelines.report.blocks import Block, Note, Picture, Table
from pipelines.report.scan_data import ScanData
from pipelines.report.words import labelled
from stages.runtime.catalogue import ARTIFACTS

NOT_RUN = "The stage {} has not run, so there is nothing to show here."


def not_run(stage: str) -> Note:
    """A note in place of a stage's results."""
    return Note(NOT_RUN.format(stage))


def preview(data: ScanData, stage: str) -> list[Block]:
    """The stage's picture, if it is there."""
    png = data.picture(stage)
    meaning = ARTIFACTS[f"{stage}/preview"].meaning
    return [] if png is None else [Picture(png, meaning[0].upper() + meaning[1:] + ".")]


def metrics_table(metrics: Mapping[str, Any], *, caption: str, skip: Iterable[str] = ()) -> Table:
    """All metrics of a stage, folded away."""
    rows = [labelled(key, value) for key, value in metrics.items() if key not in set(skip)]
    return Table(("metric", "value"), rows, caption, folded=True)


def column(frame: pl.DataFrame, name: str, component: int | None = None) -> list[float]:
    """A column as a list of numbers; of a vector column, one component."""
    series = frame[name] if component is None else frame[name].arr.get(component)
    return [float(v) for v in series.cast(pl.Float64).to_list()]


def table_of(frame: pl.DataFrame, *, caption: str, folded: bool = True) -> Table:
    """A small table of an artifact, with units for reading in its names."""
    columns = {name: labelled(name, frame[name].to_list()) for name in frame.columns}
    rows = list(zip(*(values for _, values in columns.values()), strict=True))
    return Table([text for text, _ in columns.values()], rows, caption, folded=folded)
