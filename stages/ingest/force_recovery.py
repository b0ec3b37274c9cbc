"""Position of the knife's edge and force on the knife, computed from a log."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from stages.ingest.contact import Sampling, check_time
from stages.ingest.description import IngestParams
from stages.ingest.log_file import RobotLog, in_si
from stages.runtime.errors import InputError
from stages.shared.robots.robot import LinkTable, flange_pose, jacobian, load_robot

# From the robot's base frame to the cutting frame: y up, the blade along z


AXES = {
    sign + name: (-1.0 if sign else 1.0) * np.eye(3)[i] for sign in ("", "-") for i, name in enumerate("xyz")
}


def _cutting_rotation(up_axis: str, blade_axis: str) -> NDArray[np.float64]:
    """Return the rotation from the base frame to the cutting frame, shape [3, 3].

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
    """Describe the mapping, for the table's metadata."""
    rotation = _cutting_rotation(up_axis, blade_axis)
    names = {tuple(vector): name for name, vector in AXES.items()}
    across = names[tuple(rotation[0] + 0.0)]
    return f"x = base {across}, y = base {up_axis} (up), z = base {blade_axis} (along the blade)"


_PANDA = "panda"
_MAX_TRAVEL_M = 2.0
"""Maximum travel, twice a Panda's reach; a longer motion is in another unit."""
_MAX_FORCE_N = 1000.0
"""Maximum force, several times what an arm of this class can exert; more is in another unit."""
_JUMP_RAD, _FASTEST_TURN_RAD_S = 0.035, 10.0
"""A larger step of the orientation at a higher speed is a jump: an arm's flange turns by 2.5 to 5 rad/s."""


@dataclass(frozen=True)
class EdgeRecord:
    """Motion of the edge and force on the knife, before tare, in the axes of the cutting frame."""

    time_s: NDArray[np.float64]
    """Time from 0 [s], shape [n]."""
    position_m: NDArray[np.float64]
    """Edge position relative to the robot's base [m], shape [n, 3]."""
    force_n: NDArray[np.float64]
    """Force on the knife as logged [N], shape [n, 3]; interpolated where unknown."""
    known: NDArray[np.bool_]
    """False where the robot gave no force (near a singularity it reports zeros), shape [n]."""
    sampling: Sampling
    force_from: str
    position_from: str
    rotation: NDArray[np.float64] | None = None
    """Orientation of the end effector in the cutting frame's axes, shape [n, 3, 3]; None if it was not logged."""

    @property
    def height_m(self) -> NDArray[np.float64]:
        """Height of the edge above the robot's base [m], shape [n]."""
        return self.position_m[:, 1]


def edge_record(log: RobotLog, params: IngestParams, source: str) -> EdgeRecord:
    """Return the log in SI units and in the cutting frame's axes; raise InputError if a rule is violated."""
    log = in_si(log, params)
    sampling = check_time(log.time_s, params, source)
    position, turned, position_from = _edge_pose(log, params.edge_offset_m, source, params.robot)
    _check_finite(position, f"position ({position_from})", source)
    travel = float(np.ptp(position, axis=0).max())
    if travel > _MAX_TRAVEL_M:
        raise InputError(
            f"{source}: the edge travels {travel:.4g} m. More than {_MAX_TRAVEL_M:g} m is beyond any arm's reach, so "
            "the position is in another unit. Set it: --set ingest.length_unit=mm."
        )
    force, force_from = force_on_knife(log, source, params.robot)
    _check_finite(force, f"force ({force_from})", source)
    largest = float(np.abs(force).max())
    if largest > _MAX_FORCE_N:
        raise InputError(
            f"{source}: the force reaches {largest:.4g} N. More than {_MAX_FORCE_N:g} N can't be exerted by this arm, "
            "so the force is in another unit. Set it: --set ingest.force_unit=mN."
        )
    has_force = np.any(force != 0.0, axis=1)
    if has_force.mean() < 0.5:
        raise InputError(
            f"{source}: the force is exactly zero in {np.sum(~has_force)} of {len(has_force)} samples. The robot "
            "reports zeros near a singularity, and a sensor when it is off. Move the board to where the arm is not "
            "stretched."
        )
    if turned is not None:
        _check_turning(turned, log.time_s, source)
    rotation = _cutting_rotation(params.up_axis, params.blade_axis)
    return EdgeRecord(
        time_s=log.time_s - log.time_s[0],
        position_m=position @ rotation.T,
        force_n=_filled(log.time_s, force, has_force) @ rotation.T,
        known=has_force,
        sampling=sampling,
        force_from=force_from,
        position_from=position_from,
        rotation=None if turned is None else rotation @ turned,
    )


def pitch_rad(record: EdgeRecord, first: int) -> NDArray[np.float64] | None:
    """Return the knife's angle about the normal of the cut plane since sample `first` [rad]; None without one."""
    if record.rotation is None:
        return None
    turned = Rotation.from_matrix(record.rotation)
    return np.asarray((turned * turned[first].inv()).as_rotvec()[:, 0])


