"""ingest: from a robot's log of one cut to the force on the knife along the measured motion of its edge."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.ingest.contact import Descent, board_contact, find_descent, require_onset
from stages.ingest.description import IngestParams
from stages.ingest.force_recovery import EdgeRecord, describe, edge_record, pitch_rad, turning_deg
from stages.ingest.log_file import EXERTED, RobotLog, in_si, read_log
from stages.ingest.tare import Tare, air_tare, window_tare, zero_tare
from stages.runtime.artifacts import polars_dtype
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_file
from stages.runtime.stage_io import StageIO
from stages.shared.fitting import low_pass
from stages.shared.input_files import LOGS_NOTE, further_logs
from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, WARNING

_MAX_TURN_DEG = 2.0
"""Turn of the knife during a cut beyond which a warning is given: over 150 mm of edge its ends move by 2.6 mm."""


@dataclass(frozen=True)
class ForceRecord:
    """A cut as it was measured: one entry per sample, in the cutting frame."""

    time_s: NDArray[np.float64]
    """Time from 0 [s], shape [n]."""
    position_m: NDArray[np.float64]
    """Middle of the edge [m], shape [n, 3]: y above the board, x and z relative to the start of the log."""
    velocity_m_s: NDArray[np.float64]
    """Velocity of the edge [m/s], shape [n, 3]."""
    raw_n: NDArray[np.float64]
    """Force on the knife before tare [N], shape [n, 3]."""
    tare: Tare
    filtered_n: NDArray[np.float64]
    """Net force, low-passed [N], shape [n, 3]."""
    valid: NDArray[np.bool_]
    """Samples that may be compared with a simulation, shape [n]."""
    uncertainty_n: NDArray[np.float64]
    """Standard uncertainty of the net force's norm [N], shape [n]."""
    onset: int
    """Sample at which contact begins."""
    on_board: int | None
    """Sample from which the edge presses on the board; None if it does not."""
    descent: Descent
    residual_n: float
    """Root mean square of the net force, low-passed, between the start of the descent and the onset [N]."""
    record: EdgeRecord
    board: str
    """Source of the height above the board."""

    @property
    def net_n(self) -> NDArray[np.float64]:
        """Force on the knife after tare [N], shape [n, 3]."""
        return self.raw_n - self.tare.force_n

    @property
    def filtered_norm_n(self) -> NDArray[np.float64]:
        """Norm of the low-passed net force [N], shape [n]."""
        return np.linalg.norm(self.filtered_n, axis=1)


def ingest(
    log: RobotLog,
    params: IngestParams,
    *,
    air_runs: Mapping[str, RobotLog] | None = None,
    source: str = "the log",
) -> ForceRecord:
    """Check a log, tare it, and find contact.

    Args:
        log: The log of a cut.
        params: Section `ingest` of params.yaml.
        air_runs: Logs of the same motion without contact, by name.
        source: Name of the log for messages.
    """
    record = edge_record(log, params, source)
    airs = {name: edge_record(air, params, name) for name, air in (air_runs or {}).items()}
    descent = find_descent(record.height_m, source)
    if params.tare == "air" and not airs:
        raise InputError(
            f"ingest.tare is air, but {source} has no no-contact run. One is needed. Give it with --air, or set "
            "ingest.tare to window."
        )
    is_zeroed = params.tare == "none" or (params.tare == "auto" and log.zeroed and not airs)
    if is_zeroed:
        tare = zero_tare(record)
    elif airs and params.tare != "window":
        tare = air_tare(record, descent, airs, params.reading.filter_cutoff_hz)
    else:
        tare = window_tare(record, descent, params, source)
    net = record.force_n - tare.force_n
    filtered = low_pass(record.time_s, net, params.reading.filter_cutoff_hz)
    onset = require_onset(record.time_s, filtered[:, 1], descent, params.onset_force_n, source)
    if is_zeroed:
        # A sawing knife is held back along the blade before it is pushed up.
        norm = np.linalg.norm(filtered, axis=1)
        onset = min(onset, require_onset(record.time_s, norm, descent, params.onset_force_n, source))
    before_contact = filtered[descent.top : max(onset, descent.top + 1)]
    # A zeroed log may begin in contact: what it reads before the onset is then a force, not an error of the tare.
    residual = 0.0 if is_zeroed else float(np.sqrt((before_contact**2).sum(axis=1).mean()))
    on_board = board_contact(filtered[:, 1], descent)
    position, board = _on_board(record, airs, params)
    smooth_position = low_pass(record.time_s, position, params.reading.filter_cutoff_hz)
    sample = np.arange(len(net))
    cutting = (sample >= descent.top) & (sample < (len(net) if on_board is None else on_board))
    return ForceRecord(
        time_s=record.time_s,
        position_m=position,
        velocity_m_s=np.gradient(smooth_position, record.time_s, axis=0),
        raw_n=record.force_n,
        tare=tare,
        filtered_n=filtered,
        valid=record.known & tare.covered & cutting,
        uncertainty_n=_uncertainty(filtered, residual, params),
        onset=onset,
        on_board=on_board,
        descent=descent,
        residual_n=residual,
        record=record,
        board=board,
    )


