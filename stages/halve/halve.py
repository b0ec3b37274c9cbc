"""halve: one half-body of the first cut, laid on the board and positioned under the knife for the second."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.halve.description import HalveParams, SliceParams
from stages.runtime.errors import InputError
from stages.runtime.stage_io import StageIO
from stages.shared.anatomy import anatomy_frames, read_anatomy
from stages.shared.pictures import CUT, FRUIT, Layer, Panel, board_layer, cut_plane_layer, render
from stages.shared.slicing import beyond, slice_frame
from stages.shared.surface import Surface, face_normals_doubled, is_closed, solid_moments

# Picture of the stage


def _halve_picture(
    before: Surface, after: Surface, on_cut: NDArray[np.bool_], *, rests_on: str
) -> NDArray[np.uint8]:
    """Draw the half before, and on the board with the second cut's plane; pixels, shape [height, width, 3].

    on_cut marks vertices of the first cut's face, [vertex_count].
    """
    cut_faces = np.asarray(on_cut[before.faces].all(axis=1))
    toward_cut = (
        np.sign(face_normals_doubled(Surface(before.vertices, before.faces[cut_faces])).sum(axis=0)[0]) or 1.0
    )
    panels = []
    for body, title in (
        (before, "the half as the first cut left it (blue: the cut)"),
        (after, f"on the board ({rests_on.replace('_', ' ')}), second cut plane x = 0"),
    ):
        layers = [
            board_layer(body.vertices),
            Layer(body.vertices, body.faces[~cut_faces], colour=FRUIT, show_edges=True),
            Layer(body.vertices, body.faces[cut_faces], colour=CUT, show_edges=True),
        ]
        if body is after:
            layers.append(cut_plane_layer(body.vertices))
        panels.append(Panel(title, layers, view=(0.9 * toward_cut, 0.45, 0.8)))
    return render(panels)


# Pose for the second cut: y up, board y = 0, cut plane x = 0, blade along z


_Floats = NDArray[np.float64]

_FLAT_WITHIN_M = 5.0e-4
"""Distance from its plane beyond which a cut face is curved [m]. A planar cut deviates a little where precut moved
crossings away from nodes (precut.snap_tolerance_fraction).
"""
_SLENDER = 2.0
"""Height of a half above its cut face, in widths of that face, above which it does not stand there."""
_PARALLEL = 0.99
"""Cosine above which two directions are taken as the same."""


@dataclass(frozen=True)
class _CutFace:
    """Plane fitted to the first cut's face of one half."""

    point: _Floats
    """Point in the plane [m], shape [3]."""
    normal: _Floats
    """Unit normal that points out of the half [-], shape [3]."""
    bulge_m: float
    """Largest distance of the face from the plane [m]."""


def _fit_cut_face(points: _Floats, half: Surface) -> _CutFace:
    """Fit a plane through points of the cut face [m], shape [n, 3]."""
    middle = points.mean(axis=0)
    normal = np.linalg.svd(points - middle, full_matrices=False)[2][2]
    if (solid_moments(half)[0] - middle) @ normal > 0.0:
        normal = -normal
    return _CutFace(middle, normal, float(np.abs((points - middle) @ normal).max()))


def _pose_of(half: Surface, face: _CutFace, points: _Floats, wanted: str) -> str:
    """Return cut_face or as_it_was; points of the cut face [m], shape [n, 3]."""
    if wanted != "auto":
        return wanted
    height = float((-(half.vertices - face.point) @ face.normal).max())
    along = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2][1]
    return "as_it_was" if height > _SLENDER * float(np.ptp(points @ along)) else "cut_face"


def _flattened(half: Surface, face: _CutFace, on_face: NDArray[np.bool_]) -> Surface:
    """Return the half with the vertices of its cut face, marked by `on_face` [vertex_count], moved into the plane."""
    vertices = half.vertices.copy()
    vertices[on_face] -= np.outer((vertices[on_face] - face.point) @ face.normal, face.normal)
    return Surface(vertices, half.faces)


def _second_cut_frame(
    half: Surface, face: _CutFace, *, rests_on: str, angle_deg: float, offset_m: float
) -> _Floats:
    """Return the 4x4 matrix from the first cut's frame to the second's.

    Args:
        half: closed half-body in the first cut's frame.
        face: plane of the first cut's face.
        rests_on: cut_face or as_it_was.
        angle_deg: rotation about the vertical, after the half has been laid down [deg].
        offset_m: of the cut plane from the centre of mass, along x [m].
    """
    upright = _on_the_cut_face(face) if rests_on == "cut_face" else np.eye(3)
    rotation = _about_y(angle_deg) @ upright
    centre = rotation @ solid_moments(half)[0]
    lowest = (half.vertices @ rotation.T)[:, 1].min()
    frame = np.eye(4)
    frame[:3, :3] = rotation
    frame[:3, 3] = -np.array([centre[0] + offset_m, lowest, centre[2]])
    return frame


