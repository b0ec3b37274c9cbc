"""Force against duration of one cut or of a plan of slices: a curve of certified motions, and the choice of one."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.project import Project, known_scans
from pipelines.scans.cuts import export_simulated
from stages.runtime.errors import InputError
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, home_of, read_scan_file

_FOLDER, _CURVE = "tradeoff", "tradeoff.json"
TAKEN_OVER = (
    "duration_s",
    "max_acceleration_along_m_s2",
    "iterations",
    "ablation_iterations",
    "first_motion",
)
"""Settings of optimize that make a motion of the curve the scan's own."""
_FOR_TRADEOFF = (
    "precut_half/nodes",
    "optimize/keyframes",
    "optimize/motion",
    "halve/vertices",
    "halve/faces",
)
_BASIS = ("precut_half", "halve", "transport", "calibrate")
"""Stages whose results the curve depends on ..."""
_SECTIONS = ("optimize", "export", "replay")
"""... and sections of the settings."""
_PLAN_FACTORS = (0.6, 0.8, 1.0, 1.4, 2.0)
"""Durations of each slice's descent over that of its own motion: fewer than for one cut, since they are combined."""
_PLAN_POINTS = 7


@dataclass(frozen=True)
class _CutCurve:
    """Force against duration of one cut."""

    points: list[Any]
    """Least-force motions (stages.optimize.tradeoff.Timed), the shortest first."""
    exports: list[Any]
    """What export made of each."""
    force_calibrated: bool

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per point, without its motion's samples."""
        from stages.optimize.tradeoff import on_front

        front = on_front([point.mean_n for point in self.points])
        return [
            {
                "duration_s": point.duration_s,
                "descent_s": point.descent_s,
                "max_acceleration_along_m_s2": point.params.max_acceleration_along_m_s2,
                "first_motion": point.first_motion,
                "mean_force_n": point.mean_n,
                "peak_force_n": point.peak_n,
                "reduction": point.saving,
                "certified": made.certificate.certified,
                "least_so_far": least,
                "refused_by": [check.sentence() for check in made.certificate.failed][:1],
            }
            for point, made, least in zip(self.points, self.exports, front, strict=True)
        ]


def _cut_curve(
    project: Project,
    scan: str,
    parent: Path,
    progress: Callable[[float, str], None],
    factors: Sequence[float] = (),
) -> _CutCurve:
    """Find and certify the least-force motion for several durations; leave their exports below `parent`.

    factors: durations over that of the scan's own motion; by default those of the curve of one cut.
    """
    from disect_sim.parameters import MATERIALS
    from stages.export.export_files import walk
    from stages.optimize import tradeoff as search
    from stages.optimize.optimize import mean_shares, read_shares
    from stages.runtime.artifacts import read_table
    from stages.runtime.catalogue import ARTIFACTS
    from stages.runtime.params import load_params
    from stages.shared.cut import cutting_model, read_cut_mesh, read_second_cut_values

    scan_dir = project.scan_dir(scan)
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    identity = read_scan_file(scan_dir)

    def read(name: str) -> Any:
        return read_table(scan_dir, name)

    model = cutting_model(read_cut_mesh(read, "precut_half"), MATERIALS[identity.material], params.cut)
    fitted = read_second_cut_values(read)
    values = mean_shares(fitted, read_shares(read("calibrate/shares")))
    chain = walk(scan_dir, tuple(ARTIFACTS[name].path for name in _FOR_TRADEOFF[2:]), root=identity.scan)
    calibrated = not read("calibrate/profile").is_empty()
    body = (read("halve/vertices"), read("halve/faces"))
    exports: list[tuple[Any, Any]] = []

    def certified(point: Any) -> bool:
        made = export_simulated(
            parent / f"{scan}-{len(exports)}",
            point.table(),
            model,
            fitted,
            body,
            chain,
            params,
            scan_id=identity.id,
            force_calibrated=calibrated,
        )
        exports.append((point, made))
        return bool(made.certificate.certified)

    points = search.tradeoff(
        model, values, params.optimize, read("optimize/keyframes"), certified, progress, factors
    )
    if not points:
        raise InputError(
            f"tradeoff: no motion of {scan} keeps the arm's limits and finishes at any duration. At least the scan's "
            "own should. Run the scan again, or raise optimize.max_speed_m_s and the accelerations."
        )
    made = [next(made for tried, made in exports if tried is point) for point in points]
    return _CutCurve(points, made, calibrated)


