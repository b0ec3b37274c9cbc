"""clean: from a raw scan to one closed surface in the cutting frame."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.parameters import LARGE_M3
from stages.clean import topology
from stages.clean.components import keep_fruit, neck_warning
from stages.clean.description import CleanParams
from stages.clean.pose import Pose, cutting_pose
from stages.clean.repair import Finish, RepairLog, check, climb, resample, surface_from_points, tidy_cloud
from stages.clean.resampling import EQUILATERAL_AREA, Displacement
from stages.clean.scan_file import RawScan, read_scan
from stages.runtime.errors import InputError
from stages.runtime.stage_io import StageIO
from stages.shared.anatomy import FRAME, anatomy_frames, anatomy_of
from stages.shared.pictures import SCAN, STRAY, WARNING, Layer, Panel, board_layer, cut_plane_layer, render
from stages.shared.surface import Surface, edge_ids, edge_lengths, is_closed

# Picture of the stage


def _clean_picture(
    surface: Surface, raw_vertices: NDArray[np.float64], *, kept: Surface | None, removed: Surface | None
) -> NDArray[np.uint8]:
    """Draw the raw scan with its faults beside the clean surface on the board, both in the cutting frame.

    Args:
        surface: the clean surface.
        raw_vertices: the scan's vertices [m], shape [vertex_count, 3].
        kept: the part of the scan that was kept; None for a point cloud.
        removed: the pieces that were removed; None for a point cloud.
    """
    if kept is None or removed is None:
        raw = [Layer(raw_vertices, colour=SCAN)]
        title = f"raw: {len(raw_vertices)} points"
    else:
        edges, _, count = edge_ids(kept.faces)
        raw = [
            # Transparent if something was removed, so that pieces hidden inside are visible.
            Layer(kept.vertices, kept.faces, colour=SCAN, opacity=0.6 if len(removed.faces) else 1.0),
            Layer(removed.vertices, removed.faces, colour=STRAY),
            Layer(kept.vertices, edges[count != 2], colour=WARNING, size=4.0),
        ]
        title = f"raw: {len(kept.faces) + len(removed.faces)} faces; red: faulty edges, violet: removed"
    clean = [
        board_layer(surface.vertices),
        Layer(surface.vertices, surface.faces, show_edges=True),
        cut_plane_layer(surface.vertices),
    ]
    return render([Panel(title, raw), Panel(f"clean: {len(surface.faces)} faces, cut plane x = 0", clean)])


# Unit of the scan, determined from its size


_METRES_PER = {"m": 1.0, "cm": 0.01, "mm": 0.001, "in": 0.0254}
_METRES_RANGE = (0.015, 0.6)
"""Largest extents taken as a fruit in metres: 15 mm (a berry) to 600 mm (a long melon)."""
_MILLIMETRES_RANGE = (25.0, 600.0)
"""Largest extents taken as a fruit in millimetres; between the two ranges it could also be cm or inches."""


@dataclass(frozen=True)
class _UnitChoice:
    """Factor to metres and the reason for it."""

    metres_per_unit: float
    reason: str


def _choose_unit(largest_extent: float, *, unit: str, scale: float | None) -> _UnitChoice:
    """Return the factor from file units to metres.

    Args:
        largest_extent: largest side of the bounding box [file unit].
        unit: "auto", "m", "cm", "mm" or "in".
        scale: metres per file unit; overrides `unit` if given.
    """
    if scale is not None:
        choice = _UnitChoice(scale, f"scale {scale:g} m per unit given")
    elif unit != "auto":
        choice = _UnitChoice(_METRES_PER[unit], f"unit {unit} given")
    elif _METRES_RANGE[0] <= largest_extent <= _METRES_RANGE[1]:
        choice = _UnitChoice(_METRES_PER["m"], f"metres, since the largest extent is {largest_extent:.4g}")
    elif _MILLIMETRES_RANGE[0] <= largest_extent <= _MILLIMETRES_RANGE[1]:
        choice = _UnitChoice(
            _METRES_PER["mm"], f"millimetres, since the largest extent is {largest_extent:.4g}"
        )
    else:
        raise InputError(
            f"The unit of the scan is ambiguous: its largest extent is {largest_extent:.4g}. "
            f"{_METRES_RANGE[0]:g} to {_METRES_RANGE[1]:g} is taken as metres, "
            f"{_MILLIMETRES_RANGE[0]:g} to {_MILLIMETRES_RANGE[1]:g} as millimetres. "
            "Run it again with --set clean.unit=mm (or m, cm, in), or with the metres per unit: "
            "--set clean.scale=0.001."
        )
    size = largest_extent * choice.metres_per_unit
    if not _METRES_RANGE[0] <= size <= _METRES_RANGE[1]:
        raise InputError(
            f"With {choice.reason} the scan is {size:.4g} m long. A fruit must be between "
            f"{_METRES_RANGE[0]:g} and "
            f"{_METRES_RANGE[1]:g} m. Run it again with another unit, e.g. --set clean.unit=cm, or with the metres per "
            "unit: --set clean.scale=0.001."
        )
    return choice


# A look at a scan before a run


@dataclass(frozen=True)
class _ScanInspection:
    """What a scan contains and what it needs."""

    facts: tuple[tuple[str, str], ...]
    """Name and text: format, faces, size, pieces, holes."""
    problems: tuple[str, ...]
    settings: dict[str, str]
    """Settings of clean that make it readable; a guess where the unit is ambiguous."""


def inspect_scan(path: Path, params: CleanParams) -> _ScanInspection:
    """Read a scan and say what `clean` will meet, without repairing anything."""
    import trimesh

    raw = read_scan(path, max_faces=params.max_faces, max_bytes=params.max_bytes)
    extents = np.ptp(raw.vertices, axis=0)
    problems: list[str] = []
    settings: dict[str, str] = {}
    size = " × ".join(f"{extent:.4g}" for extent in extents)
    facts = [("format", f"{raw.kind}, {len(raw.vertices):,} points, {len(raw.faces):,} faces")]
    try:
        choice = _choose_unit(float(extents.max()), unit=params.unit, scale=params.scale)
        in_mm = " × ".join(f"{1e3 * choice.metres_per_unit * extent:.0f}" for extent in extents)
        facts.append(("size", f"{size} = {in_mm} mm ({choice.reason})"))
    except InputError as error:
        facts.append(("size", f"{size}, unit not known"))
        problems.append(str(error))
        fitting = [
            unit
            for unit, metres in _METRES_PER.items()
            if _METRES_RANGE[0] <= metres * extents.max() <= _METRES_RANGE[1]
        ]
        if fitting:
            settings["unit"] = fitting[0]
    if raw.is_cloud:
        facts.append(("surface", "a point cloud: the surface is reconstructed"))
        return _ScanInspection(tuple(facts), tuple(problems), settings)
    mesh = trimesh.Trimesh(raw.vertices, raw.faces, process=False)
    mesh.merge_vertices()
    _, _, count = edge_ids(np.asarray(mesh.faces))
    pieces = mesh.body_count
    facts.append(("surface", "closed" if mesh.is_watertight else "not closed"))
    facts.append(
        (
            "faults",
            f"{int((count == 1).sum())} edges of holes, {int((count > 2).sum())} non-manifold edges, {pieces} piece(s)",
        )
    )
    if mesh.is_watertight and mesh.volume < 0.0:
        facts.append(("orientation", "inside out; clean turns it"))
    return _ScanInspection(tuple(facts), tuple(problems), settings)


# Plausible volume: a larger one indicates two fruits in one scan or a wrong unit


_FAR_ABOVE = 1.3
"""Factor over a large fruit of the material above which the volume is implausible."""


def _volume_warning(volume_m3: float, material: str) -> str | None:
    """Return a warning if the body is far larger than a fruit of its material; None otherwise."""
    large = LARGE_M3[material]
    if volume_m3 <= _FAR_ABOVE * large:
        return None
    return (
        f"The body has {1e6 * volume_m3:.0f} cm³, a large {material} {1e6 * large:.0f}. One scan must show one fruit, "
        "in the right unit and material. Look at clean/preview.png: if there are two, separate them and scan one; else "
        "correct clean.unit or the material."
    )


_MIN_THICKNESS_FRACTION = 0.02
"""Thickness as a fraction of the length below which a scan is a sheet, not a body."""
_MAX_AREA_PER_BOX = 4.0
"""Maximum area relative to the bounding box, which bounds convex bodies by 1; allows for double walls and wrinkles."""
_MAX_CLEAN_FACES = 200_000
"""Maximum number of faces the mesher can handle within minutes."""

_Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class _CleanResult:
    """Clean surface and how it was obtained."""

    surface: Surface
    """Closed surface in the cutting frame."""
    raw_vertices: NDArray[np.float64]
    """The scan's vertices in the cutting frame [m], shape [vertex_count, 3]."""
    raw_kept: Surface | None
    """The part of the scan that was kept, in the cutting frame; None for a point cloud."""
    raw_removed: Surface | None
    """Removed stray and hidden pieces, in the cutting frame; None for a point cloud."""
    log: RepairLog
    rung: str
    unit: _UnitChoice
    displacement: Displacement
    pose: Pose


