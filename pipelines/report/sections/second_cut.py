"""Report sections on the second cut: transported parameters, optimised motion, constraints."""

from typing import Any

import polars as pl

from pipelines.report.drawings import knife_path
from pipelines.report.page import (
    Block,
    Curve,
    Drawing,
    Figures,
    Note,
    Plot,
    Section,
    Table,
    labelled,
    number,
    percent,
)
from pipelines.report.scan_data import ScanData
from pipelines.report.tables import column, metrics_table, not_run, preview, table_of

_TIME, _FORCE = "time [s]", "force [N]"
_RESIDUAL_DIGITS = 6
"""Decimals of residuals; smaller values are rounding errors."""
_PATH_STRIDE = 8
"""Every eighth sample (millisecond) of the path is drawn."""


def transport(data: ScanData) -> Section:
    """Build the section on transported parameters, compared with averaged ones."""
    title = "Parameters transported to the second cut"
    metrics = data.metrics("transport")
    if not metrics:
        return Section("transport", title, [*preview(data, "halve"), not_run("transport")])
    blocks: list[Block] = [
        *preview(data, "halve"),
        Figures(
            [
                (
                    "mean force, transported parameters",
                    f"{number(metrics.get('mean_force_transported_n'))} N",
                    "vertical cut",
                ),
                (
                    "mean force, averaged parameters",
                    f"{number(metrics.get('mean_force_averaged_n'))} N",
                    "same cut",
                ),
                (
                    "difference of the forces (NMAE)",
                    percent(metrics.get("force_nmae_of_averaged")),
                    "averaged and transported parameters",
                ),
                (
                    "variation preserved",
                    percent(metrics.get("spread_kept")),
                    "of the parameters between springs",
                ),
            ]
        ),
        *preview(data, "transport"),
        metrics_table(metrics, caption="All metrics of transport"),
    ]
    return Section("transport", title, blocks)


def optimum(data: ScanData) -> Section:
    """Build the section on the force of both cuts, the search, and its confirmation by finer simulations."""
    title = "Vertical cut and optimised cut"
    profile, metrics = data.table("optimize/profile"), data.metrics("optimize")
    if profile is None:
        return Section("optimum", title, [not_run("optimize")])
    blocks: list[Block] = [
        Plot(
            "Force on the knife (norm)",
            _TIME,
            _FORCE,
            column(profile, "time_s"),
            [
                Curve("vertical", column(profile, "vertical_n")),
                Curve("optimised", column(profile, "optimized_n")),
            ],
            levels=_means(metrics),
        ),
        Plot(
            "Optimised cut: components of the force",
            _TIME,
            _FORCE,
            column(profile, "time_s"),
            [
                Curve("vertical, y", column(profile, "optimized_force_n", 1)),
                Curve("along the blade, z", column(profile, "optimized_force_n", 2)),
                Curve("across the cut, x", column(profile, "optimized_force_n", 0), dashed=True),
            ],
            levels=[(0.0, "")],
            caption="The vertical force rises where the blade reverses: at rest it does not slice.",
        ),
    ]
    confirmed = data.table("optimize/confirmation")
    if confirmed is not None:
        blocks.append(
            table_of(confirmed, caption="Confirmation: simulations with other settings", folded=False)
        )
    blocks += _search(data)
    blocks.append(metrics_table(metrics, caption="All metrics of optimize"))
    return Section("optimum", title, blocks)


def _means(metrics: dict[str, Any]) -> list[tuple[float, str]]:
    over = metrics.get("mean_over", "time")
    means = [
        (metrics.get("mean_force_vertical_n"), f"mean over {over}, vertical"),
        (metrics.get("mean_force_optimized_n"), f"mean over {over}, optimised"),
    ]
    return [(float(value), text) for value, text in means if isinstance(value, int | float)]


def _search(data: ScanData) -> list[Block]:
    history = data.table("optimize/history")
    if history is None:
        return []
    count = int(history["iteration"].cast(pl.Int64).to_list()[-1])
    starts = history["start"].unique(maintain_order=True).to_list()
    rows = {
        start: dict(history.filter(pl.col("start") == start).select("iteration", "mean_force_n").iter_rows())
        for start in starts
    }
    count = max(max(forces) for forces in rows.values())
    return [
        Plot(
            "Search",
            "simulation",
            "mean force [N]",
            [float(i) for i in range(1, count + 1)],
            [
                Curve(
                    f"start: {start}",
                    [rows[start].get(i) for i in range(1, count + 1)],
                    dashed=start == "unconstrained",
                )
                for start in starts
            ],
        )
    ]


