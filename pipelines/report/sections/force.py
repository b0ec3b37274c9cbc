"""Report sections on the force: measured and fitted curves, residuals, history of the fit, other logs."""

from pathlib import Path

import polars as pl

from pipelines.report.page import MISSING, Block, Curve, Note, Plot, Section, number, percent, unseen
from pipelines.report.scan_data import ScanData
from pipelines.report.tables import (
    certainty,
    column,
    metrics_table,
    not_run,
    posterior_table,
    scalar_table,
)

_DEPTH_BIN_M = 0.004
_TIME, _FORCE = "time [s]", "force [N]"
_REACHED = 0.999
"""Share of a peak at which it counts as reached."""


def force(data: ScanData) -> Section:
    """Build the section on measured and simulated force, residual and error by depth."""
    title = "Measured and simulated force"
    profile, metrics = data.table("calibrate/profile"), data.metrics("calibrate")
    blocks: list[Block] = []
    if profile is None:
        if data.metrics("ingest") and data.table("ingest/force") is None:
            blocks.append(Note("No force log, so nothing was fitted.", "warning"))
        elif not metrics:
            blocks.append(not_run("calibrate"))
        return Section("force", title, [*blocks, *_log(data), *_nominal(data)])
    time = column(profile, "time_s")
    marks = _marks(profile, metrics)
    blocks.append(
        Note(
            f"Mean absolute error {number(metrics.get('mae_n'))} N, {percent(metrics.get('nmae'))} of the mean force; "
            f"{unseen(metrics)}. Error of the peak force "
            f"{number(metrics.get('peak_error_n'))} N, of the onset {_milliseconds(metrics.get('onset_error_s'))}."
        )
    )
    blocks.append(
        Plot(
            "Force on the knife",
            _TIME,
            _FORCE,
            time,
            [
                Curve("measured", column(profile, "measured_n")),
                Curve("simulated, fitted", column(profile, "simulated_n")),
                Curve(_before(metrics), column(profile, "reference_n"), dashed=True),
            ],
            marks=marks,
        )
    )
    residuals = [Curve("residual", column(profile, "residual_n"))]
    if metrics.get("nmae_held_out") is not None:
        held = pl.when(pl.col("held_out")).then(pl.col("residual_n"))
        residuals.append(Curve("held-out samples", profile.select(held.alias("held"))["held"].to_list()))
    blocks.append(
        Plot(
            "Residual: simulated minus measured",
            _TIME,
            _FORCE,
            time,
            residuals,
            marks=marks,
            levels=[(0.0, "")],
        )
    )
    blocks += _by_depth(profile)
    blocks += _log(data)
    blocks.append(metrics_table(metrics, caption="All metrics of calibrate"))
    return Section("force", title, blocks)


def _before(metrics: dict[str, object]) -> str:
    """Return the label of the dashed curve: first phase of a spring fit, or prior of a material fit."""
    return "simulated, one value for all springs" if metrics.get("fit") == "springs" else "simulated, prior"


def _milliseconds(value: object) -> str:
    return f"{1e3 * value:.1f} ms" if isinstance(value, int | float) else MISSING


def _marks(profile: pl.DataFrame, metrics: dict[str, object]) -> list[tuple[float, str]]:
    marks = []
    onset, peak = metrics.get("onset_s"), metrics.get("puncture_measured_n")
    if isinstance(onset, int | float):
        marks.append((float(onset), "onset"))
    if isinstance(peak, int | float):
        # The puncture is the first peak: the force has not been as large before.
        reached = profile.filter(pl.col("contact") & (pl.col("measured_n") >= _REACHED * peak)).sort("time_s")
        marks += [(float(t), "puncture") for t in reached["time_s"].head(1)]
    return marks


def _by_depth(profile: pl.DataFrame) -> list[Block]:
    touched = profile.filter(pl.col("contact"))
    if touched.is_empty():
        return []
    depth = float(touched["height_m"].to_list()[0]) - pl.col("height_m")
    bins = (
        touched.with_columns(((depth / _DEPTH_BIN_M).floor() * _DEPTH_BIN_M).alias("depth_m"))
        .group_by("depth_m")
        .agg(
            pl.col("residual_n").abs().mean().alias("error_n"),
            pl.col("residual_n").mean().alias("bias_n"),
            pl.col("measured_n").mean().alias("measured_n"),
        )
        .sort("depth_m")
    )
    forces = column(bins, "measured_n")
    return [
        Plot(
            "Error by depth",
            "depth below first contact [mm]",
            _FORCE,
            [1e3 * (d + 0.5 * _DEPTH_BIN_M) for d in column(bins, "depth_m")],
            [
                Curve("mean absolute error", column(bins, "error_n")),
                Curve("bias: simulated minus measured", column(bins, "bias_n"), dashed=True),
            ],
            levels=[(0.0, "")],
            caption=f"Means over {1e3 * _DEPTH_BIN_M:g} mm of depth. The mean measured force is between "
            f"{number(min(forces))} and {number(max(forces))} N.",
        )
    ]


