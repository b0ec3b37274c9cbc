"""Comparison of an executed cut with its prediction: the log of run_cut.py against the certified motion."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.export.export_files import DOCUMENT, MOTION
from stages.export.load_checks import FACTOR, UPPER_BAND
from stages.runtime.artifacts import read_parquet, read_table, write_curves
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_value, write_bytes_atomic
from stages.shared.fitting import low_pass
from stages.shared.surface import Surface, solid_moments

_CERTIFIED = Path("export", "cut", "certified")
_FOLDER = "executed"
"""Folder of the comparisons, beside those of the stages."""
_CUTOFF_HZ = 20.0
"""Zero-phase low-pass of both forces, as in ingest."""
_MEAN_ERROR = 0.25
"""Maximum mean absolute difference / mean measured force for which the prediction holds."""
_AIR_N = 10.0
"""Force an arm may measure in air; an air cut has no prediction to compare with."""
_ALIKE = 0.3
"""Correlation with the predicted force below which a log shows no cut of this fruit: noise and friction of the arm."""
_FINISHED = "finished"
"""End of a log whose motion ran to its end, as run_cut.py and stream_cut.cpp write it."""


@dataclass(frozen=True)
class _Reading:
    """Cut phase of a log."""

    step: NDArray[np.float64]
    """Position on the motion [ms from its start], strictly increasing, shape [n]."""
    force: NDArray[np.float64]
    """Force on the knife in the base frame [N], shape [n, 3], not tared."""
    air: bool
    ended: str
    simulated: bool
    """True if the robot was simulated."""
    lowest_m: float
    """Lowest height of the edge in the base frame [m]; infinite if the log has none."""


def compare_executed(scan_dir: Path, log: Path, air: Path | None = None) -> dict[str, Any]:
    """Compare, write table and picture to the scan's folder `executed`, and return the figures.

    Raises InputError if the log is not of the scan's certified motion.
    """
    folder = scan_dir / _CERTIFIED
    if not (folder / DOCUMENT).is_file():
        raise InputError(
            f"{scan_dir.name} has no certified motion. A log is compared with the one that was executed. Run "
            f"scan2cut run {scan_dir.name}."
        )
    document = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
    measured = _read_executed(log, document)
    tare = _read_executed(air, document) if air else None
    if measured.air or (tare is not None and not tare.air):
        raise InputError(
            f"{log.name if measured.air else air.name if air else ''} is of the wrong motion. --log must be the cut, "
            "--air the air cut. Swap them."
        )
    motion = read_parquet(folder / MOTION)
    time, measured_n, expected = _profiles(document, motion, measured, tare)
    figures = _judged(measured_n, expected, measured.ended)
    if measured.simulated:
        figures["verdict"] = f"A simulated robot, nothing was measured. {figures['verdict']}"
    name = log.stem
    target = scan_dir / _FOLDER / name
    table = pl.DataFrame({"time_s": time, "measured_n": measured_n, "predicted_n": expected})
    written = write_curves(target, table, _picture(time, measured_n, expected, figures["verdict"]))
    usable = figures.pop("usable")
    again = _as_calibration_log(scan_dir, target, log, document, measured.lowest_m) if usable else ""
    return {
        "log": str(log),
        "ended": measured.ended,
        "simulated": measured.simulated,
        **figures,
        **written,
        "calibrate_with": again,
    }


def _read_executed(path: Path, document: dict[str, Any]) -> _Reading:
    """Read a log of run_cut.py; raise InputError if it is not one, or of another export."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        header = content["scan2cut"]
        step = np.array(content["motion_step"], float)
        force = -np.array(content["O_F_ext_hat_K"], float)[:, :3]
        of, air, ended = header["content_sha256"], header["motion"] == "air_cut", str(header["ended"])
        simulated = header.get("simulated") is True
        # The edge's direction is the third column of its pose; an upright knife is as low everywhere.
        half = 0.5 * document["tool"]["blade_length_m"] if "torque_nm" in document["waypoints"][0] else 0.0
        lowest = min(
            (float(pose[14]) - half * abs(float(pose[10])) for pose in content.get("O_T_EE", [])),
            default=np.inf,
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"{path} is not a log of run_cut.py ({type(error).__name__}: {error}). It must have motion_step, "
            "O_F_ext_hat_K and scan2cut. Give the file that run_cut.py wrote."
        ) from error
    uncertified = {key: value for key, value in document.items() if key != "certificate"}
    if of != sha256_of_value(uncertified):
        raise InputError(
            f"{path} was recorded with another export than the current one. Both must be the same. Give the "
            "log of this motion, or go back to the version that was executed."
        )
    if len(step) != len(force) or not (np.isfinite(step).all() and np.isfinite(force).all()):
        raise InputError(
            f"{path} has {len(step)} positions and {len(force)} forces, or NaN among them. Each sample needs both. "
            "Record it again."
        )
    ahead = np.concatenate([[True], step[1:] > np.maximum.accumulate(step)[:-1]]) if len(step) else step > 0
    return _Reading(step[ahead], force[ahead], air, ended, simulated, lowest)


