"""The ladder of repairs: gentle first, and the first rung whose result holds is taken."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from disect_sim.errors import InputError
from stages.clean import topology
from stages.clean.components import drop_fragments
from stages.clean.displacement import Displacement, measure_displacement
from stages.clean.edge_flips import flip_edges
from stages.clean.holes import fill_holes
from stages.clean.reconstruction import surface_from_patches
from stages.clean.report import RepairLog
from stages.clean.resampling import decimate, smooth, split_long_edges, to_open3d
from stages.shared.surface.triangles import Surface, face_components, is_closed

MAX_FACES_INTERSECTED = 20_000
"""Self-intersections of the raw scan are counted up to this size only: the count takes quadratic time."""


@dataclass(frozen=True)
class Finish:
    """What every rung's result goes through and must satisfy."""

    target_edge_m: float
    smooth_iterations: int
    max_displacement_fraction: float
    max_filled_fraction: float
    min_component_fraction: float


@dataclass(frozen=True)
class Repaired:
    """A closed surface and how it came about."""

    surface: Surface
    rung: str
    displacement: Displacement


Rung = Callable[[Surface, Finish, RepairLog], Surface]


def climb(
    patches: Surface, finish: Finish, log: RepairLog, progress: Callable[[float, str], None]
) -> Repaired:
    """Try the rungs in order on the fruit's raw surface; raises InputError if none holds."""
    reasons: list[str] = []
    for index, (name, rung) in enumerate(RUNGS):
        progress(index / len(RUNGS), f"repair: {name}")
        attempt = RepairLog()
        built = rung(patches, finish, attempt)
        fault, displacement = shape_fault(built), None
        if fault is None:
            surface = resample(built, finish, attempt)
            fault, displacement = check(surface, patches, finish)
        if fault is None and displacement is not None:
            log.extend(attempt)
            if len(patches.faces) <= MAX_FACES_INTERSECTED:
                log.add("self-intersections", _intersections(patches), 0, "pairs of faces")
            log.add(
                "rung", index + 1, index + 1, name + (f" (before: {'; '.join(reasons)})" if reasons else "")
            )
            return Repaired(surface, name, displacement)
        reasons.append(f"{name} failed: {fault}")
    raise InputError(
        f"The scan could not be closed: {'; '.join(reasons)}. The clean surface must be closed, free of "
        "self-intersections and close to the scan. Scan the missing parts, or raise "
        "clean.max_displacement_fraction "
        "or clean.max_filled_fraction if you accept a guess."
    )


def resample(surface: Surface, finish: Finish, log: RepairLog) -> Surface:
    """Smooth and bring to the target edge length."""
    if len(surface.faces) == 0:
        return surface
    fine = split_long_edges(surface, finish.target_edge_m)
    log.add("split long edges", len(surface.faces), len(fine.faces), "faces")
    smoothed = smooth(fine, finish.smooth_iterations)
    coarse = flip_edges(decimate(smoothed, finish.target_edge_m))
    log.add("decimate", len(fine.faces), len(coarse.faces), f"faces, target edge {finish.target_edge_m:g} m")
    return coarse


def shape_fault(surface: Surface) -> str | None:
    """What keeps a surface from being the closed boundary of one body; None if nothing does."""
    if len(surface.faces) == 0:
        return "nothing was left"
    if not is_closed(surface.faces):
        return f"{topology.count_open_edges(surface)} edges without exactly two faces are left"
    if len(topology.separate_non_manifold(surface).vertices) != len(surface.vertices):
        return "parts of the surface touch in single points"
    pieces = int(face_components(surface.faces, len(surface.vertices)).max()) + 1
    if pieces > 1:
        return f"{pieces} separate pieces are left"
    if surface.volume_m3 <= 0.0:
        return "it encloses no volume"
    return None


def check(
    surface: Surface, raw: Surface | np.ndarray, finish: Finish
) -> tuple[str | None, Displacement | None]:
    """What is wrong with a resampled surface, if anything, and its displacement if the shape is sound."""
    fault = shape_fault(surface)
    if fault is not None:
        return fault, None
    crossing = _intersections(surface)
    if crossing:
        return f"{crossing} pairs of faces intersect", None
    displacement = measure_displacement(raw, surface)
    if displacement.filled_area_fraction > finish.max_filled_fraction:
        return (
            f"{displacement.filled_area_fraction:.0%} of the surface was not scanned "
            f"(allowed: {finish.max_filled_fraction:.0%})"
        ), displacement
    if displacement.moved_fraction > finish.max_displacement_fraction:
        return (
            f"the surface moved by {displacement.moved_fraction:.1%} of its size "
            f"(allowed: {finish.max_displacement_fraction:.1%})"
        ), displacement
    return None, displacement


def _intersections(surface: Surface) -> int:
    return len(to_open3d(surface).get_self_intersecting_triangles())


def _intact(patches: Surface, _finish: Finish, log: RepairLog) -> Surface:
    return _outward(patches, log)


def _patched(patches: Surface, finish: Finish, log: RepairLog) -> Surface:
    oriented = _outward(_separated(patches, finish, log), log)
    filled, holes = fill_holes(oriented, target_edge_m=finish.target_edge_m)
    log.add("fill holes", holes, 0, f"{topology.count_open_edges(oriented)} open edges")
    return filled


def _separated(patches: Surface, finish: Finish, log: RepairLog) -> Surface:
    separate = topology.separate_non_manifold(patches)
    kept = drop_fragments(separate, min_component_fraction=finish.min_component_fraction)
    before, after = topology.count_non_manifold_edges(patches), topology.count_non_manifold_edges(kept)
    fins = len(separate.faces) - len(kept.faces)
    log.add(
        "separate non-manifold edges", before, after, f"edges with more than two faces; {fins} faces came off"
    )
    return kept


def _welded(patches: Surface, finish: Finish, log: RepairLog) -> Surface:
    width = topology.crack_width(patches)
    welded = topology.weld_close_vertices(patches, width)
    log.add(
        "weld vertices",
        len(patches.vertices),
        len(welded.vertices),
        f"cracks up to {width * 1e3:.2g} mm",
    )
    tidy = topology.drop_duplicate_faces(topology.drop_degenerate_faces(welded))
    return _patched(tidy, finish, log)


def _reconstructed(patches: Surface, finish: Finish, log: RepairLog) -> Surface:
    oriented = _outward(_separated(patches, finish, log), log)
    closed = surface_from_patches(oriented, target_edge_m=finish.target_edge_m)
    log.add("reconstruct (Poisson)", len(patches.faces), len(closed.faces), "faces")
    return closed


def _outward(surface: Surface, log: RepairLog) -> Surface:
    oriented = topology.orient_consistently(surface)
    if oriented is None:
        log.add("orient faces", 0, 0, "the surface is one-sided")
        return surface
    flipped = int(np.count_nonzero(np.any(oriented.faces != surface.faces, axis=1)))
    log.add("flip faces", flipped, 0, "faces turned so that all look outward")
    return oriented


RUNGS: tuple[tuple[str, Rung], ...] = (
    ("intact", _intact),
    ("patched", _patched),
    ("welded", _welded),
    ("reconstructed", _reconstructed),
)
