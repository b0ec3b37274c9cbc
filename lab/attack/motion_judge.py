"""A second judge of a certified motion of the Panda, for attack_certificate. It shares no code with the stage.

Limits and the arm's axes are typed in from Franka's specification, derivatives are differences, kinematics and torques
are Pinocchio's (`pip install pin`). Without it, kinematics are products of exponentials and torques are not judged.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

LOW = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
HIGH = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
RATES = (
    np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61]),
    np.array([15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0]),
    np.array([7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0]),
)
"""Largest speed, acceleration and jerk [rad/s, rad/s², rad/s³]."""
SHARES = (0.5, 0.6, 0.2)
TORQUE = np.array([87.0] * 4 + [12.0] * 3)
TORQUE_SHARE = 0.7
FORCE_FACTOR = 1.361
"""exp(1.645 * 0.122): 95 of 100 cuts need less than this much of the predicted force."""
LIFT_M = 0.01
"""An air cut is at least so much higher than the cut."""
MARGIN_RAD, KNIFE_M_S = 0.1, 0.25
ORIGINS = (
    ((0.0, 0.0, 0.333), 0),
    ((0.0, 0.0, 0.0), -1),
    ((0.0, -0.316, 0.0), 1),
    ((0.0825, 0.0, 0.0), 1),
    ((-0.0825, 0.384, 0.0), -1),
    ((0.0, 0.0, 0.0), 1),
    ((0.088, 0.0, 0.0), 1),
)
"""Of each joint in the one before it: place [m] and quarter turns about x; the joint then turns about z."""
FLANGE_M = 0.107
SLACK = 1e-9
"""Relative, for rounding."""


@dataclass(frozen=True)
class Sent:
    """What the run script takes from cut.json."""

    mass_kg: float
    centre_m: np.ndarray
    edge_m: np.ndarray
    acceleration_rad_s2: np.ndarray
    stiffness_nm_rad: float


@dataclass(frozen=True)
class Case:
    """What a certified folder says, as plain numbers."""

    motions: dict[str, np.ndarray]
    """Joints [rad], shape [n, 7], one row per millisecond: cut, air cut and the moves."""
    board: np.ndarray
    """Origin of the cutting frame in the base frame [m]."""
    yaw_rad: float
    """Direction of the blade from the base's x axis."""
    edge: np.ndarray
    """Centre of the edge in the flange's frame [m]."""
    blade_rad: float
    """Direction of the blade in the flange's x-y plane, from its x axis."""
    pitch_rad: np.ndarray
    """Commanded angle of the knife at the rows of the cut; positive lowers the blade's far end."""
    least_height_m: float
    fruit: tuple[float, float, float]
    """Along the blade from .. to, and the height of its top [m]."""
    half_blade_m: float
    cut: slice
    """Rows of the cut in the motion "cut"."""
    force: np.ndarray
    """Predicted, in the base frame, at the rows of the cut [N], shape [n, 3]."""
    couple: np.ndarray
    """Its moment about the centre of the edge, in the base frame [Nm], shape [n, 3]."""
    tool: tuple[float, np.ndarray]
    """Mass [kg] and centre of mass in the flange's frame [m]."""
    links: list[dict[str, Any]]
    """Masses and inertias of the robot's data file."""
    stiffness_nm_rad: float
    deflection_m: float
    """How far the edge may give way."""
    sent: Sent