def _moved(frame: _Floats, surface: Surface) -> Surface:
    """Transform the surface by the 4x4 matrix."""
    return Surface(surface.vertices @ frame[:3, :3].T + frame[:3, 3], surface.faces)


def _reject_curved(face: _CutFace) -> None:
    """Reject a curved face as support."""
    if face.bulge_m > _FLAT_WITHIN_M:
        raise InputError(
            f"The first cut's face bulges by {1e3 * face.bulge_m:.3g} mm, because the first cut followed a surface. "
            f"The face that lies on the board must be flat within {1e3 * _FLAT_WITHIN_M:g} mm. Set "
            "halve.rests_on=as_it_was."
        )


def _on_the_cut_face(face: _CutFace) -> _Floats:
    """Return the rotation that turns the face down and the fruit's former vertical to the blade's direction z."""
    up = np.array([0.0, 1.0, 0.0]) if abs(face.normal[1]) < _PARALLEL else np.array([0.0, 0.0, 1.0])
    y = -face.normal
    z = up - (up @ y) * y
    z /= np.linalg.norm(z)
    return np.stack([np.cross(y, z), y, z])


def _about_y(angle_deg: float) -> _Floats:
    """Return the rotation about the vertical, shape [3, 3]."""
    angle = np.deg2rad(angle_deg)
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


_ON_PLANE_M = 1e-6
"""Distance within which a vertex lies on the plane of the cut before [m]."""
_SIDES = {"positive": 1, "negative": -1}
_MIN_SHARE = 0.01
"""Minimum volume fraction of the smaller part after the second cut; less is a miss."""


@dataclass(frozen=True)
class _HalveResult:
    """The half in the frame of the second cut."""

    surface: Surface
    face: _CutFace
    """The first cut's face, in the first cut's frame."""
    frame: NDArray[np.float64]
    """Matrix from the first cut's frame to the second's, translation in [m], shape [4, 4]."""
    positive_share: float
    """Fraction of the volume at x > 0 [-]."""
    rests_on: str
    """cut_face or as_it_was."""


def halve(half: Surface, cut_points: NDArray[np.float64], params: HalveParams) -> _HalveResult:
    """Pose a half-body for the second cut.

    Args:
        half: closed half-body in the first cut's frame.
        cut_points: points of the first cut's face on this half [m], shape [n, 3].
        params: section `halve` of params.yaml.
    """
    if not is_closed(half.faces) or half.volume_m3 <= 0.0:
        raise InputError(
            f"The {params.half} half-body is not closed or is inside out. It must enclose a volume. Run precut again."
        )
    face = _fit_cut_face(cut_points, half)
    rests_on = _pose_of(half, face, cut_points, params.rests_on)
    if rests_on == "cut_face":
        _reject_curved(face)
        half = _flattened(half, face, _on_cut_face(half, cut_points))
    frame = _second_cut_frame(
        half, face, rests_on=rests_on, angle_deg=params.angle_deg, offset_m=params.offset_m
    )
    surface = _moved(frame, half)
    share = _volume_at_positive_x(surface) / surface.volume_m3
    if not _MIN_SHARE <= share <= 1.0 - _MIN_SHARE:
        low, high = 1e3 * surface.vertices[:, 0].min(), 1e3 * surface.vertices[:, 0].max()
        raise InputError(
            f"halve.offset_m is {params.offset_m:g} m, which leaves {share:.1%} of the half on one side of the second "
            f"cut's plane; the half reaches from {low:.1f} to {high:.1f} mm across it. Each side must keep at least "
            f"{_MIN_SHARE:.0%}. Move offset_m closer to 0."
        )
    return _HalveResult(surface, face, frame, share, rests_on)


def _slice_body(standing: _HalveResult, plan: SliceParams) -> _HalveResult:
    """Return the body of one cut of a plan: what the cuts before left of a standing body, with this cut at x = 0."""
    body = standing.surface
    normal = np.array(plan.normal) / np.linalg.norm(plan.normal)
    rest = beyond(body, (normal, plan.from_m))
    along = body.vertices @ normal
    if not is_closed(rest.faces) or not along.min() < plan.at_m < along.max() or plan.at_m <= plan.from_m:
        raise InputError(
            f"halve.slice cuts at {1e3 * plan.at_m:.1f} mm what lies beyond {1e3 * plan.from_m:.1f} mm of a body from "
            f"{1e3 * along.min():.1f} to {1e3 * along.max():.1f} mm. The plane must go through a closed rest. Plan the "
            "slices again with 'scan2cut slice'."
        )
    frame = slice_frame(body, normal, plan.at_m)
    surface = _moved(frame, rest)
    face = standing.face
    if plan.of == "whole":  # the cut before, in the frame of the first cut
        face = _CutFace(plan.from_m * normal, -normal, 0.0)
    share = _volume_at_positive_x(surface) / surface.volume_m3
    return _HalveResult(surface, face, frame @ standing.frame, share, standing.rests_on)