def _on_board(
    record: EdgeRecord, airs: Mapping[str, EdgeRecord], params: IngestParams
) -> tuple[NDArray[np.float64], str]:
    """Return edge positions above the board [m], shape [n, 3], and the source of the board's height."""
    lowest = min(float(each.height_m.min()) for each in (record, *airs.values()))
    if params.board_height_m is None:
        board = lowest - params.board_clearance_m
        board_source = (
            f"assumed: the edge's lowest point of all runs, {lowest:.5f} m above the base, is "
            f"{params.board_clearance_m:g} m above the board"
        )
    else:
        board = params.board_height_m
        board_source = f"given: {board:g} m above the base"
        if lowest < board:
            raise InputError(
                f"ingest.board_height_m is {board:g} m, but the edge goes down to {lowest:.5f} m. It can't go below "
                "the board. Correct board_height_m or edge_offset_m."
            )
    start = record.position_m[0]
    return record.position_m - np.array([start[0], board, start[2]]), board_source


def _uncertainty(filtered: NDArray[np.float64], residual: float, params: IngestParams) -> NDArray[np.float64]:
    scale = params.scale_error_fraction * np.linalg.norm(filtered, axis=1)
    return np.sqrt(params.reading.repeatability_n**2 + residual**2 + scale**2)


def force_table(result: ForceRecord) -> pl.DataFrame:
    """Return the table ingest/force."""
    net = result.net_n
    values: dict[str, NDArray[np.generic]] = {
        "time_s": result.time_s,
        "position_m": result.position_m,
        "velocity_m_s": result.velocity_m_s,
        "force_n": net,
        "force_norm_n": np.linalg.norm(net, axis=1),
        "force_filtered_norm_n": result.filtered_norm_n,
        "air_n": result.tare.force_n,
        "raw_n": result.raw_n,
        "valid": result.valid,
        "contact": np.arange(len(net)) >= result.onset,
        "uncertainty_n": result.uncertainty_n,
    }
    pitch = pitch_rad(result.record, result.onset)
    if pitch is not None and (_turning(result)["pitch_deg"] or 0.0) > _MAX_TURN_DEG:
        values["pitch_rad"] = pitch
    columns = [column for column in ARTIFACTS["ingest/force"].columns if column.name in values]
    return pl.DataFrame([pl.Series(c.name, values[c.name], polars_dtype(c.dtype)) for c in columns])


def empty_table(name: str = "ingest/force") -> pl.DataFrame:
    """Return one of the stage's tables for a scan without a log."""
    columns = [column for column in ARTIFACTS[name].columns if not column.optional]
    return pl.DataFrame([pl.Series(c.name, [], polars_dtype(c.dtype)) for c in columns])


def _further_table(folder: Path, params: IngestParams) -> pl.DataFrame:
    """Return the table ingest/further: the logs of further cuts in the folder, if it is one."""
    tables = [empty_table("ingest/further")]
    for each in further_logs(folder):
        air_runs = {air.name: read_log(air, params) for air in each.air}
        result = ingest(read_log(each.log, params), params, air_runs=air_runs, source=each.log.name)
        table = force_table(result)
        tables.append(table.select(pl.lit(each.number, pl.Int64).alias("log"), *table.columns))
    every = pl.concat(tables, how="diagonal")
    return every.with_columns(pl.col("pitch_rad").fill_null(0.0)) if "pitch_rad" in every.columns else every


def metrics(result: ForceRecord, source_format: str, air_runs: int) -> dict[str, object]:
    """Return the artifact ingest/metrics."""
    onset, bottom = result.onset, result.descent.bottom
    norm, sampling = result.filtered_norm_n, result.record.sampling
    last = bottom + 1 if result.on_board is None else result.on_board
    down = result.descent.samples
    return {
        "samples": len(result.time_s),
        "source_format": source_format,
        "rate_hz": sampling.rate_hz,
        "duration_s": sampling.duration_s,
        "largest_gap_s": sampling.largest_gap_s,
        "onset_s": float(result.time_s[onset]),
        "onset_height_m": float(result.position_m[onset, 1]),
        "board_contact_s": None if result.on_board is None else float(result.time_s[result.on_board]),
        "lowest_height_m": float(result.position_m[bottom, 1]),
        "peak_force_n": float(norm[onset:last].max()),
        "mean_force_n": float(norm[onset:last].mean()),
        "tare_n": float(np.linalg.norm(result.tare.force_n[down].mean(axis=0))),
        "tare_residual_n": result.residual_n,
        "air_runs": air_runs,
        "valid_samples": int(result.valid.sum()),
        **_turning(result),
    }