def _profiles(
    document: dict[str, Any], motion: pl.DataFrame, measured: _Reading, tare: _Reading | None
) -> tuple[NDArray[np.float64], ...]:
    """Return time in the cut [s], norm of measured and predicted force [N], both with the same filter."""
    phases = document["timing"]["phases"]
    at = next(i for i, phase in enumerate(phases) if phase["phase"] == "cut")
    begin = 1000.0 * phases[at]["start_s"]
    reached = min(float(measured.step.max(initial=0.0)) - begin, len(motion) - 1.0)
    count = int(reached) + 1
    if count < len(motion) // 10:
        raise InputError(
            f"The log ends {max(count, 0)} ms into the cut. It must cover at least a tenth. Give a log of the cut."
        )
    steps = begin + np.arange(count)
    force = _at(steps, measured)
    if tare is not None:
        force = force - _at(steps, tare)
    else:
        rest = (measured.step >= 1000.0 * phases[at - 1]["start_s"]) & (measured.step < begin)
        if rest.any():
            force = force - measured.force[rest].mean(axis=0)
    time = motion["time_s"].to_numpy()[:count]
    predicted = motion["force_n"].to_numpy()[:count]
    sizes = [np.linalg.norm(low_pass(time, values, _CUTOFF_HZ), axis=1) for values in (force, predicted)]
    return time, sizes[0], sizes[1]


def _judged(measured: NDArray[np.float64], predicted: NDArray[np.float64], ended: str) -> dict[str, Any]:
    """Return the figures, whether the prediction held, and whether the log is one of a whole cut (`usable`)."""
    mean = float(measured.mean())
    error = float(np.abs(measured - predicted).mean()) / max(mean, 1e-9)
    peaks = float(measured.max()) / max(float(predicted.max()), 1e-9)
    empty = (
        float(measured.max()) < min(_AIR_N, 0.5 * float(predicted.max()))
        or _alike(measured, predicted) < _ALIKE
    )
    usable = ended == _FINISHED and not empty
    held = usable and error <= _MEAN_ERROR and 1.0 / FACTOR <= peaks <= FACTOR
    size = mean / max(float(predicted.mean()), 1e-9)
    inside = 1.0 / UPPER_BAND <= size <= UPPER_BAND
    if ended != _FINISHED:
        verdict = (
            f"The motion did not finish ({ended.rstrip('.')}), so the prediction is not judged. The forces up to there "
            "are in the table. Cut again for a comparison or a fit."
        )
    elif empty:
        verdict = (
            f"The arm measured at most {measured.max():.1f} N, and not where {predicted.max():.1f} N were predicted: "
            "was the fruit there? The prediction is not judged. Cut again with the fruit in place."
        )
    else:
        verdict = (
            f"The prediction {'held' if held else 'did NOT hold'}: mean difference {100 * error:.0f} % of the measured "
            f"force (up to {100 * _MEAN_ERROR:.0f} % allowed), peak {peaks:.2f} of the predicted "
            f"({1 / FACTOR:.2f} to {FACTOR:.2f}). The mean force is {size:.2f} of the predicted, "
            f"{'inside' if inside else 'outside'} the 90 % band ({1 / UPPER_BAND:.2f} to {UPPER_BAND:.2f})."
        )
    return {
        "held": bool(held),
        "mean_measured_n": mean,
        "mean_predicted_n": float(predicted.mean()),
        "peak_measured_n": float(measured.max()),
        "peak_predicted_n": float(predicted.max()),
        "mean_error_fraction": error,
        "inside_band": bool(usable and inside),
        "usable": usable,
        "verdict": verdict,
    }


def _alike(measured: NDArray[np.float64], predicted: NDArray[np.float64]) -> float:
    """Return the correlation of two force curves, -1 to 1; 1 if one of them is constant."""
    a, b = measured - measured.mean(), predicted - predicted.mean()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else 1.0


def _as_calibration_log(
    scan_dir: Path, folder: Path, log: Path, document: dict[str, Any], lowest_m: float
) -> str:
    """Write the cut half's surface as a scan and return the command that fits it to this log.

    If the arm measured the edge below the board, that height is taken as the board's, because ingest rejects it
    otherwise.
    """
    import trimesh

    vertices = read_table(scan_dir, "halve/vertices")["position_m"].to_numpy()
    faces = read_table(scan_dir, "halve/faces")["vertices"].to_numpy()
    body = trimesh.Trimesh(vertices, faces, process=False)
    name = f"{scan_dir.name}_{folder.name}"
    ply = body.export(file_type="ply")
    assert isinstance(ply, bytes)
    write_bytes_atomic(folder / f"{name}.ply", ply)
    offset = -float(solid_moments(Surface(vertices, faces))[0][0])
    turn = np.array(document["frames"]["O_T_C"])[:3, 2]
    if abs(abs(turn).max() - 1.0) > 1e-6:
        return ""
    board = float(document["frames"]["O_T_C"][2][3])
    if lowest_m < board:
        board = np.floor(1e4 * lowest_m) / 1e4
    settings = {
        "clean.unit": "m",
        "clean.rotation_deg": "[0,0,0]",
        "clean.cut_offset_m": f"{offset:.6f}",
        "ingest.blade_axis": "xyz"[int(np.abs(turn).argmax())],
        "ingest.board_height_m": f"{board:g}",
    }
    given = " ".join(f"--set '{key}={value}'" for key, value in settings.items())
    return f"scan2cut run {folder / name}.ply --log {log} {given}"


def _at(steps: NDArray[np.float64], reading: _Reading) -> NDArray[np.float64]:
    return np.stack([np.interp(steps, reading.step, column) for column in reading.force.T], axis=1)


def _picture(
    time: NDArray[np.float64], measured: NDArray[np.float64], predicted: NDArray[np.float64], verdict: str
) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.5), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.plot(time, measured, color="#222222", lw=1.2, label="measured")
    axes.plot(time, predicted, color="#c0392b", lw=1.2, label="predicted")
    low, high = predicted / UPPER_BAND, predicted * UPPER_BAND
    axes.fill_between(time, low, high, color="#c0392b", alpha=0.15, lw=0, label="90 of 100 cuts")
    axes.set(xlabel="time in the cut [s]", ylabel="force [N]")
    axes.set_title(verdict, fontsize=8)
    axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