def _log(data: ScanData) -> list[Block]:
    log = data.table("ingest/force")
    if log is None:
        return []
    time = column(log, "time_s")
    return [
        Plot(
            "Force log (norm of the force on the knife)",
            _TIME,
            _FORCE,
            time,
            [
                Curve("tared", column(log, "force_norm_n")),
                Curve("tared and low-pass filtered", column(log, "force_filtered_norm_n")),
                Curve("standard uncertainty", column(log, "uncertainty_n"), dashed=True),
            ],
        ),
        metrics_table(data.metrics("ingest"), caption="All metrics of ingest"),
    ]


def _nominal(data: ScanData) -> list[Block]:
    cut = data.table("simulate/force")
    if cut is None:
        return []
    return [
        Plot(
            "Nominal straight cut, not calibrated",
            _TIME,
            _FORCE,
            column(cut, "time_s"),
            [Curve("force on the knife (norm)", column(cut, "force_norm_n"))],
        )
    ]


def history(data: ScanData) -> Section:
    """Build the section on the history and the result of the fit."""
    title = "Fit"
    steps, scalars = data.table("calibrate/history"), data.table("calibrate/scalars")
    posterior = data.table("calibrate/posterior")
    blocks: list[Block] = []
    if steps is None:
        reason = Note("Nothing was fitted.") if data.metrics("calibrate") else not_run("calibrate")
        return Section("history", title, [reason])
    phases = steps["phase"].to_list()
    step_numbers = column(steps, "step")
    changes = [
        (step_numbers[i], str(phase)) for i, phase in enumerate(phases) if i == 0 or phase != phases[i - 1]
    ]
    blocks.append(
        Plot(
            "Loss and error",
            "iteration",
            "loss, NMAE [-]",
            step_numbers,
            [
                Curve("loss", column(steps, "loss"), dashed=True),
                Curve("best loss", column(steps, "best_loss")),
                Curve("best NMAE", column(steps, "nmae")),
            ],
            marks=changes,
            log=True,
        )
    )
    if scalars is not None:
        blocks += [Note(text) for text in (certainty(data),) if text]
        blocks.append(scalar_table(data, scalars))
    if posterior is not None:
        blocks.append(posterior_table(data, posterior))
    return Section("history", title, blocks)


# Other logs: cuts predicted by `scan2cut predict`, cuts executed on an arm


_NEWEST = 4
"""Comparisons that are shown."""


def predictions(data: ScanData) -> Section:
    """Build the section on predicted cuts with their 90 % bands; no blocks if there are none."""
    blocks: list[Block] = []
    for name, table in _curves(data, "predictions"):
        seen = table.filter(pl.col("compared"))
        measured, predicted, low, high = (
            column(seen, name) for name in ("measured_n", "predicted_n", "low_n", "high_n")
        )
        error = sum(abs(p - m) for p, m in zip(predicted, measured, strict=True)) / max(sum(measured), 1e-9)
        inside = [a <= m <= b for a, m, b in zip(low, measured, high, strict=True)]
        blocks.append(
            Plot(
                f"Predicted cut: {name}",
                _TIME,
                _FORCE,
                column(table, "time_s"),
                [
                    Curve("measured", column(table, "measured_n")),
                    Curve("predicted", column(table, "predicted_n")),
                    Curve("fitted cuts repeated (baseline)", column(table, "repeated_n"), dashed=True),
                    Curve("lower end", column(table, "low_n"), colour=1, edge=True),
                    Curve("upper end", column(table, "high_n"), colour=1, edge=True),
                ],
                bands=[(4, 3)],
                caption=f"Not seen by the fit. Mean error {100 * error:.1f} %; "
                f"{100 * sum(inside) / max(len(inside), 1):.0f} % of the samples are inside the 90 % band.",
            )
        )
    return Section("predictions", "Prediction of other logs", blocks)


def executed(data: ScanData) -> Section:
    """Build the section on executed cuts beside their predictions; no blocks if there are none."""
    blocks: list[Block] = [
        Plot(
            f"Executed cut: {name}",
            _TIME,
            _FORCE,
            column(table, "time_s"),
            [
                Curve("measured", column(table, "measured_n")),
                Curve("predicted", column(table, "predicted_n")),
            ],
        )
        for name, table in _curves(data, "executed")
    ]
    return Section("executed", "Executed cuts", blocks)


def _curves(data: ScanData, folder: str) -> list[tuple[str, pl.DataFrame]]:
    """Return names and tables of the newest comparisons in a folder of the scan."""
    files = sorted((data.folder / folder).glob("*/force.csv"), key=_modified, reverse=True)[:_NEWEST]
    out = []
    for file in files:
        try:
            out.append((file.parent.name, pl.read_csv(file)))
        except (OSError, pl.exceptions.PolarsError) as error:
            data.problems.append(f"{file.parent.name}/{file.name}: {error}")
    return out


def _modified(path: Path) -> float:
    return path.stat().st_mtime
