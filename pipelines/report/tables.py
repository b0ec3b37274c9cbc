"""Shared blocks of the report: notes, previews, metric tables, and tables of fitted parameters."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from disect_sim.laws import DEFAULT_DAMAGE_LAW
from disect_sim.parameters import SURFACE_PREFIX, parameter_info
from pipelines.report.page import Block, Note, Picture, Table, labelled, number, readable
from pipelines.report.scan_data import ScanData
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.shared.library.library import ANY_MATERIAL

_NOT_RUN = "No results: the stage {} has not run."


def not_run(stage: str) -> Note:
    """Return a note that the stage has not run."""
    return Note(_NOT_RUN.format(stage))


def preview(data: ScanData, stage: str) -> list[Block]:
    """Return the stage's picture, if it exists."""
    png = data.picture(stage)
    meaning = ARTIFACTS[f"{stage}/preview"].meaning
    return [] if png is None else [Picture(png, meaning[0].upper() + meaning[1:] + ".")]


def metrics_table(metrics: Mapping[str, Any], *, caption: str) -> Table:
    """Return a collapsed table of a stage's metrics."""
    rows = [labelled(key, value) for key, value in metrics.items()]
    return Table(("metric", "value"), rows, caption, folded=True)


def column(frame: pl.DataFrame, name: str, component: int | None = None) -> list[float]:
    """Return a column, or one component of a vector column, as a list of numbers."""
    series = frame[name] if component is None else frame[name].arr.get(component)
    return [float(v) for v in series.cast(pl.Float64).to_list()]


def table_of(frame: pl.DataFrame, *, caption: str, folded: bool = True) -> Table:
    """Return an artifact's table with readable units."""
    columns = {name: labelled(name, frame[name].to_list()) for name in frame.columns}
    rows = list(zip(*(values for _, values in columns.values()), strict=True))
    return Table([text for text, _ in columns.values()], rows, caption, folded=folded)


# Fitted parameters.


_AT_THE_SKIN = ", at the skin"
STANDARD_ERRORS = 2.0
"""Half-width of the displayed interval in standard errors."""
_OTHER_NAMES = {
    "offset_y": "height offset of the log",
    "amplitude": "scale factor of this cut's force",
}
"""Fitted quantities that are not simulator parameters."""


def damage_law(data: ScanData) -> str:
    """Return the scan's damage law, on which the meaning of some parameters depends."""
    return str(data.used("cut").get("damage_law", DEFAULT_DAMAGE_LAW))


def in_words(name: str, law: str) -> str:
    """Return the name of a parameter: `surface_sdf_mu` → friction coefficient of the knife, at the skin."""
    try:
        meaning = parameter_info(name, damage_law=law).meaning
    except InputError:
        meaning = _OTHER_NAMES.get(name, name.replace("_", " "))
    return meaning.partition(",")[0] + (_AT_THE_SKIN if name.startswith(SURFACE_PREFIX) else "")


def certainty(data: ScanData) -> str | None:
    """Return a message on which parameters the log determines; None if no shared parameters were fitted."""
    posterior = data.table("calibrate/posterior")
    if posterior is not None and posterior["name"].is_in(list(ANY_MATERIAL)).any():
        return _of_material(data, posterior)
    scalars = data.table("calibrate/scalars")
    if scalars is None:
        return None
    determined = scalars.filter(scalars["identifiable"])["name"].to_list()
    count = len(scalars)
    if not determined:
        return (
            f"The log determines none of the {count} fitted parameters to within 10 %: many parameter sets give the "
            "same force."
        )
    if len(determined) == count:
        return f"The log determines all {count} fitted parameters to within 10 %."
    names = ", ".join(in_words(name, damage_law(data)) for name in determined)
    return f"The log determines {len(determined)} of the {count} fitted parameters to within 10 %: {names}."


def _of_material(data: ScanData, posterior: pl.DataFrame) -> str:
    """Return the parameters grouped by what the log added to the prior."""
    law = damage_law(data)
    by_gain: dict[str, list[str]] = {}
    for row in posterior.rows(named=True):
        if row["name"] in ANY_MATERIAL:
            by_gain.setdefault(row["learned"], []).append(in_words(row["name"], law))
    return (
        "; ".join(f"{learned}: {', '.join(names)}" for learned, names in by_gain.items()).capitalize() + "."
    )


def at_bounds(data: ScanData) -> str | None:
    """Return a message listing the parameters at a bound, with their values; None if there are none."""
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
    return f"Parameters at a bound of their range: {', '.join(words)}."


def scalar_table(data: ScanData, scalars: pl.DataFrame) -> Table:
    """Return the table of parameters shared by all springs, in readable units."""
    law, rows = damage_law(data), []
    for row in scalars.rows(named=True):
        factor, unit = readable(row["unit"])
        value, low, high, error = (factor * row[key] for key in ("value", "low", "high", "standard_error"))
        rows.append(
            (
                in_words(row["name"], law),
                number(value),
                f"± {number(STANDARD_ERRORS * error)}",
                unit,
                f"{number(low)} to {number(high)}" + (", at a bound" if row["at_bound"] else ""),
                bool(row["identifiable"]),
                row["name"],
            )
        )
    header = (
        "parameter",
        "fitted",
        "± 2 standard errors",
        "unit",
        "range",
        "determined to 10 %",
        "in params.yaml",
    )
    return Table(header, rows, "Parameters shared by all springs")


def posterior_table(data: ScanData, posterior: pl.DataFrame) -> Table:
    """Return the table of the material's prior and posterior, in readable units."""
    law, rows = damage_law(data), []
    for row in posterior.rows(named=True):
        factor, unit = readable(row["unit"])
        expected, value = (number(factor * row[key]) for key in ("expected", "value"))
        before = f"{number(factor * row['expected_low'])} to {number(factor * row['expected_high'])}"
        after = f"{number(factor * row['low'])} to {number(factor * row['high'])}"
        rows.append((in_words(row["name"], law), expected, before, value, after, unit, row["learned"]))
    header = (
        "parameter",
        "prior",
        "90 % interval",
        "posterior",
        "90 % interval",
        "unit",
        "gain from the log",
    )
    return Table(header, rows, f"Material before and after the log (prior from {posterior['cuts'][0]} cuts)")
