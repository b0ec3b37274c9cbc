"""Pose of the fruit in the cutting frame: on the board y = 0, y up, cut plane x = 0, blade along z."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from stages.shared.surface import Surface, solid_moments

_ROUND_FRACTION = 0.02
"""Horizontal axes whose radii of gyration differ by less than this fraction are taken as equal: the fruit is round."""


@dataclass(frozen=True)
class Pose:
    """A rigid motion from the scan's axes to the cutting frame: x_frame = rotation @ x_scan + translation."""

    rotation: NDArray[np.float64]
    """Rotation matrix [-], shape [3, 3]."""
    translation: NDArray[np.float64]
    """Translation [m], shape [3]."""
    reason: str

    def apply(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return points [m] in the cutting frame, shape [point_count, 3]."""
        return points @ self.rotation.T + self.translation


def cutting_pose(
    surface: Surface,
    *,
    orientation: str,
    rotation_deg: tuple[float, float, float] | None,
    turn_deg: float,
    cut_offset_m: float,
) -> Pose:
    """Choose the pose.

    By default the fruit rests where its centre of mass is lowest, which is always a stable pose, and its longest
    horizontal axis lies along x, so that the knife crosses it the short way through the centre of mass.

    Args:
        surface: closed surface in the scan's axes.
        orientation: "auto", or "y_up" or "z_up" to keep that axis of the scan upright.
        rotation_deg: rotations about the scan's x, y and z axis, in this order; y is then up and no other rotation
        applies.
        turn_deg: additional rotation about the vertical, counter-clockwise seen from above.
        cut_offset_m: position of the cut plane, measured from the centre of mass along x.
    """
    centre, covariance = solid_moments(surface)
    if rotation_deg is not None:
        rotation = Rotation.from_euler("xyz", rotation_deg, degrees=True).as_matrix()
        reason = f"rotation {rotation_deg} deg given"
    else:
        if orientation == "auto":
            upright, reason = (
                _onto(_lowest_support(surface, centre)),
                "rests where its centre of mass is lowest",
            )
        elif orientation == "z_up":
            upright, reason = _onto(np.array([0.0, 0.0, -1.0])), "z of the scan is up"
        else:
            upright, reason = np.eye(3), "y of the scan is up"
        yaw, longest = _turn_longest_to_x(surface, upright, centre, covariance)
        rotation = yaw @ upright
        reason = f"{reason}; {longest}"
    rotation = Rotation.from_euler("y", turn_deg, degrees=True).as_matrix() @ rotation
    turned = surface.vertices @ rotation.T
    middle = rotation @ centre
    translation = -np.array([middle[0] + cut_offset_m, turned[:, 1].min(), middle[2]])
    return Pose(rotation, translation, reason)


def _lowest_support(surface: Surface, centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the outward normal of the hull face nearest to the centre of mass; the centre projects into that face."""
    equations = ConvexHull(surface.vertices).equations
    distance = -(equations[:, :3] @ centre + equations[:, 3])
    return equations[np.argmin(distance), :3]


def _onto(down: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shortest rotation that turns the unit vector `down` to -y."""
    target = np.array([0.0, -1.0, 0.0])
    axis, cosine = np.cross(down, target), float(down @ target)
    sine = np.linalg.norm(axis)
    if sine < 1e-12:
        return np.eye(3) if cosine > 0.0 else np.diag([1.0, -1.0, -1.0])
    return Rotation.from_rotvec(axis / sine * np.arctan2(sine, cosine)).as_matrix()


def _turn_longest_to_x(
    surface: Surface,
    upright: NDArray[np.float64],
    centre: NDArray[np.float64],
    covariance: NDArray[np.float64],
) -> tuple[NDArray[np.float64], str]:
    """Return the rotation about y that lays the longest horizontal axis along x, its fuller end at positive x."""
    horizontal = (upright @ covariance @ upright.T)[np.ix_([0, 2], [0, 2])]
    values, vectors = np.linalg.eigh(horizontal)
    radii = np.sqrt(values)
    if radii[1] - radii[0] < _ROUND_FRACTION * radii[1]:
        return np.eye(3), "round from above, so not turned"
    x, z = vectors[:, 1]
    along = (surface.vertices - centre) @ upright.T @ np.array([x, 0.0, z])
    # The end nearer to the centre of mass is the fuller one.
    if along.max() > -along.min():
        x, z = -x, -z
    return np.array([[x, 0.0, z], [0.0, 1.0, 0.0], [-z, 0.0, x]]), "longest horizontal axis along x"