def clean(
    scan: RawScan, params: CleanParams, progress: _Progress = lambda fraction, message: None
) -> _CleanResult:
    """Clean a scan; raise InputError with the reason if it cannot be closed or would be displaced too far."""
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
    scan: RawScan, params: CleanParams, finish: Finish, log: RepairLog, progress: _Progress
) -> _CleanResult:
    merged = topology.merge_identical_vertices(Surface(scan.vertices, scan.faces))
    log.add("merge identical vertices", len(scan.vertices), len(merged.vertices))
    unique = topology.drop_duplicate_faces(merged)
    log.add("drop duplicate faces", len(merged.faces), len(unique.faces))
    sound = topology.drop_degenerate_faces(unique)
    log.add("drop degenerate faces", len(unique.faces), len(sound.faces))
    non_manifold = topology.count_non_manifold_edges(merged), topology.count_non_manifold_edges(sound)
    log.add("count non-manifold edges", *non_manifold, "edges with more than two faces")
    if len(sound.faces) == 0:
        raise InputError("All faces of the scan have zero area. A scan must be a surface. Export it again.")
    pieces = keep_fruit(sound, min_component_fraction=params.min_component_fraction)
    log.add(
        "drop stray pieces",
        pieces.components,
        pieces.components - pieces.small - pieces.hidden,
        f"{pieces.small} small, {pieces.hidden} hidden inside",
    )
    _reject_sheet(pieces.fruit.vertices)
    unit = _choose_unit(
        float(np.ptp(pieces.fruit.vertices, axis=0).max()), unit=params.unit, scale=params.scale
    )
    log.add("convert to metres", 1, 1, unit.reason)
    fruit, removed = (
        Surface(s.vertices * unit.metres_per_unit, s.faces) for s in (pieces.fruit, pieces.removed)
    )
    _reject_crumpled(fruit, params.target_edge_m)
    repaired = climb(fruit, finish, log, lambda f, m: progress(0.1 + 0.6 * f, m))
    pose = _pose(repaired.surface, params, log)
    return _CleanResult(
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
    scan: RawScan, params: CleanParams, finish: Finish, log: RepairLog, progress: _Progress
) -> _CleanResult:
    _reject_sheet(scan.vertices)
    # 1st and 99th percentile, so that a few outliers do not determine the unit.
    extent = float(np.ptp(np.percentile(scan.vertices, [1.0, 99.0], axis=0), axis=0).max())
    unit = _choose_unit(extent, unit=params.unit, scale=params.scale)
    log.add("convert to metres", 1, 1, unit.reason)
    progress(0.1, "tidy the point cloud")
    points, clusters = tidy_cloud(scan.vertices * unit.metres_per_unit, spacing_m=finish.target_edge_m / 2.0)
    log.add(
        "drop stray points", len(scan.vertices), len(points), f"outliers, thinning; {clusters} clusters found"
    )
    _reject_sheet(points)
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
    return _CleanResult(
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


def _reject_sheet(points: NDArray[np.float64]) -> None:
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False) / np.sqrt(len(points))
    if not spread[2] > _MIN_THICKNESS_FRACTION * spread[0]:
        raise InputError(
            f"The scan is flat: its thickness is {spread[2] / max(spread[0], 1e-300):.2%} of its "
            "length. A fruit must have "
            f"at least {_MIN_THICKNESS_FRACTION:.0%}. Check that the scan shows the fruit and not only "
            "the table."
        )