def violations(case: Case) -> list[str]:
    """What is wrong, by name; nothing if the motion may be run."""
    found = []
    along = np.array([np.cos(case.yaw_rad), np.sin(case.yaw_rad), 0.0])
    across = np.cross([0.0, 0.0, 1.0], along)
    for name, q in case.motions.items():
        if not np.isfinite(q).all():
            return [f"{name}: not finite"]
        rest = np.concatenate([np.repeat(q[:1], 4, axis=0), q, np.repeat(q[-1:], 4, axis=0)])
        for order, (limit, share) in enumerate(zip(RATES, SHARES, strict=True), start=1):
            if (np.abs(np.diff(rest, n=order, axis=0)) * 1e3**order > share * limit * (1 + SLACK)).any():
                found.append(f"{name}: derivative {order}")
        if (q - LOW < MARGIN_RAD - SLACK).any() or (HIGH - q < MARGIN_RAD - SLACK).any():
            found.append(f"{name}: range")
        poses = flange_poses(q)
        edge = poses[:, :3, :3] @ case.edge + poses[:, :3, 3]
        blade = poses[:, :3, :3] @ np.array([np.cos(case.blade_rad), np.sin(case.blade_rad), 0.0])
        places = [edge + reach * blade for reach in (-case.half_blade_m, 0.0, case.half_blade_m)]
        if max(np.linalg.norm(np.diff(one, axis=0), axis=1).max() for one in places) * 1e3 > KNIFE_M_S * (
            1 + 1e-6
        ):
            found.append(f"{name}: knife speed")
        heel, place, tip = (one - case.board for one in places)
        lowest = min(one[:, 2].min() for one in (heel, place, tip))
        if name in ("cut", "air cut"):
            if lowest < case.least_height_m - 2e-6:
                found.append(f"{name}: board")
            if max(np.abs(one @ across).max() for one in (heel, place, tip)) > 5.2e-4:
                found.append(f"{name}: leaves the plane")
            pitch = _commanded(case, len(q))[:, None]
            down = -np.cos(pitch) * [0.0, 0.0, 1.0] - np.sin(pitch) * along
            if np.abs(poses[:, :3, 2] - down).max() > 2e-6:
                found.append(f"{name}: tilted")
        elif lowest < case.fruit[2]:
            found.append(f"{name}: through the fruit")
        if name == "cut":
            low, high, _ = case.fruit
            if ((heel @ along)[case.cut] > low + 1e-6).any() or ((tip @ along)[case.cut] < high - 1e-6).any():
                found.append("cut: fruit leaves the blade")
            if place[case.cut, 2].min() > 0.003:
                found.append("cut: does not reach the board")
            found += _loads(case, q, case.force, case.couple)
        if name == "air cut":
            found += [f"air {wrong}" for wrong in _loads(case, q, np.zeros((0, 3)), np.zeros((0, 3)))]
    found += _sent(case)
    if len(case.motions["air cut"]) != len(case.motions["cut"]):
        return [*found, "air cut: not as long as the cut"]
    lift = np.subtract(*(flange_poses(case.motions[name])[:, 2, 3] for name in ("air cut", "cut")))
    if lift.min() < LIFT_M or np.ptp(lift) > 5e-6:
        found.append("air cut: not the cut, lifted")
    return found


def _commanded(case: Case, count: int) -> np.ndarray:
    """Angle of the knife at every row: that of the cut, and constant before and after it."""
    rows = np.clip(np.arange(count) - case.cut.start, 0, len(case.pitch_rad) - 1)
    return np.asarray(case.pitch_rad[rows])


def _sent(case: Case) -> list[str]:
    """What the robot is sent beside the joints, against the cell."""
    sent, (mass, centre) = case.sent, case.tool
    pairs: dict[str, tuple[ArrayLike, ArrayLike]] = {
        "load": ([sent.mass_kg, *sent.centre_m], [mass, *centre]),
        "end effector": (sent.edge_m, case.edge),
        "limits of a stop": (sent.acceleration_rad_s2, RATES[1]),
        "stiffness": ([sent.stiffness_nm_rad], [case.stiffness_nm_rad]),
    }
    return [
        f"document: {name}"
        for name, (said, so) in pairs.items()
        if not np.allclose(said, so, rtol=1e-9, atol=1e-9)
    ]


def flange_poses(q: np.ndarray) -> np.ndarray:
    """Of the flange in the base frame, shape [n, 4, 4]."""
    return _flange_poses(np.ascontiguousarray(q, float).tobytes())


@lru_cache(maxsize=8)
def _flange_poses(joints: bytes) -> np.ndarray:
    """Most edits leave most motions as they are: remembered by content."""
    q = np.frombuffer(joints).reshape(-1, len(ORIGINS))
    pin = _pinocchio()
    if pin is None:
        return _exponentials(q)
    model, data, _ = _model(pin, None)
    out = np.zeros((len(q), 4, 4))
    for row, angles in zip(out, q, strict=True):
        pin.framesForwardKinematics(model, data, angles)
        row[:] = data.oMf[model.getFrameId("flange")].homogeneous
    return out


