"""Division of a body into slices by parallel vertical planes: closed pieces, their measures, how the rest stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stages.runtime.errors import InputError
from stages.shared.pictures import CUT, FRUIT, SCAN, WARNING, Layer, Panel, board_layer, render
from stages.shared.surface import Surface, drop_unused, face_components, is_closed, solid_moments

_Floats = NDArray[np.float64]
_WELD_M = 1e-9
"""Points nearer to each other than this are one vertex."""
_BASE_M = 1.0e-3
"""Height above the board up to which the skin carries: a fruit's own weight flattens it there [m]."""
_STEADY_M = 3.0e-3
"""Least distance of the centre of mass inside the base [m]: simulated cuts fail at 1 mm and succeed at 4 mm."""
_MOST_CUTS = 99
_APART = 0.6
"""Gap between the pieces in the picture, in thicknesses."""


@dataclass(frozen=True)
class Wanted:
    """What the user asks for; lengths from the body's first point along the normal [m]."""

    thickness_m: float | None = None
    count: int | None = None
    """Number of pieces of the same thickness, instead of the thickness."""
    from_m: float = 0.0
    """First plane; what lies before it is the first piece."""
    to_m: float | None = None
    """End of the slices; what lies behind is the last piece."""
    normal: tuple[float, float, float] = (1.0, 0.0, 0.0)
    """Direction in which the knife steps from cut to cut; horizontal."""


@dataclass(frozen=True)
class Piece:
    """One piece of the divided body."""

    number: int
    from_m: float
    """Its planes, from the body's first point along the normal [m]."""
    to_m: float
    area_m2: float
    """Area of the cut that parts it from the rest; 0 for the last piece."""
    volume_m3: float

    @property
    def thickness_m(self) -> float:
        """Largest thickness along the normal [m]."""
        return self.to_m - self.from_m


@dataclass(frozen=True)
class NotCut:
    """A wanted plane at which nothing is cut, so that two pieces stay together."""

    at_m: float
    """From the body's first point along the normal [m]."""
    reason: str


@dataclass(frozen=True)
class Division:
    """A body divided into slices: cut k parts piece k from the rest, the last piece is what remains."""

    normal: tuple[float, float, float]
    """Unit vector."""
    start_m: float
    """Coordinate of the body's first point along the normal [m]."""
    length_m: float
    pieces: tuple[Piece, ...]
    not_cut: tuple[NotCut, ...] = ()

    @property
    def cuts(self) -> tuple[Piece, ...]:
        """Pieces that a cut parts from the rest: all but the last."""
        return self.pieces[:-1]

    @property
    def not_cut_sentences(self) -> list[str]:
        """Planes that are not cut, a sentence per reason."""
        planes: dict[str, list[str]] = {}
        for one in self.not_cut:
            planes.setdefault(one.reason, []).append(f"{1e3 * one.at_m:.1f}")
        return [f"Not cut at {', '.join(at)} mm: {reason}." for reason, at in planes.items()]


def beyond(body: Surface, *planes: tuple[Sequence[float] | _Floats, float]) -> Surface:
    """Return the closed part of a closed body with normal · x > offset [m] for each plane; empty if there is none."""
    import pyvista as pv
    import vtk

    faces = np.column_stack([np.full(len(body.faces), 3), body.faces]).reshape(-1).astype(np.int64)
    collection = vtk.vtkPlaneCollection()
    for normal, offset_m in planes:
        unit, plane = np.asarray(normal, float), vtk.vtkPlane()
        plane.SetNormal(*unit)
        plane.SetOrigin(*(offset_m * unit))
        collection.AddItem(plane)
    clip = vtk.vtkClipClosedSurface()
    clip.SetInputData(pv.PolyData(body.vertices, faces))
    clip.SetTolerance(_WELD_M)
    clip.SetClippingPlanes(collection)
    clip.Update()
    clipped = pv.wrap(clip.GetOutput())
    if clipped.n_cells == 0:
        return Surface(np.zeros((0, 3)), np.zeros((0, 3), np.int32))
    clipped = clipped.triangulate()
    points, triangles = np.asarray(clipped.points, float), np.asarray(clipped.faces).reshape(-1, 4)[:, 1:]
    _, first, index = np.unique(np.round(points / _WELD_M), axis=0, return_index=True, return_inverse=True)
    triangles = index.reshape(-1)[triangles].astype(np.int32)
    whole = (
        (triangles[:, 0] != triangles[:, 1])
        & (triangles[:, 1] != triangles[:, 2])
        & (triangles[:, 2] != triangles[:, 0])
    )
    return drop_unused(Surface(points[first], triangles[whole]))


