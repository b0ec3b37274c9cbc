"""Report: first screen (GO or NO-GO, what it rests on, saving, force over depth, margins), changed limits, last run."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pipelines.dvc.pipeline_file import scan_entries
from pipelines.report.drawings import margin_bars
from pipelines.report.page import (
    MISSING,
    Block,
    Curve,
    Drawing,
    Figures,
    Link,
    Note,
    Plot,
    Section,
    Table,
    figure,
    number,
    percent,
    refusal_of_run,
)
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.second_cut import path_drawing
from pipelines.report.tables import at_bounds, certainty
from pipelines.scans.register import changed_limits
from stages.export.checks import CUT_FRACTION
from stages.runtime.files import read_mapping
from stages.runtime.scan_file import PARAMS_FILE_NAME
from stages.shared.library.library import AMPLITUDE_SPREAD, NINETY

_SHOWN = 5
_NEVER_RUN = "Simulated only, never executed on a real arm: rehearse with the air cut."
_DEPTH_M = 1.0e-3
"""Slices of depth over which force is averaged."""


def decision(data: ScanData) -> Section:
    """Build the section that decides: all else is detail."""
    export = data.metrics("export")
    blocks: list[Block] = [_go(export)] if export else []
    blocks += [note for note in (_run(data),) if note is not None]
    figures = _figures(data)
    if figures:
        blocks.append(Figures(figures))
    blocks += [Note(text, "warning") for text in _warnings(data)]
    unknown = _not_known(data)
    if unknown:
        blocks.append(
            Table(("what", "how well it is known", "what would narrow it"), unknown, "What is not known")
        )
    blocks += _force_over_depth(data)
    blocks += path_drawing(data)
    if (data.folder / "viewer.html").is_file():
        blocks.append(Link("viewer.html", "Open the motion in 3D"))
    blocks += _margins(data)
    return Section("decision", "Decision", blocks)


def _go(export: Mapping[str, Any]) -> Note:
    verdict = str(export.get("verdict", ""))
    if export.get("certified") and export.get("force_calibrated") is False:
        return Note(f"GO only after a probe cut or explicit confirmation. {verdict} {_NEVER_RUN}", "warning")
    if export.get("certified"):
        return Note(f"GO. {verdict} {_NEVER_RUN}", "good")
    return Note(f"NO-GO. {verdict} No files were written for the robot.", "bad")


def _run(data: ScanData) -> Note | None:
    """Return a note if the run failed or is incomplete."""
    run, stages = data.run, [entry.name for entry in scan_entries(data.project, data.scan_id)]
    if run.ok is False:
        where = f"The run failed in stage {run.failed_stage}" if run.failed_stage else "The run failed"
        return Note(f"{where}. {run.error} The sections below show the results that exist.", "bad")
    missing = [stage for stage in stages if not data.metrics(stage)]
    if missing:
        return Note(f"Incomplete run. Stages without results: {', '.join(missing)}.", "warning")
    refused = refusal_of_run({stage: data.metrics(stage) for stage in stages})
    return Note(f"All stages completed, but there is no motion to run. {refused}", "bad") if refused else None


def _figures(data: ScanData) -> list[tuple[str, str, str]]:
    export, fit, motion = (data.metrics(stage) for stage in ("export", "calibrate", "optimize"))
    items: list[tuple[str, str, str]] = []
    if motion:
        forces = (
            f"{number(motion.get('mean_force_vertical_n'))} → {number(motion.get('mean_force_optimized_n'))} N, mean "
            f"over {motion.get('mean_over', 'time')}, against a vertical cut of the same duration"
        )
        items.append(("lower mean force", percent(motion.get("reduction")), f"{_interval(motion)}; {forces}"))
    peak = export.get("peak_force_n", motion.get("peak_force_optimized_n"))
    if peak is not None:
        high = motion.get("peak_force_high_n")
        remark = "upper end not known" if high is None else f"up to {number(high)} N in 95 % of possible cuts"
        items.append(("peak force", f"{number(peak)} N", remark))
    if export.get("cut_fraction") is not None:
        items.append(("cut through (simulated)", percent(export["cut_fraction"]), _cut_note(data)))
    if export.get("deflection_m") is not None:
        stiffness = data.used("export").get("joint_stiffness_nm_rad")
        remark = f"at {stiffness:,.0f} Nm/rad, which the script sets" if stiffness else ""
        certificate = data.cut.get("certificate")
        loads = certificate.get("loads") if isinstance(certificate, dict) else None
        usual = loads.get("deflection_at_3000_nm_rad_m") if isinstance(loads, dict) else None
        if isinstance(usual, float):
            remark += f"; {1e3 * usual:.1f} mm at libfranka's usual 3,000"
        if export.get("end_lift_m") is not None:
            remark += f"; at the end of the cut {max(0.0, 1e3 * export['end_lift_m']):.1f} mm above its path"
        items.append(("deflection of the edge", f"{1e3 * export['deflection_m']:.1f} mm", remark))
    if fit.get("nmae") is not None:
        items.append(("fit error", percent(fit["nmae"]), _forecast(fit)))
    return items


def _interval(motion: Mapping[str, Any]) -> str:
    low, high = motion.get("reduction_low"), motion.get("reduction_high")
    return (
        "no interval"
        if low is None or high is None
        else f"90 % interval {100 * low:.0f} to {100 * high:.0f} %"
    )


def _forecast(fit: Mapping[str, Any]) -> str:
    if fit.get("nmae_next_cut") is not None:
        return (
            f"last log predicted from the others to {percent(fit['nmae_next_cut'])} (repeating them "
            f"{percent(fit.get('nmae_next_repeated'))})"
        )
    if fit.get("nmae_forecast") is not None:
        return (
            f"rest of the cut forecast from its beginning to {percent(fit['nmae_forecast'])} (holding the last force "
            f"{percent(fit.get('nmae_hold_last'))})"
        )
    return str(fit.get("outcome", ""))


def _cut_note(data: ScanData) -> str:
    checks = data.cut.get("certificate", {}).get("checks", [])
    return next((str(check["note"]) for check in checks if check["name"] == CUT_FRACTION), "")


def _not_known(data: ScanData) -> list[tuple[str, str, str]]:
    motion, fit = data.metrics("optimize"), data.metrics("calibrate")
    rows: list[tuple[str, str, str]] = []
    if not motion:
        return rows
    calibrated = fit.get("nmae") is not None
    if not calibrated:
        rows.append(
            (
                "force of this fruit",
                "not measured: forces are the library's for its material, and the stop force follows from them",
                f"a probe cut: scan2cut probe {data.scan_id}",
            )
        )
    basis = motion.get("reduction_rests_on")
    two = motion.get("reduction_two_cuts_low"), motion.get("reduction_two_cuts_high")
    known = _interval(motion)
    if None not in two:
        known += f"; if it is measured on two cuts, {100 * float(two[0] or 0):.0f} to {100 * float(two[1] or 0):.0f} %"
    rows.append(
        (
            "saving",
            f"{known}. Basis: {basis}" if basis else known,
            f"the log of a cut that saws; expected gain: scan2cut probe {data.scan_id}",
        )
    )
    factor = math.exp(NINETY * AMPLITUDE_SPREAD)
    rows.append(
        (
            "force of the next cut as a whole",
            f"× {1 / factor:.2f} to {factor:.2f} in 90 % of cuts of one fruit; the certificate allows for it",
            f"executed cuts: scan2cut executed {data.scan_id} --log LOG",
        )
    )
    confirmed = motion.get("confirmed_reduction")
    rows.append(
        (
            "error of the simulation itself",
            "finer simulations did not finish"
            if confirmed is None
            else f"at least {percent(confirmed)} lower on finer meshes and steps",
            "see Vertical cut and optimised cut",
        )
    )
    return rows


def _force_over_depth(data: ScanData) -> list[Block]:
    """Return the force of both cuts over depth with the band of possible cuts."""
    profile, motion = data.table("optimize/profile"), data.metrics("optimize")
    if profile is None:
        return []
    vertical, optimised = (_by_depth(profile, name) for name in ("vertical", "optimized"))
    depths = sorted({*vertical, *optimised})
    cut = NINETY * AMPLITUDE_SPREAD
    below = above = cut
    ends = [motion.get(key) for key in ("reduction", "reduction_low", "reduction_high")]
    banded = all(isinstance(end, int | float) and end < 1.0 for end in ends)
    if banded:
        middle, low, high = (math.log(1.0 - float(end)) for end in ends if end is not None)
        below, above = math.hypot(cut, high - middle), math.hypot(cut, low - middle)
    curves = [
        Curve("vertical", [vertical.get(d) for d in depths], colour=0),
        Curve("optimised", [optimised.get(d) for d in depths], colour=1),
        *_edges(vertical, depths, cut, cut, "vertical", 0),
        *_edges(optimised, depths, below, above, "optimised", 1),
    ]
    bands = [(3, 2), (5, 4)]
    includes = "cut-to-cut variation and force reading" + (
        ", for the optimised cut also the saving's" if banded else ""
    )
    return [
        Plot(
            "Force over depth: vertical and optimised cut",
            "depth below the start [mm]",
            "force on the knife (norm) [N]",
            [1e3 * d for d in depths],
            curves,
            bands=bands,
            wide=True,
            caption=f"Means over {1e3 * _DEPTH_M:g} mm. Shaded: 90 % of possible cuts ({includes}; not other laws than "
            "the simulator's). The last depth holds the final strokes. Where the blade reverses it does not slice: the "
            "force rises to that of the vertical cut for a moment.",
        )
    ]


def _by_depth(profile: pl.DataFrame, name: str) -> dict[float, float]:
    """Return depth [m] → mean force [N] of one of the cuts."""
    height = pl.col(f"{name}_position_m").arr.get(1)
    rows = (
        profile.with_columns((((height.max() - height) / _DEPTH_M).floor() * _DEPTH_M).alias("depth"))
        .group_by("depth")
        .agg(pl.col(f"{name}_n").mean())
        .sort("depth")
    )
    return {float(depth): float(force) for depth, force in rows.iter_rows()}


def _edges(
    curve: Mapping[float, float], depths: Sequence[float], below: float, above: float, name: str, colour: int
) -> list[Curve]:
    """Return the lower and the upper edge of a band, given in logarithms."""
    return [
        Curve(
            f"{name}, {word} end",
            [None if d not in curve else math.exp(sign) * curve[d] for d in depths],
            colour=colour,
            edge=True,
        )
        for word, sign in (("lower", -below), ("upper", above))
    ]


# Margins to the certificate's limits


def _margins(data: ScanData) -> list[Block]:
    used = tightest(data.cut.get("certificate", {}).get("checks", []))
    if not used:
        return []
    rows = [(check["name"], check["value"], check["limit"], check["unit"], percent(m)) for check, m in used]
    header = ("check", "value", "limit", "unit", "margin")
    caption = f"Margins of the {len(used)} tightest checks, as a share of the limit."
    bars = margin_bars([(check["name"], margin) for check, margin in used])
    return [Drawing(bars, caption, Table(header, rows), wide=True)]


def tightest(
    checks: Sequence[Mapping[str, Any]], count: int = _SHOWN
) -> list[tuple[Mapping[str, Any], float]]:
    """Return the checks with the smallest margins [-]; below 0 the limit is exceeded."""
    margins = [(check, margin) for check in checks if (margin := margin_share(check)) is not None]
    return sorted(margins, key=lambda pair: pair[1])[:count]


def margin_share(check: Mapping[str, Any]) -> float | None:
    """Return the distance of a check's value from its limit as a share of the limit; None if it has no positive limit.

    A share that should be large (1 at most) is measured by what it may lack: 99 % cut with at least 98 % asked for has
    used half of it.
    """
    value, limit, rule = check.get("value"), check.get("limit"), check.get("rule")
    if not (isinstance(value, int | float) and isinstance(limit, int | float)) or limit <= 0.0:
        return None
    if rule == "<=":
        return 1.0 - value / limit
    if rule != ">=":
        return None
    if check.get("unit") == "-" and limit < 1.0 and value <= 1.0:
        return (value - limit) / (1.0 - limit)
    return value / limit - 1.0


# Warnings, changed limits, stages of the last run


def limits(data: ScanData) -> Section:
    """Build the section on limits of motion, clearance and robot that the scan overrides."""
    params = read_mapping(data.project.root / PARAMS_FILE_NAME)
    rows = [
        (name, "the robot's" if shipped is None else str(shipped), str(override))
        for name, shipped, override in changed_limits(params, data.scan_yaml)
    ]
    if not rows:
        note = Note("All limits of motion, clearance and robot are as in params.yaml.")
        return Section("limits", "Limits", [note])
    note = Note(
        f"This scan overrides {len(rows)} limits of motion, clearance or robot in params.yaml. The certificate uses "
        "the scan's values.",
        "warning",
    )
    return Section("limits", "Limits", [note, Table(("parameter", "params.yaml", "this scan"), rows)])


_SIMULATING = ("simulate", "transport", "optimize", "replay")
"""Stages whose metrics state what became of a simulated cut."""
_FINISHED = ("converged", "at the log's noise")
"""Outcomes of a fit that need no remedy."""


def run(data: ScanData) -> Section:
    """Build the section on the last run: stages, their times and key figures."""
    return Section("run", "Stages and times", [_stages(data)])


def _warnings(data: ScanData) -> list[str]:
    """Return the warnings about the result."""
    fit, motion, export = data.metrics("calibrate"), data.metrics("optimize"), data.metrics("export")
    found = []
    if data.metrics("clean").get("warning"):
        found.append(f"Scan: {data.metrics('clean')['warning']}")
    if data.metrics("ingest") and not data.metrics("ingest").get("samples"):
        found.append("No force log: all parameters are nominal, and forces are estimates.")
    elif fit.get("remedy") and fit.get("outcome") not in _FINISHED:
        found.append(f"Calibration: {fit.get('outcome')}. {fit['remedy']}")
    found += [f"Calibration: {text}" for text in (at_bounds(data), certainty(data)) if text]
    if motion and motion.get("confirmed_reduction") is None:
        found.append("Optimisation: the saving is not confirmed, because a finer simulation did not finish.")
    elif motion and _is_less(motion.get("confirmed_reduction"), 0.0):
        found.append("Optimisation: a finer simulation shows no saving.")
    found += [f"Certificate: {message}." for message in export.get("failed") or []]
    for stage in ("tetrahedralize", "tetrahedralize_half"):
        if data.metrics(stage).get("seeded") is False:
            found.append(
                f"{stage}: the mesher used random numbers without a seed, so the mesh is not reproducible. Run "
                "`scan2cut doctor` for the remedy."
            )
    for stage in _SIMULATING:
        figures = data.metrics(stage)
        found += [f"{stage}: {figures[key]}" for key in ("refused", "warning") if figures.get(key)]
    return found + [f"Unreadable: {problem}" for problem in data.problems]


def _is_less(value: Any, limit: float) -> bool:
    return isinstance(value, int | float) and value <= limit


def _stages(data: ScanData) -> Table:
    run = data.run
    rows = []
    for entry in scan_entries(data.project, data.scan_id):
        record = run.stages.get(entry.name, {})
        result = record.get("outcome") or ("failed" if entry.name == run.failed_stage else MISSING)
        metrics = data.metrics(entry.name)
        key = entry.key_figure or ""
        rows.append(
            (
                entry.name,
                result,
                _seconds(record.get("seconds")),
                _seconds(run.computed_s.get(entry.name)),
                figure(key, metrics.get(key)),
            )
        )
    header = ("stage", "last run", "time", "time of last computation", "key figure")
    when = f"Last run finished {run.finished}." if run.finished else "No recorded run."
    return Table(header, rows, f"Stages. {when}", folded=True)


def _seconds(value: Any) -> str:
    return f"{value:.1f} s" if isinstance(value, int | float) else MISSING