def _turning(result: ForceRecord) -> dict[str, Any]:
    """Return how far the knife turned since contact, and a warning if the simulator can't follow it.

    Before contact the arm may come from a pose with another orientation.
    """
    found = turning_deg(result.record, slice(result.onset, result.descent.samples.stop))
    if found is None:
        return {"pitch_deg": None, "out_of_plane_deg": None, "warning": None}
    pitch, out = found
    warning = None
    if out > _MAX_TURN_DEG:
        warning = (
            f"The knife turned during the cut: {pitch:.1f}° in the cut plane, {out:.1f}° out of it. The simulated one "
            f"turns in the plane only; more than {_MAX_TURN_DEG:g}° out of it shows in the force. Hold the orientation "
            "and record again, or expect a worse fit."
        )
    return {"pitch_deg": pitch, "out_of_plane_deg": out, "warning": warning}


def _notes(
    result: ForceRecord, log: RobotLog, params: IngestParams, source: str, digests: Mapping[str, str]
) -> dict[str, str]:
    """Return the origin of the force, for the table's metadata."""
    sampling = result.record.sampling
    si = in_si(log, params)
    sign = "the robot's" if si.force_factor == EXERTED else "the one on the knife"
    return {
        "robot": log.robot,
        "source": source,
        "source_format": log.source_format,
        **{f"sha256 of {name}": digest for name, digest in digests.items()},
        "units_found": f"{log.clock} [{si.time_unit}], {params.length_unit}, {params.force_unit}, rad, N m",
        "first_time_s": f"{si.time_s[0]:.6f}",
        "position": result.record.position_from,
        "force": result.record.force_from,
        "sign": f"force on the knife, positive y pushes it up; the logged force is {sign}",
        "frame": describe(params.up_axis, params.blade_axis),
        "origin": "y from the board; x and z from the edge's first position",
        "board": result.board,
        "velocity": "derivative of the low-passed measured position",
        "tare": result.tare.method,
        "tare_residual_n": f"{result.residual_n:.3f}",
        "filter": f"Butterworth order 2, forwards and backwards, {params.reading.filter_cutoff_hz:g} Hz",
        "rate_hz": f"{sampling.rate_hz:.3f}",
        "largest_gap_s": f"{sampling.largest_gap_s:.6f}",
        "onset_s": f"{result.time_s[result.onset]:.6f}",
        "board_contact_s": "none"
        if result.on_board is None
        else f"{result.time_s[result.on_board]:.6f}; invalid from there on",
        "uncertainty": (
            f"root of squares of repeatability {params.reading.repeatability_n:g} N, tare residual "
            f"{result.residual_n:.3f} N and {params.scale_error_fraction:g} of the force"
        ),
    }


def _title(result: ForceRecord, numbers: Mapping[str, object], name: str) -> str:
    board = ""
    if result.on_board is not None:
        board = f" Presses on the board from {numbers['board_contact_s']:.3f} s on; excluded."
    return (
        f"{name}: {numbers['source_format']}, {numbers['samples']} samples at {numbers['rate_hz']:.1f} Hz. "
        f"Contact at {numbers['onset_s']:.3f} s, {1e3 * result.position_m[result.onset, 1]:.1f} mm; peak "
        f"{numbers['peak_force_n']:.1f} N, mean {numbers['mean_force_n']:.1f} N.{board}\nTare: {result.tare.method}"
    )