def divide(body: Surface, wanted: Wanted, *, thinnest_m: float, held: bool) -> Division:
    """Divide a closed body, y up on the board y = 0; raise InputError for a division that makes no sense.

    A plane at which the body would tip over under the knife, fall apart or give too thin a piece is not cut.

    Args:
        body: the body as it stands.
        wanted: thickness or count, ends and direction.
        thinnest_m: thinnest piece that the blade can cut [m].
        held: whether the body is held, so that it can't tip over.
    """
    normal = _checked_normal(wanted.normal)
    along = body.vertices @ normal
    start, length = float(along.min()), float(np.ptp(along))
    rest, before = body, 0.0
    pieces: list[Piece] = []
    not_cut: list[NotCut] = []
    for plane in _planes(wanted, length, thinnest_m):
        left = beyond(body, (normal, start + plane))
        reason = _refusal(rest, left, plane - before, thinnest_m)
        if not reason and not held and not (stands(rest, normal, start + plane) and stands(left)):
            reason = (
                "the fruit or its rest would tip over: its centre of mass or the knife is not above its base"
            )
        if reason:
            not_cut.append(NotCut(plane, reason))
            continue
        area, volume = _cap_area(left, normal, start + plane), rest.volume_m3 - left.volume_m3
        pieces.append(Piece(len(pieces) + 1, before, plane, area, volume))
        rest, before = left, plane
    pieces.append(Piece(len(pieces) + 1, before, length, 0.0, rest.volume_m3))
    direction = (float(normal[0]), 0.0, float(normal[2]))
    return Division(direction, start, length, tuple(pieces), tuple(not_cut))


def stands(body: Surface, normal: _Floats | None = None, plane_m: float = 0.0) -> bool:
    """Return whether a body stands by itself, with a normal under a knife in this plane.

    Its centre of mass must lie above the area that touches the board, with a margin, because the blade pushes the sides
    apart; and the plane must pass through that area.
    """
    from scipy.spatial import ConvexHull, QhullError

    centre = solid_moments(body)[0][[0, 2]]
    base = body.vertices[body.vertices[:, 1] <= body.vertices[:, 1].min() + _BASE_M]
    try:
        hull = ConvexHull(base[:, [0, 2]])
    except (QhullError, ValueError):
        return False
    above = bool(np.all(hull.equations[:, :2] @ centre + hull.equations[:, 2] <= -_STEADY_M))
    if normal is None:
        return above
    along = base @ normal
    return above and bool(along.min() < plane_m < along.max())


def _refusal(rest: Surface, left: Surface, thickness: float, thinnest_m: float) -> str:
    """Return why this cut can't be made, empty if it can; rest: the body of the cut, left: what it leaves."""
    if thickness < thinnest_m:
        least = f"{1e3 * thinnest_m:.1f} mm"
        return f"{1e3 * thickness:.1f} mm thick; the blade needs at least its spine, {least}"
    if not (is_closed(rest.faces) and is_closed(left.faces)):
        return "its surface is not closed; clean the scan with another clean.target_edge_m"
    for name, body in (("body of this cut", rest), ("rest", left)):
        parts = len(np.unique(face_components(body.faces, len(body.vertices))))
        if parts > 1:
            return f"the {name} falls into {parts} parts, which can't be held as one"
    return ""