def path_drawing(data: ScanData) -> list[Block]:
    """Return the drawing of the knife's path over the half fruit; empty without a motion."""
    motion = data.table("optimize/motion")
    if motion is None:
        return []
    every = motion.gather_every(_PATH_STRIDE)
    track = list(zip(column(every, "position_m", 2), column(every, "position_m", 1), strict=True))
    faces, low, high = _silhouette(data)
    blade = data.cut.get("tool", {}).get("blade_length_m") or data.metrics("replay").get("blade_length_m")
    bounds = None
    if blade and faces:
        overlap = float(data.used("optimize").get("blade_overlap_m") or 0.0)
        reach = 0.5 * (blade - (high - low)) - overlap
        bounds = (0.5 * (low + high) - reach, 0.5 * (low + high) + reach)
    caption = "Path of the edge's centre over the half fruit, viewed along x."
    if bounds:
        caption += " Dashed: range in which the blade covers the fruit."
    drawing = knife_path(faces, track, column(every, "time_s"), bounds=bounds, blade_m=blade)
    return [Drawing(drawing, caption, wide=True)]


def path(data: ScanData) -> Section:
    """Build the section on the knife's velocity and acceleration."""
    title = "Velocity and acceleration of the knife"
    motion = data.table("optimize/motion")
    if motion is None:
        return Section("path", title, [not_run("optimize")])
    time = column(motion, "time_s")
    blocks: list[Block] = [
        Plot(
            "Velocity of the edge",
            _TIME,
            "velocity [m/s]",
            time,
            [
                Curve("vertical, y", column(motion, "velocity_m_s", 1)),
                Curve("along the blade, z", column(motion, "velocity_m_s", 2)),
            ],
            levels=_both_ways(data.used("optimize").get("max_speed_m_s"), "speed limit"),
        ),
        Plot(
            "Acceleration of the edge",
            _TIME,
            "acceleration [m/s²]",
            time,
            [
                Curve("vertical, y", column(motion, "acceleration_m_s2", 1)),
                Curve("along the blade, z", column(motion, "acceleration_m_s2", 2)),
            ],
            levels=[
                *_both_ways(data.used("optimize").get("max_acceleration_vertical_m_s2"), "limit, vertical"),
                *_both_ways(
                    data.used("optimize").get("max_acceleration_along_m_s2"), "limit, along the blade"
                ),
            ],
        ),
        *preview(data, "replay"),
        Note(f"3D view: open viewer.html beside this page, or run: scan2cut view {data.scan_id}"),
    ]
    return Section("path", title, blocks)


def _silhouette(data: ScanData) -> tuple[list[list[list[float]]], float, float]:
    """Return the faces of the half as (z, y) [m] and its extent along z."""
    vertices, faces = data.table("halve/vertices"), data.table("halve/faces")
    if vertices is None or faces is None:
        return [], 0.0, 0.0
    z, y = column(vertices, "position_m", 2), column(vertices, "position_m", 1)
    return [[[z[i], y[i]] for i in face] for face in faces["vertices"].to_list()], min(z), max(z)


def _both_ways(limit: Any, text: str) -> list[tuple[float, str]]:
    return [(float(limit), text), (-float(limit), "")] if isinstance(limit, int | float) else []


def _is_residual(key: str) -> bool:
    return "_residual" in key and "unconstrained" not in key


def residuals(data: ScanData) -> Section:
    """Build the section on constraint residuals of the motion and during the search."""
    title = "Constraints"
    metrics, history = data.metrics("optimize"), data.table("optimize/history")
    if not metrics:
        return Section("constraints", title, [not_run("optimize")])
    final = [
        (name, round(value, _RESIDUAL_DIGITS) if isinstance(value, float) else value)
        for name, value in (labelled(key, value) for key, value in metrics.items() if _is_residual(key))
    ]
    blocks: list[Block] = [
        Table(("constraint", "residual (0: satisfied)"), final, "Residuals of the optimised motion"),
    ]
    if history is not None:
        best = metrics.get("best_start")
        rows = history.filter(pl.col("start") == best)
        rows = history if rows.is_empty() else rows
        names = [name for name in rows.columns if "_residual" in name]
        by_unit: dict[str, list[tuple[str, list[float]]]] = {}
        for name in names:
            text, values = labelled(name, column(rows, name))
            words, _, unit = text.rstrip("]").partition(" [")
            by_unit.setdefault(unit or "-", []).append((words, values))
        blocks += [
            Plot(
                f"Residuals in {unit} during the search (start: {best})",
                "simulation",
                f"residual [{unit}]",
                column(rows, "iteration"),
                [Curve(words, values) for words, values in curves],
            )
            for unit, curves in by_unit.items()
        ]
    free = [labelled(key, value) for key, value in metrics.items() if key.startswith("unconstrained")]
    if free:
        blocks.append(Table(("metric", "value"), free, "Ablation: optimum without constraints", folded=True))
    return Section("constraints", title, blocks)
