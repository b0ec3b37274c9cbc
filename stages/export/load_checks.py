"""Check 5: torques with the predicted cutting force, deflection of the edge, and collision thresholds."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import Cell
from stages.export.checks import Check, at_least, at_most
from stages.export.cut_stream import LOUD_SAMPLES, SMOOTH, stopping_cycles
from stages.export.demand import Demand
from stages.export.dynamics import deflection, edge_torques, joint_torques
from stages.export.export_files import ExportFiles
from stages.export.inverse import JointMotion
from stages.export.motion_checks import cut_phase, edge_poses, in_cutting_frame, lowest_heights
from stages.export.waypoints import PERIOD_S, central_rates
from stages.shared.library.library import AMPLITUDE_SPREAD, NINETY
from stages.shared.robots.robot import Robot, flange_pose, jacobian

TORQUE_SHARE = 0.7
UPPER_BAND = float(np.exp(NINETY * AMPLITUDE_SPREAD))
"""Force below which 95 of 100 cuts stay, relative to the prediction: the amplitude of the next cut is uncertain."""
WEAKER = (
    "Use another knife (cut.knife), move the board closer (export.board_position_m), or use a stronger arm"
)
STIFFER = "Raise export.joint_stiffness_nm_rad, use another knife, or raise export.max_deflection_m if you accept it"
SOFT_NM_RAD = 3000.0
"""libfranka's usual joint stiffness, for comparison."""
_BESIDE_M = 0.0025
"""Distance of the bent edge from the cut plane: a knife farther aside cuts another slice and wedges."""
_TORQUE_RATE_NM_S = 1000.0
"""Franka's limit."""
_FORCE_CYCLES = 20
"""Cycles over which the predicted force is averaged: 50 Hz, above the bandwidth of a stiff joint controller."""
_TARE_SAMPLES = 100


def loads(files: ExportFiles, demand: Demand) -> list[Check]:
    """Run check 5."""
    robot, cell, params = demand.robot, demand.cell, demand.params
    pushed, turned = (UPPER_BAND * load for load in load_on_knife(files, demand))
    used, in_air = (
        np.abs(joint_torques(robot, cell, _central(q), force, couple)).max(axis=0) / robot.torque_nm
        for q, force, couple in (
            (files.cut.joints, pushed, turned),
            (files.air.joints, np.zeros((len(files.air.joints), 3)), None),
        )
    )
    bent = UPPER_BAND * max(
        float(np.linalg.norm(_deflection(files, demand, params.joint_stiffness_nm_rad, along), axis=1).max())
        for along in demand.looked_at_m
    )
    return [
        at_most(
            5,
            "torque with the cutting force",
            used.max(),
            TORQUE_SHARE,
            "of the limit",
            f"joint {used.argmax() + 1}; {UPPER_BAND:.2f} of the predicted force (95 of 100 cuts stay below); rigid "
            "links and tool, no friction, no rotor inertia",
            remedy=WEAKER,
        ),
        at_most(
            5,
            "air cut: torque",
            in_air.max(),
            TORQUE_SHARE,
            "of the limit",
            f"joint {in_air.argmax() + 1}",
            remedy="Correct mass_kg and com_m of the knife, or move the board closer (export.board_position_m)",
        ),
        at_most(
            5,
            f"deflection at {params.joint_stiffness_nm_rad:g} Nm/rad",
            float(bent),
            params.max_deflection_m,
            "m",
            f"under {UPPER_BAND:.2f} of the predicted force",
            remedy=STIFFER,
        ),
        at_most(
            5,
            "edge beside the cut plane, path and deflection together",
            _beside(files, demand),
            _BESIDE_M,
            "m",
            f"at {params.joint_stiffness_nm_rad:g} Nm/rad, which the run script sets",
            remedy=STIFFER,
        ),
        *_torque_rates(files, demand),
        at_least(
            5,
            "readings at rest before the cut, for the tare of the force",
            round(params.dwell_s / PERIOD_S),
            _TARE_SAMPLES,
            "samples",
            remedy="Raise export.dwell_s: noise in the tare shifts the stop force",
        ),
    ]


def _beside(files: ExportFiles, demand: Demand) -> float:
    """Return the largest distance of the bent edge from the cut plane during the cut [m]."""
    start, end = cut_phase(files)
    bent = UPPER_BAND * _deflection(files, demand, demand.params.joint_stiffness_nm_rad)[start:end]
    edge = in_cutting_frame(edge_poses(files.cut.joints[start:end], demand), demand)
    return float((np.abs(edge[:, 0]) + np.abs(bent @ demand.cell.o_t_c[:3, 0])).max())


