"""A second derivation of the arm, for tests only: products of exponentials of the joint screws at the zero pose.

Written from the arm's drawing (heights and offsets of the axes at q = 0), not from the Denavit-Hartenberg table.
"""

import numpy as np

AXES = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 1], [0, -1, 0], [0, 0, 1], [0, -1, 0], [0, 0, -1]], float)
POINTS = np.array(
    [
        [0, 0, 0],
        [0, 0, 0.333],
        [0, 0, 0.333],
        [0.0825, 0, 0.649],
        [0, 0, 0.649],
        [0, 0, 1.033],
        [0.088, 0, 1.033],
    ]
)
"""A point on each joint's axis at q = 0 [m]."""
FLANGE = np.array([[1, 0, 0, 0.088], [0, -1, 0, 0], [0, 0, -1, 0.926], [0, 0, 0, 1]], float)
"""Pose of the flange at q = 0: 107 mm below the wrist, pointing down."""


def flange(q: np.ndarray) -> np.ndarray:
    """Poses of the flange, shape [n, 4, 4], at joints [rad], shape [n, 7]."""
    pose = np.broadcast_to(np.eye(4), (len(q), 4, 4))
    for axis, point, angle in zip(AXES, POINTS, q.T, strict=True):
        pose = pose @ _screw(axis, point, angle)
    return pose @ FLANGE


def smallest_singular_value(q: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Of the flange's Jacobian by central differences, shape [n]; right to about 1e-9."""
    columns = []
    here = flange(q)
    for unit in np.eye(7):
        rate = (flange(q + step * unit) - flange(q - step * unit)) / (2.0 * step)
        spin = rate[:, :3, :3] @ here[:, :3, :3].transpose(0, 2, 1)
        turn = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
        columns.append(np.concatenate([rate[:, :3, 3], turn], axis=1))
    return np.linalg.svd(np.stack(columns, axis=2), compute_uv=False)[:, -1]


def _screw(axis: np.ndarray, point: np.ndarray, angle: np.ndarray) -> np.ndarray:
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    sine, versine = np.sin(angle)[:, None, None], 1.0 - np.cos(angle)[:, None, None]
    turn = np.eye(3) + sine * cross + versine * (cross @ cross)
    pose = np.zeros((len(angle), 4, 4))
    pose[:, :3, :3], pose[:, :3, 3], pose[:, 3, 3] = turn, point - turn @ point, 1.0
    return pose
