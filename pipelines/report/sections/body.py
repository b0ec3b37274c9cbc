"""Report sections on the fruit: scan, mesh, cut surface."""

import polars as pl

from pipelines.report.drawings import DATA_MAP, MAP, spring_map
from pipelines.report.page import Block, Curve, Drawing, Note, Plot, Section, Table, number, readable
from pipelines.report.scan_data import ScanData
from pipelines.report.tables import column, damage_law, in_words, metrics_table, not_run, preview, table_of
from stages.runtime.catalogue import ARTIFACTS

_QUALITY_BINS = 20
_TOUCHED, _IMPULSE = "touched_ns", "impulse of the knife"
_NOT_PARAMETERS = {"position_m", "area_m2", "surface", "gradient_norm", "touched_ns"}
"""Columns of calibrate/parameters that are not simulator parameters."""


def cleaning(data: ScanData) -> Section:
    """Build the section on the scan before and after cleaning."""
    metrics, repairs = data.metrics("clean"), data.table("clean/repairs")
    if not metrics:
        return Section("cleaning", "Scan before and after cleaning", [not_run("clean")])
    blocks: list[Block] = preview(data, "clean")
    size = " × ".join(number(1e3 * float(metrics.get(f"extent_{a}_m") or 0.0)) for a in "xyz")
    volume = number(1e6 * float(metrics.get("volume_m3") or 0.0))
    blocks.append(Note(f"{size} mm, {volume} cm³. {_capitalised(str(metrics.get('pose', '')))}"))
    if metrics.get("warning"):
        blocks.append(Note(str(metrics["warning"]), "warning"))
    if repairs is not None:
        blocks.append(table_of(repairs, caption="Repairs, in order", folded=True))
    blocks.append(metrics_table(metrics, caption="All metrics of clean"))
    return Section("cleaning", "Scan before and after cleaning", blocks)


def _capitalised(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def mesh(data: ScanData) -> Section:
    """Build the section on the mesh and its quality."""
    tets, metrics = data.table("tetrahedralize/tets"), data.metrics("tetrahedralize")
    if not metrics:
        return Section("mesh", "Mesh", [not_run("tetrahedralize")])
    blocks: list[Block] = preview(data, "tetrahedralize")
    if tets is not None:
        blocks.append(_quality(tets))
    blocks.append(metrics_table(metrics, caption="All metrics of tetrahedralize"))
    return Section("mesh", "Mesh", blocks)


def _quality(tets: pl.DataFrame) -> Plot:
    bins = (
        tets.select(
            (pl.col("radius_ratio") * _QUALITY_BINS).floor().clip(0, _QUALITY_BINS - 1).cast(pl.Int64)
        )
        .group_by("radius_ratio")
        .len()
    )
    count = dict(bins.iter_rows())
    return Plot(
        title="Mesh quality",
        x_label="radius ratio [-] (1: regular)",
        y_label="number of tetrahedra",
        x=[(i + 0.5) / _QUALITY_BINS for i in range(_QUALITY_BINS)],
        curves=[Curve("tetrahedra per bin of 0.05", [float(count.get(i, 0)) for i in range(_QUALITY_BINS)])],
        bars=True,
    )


def cut_surface(data: ScanData) -> Section:
    """Build the section on the springs of the cut surface: fitted parameters and impulse of the knife."""
    title = "Cut surface and fitted parameters"
    fitted = data.table("calibrate/parameters")
    blocks: list[Block] = preview(data, "precut")
    if fitted is None:
        return Section("springs", title, [*blocks, not_run("calibrate")])
    columns = {c.name: c for c in ARTIFACTS["calibrate/parameters"].columns}
    names = [name for name in fitted.columns if name not in _NOT_PARAMETERS]
    varied = [name for name in names if fitted[name].n_unique() > 1]
    blocks.append(
        Note(
            "Cut surface, viewed along x. Each disc is a spring; its size is the spring's area. Hover to read the "
            "value."
        )
    )
    law = damage_law(data)
    for name in [*varied, _TOUCHED]:
        factor, unit = readable(columns[name].unit)
        blocks.append(
            Drawing(
                spring_map(
                    [list(p) for p in fitted["position_m"].to_list()],
                    column(fitted, "area_m2"),
                    [factor * value for value in column(fitted, name)],
                    title=_IMPULSE if name == _TOUCHED else in_words(name, law),
                    unit=unit,
                    colours=DATA_MAP if name == _TOUCHED else MAP,
                ),
                f"{columns[name].meaning} ({name})",
            )
        )
    same = []
    for name in names:
        if name not in varied:
            factor, unit = readable(columns[name].unit)
            same.append((in_words(name, law), factor * float(fitted[name][0]), unit, name))
    if same:
        blocks.append(
            Table(
                ("parameter", "value", "unit", "in params.yaml"),
                same,
                "Parameters equal for all springs",
                folded=True,
            )
        )
    shown = fitted.select(
        pl.col("position_m").arr.get(0).alias("z_m"),
        pl.col("position_m").arr.get(1).alias("y_m"),
        *[pl.col(name) for name in fitted.columns if name != "position_m"],
    )
    blocks.append(table_of(shown, caption=f"Data of all {len(shown)} springs"))
    return Section("springs", title, blocks)
