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
    """Pose of the flange, shape [4, 4], at joints [rad], shape [7]."""
    pose = np.eye(4)
    for axis, point, angle in zip(AXES, POINTS, q, strict=True):
        pose = pose @ _screw(axis, point, angle)
    return pose @ FLANGE


def _screw(axis: np.ndarray, point: np.ndarray, angle: float) -> np.ndarray:
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    turn = np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = turn, point - turn @ point
    return pose
