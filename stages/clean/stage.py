"""clean: from a raw scan to one closed surface in the cutting frame."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.clean import topology
from stages.clean.components import keep_fruit
from stages.clean.displacement import Displacement
from stages.clean.ladder import Finish, check, climb, resample
from stages.clean.neck import neck_warning
from stages.clean.params import CleanParams
from stages.clean.picture import clean_picture
from stages.clean.pose import Pose, cutting_pose
from stages.clean.reconstruction import surface_from_points, tidy_cloud
from stages.clean.report import RepairLog
from stages.clean.resampling import EQUILATERAL_AREA
from stages.clean.scan_file import RawScan, read_scan
from stages.clean.unit import UnitChoice, choose_unit
from stages.clean.volume import volume_warning
from stages.runtime.stage_io import StageIO
from stages.shared.surface.triangles import Surface, edge_lengths, is_closed

MIN_THICKNESS_FRACTION = 0.02
"""A scan thinner than this fraction of its length is a sheet and no body."""
MAX_AREA_PER_BOX = 4.0
"""A convex body has at most the area of its bounding box; double walls and wrinkles are allowed for."""
MAX_CLEAN_FACES = 200_000
"""More faces than the mesher can digest in minutes."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class CleanResult:
    """The clean surface and how it came about."""

    surface: Surface
    """Closed surface in the cutting frame."""
    raw_vertices: NDArray[np.float64]
    """The scan's vertices in the cutting frame [m], shape [vertex_count, 3]."""
    raw_kept: Surface | None
    """The part of the scan that was kept, in the cutting frame; None for a point cloud."""
    raw_removed: Surface | None
    """Stray and hidden pieces, in the cutting frame; None for a point cloud."""
    log: RepairLog
    rung: str
    unit: UnitChoice
    displacement: Displacement
    pose: Pose


def clean(
    scan: RawScan, params: CleanParams, progress: Progress = lambda fraction, message: None
) -> CleanResult:
    """Clean a scan; raises InputError with the reason if it cannot be closed or would move too far."""
    log = RepairLog()
    log.add("read", len(scan.vertices), len(scan.faces), f"{scan.kind}: vertices, faces")
    finish = Finish(
        target_edge_m=params.target_edge_m,
        smooth_iterations=params.smooth_iterations,
        max_displacement_fraction=params.max_displacement_fraction,
        max_filled_fraction=params.max_filled_fraction,
        min_component_fraction=params.min_component_fraction,
    )
    return (
        _clean_cloud(scan, params, finish, log, progress)
        if scan.is_cloud
        else _clean_mesh(scan, params, finish, log, progress)
    )


def _clean_mesh(
    scan: RawScan, params: CleanParams, finish: Finish, log: RepairLog, progress: Progress
) -> CleanResult:
    merged = topology.merge_identical_vertices(Surface(scan.vertices, scan.faces))
    log.add("merge identical vertices", len(scan.vertices), len(merged.vertices))
    unique = topology.drop_duplicate_faces(merged)
    log.add("drop duplicate faces", len(merged.faces), len(unique.faces))
    sound = topology.drop_degenerate_faces(unique)
    log.add("drop degenerate faces", len(unique.faces), len(sound.faces))
    non_manifold = topology.count_non_manifold_edges(merged), topology.count_non_manifold_edges(sound)
    log.add("non-manifold edges so far", *non_manifold, "edges with more than two faces")
    if len(sound.faces) == 0:
        raise InputError("All faces of the scan have zero area. A scan must be a surface. Export it again.")
    pieces = keep_fruit(sound, min_component_fraction=params.min_component_fraction)
    log.add(
        "drop stray pieces",
        pieces.components,
        pieces.components - pieces.small - pieces.hidden,
        f"{pieces.small} small, {pieces.hidden} hidden inside",
    )
    _refuse_sheet(pieces.fruit.vertices)
    unit = choose_unit(
        float(np.ptp(pieces.fruit.vertices, axis=0).max()), unit=params.unit, scale=params.scale
    )
    log.add("convert to metres", 1, 1, unit.reason)
    fruit, removed = (
        Surface(s.vertices * unit.metres_per_unit, s.faces) for s in (pieces.fruit, pieces.removed)
    )
    _refuse_crumpled(fruit, params.target_edge_m)
    repaired = climb(fruit, finish, log, lambda f, m: progress(0.1 + 0.6 * f, m))
    pose = _pose(repaired.surface, params, log)
    return CleanResult(
        surface=Surface(pose.apply(repaired.surface.vertices), repaired.surface.faces),
        raw_vertices=pose.apply(scan.vertices * unit.metres_per_unit),
        raw_kept=Surface(pose.apply(fruit.vertices), fruit.faces),
        raw_removed=Surface(pose.apply(removed.vertices), removed.faces),
        log=log,
        rung=repaired.rung,
        unit=unit,
        displacement=repaired.displacement,
        pose=pose,
    )