def _reject_crumpled(surface: Surface, target_edge_m: float) -> None:
    sides = np.ptp(surface.vertices, axis=0)
    box = 2.0 * float(sides @ np.roll(sides, 1))
    if surface.area_m2 > _MAX_AREA_PER_BOX * box:
        raise InputError(
            f"The scan's area is {surface.area_m2 / box:.1f} times that of its bounding box. A fruit's "
            "surface must have "
            f"at most {_MAX_AREA_PER_BOX:g} times. The faces are tangled; export the scan again."
        )
    expected = surface.area_m2 / (EQUILATERAL_AREA * target_edge_m**2)
    if expected > _MAX_CLEAN_FACES:
        raise InputError(
            f"Edges of {target_edge_m:g} m would give about {expected:,.0f} faces. At most "
            f"{_MAX_CLEAN_FACES:,} are made. "
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


def metrics(result: _CleanResult, material: str) -> dict[str, object]:
    """Return the artifact clean/metrics."""
    surface = result.surface
    warnings = (neck_warning(surface), _volume_warning(surface.volume_m3, material))
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
    frame = np.eye(4)
    frame[:3, :3], frame[:3, 3] = result.pose.rotation, result.pose.translation
    anatomy = anatomy_of(
        params.body,
        result.surface,
        frame,
        metres_per_unit=result.unit.metres_per_unit,
        material=io.scan.material,
        folder=io.scan_dir,
    )
    notes = {FRAME: json.dumps(frame.tolist())}
    for name, rows in anatomy_frames(anatomy, "clean").items():
        io.write(name, rows, notes=notes if name == "clean/regions" else None)
    io.progress(0.8, "draw the picture")
    io.write_png(
        "clean/preview",
        _clean_picture(result.surface, result.raw_vertices, kept=result.raw_kept, removed=result.raw_removed),
    )
    io.progress(1.0, "done")
    return metrics(result, io.scan.material)
