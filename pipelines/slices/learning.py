"""Learning from slice to slice: executed cuts update the fruit's amplitude, and remaining slices are planned anew."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipelines.project import Project
from pipelines.slices.plan import FOLDER, SlicePlan, read_plan, set_slice
from stages.export.executed import compare_executed
from stages.export.load_checks import UPPER_BAND
from stages.runtime.artifacts import read_table
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping, write_bytes_atomic
from stages.runtime.scan_file import SCAN_FILE_NAME
from stages.runtime.stage_io import encode_png
from stages.shared.amplitude import Amplitude, SliceForce, forces_picture, learn, replan_pays

_LEARNT = "learnt.json"
_PICTURE = "force.png"


def add_executed(project: Project, fruit: str, number: int, log: Path, air: Path | None) -> dict[str, Any]:
    """Compare the log of one slice with its prediction and update what is known of the fruit; return both.

    Nothing is changed if the log is rejected. A second log of a slice replaces the first.
    """
    plan = read_plan(project, fruit)
    if not 1 <= number <= len(plan.scans):
        raise InputError(
            f"--slice is {number}. {fruit} has the slices 1 to {len(plan.scans)}. Give one of them."
        )
    scan = plan.scans[number - 1]
    comparison = compare_executed(project.scan_dir(scan), log, air)
    measured, predicted = comparison["mean_measured_n"], comparison["mean_predicted_n"]
    if not measured > 0.0 or not predicted > 0.0:
        raise InputError(
            f"{log} has a mean force of {measured:.2f} N against {predicted:.2f} N. Both must be positive to learn "
            "from them. Give the log of a cut, not of an air cut."
        )
    planned = _planned_factor(project, scan)
    executed = read_executed(project, fruit)
    executed[number] = {
        "log": str(log),
        "measured_n": measured,
        "predicted_n": predicted,
        "planned_factor": planned,
        "ratio": planned * measured / predicted,
        "simulated": bool(comparison["simulated"]),
        "curves": comparison["table"],
    }
    amplitude = _learned(project, plan, executed)
    left = [k for k in range(1, len(plan.scans) + 1) if k not in executed]
    reason = ""
    if left:
        reason = replan_pays(_planned_factor(project, plan.scans[left[0] - 1]), amplitude, UPPER_BAND)
    content = {
        "executed": {str(k): executed[k] for k in sorted(executed)},
        "amplitude": asdict(amplitude),
        "remaining": left,
        "replan": reason,
    }
    folder = project.scan_dir(fruit) / FOLDER
    write_bytes_atomic(folder / _LEARNT, (json.dumps(content, indent=1) + "\n").encode())
    picture = folder / _PICTURE
    write_bytes_atomic(picture, encode_png(_picture(project, plan, executed)))
    return {**content, "comparison": comparison, "picture": str(picture.relative_to(project.root))}


def replan(project: Project, fruit: str, amplitude: Mapping[str, Any], left: list[int]) -> list[str]:
    """Set the learnt factor in the remaining slices, which makes them stale from transport on; return their scans."""
    plan = read_plan(project, fruit)
    scans = [plan.scans[number - 1] for number in left]
    for scan in scans:
        set_slice(project, scan, {"transport": {"amplitude": round(float(amplitude["factor"]), 4)}})
    return scans


def read_executed(project: Project, fruit: str) -> dict[int, dict[str, Any]]:
    """Return what was measured, by slice; empty if nothing was executed."""
    path = project.scan_dir(fruit) / FOLDER / _LEARNT
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))["executed"]
        return {int(number): dict(row) for number, row in content.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} can't be read ({type(error).__name__}). It must be as scan2cut wrote it. Remove it and give the "
            "logs of the executed slices again."
        ) from error


def _learned(project: Project, plan: SlicePlan, executed: Mapping[int, Mapping[str, Any]]) -> Amplitude:
    """Return the posterior from the executed slices, in their order."""
    calibrated = not read_table(project.scan_dir(plan.fruit), "calibrate/profile").is_empty()
    return learn([executed[number]["ratio"] for number in sorted(executed)], calibrated=calibrated)


def _planned_factor(project: Project, scan: str) -> float:
    """Return the factor with which the slice was planned."""
    section = read_mapping(project.scan_dir(scan) / SCAN_FILE_NAME).get("transport") or {}
    return float(section.get("amplitude", 1.0))


def _picture(project: Project, plan: SlicePlan, executed: Mapping[int, Mapping[str, Any]]) -> Any:
    """Draw predicted band and measured force of every slice; the band is what was known before its cut."""
    import polars as pl

    slices = []
    for number, scan in enumerate(plan.scans, start=1):
        try:
            motion = read_table(project.scan_dir(scan), "optimize/profile")
        except InputError:
            continue
        known = _learned(project, plan, {k: row for k, row in executed.items() if k < number})
        planned = _planned_factor(project, scan)
        row = executed.get(number)
        curve = None if row is None else pl.read_csv(row["curves"])
        slices.append(
            SliceForce(
                number,
                motion["time_s"].to_numpy(),
                motion["optimized_n"].to_numpy() * known.factor / planned,
                known.next_low / known.factor,
                known.next_high / known.factor,
                None if curve is None else curve["time_s"].to_numpy(),
                None if curve is None else curve["measured_n"].to_numpy(),
            )
        )
    now = _learned(project, plan, executed)
    title = (
        f"{plan.fruit}: {len(executed)} of {len(plan.scans)} slices executed; force x {now.factor:.2f} "
        f"(90 %: {now.factor_low:.2f} to {now.factor_high:.2f}), {100 * now.spread:.0f} % from cut to cut"
    )
    return forces_picture(slices, title)