def _clean_cloud(
    scan: RawScan, params: CleanParams, finish: Finish, log: RepairLog, progress: Progress
) -> CleanResult:
    _refuse_sheet(scan.vertices)
    # The 1st and 99th percentile, so that a few flying points do not decide on the unit.
    extent = float(np.ptp(np.percentile(scan.vertices, [1.0, 99.0], axis=0), axis=0).max())
    unit = choose_unit(extent, unit=params.unit, scale=params.scale)
    log.add("convert to metres", 1, 1, unit.reason)
    progress(0.1, "tidy the point cloud")
    points, clusters = tidy_cloud(scan.vertices * unit.metres_per_unit, spacing_m=finish.target_edge_m / 2.0)
    log.add(
        "drop stray points", len(scan.vertices), len(points), f"outliers, thinning; {clusters} clusters found"
    )
    _refuse_sheet(points)
    progress(0.3, "reconstruct the surface")
    closed = surface_from_points(points, target_edge_m=finish.target_edge_m)
    log.add("reconstruct (Poisson)", len(points), len(closed.faces), "points to faces")
    surface = resample(closed, finish, log)
    fault, displacement = check(surface, points, finish)
    if fault is not None or displacement is None:
        raise InputError(
            f"The point cloud could not be closed: {fault}. A cloud must cover the fruit from all sides. "
            "Scan the missing parts, or raise clean.max_filled_fraction if you accept a guess."
        )
    log.add("rung", 1, 1, "reconstructed")
    pose = _pose(surface, params, log)
    return CleanResult(
        surface=Surface(pose.apply(surface.vertices), surface.faces),
        raw_vertices=pose.apply(scan.vertices * unit.metres_per_unit),
        raw_kept=None,
        raw_removed=None,
        log=log,
        rung="reconstructed",
        unit=unit,
        displacement=displacement,
        pose=pose,
    )


def _refuse_sheet(points: NDArray[np.float64]) -> None:
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) / np.sqrt(len(points))
    if not spread[2] > MIN_THICKNESS_FRACTION * spread[0]:
        raise InputError(
            f"The scan is flat: its thickness is {spread[2] / max(spread[0], 1e-300):.2%} of its "
            "length. A fruit must have "
            f"at least {MIN_THICKNESS_FRACTION:.0%}. Check that the scan shows the fruit and not only "
            "the table."
        )


def _refuse_crumpled(surface: Surface, target_edge_m: float) -> None:
    sides = np.ptp(surface.vertices, axis=0)
    box = 2.0 * float(sides @ np.roll(sides, 1))
    if surface.area_m2 > MAX_AREA_PER_BOX * box:
        raise InputError(
            f"The scan's area is {surface.area_m2 / box:.1f} times that of its bounding box. A fruit's "
            "surface must have "
            f"at most {MAX_AREA_PER_BOX:g} times. The faces are tangled; export the scan again."
        )
    expected = surface.area_m2 / (EQUILATERAL_AREA * target_edge_m**2)
    if expected > MAX_CLEAN_FACES:
        raise InputError(
            f"Edges of {target_edge_m:g} m would give about {expected:,.0f} faces. At most "
            f"{MAX_CLEAN_FACES:,} are made. "
            "Raise clean.target_edge_m."
        )


def _pose(surface: Surface, params: CleanParams, log: RepairLog) -> Pose:
    pose = cutting_pose(
        surface,
        orientation=params.orientation,
        rotation_deg=params.rotation_deg,
        turn_deg=params.turn_deg,
        cut_offset_m=params.cut_offset_m,
    )
    log.add("put on the board", 1, 1, pose.reason)
    return pose


def metrics(result: CleanResult, material: str) -> dict[str, object]:
    """The artifact clean/metrics."""
    surface = result.surface
    warnings = (neck_warning(surface), volume_warning(surface.volume_m3, material))
    extent = np.ptp(surface.vertices, axis=0)
    edges = edge_lengths(surface)
    displacement = {key: value for key, value in asdict(result.displacement).items() if key != "diagonal_m"}
    return {
        "vertices": len(surface.vertices),
        "faces": len(surface.faces),
        "raw_vertices": len(result.raw_vertices),
        "rung": result.rung,
        "watertight": is_closed(surface.faces),
        "volume_m3": surface.volume_m3,
        "area_m2": surface.area_m2,
        "extent_x_m": float(extent[0]),
        "extent_y_m": float(extent[1]),
        "extent_z_m": float(extent[2]),
        "edge_mean_m": float(edges.mean()),
        "metres_per_unit": result.unit.metres_per_unit,
        "unit": result.unit.reason,
        "pose": result.pose.reason,
        "warning": " ".join(filter(None, warnings)) or None,
        "moved_fraction": result.displacement.moved_fraction,
        **displacement,
    }


def run(io: StageIO, params: CleanParams) -> dict[str, object]:
    """Read the scan, clean it, write the surface, the table of repairs and the picture."""
    io.progress(0.0, "read the scan")
    scan = read_scan(io.scan_path, max_faces=params.max_faces, max_bytes=params.max_bytes)
    result = clean(scan, params, io.progress)
    positions = pl.Series("position_m", result.surface.vertices, dtype=pl.Array(pl.Float64, 3))
    io.write("clean/vertices", pl.DataFrame([positions]))
    io.write(
        "clean/faces",
        pl.DataFrame([pl.Series("vertices", result.surface.faces, dtype=pl.Array(pl.Int32, 3))]),
    )
    io.write("clean/repairs", result.log.table())
    io.progress(0.8, "draw the picture")
    io.write_png(
        "clean/preview",
        clean_picture(result.surface, result.raw_vertices, kept=result.raw_kept, removed=result.raw_removed),
    )
    io.progress(1.0, "done")
    return metrics(result, io.scan.material)
