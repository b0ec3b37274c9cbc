"""The second cut: parameters carried over, the motion that needs the least force, and what bounds it."""

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
"""Behind the point: what is less is rounding of the numbers themselves."""
_PATH_STRIDE = 8
"""Every eighth millisecond of the path is drawn: 10 frames of a screen's second."""


def transport(data: ScanData) -> Section:
    """Which springs the values come from, and what averages would have given."""
    title = "Parameters carried to the second cut"
    metrics = data.metrics("transport")
    if not metrics:
        return Section("transport", title, [*preview(data, "halve"), not_run("transport")])
    blocks: list[Block] = [
        *preview(data, "halve"),
        Figures(
            [
                (
                    "mean force, transported",
                    f"{number(metrics.get('mean_force_transported_n'))} N",
                    "vertical cut",
                ),
                ("mean force, averages", f"{number(metrics.get('mean_force_averaged_n'))} N", "same cut"),
                (
                    "apart (NMAE)",
                    percent(metrics.get("force_nmae_of_averaged")),
                    "of averaged against transported parameters",
                ),
                ("spread kept", percent(metrics.get("spread_kept")), "of the parameters' variation"),
            ]
        ),
        *preview(data, "transport"),
        metrics_table(metrics, caption="All figures of transport"),
    ]
    return Section("transport", title, blocks)


def optimum(data: ScanData) -> Section:
    """Vertical vs optimised force, the search, and whether it survives finer simulations."""
    title = "Vertical and optimised cut"
    profile, metrics = data.table("optimize/profile"), data.metrics("optimize")
    if profile is None:
        return Section("optimum", title, [not_run("optimize")])
    blocks: list[Block] = [
        Plot(
            "Norm of the force on the knife",
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
            "Optimised cut: parts of the force",
            _TIME,
            _FORCE,
            column(profile, "time_s"),
            [
                Curve("vertical, y", column(profile, "optimized_force_n", 1)),
                Curve("along the blade, z", column(profile, "optimized_force_n", 2)),
                Curve("across, x", column(profile, "optimized_force_n", 0), dashed=True),
            ],
            levels=[(0.0, "")],
        ),
    ]
    confirmed = data.table("optimize/confirmation")
    if confirmed is not None:
        blocks.append(table_of(confirmed, caption="Both motions, simulated otherwise", folded=False))
    blocks += _search(data)
    blocks.append(metrics_table(metrics, caption="All figures of optimize"))
    blocks += preview(data, "optimize")
    return Section("optimum", title, blocks)


def _means(metrics: dict[str, Any]) -> list[tuple[float, str]]:
    over = metrics.get("mean_over", "time")
    found = [
        (metrics.get("mean_force_vertical_n"), f"mean over {over}, vertical"),
        (metrics.get("mean_force_optimized_n"), f"mean over {over}, optimised"),
    ]
    return [(float(value), text) for value, text in found if isinstance(value, int | float)]


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
    count = max(max(found) for found in rows.values())
    return [
        Plot(
            "The search",
            "simulation [-]",
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


def path(data: ScanData) -> Section:
    """The knife's path over the fruit, with the blade's bounds; velocities."""
    title = "The knife's path"
    motion = data.table("optimize/motion")
    if motion is None:
        return Section("path", title, [not_run("optimize")])
    every = motion.gather_every(_PATH_STRIDE)
    track = list(zip(column(every, "position_m", 2), column(every, "position_m", 1), strict=True))
    faces, low, high = _silhouette(data)
    blade = data.cut.get("tool", {}).get("blade_length_m") or data.metrics("replay").get("blade_length_m")
    bounds = None
    if blade and faces:
        overlap = float(data.used("optimize").get("blade_overlap_m") or 0.0)
        reach = 0.5 * (blade - (high - low)) - overlap
        bounds = (0.5 * (low + high) - reach, 0.5 * (low + high) + reach)
    caption = "The half-fruit as seen along x."
    if bounds:
        caption += (
            " Dashed: where the edge's middle must stay, so that the blade covers the fruit at both ends."
        )
    time = column(motion, "time_s")
    blocks: list[Block] = [
        Drawing(
            knife_path(faces, track, column(every, "time_s"), bounds=bounds, blade_m=blade),
            caption,
            wide=True,
        ),
        Plot(
            "Velocity of the edge",
            _TIME,
            "velocity [m/s]",
            time,
            [
                Curve("vertical, y", column(motion, "velocity_m_s", 1)),
                Curve("along the blade, z", column(motion, "velocity_m_s", 2)),
            ],
            levels=_both_ways(data.used("optimize").get("max_speed_m_s"), "limit of the speed"),
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
                *_both_ways(data.used("optimize").get("max_acceleration_along_m_s2"), "limit, along"),
            ],
        ),
        *preview(data, "replay"),
        Note(f"In 3D: open replay.html beside this page, or run: scan2cut view {data.scan_id}"),
    ]
    return Section("path", title, blocks)


def _silhouette(data: ScanData) -> tuple[list[list[list[float]]], float, float]:
    """Faces of the half as (z, y) [m], and its ends along z."""
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
    """By how much the motion breaks each rule, at the end and on the way."""
    title = "Constraints"
    metrics, history = data.metrics("optimize"), data.table("optimize/history")
    if not metrics:
        return Section("constraints", title, [not_run("optimize")])
    final = [
        (name, round(value, _RESIDUAL_DIGITS) if isinstance(value, float) else value)
        for name, value in (labelled(key, value) for key, value in metrics.items() if _is_residual(key))
    ]
    blocks: list[Block] = [
        Table(("rule, 0 is kept", "broken by"), final, "The optimised motion"),
    ]
    if history is not None:
        best = metrics.get("best_start")
        rows = history.filter(pl.col("start") == best)
        rows = history if rows.is_empty() else rows
        names = [name for name in rows.columns if "_residual" in name]
        blocks.append(
            Plot(
                f"Residuals during the search (start: {best})",
                "simulation [-]",
                "residual [unit in the legend]",
                column(rows, "iteration"),
                [
                    Curve(text, values)
                    for text, values in (labelled(name, column(rows, name)) for name in names)
                ],
            )
        )
    free = [labelled(key, value) for key, value in metrics.items() if key.startswith("unconstrained")]
    if free:
        blocks.append(
            Table(
                ("ablation", "value"), free, "Without constraints: what it would save and break", folded=True
            )
        )
    return Section("constraints", title, blocks)
