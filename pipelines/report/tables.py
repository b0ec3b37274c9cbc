"""The simulator's parameters in words: what they are, their units for reading, and which of them a log determines."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from disect_sim.laws import DEFAULT_DAMAGE_LAW
from disect_sim.parameters import SURFACE_PREFIX, parameter_info
from pipelines.report.page import Block, Note, Picture, Table, labelled, number, readable
from pipelines.report.scan_data import ScanData
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.shared.library.library import ANY_MATERIAL

# What several sections do: pictures with captions, metrics as tables, notes for what is not there.


_NOT_RUN = "The stage {} has not run, so there is nothing to show here."


def not_run(stage: str) -> Note:
    """A note in place of a stage's results."""
    return Note(_NOT_RUN.format(stage))


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


_AT_THE_SKIN = ", at the skin"
_STANDARD_ERRORS = 2.0
"""Half-width of the interval that is shown, in standard errors."""
_OTHER_NAMES = {
    "offset_y": "height of the log's zero above the board",
    "amplitude": "this cut's force over the material's",
}
"""Fitted numbers that are no parameters of the simulator."""


def damage_law(data: ScanData) -> str:
    """The law that the scan is cut with; it decides what some parameters mean."""
    return str(data.used("cut").get("damage_law", DEFAULT_DAMAGE_LAW))


def in_words(name: str, law: str) -> str:
    """`surface_sdf_mu` → friction coefficient of the knife, at the skin."""
    try:
        meaning = parameter_info(name, damage_law=law).meaning
    except InputError:
        meaning = _OTHER_NAMES.get(name, name.replace("_", " "))
    return meaning.partition(",")[0] + (_AT_THE_SKIN if name.startswith(SURFACE_PREFIX) else "")


def certainty(data: ScanData) -> str | None:
    """One sentence on what the log determines; None if nothing was fitted for all springs at once."""
    posterior = data.table("calibrate/posterior")
    if posterior is not None and posterior["name"].is_in(list(ANY_MATERIAL)).any():
        return _of_material(data, posterior)
    scalars = data.table("calibrate/scalars")
    if scalars is None:
        return None
    sure = scalars.filter(scalars["identifiable"])["name"].to_list()
    count = len(scalars)
    if not sure:
        return (
            f"This log determines none of the {count} fitted parameters to within 10 %. The force is fitted; the "
            "values are one of many sets that give it."
        )
    if len(sure) == count:
        return f"This log determines all {count} fitted parameters to within 10 %."
    words = ", ".join(in_words(name, damage_law(data)) for name in sure)
    return f"This log determines {len(sure)} of the {count} fitted parameters to within 10 %: {words}."


def _of_material(data: ScanData, posterior: pl.DataFrame) -> str:
    """What the log added to what was expected of the material, in the posterior's own words."""
    law = damage_law(data)
    said: dict[str, list[str]] = {}
    for row in posterior.rows(named=True):
        if row["name"] in ANY_MATERIAL:
            said.setdefault(row["learned"], []).append(in_words(row["name"], law))
    return "; ".join(f"{learned}: {', '.join(names)}" for learned, names in said.items()).capitalize() + "."


def at_bounds(data: ScanData) -> str | None:
    """A sentence that names the parameters which ran into a bound, with their values; None if there are none."""
    scalars = data.table("calibrate/scalars")
    rows = [] if scalars is None else scalars.filter(scalars["at_bound"]).rows(named=True)
    if not rows:
        return None
    law = damage_law(data)
    words = []
    for row in rows:
        factor, unit = readable(row["unit"])
        words.append(
            f"{in_words(row['name'], law)} ({number(factor * row['value'])} {unit})".replace(" -)", ")")
        )
    return f"At a bound of its range: {', '.join(words)}."


def scalar_table(data: ScanData, scalars: pl.DataFrame) -> Table:
    """The parameters that were fitted for all springs at once, in units for reading."""
    law, rows = damage_law(data), []
    for row in scalars.rows(named=True):
        factor, unit = readable(row["unit"])
        value, low, high, error = (factor * row[key] for key in ("value", "low", "high", "standard_error"))
        rows.append(
            (
                in_words(row["name"], law),
                number(value),
                f"± {number(_STANDARD_ERRORS * error)}",
                unit,
                f"{number(low)} to {number(high)}" + (", at a bound" if row["at_bound"] else ""),
                bool(row["identifiable"]),
                row["name"],
            )
        )
    header = (
        "parameter",
        "fitted",
        "two standard errors",
        "unit",
        "range",
        "known to 10 %",
        "in params.yaml",
    )
    return Table(header, rows, "Parameters fitted for all springs at once")


def posterior_table(data: ScanData, posterior: pl.DataFrame) -> Table:
    """What was known of the material before the log and after it, in units for reading."""
    law, rows = damage_law(data), []
    for row in posterior.rows(named=True):
        factor, unit = readable(row["unit"])
        expected, value = (number(factor * row[key]) for key in ("expected", "value"))
        before = f"{number(factor * row['expected_low'])} to {number(factor * row['expected_high'])}"
        after = f"{number(factor * row['low'])} to {number(factor * row['high'])}"
        rows.append((in_words(row["name"], law), expected, before, value, after, unit, row["learned"]))
    header = ("unknown", "expected", "90 %", "after the log", "90 %", "unit", "what the log added")
    return Table(header, rows, f"The material before and after the log ({posterior['cuts'][0]} earlier cuts)")