def _air_paths(io: StageIO) -> list[Path]:
    folder = io.scan_dir / io.scan.air_runs
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def run(io: StageIO, params: IngestParams) -> dict[str, object]:
    """Read the log and its no-contact runs, write the table and the picture; without a log, an empty table."""
    if io.scan.log is None:
        io.write("ingest/force", empty_table())
        io.write("ingest/further", empty_table("ingest/further"))
        io.write_png("ingest/preview", no_log_picture())
        return {"samples": 0, "source_format": None}
    path, air_paths = io.scan_dir / io.scan.log, _air_paths(io)
    io.progress(0.0, "read the log")
    log = read_log(path, params)
    air_runs = {air.name: read_log(air, params) for air in air_paths}
    io.progress(0.4, "tare")
    result = ingest(log, params, air_runs=air_runs, source=path.name)
    digests = {each.name: sha256_of_file(each) for each in (path, *air_paths)}
    notes = _notes(result, log, params, path.name, digests) | {LOGS_NOTE: digests[path.name]}
    io.write("ingest/force", force_table(result), notes=notes)
    numbers = metrics(result, log.source_format, len(air_runs))
    folder = io.scan_dir / io.scan.further_logs
    further = _further_table(folder, params)
    more = " ".join(sha256_of_file(each.log) for each in further_logs(folder))
    io.write("ingest/further", further, notes={LOGS_NOTE: more})
    numbers["further_logs"] = further["log"].n_unique()
    io.progress(0.7, "draw the picture")
    picture = force_picture(
        result.time_s,
        result.position_m[:, 1],
        result.raw_n,
        result.tare.force_n,
        result.net_n,
        result.filtered_norm_n,
        result.valid,
        onset=result.onset,
        title=_title(result, numbers, path.name),
    )
    io.write_png("ingest/preview", picture)
    io.progress(1.0, "done")
    return numbers


_SIZE_INCH = (14.0, 9.0)
_DPI = 100


def force_picture(
    time_s: NDArray[np.float64],
    height_m: NDArray[np.float64],
    raw_n: NDArray[np.float64],
    air_n: NDArray[np.float64],
    net_n: NDArray[np.float64],
    filtered_norm_n: NDArray[np.float64],
    valid: NDArray[np.bool_],
    *,
    onset: int,
    title: str,
) -> bytes:
    """Draw the upward force [N] over time [s] and over height [m] as PNG, forces of shape [n, 3]; heights below."""
    figure, canvas = _figure()
    over_time, over_height = figure.add_subplot(2, 2, 1), figure.add_subplot(2, 2, 2)
    for axis, x in ((over_time, time_s), (over_height, 1e3 * height_m)):
        axis.plot(x, raw_n[:, 1], color=SCAN, lw=1.2, label="raw, upward")
        axis.plot(x, air_n[:, 1], color=CUT, lw=1.2, label="tare (air), upward")
        axis.plot(x, net_n[:, 1], color=TEXT, lw=0.8, label="net, upward")
        axis.plot(x, filtered_norm_n, color=FRUIT, lw=2.4, label="net, norm, low-passed")
        axis.axvline(x[onset], color=WARNING, lw=1.2, ls="--", label="contact onset")
        axis.set(ylabel="force on the knife [N]")
    over_time.set(xlabel="time [s]")
    over_height.set(xlabel="height of the edge above the board [mm]")
    over_height.invert_xaxis()
    motion = figure.add_subplot(2, 2, 3)
    motion.plot(time_s, 1e3 * height_m, color=TEXT, lw=1.6)
    motion.axvline(time_s[onset], color=WARNING, lw=1.2, ls="--")
    motion.axhline(1e3 * height_m[onset], color=WARNING, lw=0.6, ls=":")
    motion.set(xlabel="time [s]", ylabel="height of the edge above the board [mm]")
    sides = figure.add_subplot(2, 2, 4)
    for column, (name, colour) in enumerate(
        (("across the blade (x)", CUT), ("upward (y)", TEXT), ("along the blade (z)", FRUIT))
    ):
        sides.plot(time_s, net_n[:, column], color=colour, lw=1.0, label=f"net, {name}")
    sides.axvline(time_s[onset], color=WARNING, lw=1.2, ls="--")
    sides.set(xlabel="time [s]", ylabel="force on the knife [N]")
    for axis in (over_time, motion, sides):
        _shade(axis, time_s, ~valid)
    for axis in (over_time, sides):
        axis.legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=11)
    return _png(canvas)


def no_log_picture() -> bytes:
    """Draw a PNG that says that there is no log."""
    figure, canvas = _figure()
    figure.text(0.5, 0.5, "no log", ha="center", va="center", fontsize=28, color=SCAN)
    return _png(canvas)


def _figure() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCH, dpi=_DPI, layout="constrained")
    return figure, FigureCanvasAgg(figure)


def _shade(axis: Any, time_s: NDArray[np.float64], where: NDArray[np.bool_]) -> None:
    """Shade the samples that are not valid."""
    axis.fill_between(
        time_s, 0.0, 1.0, where=where, transform=axis.get_xaxis_transform(), color="#eef0f2", lw=0
    )


def _png(canvas: Any) -> bytes:
    buffer = io.BytesIO()
    canvas.print_png(buffer)
    return buffer.getvalue()
