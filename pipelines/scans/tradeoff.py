"""Force against duration of a scan's second cut: a curve of certified motions, and the choice of one."""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.project import Project, known_scans
from pipelines.scans.cuts import export_simulated
from stages.runtime.errors import InputError
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file

_TRADEOFF_FOLDER = "tradeoff"
_FOR_TRADEOFF = (
    "precut_half/nodes",
    "optimize/keyframes",
    "optimize/motion",
    "halve/vertices",
    "halve/faces",
)


def tradeoff(project: Project, scan: str, progress: Callable[[float, str], None]) -> dict[str, Any]:
    """Find and certify the least-force motion for several durations; return the curve and the paths of the files."""
    from disect_sim.parameters import MATERIALS
    from stages.export.export_files import walk
    from stages.optimize import tradeoff as search
    from stages.optimize.optimize import mean_shares, read_shares
    from stages.runtime.artifacts import read_table
    from stages.runtime.catalogue import ARTIFACTS
    from stages.runtime.files import write_bytes_atomic
    from stages.runtime.params import load_params
    from stages.runtime.stage_io import encode_png
    from stages.shared.cut import cutting_model, read_cut_mesh, read_second_cut_values

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    missing = [name for name in _FOR_TRADEOFF if not (scan_dir / ARTIFACTS[name].path).exists()]
    if missing:
        raise InputError(
            f"tradeoff: {scan} has no {missing[0]}. It starts from the scan's own optimised motion. Run "
            f"`scan2cut run {scan}` first."
        )
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
    certificates: list[tuple[Any, Any]] = []

    def certified(point: Any) -> bool:
        with tempfile.TemporaryDirectory() as parent:
            made = export_simulated(
                Path(parent),
                point.table(),
                model,
                fitted,
                body,
                chain,
                params,
                scan_id=identity.id,
                force_calibrated=calibrated,
            )
        certificates.append((point, made.certificate))
        return bool(made.certificate.certified)

    points = search.tradeoff(model, values, params.optimize, read("optimize/keyframes"), certified, progress)
    if not points:
        raise InputError(
            f"tradeoff: no motion of {scan} keeps the arm's limits and finishes at any duration. At least the scan's "
            "own should. Run the scan again, or raise optimize.max_speed_m_s and the accelerations."
        )
    exports = [next(made for tried, made in certificates if tried is point) for point in points]
    front = search.on_front([point.mean_n for point in points])
    rows = [
        {
            "duration_s": point.duration_s,
            "descent_s": point.descent_s,
            "max_acceleration_along_m_s2": point.params.max_acceleration_along_m_s2,
            "first_motion": point.first_motion,
            "mean_force_n": point.mean_n,
            "peak_force_n": point.peak_n,
            "reduction": point.saving,
            "certified": certificate.certified,
            "least_so_far": least,
            "refused_by": [check.sentence() for check in certificate.failed][:1],
        }
        for point, certificate, least in zip(points, exports, front, strict=True)
    ]
    folder = scan_dir / _TRADEOFF_FOLDER
    folder.mkdir(exist_ok=True)
    found = {
        "scan": scan,
        "force_calibrated": calibrated,
        "points": rows,
        "picture": str(folder / "tradeoff.png"),
        "file": str(folder / "tradeoff.json"),
    }
    picture = search.tradeoff_picture(points, [certificate.certified for certificate in exports])
    write_bytes_atomic(folder / "tradeoff.png", encode_png(picture))
    write_bytes_atomic(folder / "tradeoff.json", json.dumps(found, indent=2).encode())
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
    names = ("max_acceleration_along_m_s2", "first_motion")
    taken = {name: point[name] for name in names}
    return {
        "optimize": {"duration_s": point["descent_s"], "iterations": 1, "ablation_iterations": 0, **taken}
    }