def _planes(wanted: Wanted, length: float, thinnest_m: float) -> list[float]:
    """Return the planes' distances from the body's first point [m]; at least one."""
    end = length if wanted.to_m is None else wanted.to_m
    for name, value in (("--from", wanted.from_m), ("--to", end)):
        if not np.isfinite(value) or not 0.0 <= value <= length:
            raise InputError(
                f"{name} is {1e3 * value:g} mm. The planes must lie within the fruit, 0 to {1e3 * length:.1f} mm along "
                f"the slicing direction. Change {name}."
            )
    if end <= wanted.from_m:
        raise InputError(
            f"--from is {1e3 * wanted.from_m:g} mm and --to {1e3 * end:g} mm. --to must be greater. Change one of them."
        )
    if (wanted.thickness_m is None) == (wanted.count is None):
        raise InputError(
            "Exactly one of --thickness and --count must be given, e.g. --thickness 5mm. Give one of them."
        )
    if wanted.count is not None:
        if not 2 <= wanted.count <= _MOST_CUTS + 1:
            raise InputError(
                f"--count is {wanted.count}. It must be 2 to {_MOST_CUTS + 1} pieces. Choose another count."
            )
        thickness = (end - wanted.from_m) / wanted.count
    else:
        assert wanted.thickness_m is not None
        thickness = wanted.thickness_m
        if not np.isfinite(thickness) or thickness <= 0.0:
            raise InputError(
                f"--thickness is {1e3 * thickness:g} mm. It must be a positive length. Give one, e.g. --thickness 5mm."
            )
        if thickness >= end - wanted.from_m:
            raise InputError(
                f"--thickness is {1e3 * thickness:g} mm, but there are only {1e3 * (end - wanted.from_m):.1f} mm of "
                "fruit to slice. It must be less. Choose thinner slices."
            )
    if thickness < thinnest_m:
        raise InputError(
            f"The slices would be {1e3 * thickness:.2g} mm thick. The blade needs at least its spine, "
            f"{1e3 * thinnest_m:.2g} mm. Cut thicker slices, or use a thinner knife (cut.knife)."
        )
    count = int(np.ceil((end - wanted.from_m) / thickness - 1e-9))
    if count > _MOST_CUTS + 1:
        raise InputError(
            f"--thickness is {1e3 * thickness:g} mm, which gives {count} slices. At most {_MOST_CUTS + 1} are planned. "
            "Choose thicker slices, or a part of the fruit with --from and --to."
        )
    planes = [wanted.from_m + k * thickness for k in range(count)] + [end]
    return [plane for plane in planes if _WELD_M < plane < length - _WELD_M]


def _checked_normal(normal: Sequence[float]) -> _Floats:
    unit = np.asarray(normal, float)
    size = float(np.linalg.norm(unit))
    if unit.shape != (3,) or not np.isfinite(unit).all() or size == 0.0:
        raise InputError(
            f"--normal is {list(normal)}. It must be three finite numbers, not all 0. Give e.g. --normal 1,0,0."
        )
    unit = unit / size
    if abs(unit[1]) > 1e-6:
        raise InputError(
            f"--normal is {list(normal)}. The knife cuts vertically, so its y (up) must be 0. Give a horizontal one, "
            "or lay the fruit on another side with clean.rotation_deg."
        )
    return np.asarray(unit)


def _cap_area(left: Surface, normal: _Floats, offset: float) -> float:
    """Return the area of the plane's cut through the body [m²]: of the faces of the rest that lie in the plane."""
    corners = left.corners
    in_plane = (np.abs(corners @ normal - offset) < 10 * _WELD_M).all(axis=1)
    doubled = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    return float(0.5 * np.linalg.norm(doubled[in_plane], axis=1).sum())


def slice_frame(body: Surface, normal: Sequence[float] | _Floats, at_m: float) -> _Floats:
    """Return the 4x4 matrix from a standing body's frame to that of a cut: x along the normal, the cut at x = 0.

    The blade's centre stays in one line for all cuts of a body, so that the arm steps along x only.
    """
    unit = np.asarray(normal, float) / np.linalg.norm(normal)
    frame = np.eye(4)
    frame[:3, :3] = [unit, [0.0, 1.0, 0.0], [-unit[2], 0.0, unit[0]]]
    frame[:3, 3] = -np.array([at_m, 0.0, (frame[:3, :3] @ solid_moments(body)[0])[2]])
    return frame


def standing_box(body: Surface, division: Division, piece: Piece) -> tuple[list[float], list[float]]:
    """Return low and high corner of the whole body, all slices standing, in the frame of this piece's cut [m]."""
    frame = slice_frame(body, division.normal, division.start_m + piece.to_m)
    vertices = body.vertices @ frame[:3, :3].T + frame[:3, 3]
    return vertices.min(axis=0).tolist(), vertices.max(axis=0).tolist()


def pieces_of(body: Surface, division: Division) -> list[Surface]:
    """Return the closed pieces in the body's frame, in order."""
    normal, pieces = np.array(division.normal), []
    for piece in division.pieces:
        rest = body if piece.number == 1 else beyond(body, (normal, division.start_m + piece.from_m))
        last = piece.number == len(division.pieces)
        pieces.append(rest if last else beyond(rest, (-normal, -(division.start_m + piece.to_m))))
    return pieces