def _torque_rates(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check the change of the motor torques per cycle; the force over the cut only, beyond which none is predicted."""
    start, end = cut_phase(files)
    zero = np.zeros((len(files.air.joints), 3))
    checks = []
    for name, q, force in (
        ("cut", files.cut.joints, np.zeros((len(files.cut.joints), 3))),
        ("air cut", files.air.joints, zero),
    ):
        torque = joint_torques(demand.robot, demand.cell, _central(q), force)
        if name == "cut":
            pushed, turned = load_on_knife(files, demand)
            felt = edge_torques(demand.robot, demand.cell, q[start:end], pushed[start:end], turned[start:end])
            torque = torque[start:end] - _smoothed(felt)
        rate = np.abs(np.diff(torque, axis=0)).max(axis=0) / PERIOD_S
        checks.append(
            at_most(
                5,
                f"{name}: torque rate",
                float(rate.max()),
                _TORQUE_RATE_NM_S,
                "Nm/s",
                f"joint {rate.argmax() + 1}; the predicted force as a mean over {_FORCE_CYCLES} ms",
                remedy="Lower optimize.max_acceleration_* or max_speed_m_s",
            )
        )
    return checks


def _smoothed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over _FORCE_CYCLES rows: the arm's compliance passes no faster change to its motors."""
    padded = np.concatenate([values[:1]] * _FORCE_CYCLES + [values])
    sums = np.cumsum(padded, axis=0)
    return np.asarray((sums[_FORCE_CYCLES:] - sums[:-_FORCE_CYCLES]) / _FORCE_CYCLES)


def load_figures(files: ExportFiles, demand: Demand) -> dict[str, Any]:
    """Return the loads the operator has to expect."""
    force = force_on_knife(files, demand)
    soft = np.linalg.norm(_deflection(files, demand, SOFT_NM_RAD), axis=1).max()
    stiff = np.linalg.norm(_deflection(files, demand, demand.params.joint_stiffness_nm_rad), axis=1).max()
    return {
        "peak_force_n": float(np.linalg.norm(force, axis=1).max()),
        "joint_stiffness_nm_rad": demand.params.joint_stiffness_nm_rad,
        "deflection_m": float(stiff),
        "deflection_at_3000_nm_rad_m": float(soft),
        "end_lift_m": _end_lift(files, demand),
        **(_stopping(files, demand) if demand.robot.control.run_script else {}),
    }


def _end_lift(files: ExportFiles, demand: Demand) -> float:
    """Return the lift of the edge above its path under the predicted force at the end of the cut [m]."""
    last = cut_phase(files)[1] - 1
    return float(_deflection(files, demand, demand.params.joint_stiffness_nm_rad)[last, 2])


def force_on_knife(files: ExportFiles, demand: Demand) -> NDArray[np.float64]:
    """Return the force on the knife in the base frame [N], shape [n, 3], at every sample of the file."""
    return load_on_knife(files, demand)[0]


def load_on_knife(files: ExportFiles, demand: Demand) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return that force, and its moment about the edge's centre in the base frame [Nm], shape [n, 3]."""
    loads = np.zeros((2, len(files.cut.rows), 3))
    start, end = cut_phase(files)
    for load, predicted in zip(loads, (demand.cut.force, demand.cut.torque), strict=True):
        load[start:end] = predicted[: end - start] @ demand.cell.o_t_c[:3, :3].T
    return loads[0], loads[1]


def _deflection(
    files: ExportFiles, demand: Demand, stiffness: float, along_m: float = 0.0
) -> NDArray[np.float64]:
    force, couple = load_on_knife(files, demand)
    return deflection(
        demand.robot, demand.cell, files.cut.joints, force, stiffness, couple=couple, along_m=along_m
    )


def _central(q: NDArray[np.float64]) -> JointMotion:
    """Return derivatives of the file by central differences; it rests at both ends."""
    return JointMotion(*central_rates(q))


# Collision thresholds: above the predicted reading of the arm, below that of a collision


FACTOR = 1.3
"""Ratio of thresholds to the predicted load: cuts vary."""
_READS_HIGH = 1.08
"""Scale error of the arm, which measures known masses 6 to 8 % too high."""
_BIAS_N = 10.0
"""Reading without contact: 3 to 5.6 N at rest, up to 3.7 N in the opposite direction when moving in air."""
_FLOOR_NM = 3.0
"""Added to every torque and moment: friction and error of the arm's own model."""
_COLLISION_N = 120.0
"""Push on the edge, along any axis and at any time, at which the run script must stop the arm."""
_STOP_N = 5.0
"""Added to the force at which the run script stops."""
_STONE = 1.25
"""Force of an obstacle relative to the stop force, for the stopping distance; a harder one is felt earlier."""
_STOP_DEPTH_M = 0.02
"""Depth that the knife may go on after it has met an obstacle."""
_EXACT = 1e-6
_STRIDE = 20


@dataclass(frozen=True)
class _Thresholds:
    """Thresholds of the robot's collision behaviour and of the run script."""

    torque_nm: list[float]
    """One per joint."""
    force_n: list[float]
    """Force [N] along x, y, z, then moment about the flange [Nm]; valid in the base's and the edge's axes."""
    stop_force_n: float
    """Norm of the measured force at which the run script stops."""


def thresholds(
    robot: Robot,
    cell: Cell,
    joints: NDArray[np.float64],
    force: NDArray[np.float64],
    couple: NDArray[np.float64] | None = None,
) -> _Thresholds:
    """Return thresholds for joints [rad], shape [n, joint_count], and the predicted force on the edge.

    force: in the base frame [N], shape [n, 3]; couple: its moment about the edge's centre [Nm], shape [n, 3].
    """
    read, bias = _read(robot, cell, joints, force, couple)
    count = joints.shape[1]
    stop = FACTOR * float(np.linalg.norm(force, axis=1).max()) + _BIAS_N + _STOP_N
    # The run script decelerates at its stop force, whatever its direction; the robot's reflex, an emergency stop with
    # the knife in the fruit, comes after it. The robot's reading is not tared.
    needed = np.maximum(FACTOR * read, _STONE * stop / _BIAS_N * bias)
    limits = needed + bias + np.array([_FLOOR_NM] * count + [0.0] * 3 + [_FLOOR_NM] * 3)
    return _Thresholds(limits[:count].tolist(), limits[count:].tolist(), stop)


def _first_reflex(
    robot: Robot, cell: Cell, joints: NDArray[np.float64], limits: NDArray[np.float64]
) -> float:
    """Return the smallest push [N] on the edge, in any direction and on top of the bias, that exceeds a threshold."""
    _, bias = _read(robot, cell, joints, np.zeros((len(joints), 3)))
    return float(((limits - bias) / (bias / _BIAS_N)).min())


def stopping(
    joints: NDArray[np.float64], demand: Demand, cut: slice, stop_force_n: float
) -> dict[str, float]:
    """Return time [s] and depth [m] until the run script has stopped the knife, at the worst place of the cut.

    The obstacle pushes with _STONE times the stop force. The script's mean rises, counts LOUD_SAMPLES readings above
    the limit, and the arm decelerates within its limits.
    """
    path, limits = joints.tolist(), demand.robot.acceleration_rad_s2.tolist()
    heights = lowest_heights(edge_poses(joints, demand), demand)
    felt = int(np.ceil(np.log(1.0 - 1.0 / _STONE) / np.log(1.0 - SMOOTH))) + LOUD_SAMPLES
    longest, deepest = 0, 0.0
    for met in range(cut.start, cut.stop, _STRIDE):
        slowing = stopping_cycles(path, min(met + felt, len(path) - 1), limits)
        end = min(met + felt + int(np.ceil(0.5 * slowing)), len(path) - 1)  # half the speed on average
        longest = max(longest, felt + slowing)
        deepest = max(deepest, float(heights[met] - heights[met : end + 1].min()))
    return {"stop_force_n": stop_force_n, "stop_time_s": PERIOD_S * longest, "stop_depth_m": deepest}


def plain(cut: _Thresholds, air: _Thresholds) -> dict[str, Any]:
    """Return the form for cut.json."""
    return {"cut": asdict(cut), "air_cut": asdict(air)}


def collisions(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check that the file's thresholds let the predicted motion pass and stop a collision; cut and air cut."""
    checks = []
    pushed, turned = load_on_knife(files, demand)
    for key, variant, force, couple in (
        ("cut", files.cut, pushed, turned),
        ("air_cut", files.air, np.zeros((len(files.air.joints), 3)), None),
    ):
        stated = files.document["collision"][key]
        limits = np.array([*stated["torque_nm"], *stated["force_n"]], float)
        read, bias = _read(demand.robot, demand.cell, variant.joints, force, couple)
        peak = float(np.linalg.norm(force, axis=1).max())
        room = min(
            float((limits - _READS_HIGH * read - bias).min()),
            float(stated["stop_force_n"]) - _READS_HIGH * peak - _BIAS_N,
        )
        needed_thresholds = thresholds(demand.robot, demand.cell, variant.joints, force, couple)
        needed = np.array(
            [*needed_thresholds.torque_nm, *needed_thresholds.force_n, needed_thresholds.stop_force_n]
        )
        excess = float((np.array([*limits, float(stated["stop_force_n"])]) - needed).max())
        reflex = _first_reflex(demand.robot, demand.cell, variant.joints, limits)
        stop = float(stated["stop_force_n"])
        backup = _stopping_push(demand.robot, demand.cell, variant.joints, limits)
        push = max((backup - _BIAS_N) / _STONE, stop)
        checks += [
            at_least(
                5,
                f"{variant.name}: collision thresholds above what the prediction reads",
                room,
                0.0,
                "N or Nm",
                remedy="The arm would stop by itself; export again",
            ),
            at_most(
                5,
                f"{variant.name}: collision thresholds beyond what the motion needs",
                excess,
                _EXACT,
                "N or Nm",
                remedy="A collision would be detected too late; export again",
            ),
            at_least(
                5,
                f"{variant.name}: push that trips the robot's reflex, in any direction",
                reflex,
                _STONE * float(stated["stop_force_n"]) - _EXACT,
                "N",
                f"the run script stops before it, also on an obstacle of {_STONE:g} times its stop force",
                remedy="The robot's emergency stop would come before the controlled one; export again",
            ),
            at_most(
                5,
                f"{variant.name}: push on the edge that stops the arm",
                push,
                _COLLISION_N,
                "N",
                f"by the run script at {stop:.0f} N, by the robot itself at {backup:.0f} N",
                remedy="The predicted force is too high to distinguish a collision from it; use another knife",
            ),
        ]
    if not demand.robot.control.run_script:
        return checks  # another program moves this arm, and stops it
    depth = _stopping(files, demand)["stop_depth_m"]
    return [
        *checks,
        at_most(
            5,
            "depth after an obstacle until the arm has stopped",
            depth,
            _STOP_DEPTH_M,
            "m",
            f"obstacle of {_STONE:g} times the stop force at the worst place",
            remedy="Lower optimize.max_speed_m_s",
        ),
    ]


def _stopping(files: ExportFiles, demand: Demand) -> dict[str, float]:
    stop = float(files.document["collision"]["cut"]["stop_force_n"])
    return stopping(files.cut.joints, demand, slice(*cut_phase(files)), stop)


def _stopping_push(
    robot: Robot, cell: Cell, joints: NDArray[np.float64], limits: NDArray[np.float64]
) -> float:
    """Return the push [N] on the edge that exceeds a threshold at any time and along any base axis."""
    linear = np.abs(jacobian(robot.table, joints[::_STRIDE], cell.f_t_e)[:, :3])
    count = joints.shape[1]
    by_torque = (limits[:count] / np.maximum(linear, 1e-12)).min(axis=2)
    return float(np.minimum(by_torque, limits[count : count + 3]).max())


def _read(
    robot: Robot,
    cell: Cell,
    joints: NDArray[np.float64],
    force: NDArray[np.float64],
    couple: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest predicted reading of all channels (joints, force, moment), and the effect of BIAS_N."""
    flange = flange_pose(robot.table, joints)[:, :3, :3]
    turn = flange @ cell.f_t_e[:3, :3]
    if np.abs(turn - cell.o_t_c[:3, :3]).max() < _EXACT:  # upright throughout
        turn, flange = cell.o_t_c[None, :3, :3], flange[:1]
    arm = flange @ cell.f_t_e[:3, 3]
    moment = np.cross(arm, force) + (0.0 if couple is None else couple)
    torque = np.abs(edge_torques(robot, cell, joints, force, couple)).max(axis=0)
    lever = np.linalg.norm(jacobian(robot.table, joints[::_STRIDE], cell.f_t_e)[:, :3], axis=1).max(axis=0)
    sizes = [np.maximum(np.abs(v), np.abs((v[:, None] @ turn)[:, 0])).max(axis=0) for v in (force, moment)]
    reach = float(np.linalg.norm(arm[0]))
    return (
        np.concatenate([torque, *sizes]),
        _BIAS_N * np.concatenate([lever, np.ones(3), np.full(3, reach)]),
    )
