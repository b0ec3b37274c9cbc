"""From the robot's base frame to the cutting frame: y up, the blade along z."""

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError

AXES = {
    sign + name: (-1.0 if sign else 1.0) * np.eye(3)[i] for sign in ("", "-") for i, name in enumerate("xyz")
}


def cutting_rotation(up_axis: str, blade_axis: str) -> NDArray[np.float64]:
    """Rotation that takes vectors of the base frame to the cutting frame, shape [3, 3].

    Its rows are the cutting frame's x, y, z in the base frame: x = up × blade completes a right-handed frame.
    """
    up, blade = AXES[up_axis], AXES[blade_axis]
    if up @ blade != 0.0:
        raise InputError(
            f"ingest.up_axis is {up_axis}, ingest.blade_axis is {blade_axis}. They must be perpendicular. Give the "
            "base axis along the blade."
        )
    return np.stack([np.cross(up, blade), up, blade])


def describe(up_axis: str, blade_axis: str) -> str:
    """The mapping in words, for the table's metadata."""
    rotation = cutting_rotation(up_axis, blade_axis)
    names = {tuple(vector): name for name, vector in AXES.items()}
    across = names[tuple(rotation[0] + 0.0)]
    return f"x = base {across}, y = base {up_axis} (up), z = base {blade_axis} (along the blade)"