def turning_deg(record: EdgeRecord, samples: slice) -> tuple[float, float] | None:
    """Return the largest turn of the knife since the first of these samples, about the normal of the cut plane (pitch)
    and out of the plane [degrees]; None without an orientation.
    """
    if record.rotation is None:
        return None
    turned = Rotation.from_matrix(record.rotation[samples])
    vector = np.degrees((turned * turned[0].inv()).as_rotvec())
    return float(np.abs(vector[:, 0]).max()), float(np.hypot(vector[:, 1], vector[:, 2]).max())


def _check_turning(rotation: NDArray[np.float64], time_s: NDArray[np.float64], source: str) -> None:
    """Reject an orientation that jumps: no arm turns so fast."""
    try:
        turned = Rotation.from_matrix(rotation)
    except ValueError as error:
        raise InputError(
            f"{source}: the orientation is not a rotation in every sample ({error}). It must be a rotation matrix or a "
            "unit quaternion. Record the log again, or leave the orientation out."
        ) from error
    angle = (turned[1:] * turned[:-1].inv()).magnitude()
    jumps = np.flatnonzero((angle > _JUMP_RAD) & (angle > _FASTEST_TURN_RAD_S * np.diff(time_s)))
    if len(jumps):
        at = int(jumps[0])
        raise InputError(
            f"{source}: the orientation jumps by {np.degrees(angle[at]):.1f}° after {time_s[at] - time_s[0]:.3f} s. "
            f"An arm turns by less than {_FASTEST_TURN_RAD_S:g} rad/s. Check the order of the quaternion (x, y, z, w) "
            "or of the matrix, or record the log again."
        )


def _edge_pose(
    log: RobotLog, edge_offset_m: tuple[float, float, float], source: str, robot: str
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, str]:
    """Return measured edge positions in the base frame [m], shape [n, 3], orientations, and the positions' source."""
    offset = np.array(edge_offset_m)
    if log.position_m is not None:
        if not offset.any():
            return log.position_m, log.rotation, "logged position"
        if log.rotation is None:
            raise InputError(
                f"{source} has positions without orientation, and ingest.edge_offset_m is {edge_offset_m}. An offset "
                "in the end effector's frame needs its orientation. Name quaternion_xyzw in ingest.columns, or log the "
                "edge's own position and set edge_offset_m to [0, 0, 0]."
            )
        return log.position_m + log.rotation @ offset, log.rotation, "logged pose and edge_offset_m"
    if log.joints_rad is None:
        raise InputError(
            f"{source} has neither poses nor joint angles. Every sample needs the edge's height. Log O_T_EE "
            "or q."
        )
    pose = flange_pose(_links(robot, log.joints_rad, source), log.joints_rad) @ (
        np.eye(4) if log.tool is None else log.tool
    )
    tool = "flange" if log.tool is None else "logged tool"
    rotation = pose[:, :3, :3]
    origin = f"joints, kinematics of {robot}, {tool} and edge_offset_m"
    return pose[:, :3, 3] + rotation @ offset, rotation, origin


def force_on_knife(log: RobotLog, source: str, robot: str = _PANDA) -> tuple[NDArray[np.float64], str]:
    """Return the force on the knife in the base frame [N], shape [n, 3], and its source."""
    if log.force_n is not None and np.any(log.force_n != 0.0):
        return log.force_factor * log.force_n, "logged force"
    if log.joints_rad is not None and log.external_torque_nm is not None:
        _links(robot, log.joints_rad, source)  # rejects another number of joints
        force = _force_from_torque(log.joints_rad, log.external_torque_nm, robot)
        return log.force_factor * force, "external joint torques"
    if log.force_n is not None:
        return log.force_n, "logged force"
    raise InputError(
        f"{source} has neither a force nor joint angles with external torques. One of them is needed. Log "
        "O_F_ext_hat_K, or q and tau_ext_hat_filtered."
    )


def _force_from_torque(
    joints_rad: NDArray[np.float64], torque_nm: NDArray[np.float64], robot: str = _PANDA
) -> NDArray[np.float64]:
    """Return the linear part of the wrench w that solves Jᵀw = τ in the least-squares sense [N], shape [n, 3].

    The sign is that of the torques. The force does not depend on the reference point of the Jacobian.
    """
    transposed = jacobian(load_robot(robot).table, joints_rad).transpose(0, 2, 1)
    wrench = np.linalg.pinv(transposed) @ torque_nm[:, :, None]
    return wrench[:, :3, 0]


def _links(robot: str, joints_rad: NDArray[np.float64], source: str) -> LinkTable:
    """Return the links of the arm that wrote the log; reject another number of joints."""
    table = load_robot(robot).table
    count = len(table)
    if joints_rad.shape[1] != count:
        raise InputError(
            f"{source} has {joints_rad.shape[1]} joints, and ingest.robot is {robot}, which has {count}. They must "
            "agree. Name the arm that wrote the log: --set ingest.robot=ur5e."
        )
    return table


def _check_finite(values: NDArray[np.float64], name: str, source: str) -> None:
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise InputError(
            f"{source}: the {name} of sample {bad[0]} is missing, NaN or infinite ({len(bad)} in total). All must be "
            "numbers. Remove these samples or record the log again."
        )


def _filled(
    time_s: NDArray[np.float64], force: NDArray[np.float64], has_force: NDArray[np.bool_]
) -> NDArray[np.float64]:
    return np.stack([np.interp(time_s, time_s[has_force], column[has_force]) for column in force.T], axis=1)