def _volume_at_positive_x(surface: Surface) -> float:
    """Return the volume of the part of a closed surface with x > 0 [m³]."""
    from trimesh.intersections import slice_faces_plane

    vertices, faces = slice_faces_plane(surface.vertices, surface.faces, (1.0, 0.0, 0.0), (0.0, 0.0, 0.0))[:2]
    # Cones from the origin, which lies in the plane: the missing cap contributes nothing.
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)


def _on_cut_face(half: Surface, cut_points: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return True for vertices that coincide exactly with points of the cut, shape [vertex_count]."""
    on_cut = {point.tobytes() for point in np.ascontiguousarray(cut_points)}
    return np.array([vertex.tobytes() in on_cut for vertex in np.ascontiguousarray(half.vertices)])


def metrics(result: _HalveResult) -> dict[str, object]:
    """Return the artifact halve/metrics."""
    surface = result.surface
    extent = np.ptp(surface.vertices, axis=0)
    return {
        "volume_m3": surface.volume_m3,
        "area_m2": surface.area_m2,
        "across_m": float(extent[0]),
        "height_m": float(extent[1]),
        "along_blade_m": float(extent[2]),
        "faces": len(surface.faces),
        "positive_share": result.positive_share,
        "cut_face_bulge_m": result.face.bulge_m,
        "rests_on": result.rests_on,
    }


def _cut_face_table(result: _HalveResult) -> pl.DataFrame:
    """Return the table halve/cut_face."""
    rotation, translation = result.frame[:3, :3], result.frame[:3, 3]
    point, normal = rotation @ result.face.point + translation, rotation @ result.face.normal
    return pl.concat(
        [
            _vectors("point_m", point[None], pl.Float64),
            _vectors("normal", normal[None], pl.Float64),
            pl.DataFrame({"bulge_m": [result.face.bulge_m]}),
        ],
        how="horizontal",
    )


def run(io: StageIO, params: HalveParams) -> dict[str, object]:
    """Read the half-body or, for a slice, the whole fruit; pose it, write it with its frame and the picture."""
    io.progress(0.0, "read the body")
    plan = params.slice
    if plan is not None and plan.of == "whole":
        whole = _read_surface(io, "clean/vertices", "clean/faces")
        nothing = _CutFace(np.zeros(3), np.array([1.0, 0.0, 0.0]), 0.0)
        result = _HalveResult(whole, nothing, np.eye(4), 0.5, "as_it_was")
    else:
        half = _read_surface(io, f"precut/half_{params.half}_vertices", f"precut/half_{params.half}_faces")
        virtual = io.read("precut/virtual_nodes").filter(pl.col("side") == _SIDES[params.half])
        cut_points = virtual["position_m"].to_numpy()
        result = halve(half, cut_points, params)
    if plan is None:
        before, on_cut = half, _on_cut_face(half, cut_points)
    else:
        result = _slice_body(result, plan)
        before = _moved(np.asarray(np.linalg.inv(result.frame), float), result.surface)
        on_cut = np.abs(result.surface.vertices[:, 0] - (plan.from_m - plan.at_m)) < _ON_PLANE_M
    surface = result.surface
    io.write("halve/vertices", _vectors("position_m", surface.vertices, pl.Float64))
    io.write("halve/faces", _vectors("vertices", surface.faces, pl.Int32))
    io.write("halve/frame", _vectors("row", result.frame, pl.Float64))
    io.write("halve/cut_face", _cut_face_table(result))
    anatomy = read_anatomy(io.read, "precut").moved(result.frame)
    for name, rows in anatomy_frames(anatomy, "halve").items():
        io.write(name, rows)
    io.progress(0.5, "draw the picture")
    picture = _halve_picture(before, surface, on_cut, rests_on=result.rests_on)
    io.write_png("halve/preview", picture)
    io.progress(1.0, "done")
    return metrics(result)


def _read_surface(io: StageIO, vertices: str, faces: str) -> Surface:
    return Surface(io.read(vertices)["position_m"].to_numpy(), io.read(faces)["vertices"].to_numpy())


def _vectors(name: str, values: NDArray[np.generic], dtype: type[pl.DataType]) -> pl.DataFrame:
    return pl.DataFrame([pl.Series(name, values, pl.Array(dtype, values.shape[1]))])