def _check_run(project: Project, scan: str) -> None:
    """Reject a scan that is unknown or has no optimised motion."""
    from stages.runtime.catalogue import ARTIFACTS

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    missing = [name for name in _FOR_TRADEOFF if not (scan_dir / ARTIFACTS[name].path).exists()]
    if missing:
        raise InputError(
            f"tradeoff: {scan} has no {missing[0]}. It starts from the scan's own optimised motion. Run "
            f"`scan2cut run {scan}` first."
        )


def _basis(project: Project, scan: str) -> str:
    """Return a hash of what the curve depends on: body, material, settings but those that choose a point of it."""
    from stages.runtime.files import sha256_of_path, sha256_of_value
    from stages.runtime.params import load_params

    scan_dir = project.scan_dir(scan)
    sections = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    settings = {name: getattr(sections, name).model_dump(mode="json") for name in _SECTIONS}
    for name in TAKEN_OVER:
        del settings["optimize"][name]
    files = {name: sha256_of_path(home_of(scan_dir, name) / name) for name in _BASIS}
    return sha256_of_value(settings | files)


def _earlier(folder: Path, basis: str) -> dict[str, Any] | None:
    """Return the curve in the folder if it is of the same basis."""
    try:
        found = json.loads((folder / _CURVE).read_text(encoding="utf-8"))
        return dict(found) if found["basis"] == basis else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def tradeoff(project: Project, scan: str, progress: Callable[[float, str], None]) -> dict[str, Any]:
    """Find and certify the least-force motion for several durations; return the curve and the paths of the files.

    An earlier curve of the same body, material and settings is not computed again.
    """
    from stages.optimize.tradeoff import tradeoff_picture
    from stages.runtime.stage_io import encode_png

    _check_run(project, scan)
    folder, basis = project.scan_dir(scan) / _FOLDER, _basis(project, scan)
    earlier = _earlier(folder, basis)
    if earlier:
        return earlier
    with tempfile.TemporaryDirectory() as parent:
        curve = _cut_curve(project, scan, Path(parent), progress)
    picture = tradeoff_picture(curve.points, [made.certificate.certified for made in curve.exports])
    content = {
        "scan": scan,
        "basis": basis,
        "force_calibrated": curve.force_calibrated,
        "points": curve.rows,
    }
    return _write_curve(folder, content, encode_png(picture))


def _write_curve(folder: Path, content: Mapping[str, Any], picture: bytes) -> dict[str, Any]:
    """Write a curve and its picture; return it with the paths of both."""
    from stages.runtime.files import write_bytes_atomic

    folder.mkdir(exist_ok=True)
    found = {
        **content,
        "picture": str(folder / "tradeoff.png"),
        "file": str(folder / _CURVE),
    }
    write_bytes_atomic(folder / "tradeoff.png", picture)
    write_bytes_atomic(folder / _CURVE, json.dumps(found, indent=2).encode())
    return found


def pick_point(
    points: list[dict[str, Any]], duration_s: float | None, force_limit_n: float | None
) -> dict[str, Any]:
    """Return the certified motion with the least mean force within a duration, or the shortest within a peak force."""
    key, limit, what, unit, option, least = (
        ("peak_force_n", force_limit_n, "a peak force", "N", "--force-limit", "duration_s")
        if duration_s is None
        else ("duration_s", duration_s, "a duration", "s", "--duration", "mean_force_n")
    )
    certified = [point for point in points if point["certified"]]
    within = [point for point in certified if limit is not None and point[key] <= limit]
    if not within:
        known = (
            f"The least is {min(point[key] for point in certified):.2f} {unit}"
            if certified
            else "None is certified"
        )
        raise InputError(
            f"No certified motion has {what} of at most {limit:g} {unit}. {known}. Raise {option}."
        )
    return min(within, key=lambda point: float(point[least]))


