"""`scan2cut compare`: show several runs side by side, in the terminal and as a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table as RichTable

from pipelines.dvc.pipeline_file import read_template
from pipelines.project import Project
from pipelines.report.page import (
    MISSING,
    Block,
    Curve,
    Note,
    Plot,
    Section,
    Table,
    label,
    labelled,
    number,
    render_page,
)
from pipelines.report.scan_data import ScanData
from pipelines.report.tables import STANDARD_ERRORS, column
from pipelines.versions.history import at_revision
from stages.runtime.errors import InputError
from stages.runtime.files import write_bytes_atomic
from stages.runtime.params import SECTIONS

_RESULTS = (
    ("clean", ("volume_m3",)),
    ("tetrahedralize", ("tets", "min_radius_ratio")),
    ("precut", ("springs", "cut_area_m2")),
    ("ingest", ("mean_force_n", "peak_force_n")),
    ("calibrate", ("nmae", "nmae_held_out", "mae_n", "outcome")),
    ("transport", ("mean_force_transported_n", "mean_force_averaged_n")),
    (
        "optimize",
        (
            "mean_force_vertical_n",
            "mean_force_optimized_n",
            "reduction",
            "reduction_low",
            "reduction_high",
            "reduction_rests_on",
            "reduction_of_descent",
            "confirmed_reduction",
            "peak_reduction",
            "duration_s",
        ),
    ),
    ("export", ("outcome", "torque_margin_fraction", "deflection_m")),
)
_CURVES = (
    ("Measured force", "calibrate/profile", "measured_n"),
    ("Simulated force, fitted", "calibrate/profile", "simulated_n"),
    ("Vertical second cut", "optimize/profile", "vertical_n"),
    ("Optimised second cut", "optimize/profile", "optimized_n"),
)
_Rows = list[tuple[str, ...]]


def read_runs(project: Project, names: Sequence[str], scratch: Path) -> dict[str, ScanData]:
    """Return the runs by name: `scan`, or `scan@revision` for an earlier version from git and DVC."""
    runs: dict[str, ScanData] = {}
    for name in names:
        scan_id, at, revision = name.partition("@")
        source = at_revision(project, scan_id, revision, scratch) if at else project
        registered = source.scan_ids()
        if scan_id not in registered:
            raise InputError(
                f"There is no scan {scan_id!r}{f' at {revision}' if at else ''}. Registered scans: "
                f"{', '.join(registered) or 'none'}. Name a scan, or SCAN@REVISION for an earlier version of it."
            )
        runs[name] = ScanData(source, scan_id)
    if len(runs) < 2:
        raise InputError(
            f"compare: got {len(runs)} run. At least two different runs are required. Give SCAN and SCAN@REVISION, or "
            "two scans."
        )
    return runs


def _result_rows(runs: dict[str, ScanData]) -> _Rows:
    """Return one row per result: its name, then its value in every run."""
    rows: _Rows = []
    for stage, keys in _RESULTS:
        metrics = [data.metrics(stage) for data in runs.values()]
        for key in keys:
            if any(key in values for values in metrics):
                shown = [labelled(key, values.get(key)) for values in metrics]
                name = next((text for text, value in shown if value is not None), label(key))
                rows.append((f"{stage}: {name}", *(number(value) for _, value in shown)))
    return rows


def _fitted_rows(runs: dict[str, ScanData]) -> _Rows:
    """Return one row per parameter shared by all springs: fitted value ± two standard errors in every run."""
    values: dict[str, dict[str, str]] = {}
    for name, data in runs.items():
        scalars = data.table("calibrate/scalars")
        for row in [] if scalars is None else scalars.iter_rows(named=True):
            unit = "" if row["unit"] == "-" else f" {row['unit']}"
            error = number(float(f"{STANDARD_ERRORS * row['standard_error']:.2g}"))
            text = f"{number(row['value'])} ± {error}{unit}"
            values.setdefault(row["name"], {})[name] = text
    return [(key, *(texts.get(name, MISSING) for name in runs)) for key, texts in values.items()]


def _setting_rows(runs: dict[str, ScanData]) -> _Rows:
    """Return the settings in which the runs differ."""
    settings = [_settings(data) for data in runs.values()]
    keys = list(dict.fromkeys(key for used in settings for key in used))
    rows = [(key, *(str(used.get(key, MISSING)) for used in settings)) for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _timing_rows(runs: dict[str, ScanData]) -> _Rows:
    """Return the time [s] of the last computation of every stage."""
    stages = [entry.name for entry in read_template(next(iter(runs.values())).project.template)]
    times = [data.run.computed_s for data in runs.values()]
    rows = [
        (f"{stage} [s]", *(number(seconds.get(stage)) for seconds in times))
        for stage in stages
        if any(stage in seconds for seconds in times)
    ]
    sums = [round(sum(seconds.values()), 1) if seconds else None for seconds in times]
    return [*rows, ("total [s]", *(number(total) for total in sums))] if rows else []


def _compare_tables(runs: dict[str, ScanData]) -> list[tuple[str, _Rows]]:
    """Return the non-empty tables with their titles."""
    tables = [
        ("Results", _result_rows(runs)),
        ("Fitted parameters", _fitted_rows(runs)),
        ("Different settings", _setting_rows(runs)),
        ("Time of the last computation", _timing_rows(runs)),
    ]
    return [(title, rows) for title, rows in tables if rows]


def terminal_tables(runs: dict[str, ScanData]) -> list[RichTable]:
    """Return the tables for a terminal."""
    tables = []
    for title, rows in _compare_tables(runs):
        table = RichTable("", *map(escape, runs), title=title)
        for row in rows:
            table.add_row(*map(escape, row))
        tables.append(table)
    return tables


def _compare_html(runs: dict[str, ScanData]) -> str:
    """Return the page with the same tables and the overlaid force curves."""
    plots = [plot for plot in (_plot(runs, *curve) for curve in _CURVES) if plot is not None]
    curves: list[Block] = list(plots) or [Note("None of the runs has a force curve.")]
    tables: list[Block] = [Table(("", *runs), rows, title) for title, rows in _compare_tables(runs)]
    problems = [
        Note(f"{name}: {problem}", "warning") for name, data in runs.items() for problem in data.problems
    ]
    sections = [
        Section("figures", "Figures", [*problems, *tables]),
        Section("curves", "Force over time", curves),
    ]
    return render_page("scan2cut: " + " and ".join(runs), f"{len(runs)} runs side by side", sections)


def write_compare(runs: dict[str, ScanData], path: Path) -> Path:
    """Write the page and return its path."""
    write_bytes_atomic(path, _compare_html(runs).encode())
    return path


def _plot(runs: dict[str, ScanData], title: str, table: str, name: str) -> Plot | None:
    """Return one plot of a force column of all runs; their sampling times are merged, with gaps in each curve."""
    frames = {run: data.table(table) for run, data in runs.items()}
    curves = {
        run: dict(zip(column(frame, "time_s"), column(frame, name), strict=True))
        for run, frame in frames.items()
        if frame is not None
    }
    if not curves:
        return None
    times = sorted({t for curve in curves.values() for t in curve})
    return Plot(
        title,
        "time [s]",
        "force [N]",
        times,
        [
            Curve(run, [curve.get(t) for t in times], colour=list(runs).index(run))
            for run, curve in curves.items()
        ],
        span_gaps=True,
    )


def _settings(data: ScanData) -> dict[str, Any]:
    """Return files, material and all parameters of a run."""
    settings = {key: data.scan_yaml.get(key) for key in ("scan", "log", "material")}
    for section in SECTIONS:
        settings |= {f"{section}.{key}": value for key, value in data.used(section).items()}
    return settings