def division_picture(body: Surface, division: Division, title: str) -> NDArray[np.uint8]:
    """Draw the body with the planes, and the pieces side by side; 8-bit pixels, shape [height, width, 3]."""
    normal, side = np.array(division.normal), _side(division)
    high, across = 1.08 * float(body.vertices[:, 1].max()), 1.1 * (body.vertices @ side)
    ends = [(across.min(), 0.0), (across.min(), high), (across.max(), high), (across.max(), 0.0)]
    two = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
    planes = []
    wanted = [(piece.to_m, CUT) for piece in division.cuts] + [
        (one.at_m, WARNING) for one in division.not_cut
    ]
    for plane, colour in wanted:
        at = (division.start_m + plane) * normal
        corners = np.array([at + z * side + np.array([0.0, y, 0.0]) for z, y in ends])
        planes.append(Layer(corners, two, colour=colour, opacity=0.35))
    count = len(division.pieces)
    apart = []
    for piece, surface in zip(division.pieces, pieces_of(body, division), strict=True):
        moved = surface.vertices + (piece.number - 0.5 * count) * _APART * division.length_m / count * normal
        colour = SCAN if piece.number == count else FRUIT
        apart.append(Layer(moved, surface.faces, colour=colour))
    towards = 0.5 * normal + np.array([0.0, 0.45, 0.0]) - side
    view = (float(towards[0]), float(towards[1]), float(towards[2]))
    every = np.concatenate([layer.vertices for layer in apart])
    return render(
        [
            Panel(
                f"{title} (red planes: not cut)" if division.not_cut else title,
                [board_layer(body.vertices), Layer(body.vertices, body.faces), *planes],
                view=view,
            ),
            Panel("moved apart; grey: what remains", [board_layer(every), *apart], view=view),
        ],
        panel_size=(760, 560),
    )


# Dice: two perpendicular plans


@dataclass(frozen=True)
class _Dice:
    """A body divided by two sets of vertical planes that are perpendicular to each other."""

    across_m: tuple[float, ...]
    """Planes of the second set, from the body's first point along them [m]."""
    pieces: tuple[Surface, ...]
    at: tuple[tuple[int, int], ...]
    """Column of each piece along the first and the second direction."""

    @property
    def volumes_m3(self) -> list[float]:
        """Volume of every piece [m³]."""
        return [piece.volume_m3 for piece in self.pieces]


def dice(body: Surface, division: Division, spacing_m: float, *, thinnest_m: float) -> _Dice:
    """Cut the slices of a division, all still standing, by planes perpendicular to theirs at this spacing [m]."""
    side = _side(division)
    across = body.vertices @ side
    start, length = float(across.min()), float(np.ptp(across))
    planes = _planes(Wanted(thickness_m=spacing_m), length, thinnest_m)
    normal, first = np.array(division.normal), division.start_m
    ends = [0.0, *planes, length]
    last, most = len(division.pieces) - 1, len(ends) - 2
    pieces: list[Surface] = []
    at: list[tuple[int, int]] = []
    for row, slab in enumerate(division.pieces):
        for column, (low, high) in enumerate(pairwise(ends)):
            sides = [(normal, first + slab.from_m), (-normal, -(first + slab.to_m))]
            sides += [(side, start + low), (-side, -(start + high))]
            inner = [
                one
                for one, outer in zip(
                    sides, (row == 0, row == last, column == 0, column == most), strict=True
                )
                if not outer
            ]
            cube = beyond(body, *inner)
            if len(cube.faces):
                pieces.append(cube)
                at.append((row, column))
    return _Dice(tuple(planes), tuple(pieces), tuple(at))


def _side(division: Division) -> _Floats:
    """Return the horizontal unit vector along the planes."""
    return np.cross(np.array(division.normal), [0.0, 1.0, 0.0])


def dice_picture(body: Surface, division: Division, diced: _Dice, title: str) -> NDArray[np.uint8]:
    """Draw the pieces moved apart in both directions; 8-bit pixels, shape [height, width, 3]."""
    normal, side = np.array(division.normal), _side(division)
    centre = solid_moments(body)[0]
    layers = []
    for piece, (row, column) in zip(diced.pieces, diced.at, strict=True):
        away = solid_moments(piece)[0] - centre
        moved = piece.vertices + _APART * (float(away @ normal) * normal + float(away @ side) * side)
        layers.append(Layer(moved, piece.faces, colour=FRUIT if (row + column) % 2 else SCAN))
    every = np.concatenate([layer.vertices for layer in layers])
    towards = 0.6 * normal + np.array([0.0, 0.9, 0.0]) - 0.8 * side
    view = (float(towards[0]), float(towards[1]), float(towards[2]))
    return render([Panel(title, [board_layer(every), *layers], view=view)], panel_size=(900, 680))