def settings_of(point: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings with which `optimize` takes the point's motion over as it is, without searching."""
    given = {**point, "duration_s": point["descent_s"], "iterations": 1, "ablation_iterations": 0}
    return {"optimize": {name: given[name] for name in TAKEN_OVER}}


def plan_tradeoff(project: Project, fruit: str, progress: Callable[[float, str], None]) -> dict[str, Any]:
    """Find the least force of all slices for several total durations; certify each as a programme; return the curve."""
    from pipelines.slices.plan import FOLDER, read_plan
    from pipelines.slices.run import programme_of
    from stages.optimize.tradeoff import plan_front, plan_picture
    from stages.runtime.stage_io import encode_png

    plan = read_plan(project, fruit)
    for scan in plan.scans:
        _check_run(project, scan)
    target = project.scan_dir(fruit) / FOLDER / _FOLDER
    basis = " ".join(_basis(project, scan) for scan in plan.scans)
    earlier = _earlier(target, basis)
    if earlier:
        return earlier
    share = 0.9 / len(plan.scans)
    with tempfile.TemporaryDirectory() as folder:
        parent, curves = Path(folder), []
        for index, scan in enumerate(plan.scans):

            def report(done: float, step: str, index: int = index) -> None:
                progress(share * (index + done), f"slice {index + 1} of {len(plan.scans)}, {step}")

            curves.append(_certified(_cut_curve(project, scan, parent, report, _PLAN_FACTORS), scan))
        front = plan_front([curve.points for curve in curves], _PLAN_POINTS)
        rows = []
        for number, point in enumerate(front):
            progress(0.9 + 0.1 * number / len(front), f"programme {number + 1} of {len(front)}")
            exports = [curve.exports[index].folder for curve, index in zip(curves, point.chosen, strict=True)]
            _, certificate = programme_of(project, plan, exports, parent / f"programme-{number}")
            rows.append(
                {
                    "duration_s": certificate.figures["total_s"],
                    "cutting_s": point.duration_s,
                    "mean_force_n": point.mean_n,
                    "peak_force_n": point.peak_n,
                    "reduction": 1.0 - point.mean_n / point.vertical_n,
                    "certified": certificate.certified,
                    "least_so_far": True,
                    "refused_by": [check.sentence() for check in certificate.failed][:1],
                    "slices": [curve.rows[index] for curve, index in zip(curves, point.chosen, strict=True)],
                }
            )
    picture = plan_picture(
        [curve.points for curve in curves],
        front,
        [row["duration_s"] for row in rows],
        [row["certified"] for row in rows],
    )
    content = {
        "scan": fruit,
        "basis": basis,
        "force_calibrated": all(curve.force_calibrated for curve in curves),
        "points": rows,
    }
    return _write_curve(target, content, encode_png(picture))


def _certified(curve: _CutCurve, scan: str) -> _CutCurve:
    """Return the curve without refused motions."""
    good = [index for index, made in enumerate(curve.exports) if made.certificate.certified]
    if not good:
        first = curve.exports[0].certificate.failed[0].sentence()
        raise InputError(
            f"tradeoff: no motion of {scan} is certified at any duration ({first}). A programme needs one of every "
            f"slice. Run `scan2cut slice` again and see its reason."
        )
    return _CutCurve(
        [curve.points[index] for index in good],
        [curve.exports[index] for index in good],
        curve.force_calibrated,
    )


def take_over(project: Project, fruit: str, point: Mapping[str, Any]) -> None:
    """Set the chosen motions in the slices, which makes them stale from optimize on."""
    from pipelines.slices.plan import read_plan, set_slice

    for scan, row in zip(read_plan(project, fruit).scans, point["slices"], strict=True):
        set_slice(project, scan, settings_of(row))
