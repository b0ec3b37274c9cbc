"""Laying a half-body on the board for the second cut: y up, board y = 0, cut plane x = 0, blade along z."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.shared.surface.triangles import Surface, solid_moments

Floats = NDArray[np.float64]

FLAT_WITHIN_M = 5.0e-4
"""A cut face that strays further than this from its plane is curved [m]. A plane's face strays a little as well, where
precut moved nodes off the cut (precut.snap_tolerance_fraction)."""
PARALLEL = 0.99
"""Cosine above which two directions are taken as the same."""


@dataclass(frozen=True)
class CutFace:
    """The plane that fits the first cut's face of one half."""

    point: Floats
    """In the plane [m], shape [3]."""
    normal: Floats
    """Unit normal that points out of the half [-], shape [3]."""
    bulge_m: float
    """Largest distance of the face from the plane [m]."""


def fit_cut_face(points: Floats, half: Surface) -> CutFace:
    """The plane through points of the cut face [m], shape [n, 3]."""
    middle = points.mean(axis=0)
    normal = np.linalg.svd(points - middle, full_matrices=False)[2][2]
    if (solid_moments(half)[0] - middle) @ normal > 0.0:
        normal = -normal
    return CutFace(middle, normal, float(np.abs((points - middle) @ normal).max()))


def flattened(half: Surface, face: CutFace, on_face: NDArray[np.bool_]) -> Surface:
    """The half with the vertices of its cut face, marked by `on_face` [vertex_count], moved into the plane."""
    vertices = half.vertices.copy()
    vertices[on_face] -= np.outer((vertices[on_face] - face.point) @ face.normal, face.normal)
    return Surface(vertices, half.faces)


def second_cut_frame(
    half: Surface, face: CutFace, *, rests_on: str, angle_deg: float, offset_m: float
) -> Floats:
    """The 4x4 matrix from the first cut's frame to the second's.

    Args:
        half: closed half-body in the first cut's frame.
        face: plane of the first cut's face.
        rests_on: cut_face or as_it_was.
        angle_deg: turn about the vertical, after the half has been laid down [deg].
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


def moved(frame: Floats, surface: Surface) -> Surface:
    """The surface in the frame that the 4x4 matrix leads to."""
    return Surface(surface.vertices @ frame[:3, :3].T + frame[:3, 3], surface.faces)


def refuse_curved(face: CutFace) -> None:
    """A half can't lie on a face that is not flat."""
    if face.bulge_m > FLAT_WITHIN_M:
        raise InputError(
            f"The first cut's face bulges by {1e3 * face.bulge_m:.3g} mm, because the first cut followed a surface. "
            f"The face that lies on the board must be flat within {1e3 * FLAT_WITHIN_M:g} mm. Set "
            "halve.rests_on=as_it_was."
        )


def _on_the_cut_face(face: CutFace) -> Floats:
    """Rotation that turns the face down and the fruit's former vertical to the blade's direction z."""
    up = np.array([0.0, 1.0, 0.0]) if abs(face.normal[1]) < PARALLEL else np.array([0.0, 0.0, 1.0])
    y = -face.normal
    z = up - (up @ y) * y
    z /= np.linalg.norm(z)
    return np.stack([np.cross(y, z), y, z])


def _about_y(angle_deg: float) -> Floats:
    """Rotation about the vertical, shape [3, 3]."""
    angle = np.deg2rad(angle_deg)
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