def _loads(case: Case, q: np.ndarray, predicted: np.ndarray, moment: np.ndarray) -> list[str]:
    """Torque and deflection with more than the predicted force [N] and moment [Nm], if Pinocchio is there."""
    pin = _pinocchio()
    if pin is None:
        return []
    model, data, frame = _model(pin, case)
    load = np.zeros((len(q), 6))
    rows = range(*case.cut.indices(len(q)))
    both = np.concatenate([predicted, moment], axis=1)[: len(rows)]
    load[rows.start : rows.start + len(both)] = FORCE_FACTOR * both
    speed, push = np.zeros_like(q), np.zeros_like(q)
    speed[1:-1] = (q[2:] - q[:-2]) * 500.0
    push[1:-1] = (q[2:] - 2.0 * q[1:-1] + q[:-2]) * 1e6
    found = set()
    for joints, rate, acceleration, on_edge in zip(q[::5], speed[::5], push[::5], load[::5], strict=True):
        torque = pin.rnea(model, data, joints, rate, acceleration)
        pin.computeJointJacobians(model, data, joints)
        jacobian = pin.getFrameJacobian(model, data, frame, pin.LOCAL_WORLD_ALIGNED)
        # the stage takes the tool as a point and g as 9.80665, Pinocchio g as 9.81: below a thousandth
        if (np.abs(torque - jacobian.T @ on_edge) > TORQUE_SHARE * TORQUE * 1.002).any():
            found.add("cut: torque")
        bent = jacobian[:3] @ (jacobian.T @ on_edge) / case.stiffness_nm_rad
        if np.linalg.norm(bent) > case.deflection_m * (1.0 + 1e-3):
            found.add("cut: deflection")
    return sorted(found)


def _model(pin: Any, case: Case | None) -> tuple[Any, Any, int]:
    model, parent = pin.Model(), 0
    for i, (place, quarters) in enumerate(ORIGINS):
        turn = pin.utils.rotate("x", 0.5 * np.pi * quarters)
        parent = model.addJoint(parent, pin.JointModelRZ(), pin.SE3(turn, np.array(place)), f"joint{i + 1}")
        if case is not None:
            link = case.links[i]
            t = link["inertia_kg_m2"]
            tensor = np.array(
                [[t["xx"], t["xy"], t["xz"]], [t["xy"], t["yy"], t["yz"]], [t["xz"], t["yz"], t["zz"]]]
            )
            model.appendBodyToJoint(
                parent, pin.Inertia(link["mass_kg"], np.array(link["com_m"]), tensor), pin.SE3.Identity()
            )
    flange = pin.SE3(np.eye(3), np.array([0.0, 0.0, FLANGE_M]))
    model.addFrame(pin.Frame("flange", parent, flange, pin.FrameType.OP_FRAME))
    frame = 0
    if case is not None:
        mass, centre = case.tool
        model.appendBodyToJoint(parent, pin.Inertia(mass, centre, np.zeros((3, 3))), flange)
        edge = flange * pin.SE3(np.eye(3), case.edge)
        frame = model.addFrame(pin.Frame("edge", parent, edge, pin.FrameType.OP_FRAME))
    return model, model.createData(), frame


def _exponentials(q: np.ndarray) -> np.ndarray:
    """The same chain, turn by turn."""
    pose = np.broadcast_to(np.eye(4), (len(q), 4, 4))
    for (place, quarters), angle in zip(ORIGINS, q.T, strict=True):
        fixed = np.eye(4)
        fixed[:3, 3] = place
        fixed[1:3, 1:3] = [[0.0, -quarters], [quarters, 0.0]] if quarters else np.eye(2)
        spin = np.tile(np.eye(4), (len(q), 1, 1))
        spin[:, 0, 0] = spin[:, 1, 1] = np.cos(angle)
        spin[:, 1, 0] = np.sin(angle)
        spin[:, 0, 1] = -spin[:, 1, 0]
        pose = pose @ fixed @ spin
    end = np.eye(4)
    end[2, 3] = FLANGE_M
    return pose @ end


def _pinocchio() -> Any:
    try:
        import pinocchio
    except ImportError:
        return None
    return pinocchio
