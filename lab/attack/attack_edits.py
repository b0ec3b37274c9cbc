"""The edits of lab.attack.attack_certificate: of the joint files, the document, the motion and the settings."""

import copy
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from lab.attack.attack_export import Array, Attack, exported, quintic, recording, rows
from stages.export.cell import cell_of, flange_targets
from stages.export.demand import with_moment
from stages.export.inverse import JointMotion, choose_posture, solve
from stages.export.load_checks import force_on_knife, thresholds
from stages.export.motion_checks import edge_poses, in_cutting_frame
from stages.export.waypoints import CUT, PERIOD_S, EdgeMotion, waypoint_table, whole_trajectory
from stages.shared.robots.robot import load_robot

Edit = Callable[[Attack, float], Attack]


# Edits of the joint files, with all copies renewed.


def _with_joints(base: Attack, which: int, joints: Array) -> Attack:
    """The cut (0) or the air cut (1) with other joints; waypoints and trajectories follow by differences.

    Start pose and collision thresholds in the document are renewed as well.
    """
    files, demand = base.files, base.demand
    variant = (files.cut, files.air)[which]
    speed, push = np.zeros_like(joints), np.zeros_like(joints)
    speed[1:-1] = (joints[2:] - joints[:-2]) / (2.0 * PERIOD_S)
    push[1:-1] = (joints[2:] - 2.0 * joints[1:-1] + joints[:-2]) / PERIOD_S**2
    edge = edge_poses(joints, demand)[:, :3, 3] - demand.cell.o_t_c[:3, 3]
    local = edge @ demand.cell.o_t_c[:3, :3]
    count = len(joints)
    shown = EdgeMotion(
        local, np.zeros((count, 3)), np.zeros((count, 3)), np.zeros((count, 3)), np.full(count, CUT)
    )
    table = waypoint_table(shown, JointMotion(joints, speed, push), demand.cell)
    trajectory = whole_trajectory(table, variant.to_start, variant.to_ready, demand.robot.joint_names)
    changed = replace(variant, rows=rows(joints), from_yaml=trajectory, from_mcap=trajectory)
    document = copy.deepcopy(files.document)
    (document["air_cut"] if which else document)["start_pose_rad"] = joints[0].tolist()
    if which == 1:
        files = replace(files, document=document, air=changed)
    else:
        files = replace(
            files,
            document=document,
            cut=changed,
            recording=recording(table, demand),
            waypoints=table,
            csv_waypoints=table,
            json_waypoints=table,
        )
    force = np.zeros((count, 3)) if which else force_on_knife(files, demand)
    limits = asdict(thresholds(demand.robot, demand.cell, joints, force))
    document["collision"][("cut", "air_cut")[which]] = limits
    return replace(base, files=files)


def _shaped(generator: np.random.Generator) -> tuple[Edit, float]:
    """A bump, step, spike, drift or noise on one joint of the cut or the air cut."""
    which, joint = int(generator.integers(2)), int(generator.integers(7))
    kind = ("bump", "step", "spike", "drift", "noise", "offset")[generator.integers(6)]
    middle, width = generator.uniform(0.05, 0.95), 10.0 ** generator.uniform(-2.5, -0.5)
    sign, noise = generator.choice([-1.0, 1.0]), int(generator.integers(2**31))

    def edit(base: Attack, size: float) -> Attack:
        q = (base.files.cut, base.files.air)[which].joints.copy()
        s = np.linspace(0.0, 1.0, len(q))
        shape = {
            "bump": np.clip(1.0 - ((s - middle) / width) ** 2, 0.0, None) ** 4,
            "step": (s > middle).astype(float),
            "spike": np.eye(len(q))[int(middle * len(q))],
            "drift": s,
            "noise": np.random.default_rng(noise).normal(size=len(q)),
            "offset": np.ones(len(q)),
        }[kind]
        q[:, joint] += sign * size * shape
        return _with_joints(base, which, q)

    return edit, 1.0


def _retimed(generator: np.random.Generator) -> tuple[Edit, float]:
    """The cut played faster in a part of it, or with samples left out."""
    which, first = int(generator.integers(2)), generator.uniform(0.1, 0.8)

    def edit(base: Attack, size: float) -> Attack:
        q = (base.files.cut, base.files.air)[which].joints
        row = np.arange(len(q), dtype=float)
        begin = int(first * len(q))
        row[begin:] += size * 200.0 * quintic(np.clip((row[begin:] - begin) / 200.0, 0.0, 1.0))[0]
        row = np.minimum(row, len(q) - 1)
        low = np.floor(row).astype(int)
        share = (row - low)[:, None]
        high = np.minimum(low + 1, len(q) - 1)
        return _with_joints(base, which, (1.0 - share) * q[low] + share * q[high])

    return edit, 1.0


def _exchanged(generator: np.random.Generator) -> tuple[Edit, float]:
    """Two joints exchanged, rounded, or the motion backwards."""
    which = int(generator.integers(2))
    first, second = generator.choice(7, 2, replace=False)
    kind, digits = int(generator.integers(3)), int(generator.integers(3, 16))

    def edit(base: Attack, size: float) -> Attack:
        q = (base.files.cut, base.files.air)[which].joints.copy()
        if kind == 0:
            q[:, [first, second]] = q[:, [second, first]]
        elif kind == 1:
            q = np.round(q, digits)
        else:
            q = q[::-1]
        return _with_joints(base, which, q + 0.0 * size)

    return edit, 1.0


def _moves(generator: np.random.Generator) -> tuple[Edit, float]:
    """A bump on a move from or to the ready pose, or a faster move."""
    which, joint = int(generator.integers(2)), int(generator.integers(7))
    name = ("to_start", "to_ready")[generator.integers(2)]
    faster, sign = generator.random() < 0.3, generator.choice([-1.0, 1.0])

    def edit(base: Attack, size: float) -> Attack:
        variant = (base.files.cut, base.files.air)[which]
        q = getattr(variant, name)
        if faster:
            stride = 1.0 + 9.0 * size
            row = np.minimum(np.arange(0, int(len(q) / stride) + 2) * stride, len(q) - 1)
            q = np.stack([np.interp(row, np.arange(len(q)), column) for column in q.T], axis=1)
        else:
            s = np.linspace(-1.0, 1.0, len(q))
            q = q.copy()
            q[:, joint] += sign * size * np.clip(1.0 - s**2, 0.0, None) ** 4
        changed = replace(variant, **{name: q})
        files = replace(base.files, air=changed) if which else replace(base.files, cut=changed)
        return replace(base, files=files)

    return edit, 1.0


def _detour(generator: np.random.Generator) -> tuple[Edit, float]:
    """The edge elsewhere for a while, in height or along the blade, in approach and retract too; the knife upright."""
    which, axis = int(generator.integers(2)), int(generator.integers(1, 3))
    middle, width = generator.uniform(0.0, 1.0), 10.0 ** generator.uniform(-1.5, -0.3)
    sign = generator.choice([-1.0, 1.0])

    def edit(base: Attack, size: float) -> Attack:
        demand = base.demand
        q = (base.files.cut, base.files.air)[which].joints
        edge = in_cutting_frame(edge_poses(q, demand), demand)
        s = np.linspace(0.0, 1.0, len(edge))
        edge[:, axis] += sign * size * np.clip(1.0 - ((s - middle) / width) ** 2, 0.0, None) ** 4
        return _with_edge(base, which, edge)

    return edit, 0.02


def _with_edge(base: Attack, which: int, edge: Array) -> Attack:
    """The cut (0) or the air cut (1) along other places of the edge [m], solved with the export's own posture."""
    cell, robot = base.demand.cell, base.demand.robot
    cut = in_cutting_frame(edge_poses(base.files.cut.joints, base.demand), base.demand)
    middle = 0.5 * (cut.min(axis=0) + cut.max(axis=0))
    posture = choose_posture(robot, flange_targets(cell, middle[None])[0])
    return _with_joints(base, which, solve(posture, flange_targets(cell, edge)))


# Edits of the document, the motion and the settings.


def _stated(generator: np.random.Generator) -> tuple[Edit, float]:
    """Numbers of cut.json that are not in other files: phases, lift, thresholds, frames, tool, limits, stiffness."""
    kind, sign = int(generator.integers(9)), generator.choice([-1.0, 1.0])
    place = int(generator.integers(12))

    def edit(base: Attack, size: float) -> Attack:
        document = copy.deepcopy(base.files.document)
        if kind == 0:
            phase = next(p for p in document["timing"]["phases"] if p["phase"] == CUT)
            phase[("start_s", "end_s")[place % 2]] += sign * round(size * 300) * PERIOD_S
        elif kind == 1:
            document["air_cut"]["lift_m"] += sign * size * 0.06
        elif kind == 2:
            channels = document["collision"][("cut", "air_cut")[place % 2]]["torque_nm"]
            channels[place % len(channels)] *= max(0.0, 1.0 + sign * 3.0 * size)
        elif kind == 3:
            matrix = document["frames"][("O_T_C", "F_T_E")[place % 2]]
            matrix[place % 3][place // 3] += sign * size
        elif kind == 4:
            tool = document["tool"]
            tool[("mass_kg", "blade_length_m", "blade_height_m")[place % 3]] *= 1.0 + sign * size
        elif kind == 5:
            document["tool"]["com_in_flange_m"][place % 3] += sign * size
        elif kind == 6:
            document["limits"]["acceleration_rad_s2"][place % 7] *= 1.0 + 3.0 * size
        elif kind == 7:
            document["demand"]["params"]["joint_stiffness_nm_rad"] *= 1.0 - 0.99 * size
        else:
            document["timing"]["samples"] += round(sign * size * 100)
        return replace(base, files=replace(base.files, document=document))

    return edit, 1.0


def _other_motion(generator: np.random.Generator) -> tuple[Edit, float]:
    """Another motion, exported as a whole: faster, wider, lower, aside, with another force, or inconsistent."""
    kind, sign = int(generator.integers(7)), generator.choice([-1.0, 1.0])

    def edit(base: Attack, size: float) -> Attack:
        cut = base.demand.cut
        p, v, a, f = cut.position.copy(), cut.velocity.copy(), cut.acceleration.copy(), cut.force.copy()
        if kind == 0:  # wider strokes
            for values in (p, v, a):
                values[:, 2] *= 1.0 + 4.0 * size
        elif kind == 1:  # lower or higher
            p[:, 1] += sign * size * 0.03
        elif kind == 2:  # beside the plane
            p[:, 0] += sign * size * 0.05
        elif kind == 3:  # along the blade
            p[:, 2] += sign * size * 0.1
        elif kind == 4:  # another force
            f *= 1.0 + sign * (1.0 if sign < 0 else 8.0) * size
        elif kind == 5:  # speeds that are not those of the positions
            v *= 1.0 + sign * size
        else:  # faster
            keep = np.unique(np.linspace(0, len(p) - 1, int(len(p) / (1.0 + 2.0 * size)) + 1).astype(int))
            factor = (len(p) - 1) / (len(keep) - 1)
            p, v, a, f = p[keep], v[keep] * factor, a[keep] * factor**2, f[keep]
        other = EdgeMotion(p, v, a, f, np.full(len(p), CUT))
        parting = replace(base.demand.parting, end_position_m=p[-1])
        return exported(replace(base.demand, cut=other, parting=parting))

    return edit, 1.0


def _settings(generator: np.random.Generator) -> tuple[Edit, float]:
    """Other settings of the cell, within what params.yaml may say, exported as a whole; or held against the old one."""
    name, reach = (
        ("board_position_m", 0.4),
        ("edge_offset_m", 0.2),
        ("fixture_low_m", 0.2),
        ("fixture_high_m", 0.2),
        ("tool_com_m", 0.3),
        ("blade_yaw_deg", 180.0),
        ("blade_angle_deg", 180.0),
        ("tool_mass_kg", 2.5),
        ("air_cut_lift_m", 0.2),
        ("approach_height_m", 0.3),
        ("min_board_clearance_m", 0.04),
        ("approach_jerk_m_s3", 400.0),
        ("joint_stiffness_nm_rad", 14000.0),
        ("max_deflection_m", 0.05),
        ("robot", 1.0),
    )[generator.integers(15)]
    axis, sign = int(generator.integers(3)), generator.choice([-1.0, 1.0])
    elsewhere = generator.random() < 0.5

    def edit(base: Attack, size: float) -> Attack:
        params = base.demand.params
        value = getattr(params.arm if name == "robot" else params, name)
        value = (
            getattr(base.demand.cell, name) if value is None else value
        )  # mass and centre of the knife's file
        if isinstance(value, str):
            changed: Any = "fr3"
        elif isinstance(value, tuple | np.ndarray):
            changed = tuple(v + sign * size * reach * (i == axis) for i, v in enumerate(value))
        else:
            changed = abs(value + sign * size * reach) if "deg" not in name else value + sign * size * reach
        params = params.changed(**{name: changed})
        robot = load_robot(params.arm.robot)
        other = exported(replace(base.demand, robot=robot, params=params, cell=cell_of(params)))
        # The judge knows the Panda's limits only: a cut of the FR3 is held against the Panda's cell.
        return replace(base, files=other.files) if elsewhere or name == "robot" else other

    return edit, 1.0


def _turned(generator: np.random.Generator) -> tuple[Edit, float]:
    """The knife turned in its plane for a while: exported as a whole, or held against the upright motion."""
    middle, width = generator.uniform(0.0, 1.0), 10.0 ** generator.uniform(-1.0, 0.0)
    sign, elsewhere = generator.choice([-1.0, 1.0]), generator.random() < 0.3

    def edit(base: Attack, size: float) -> Attack:
        demand = base.demand
        s = np.linspace(0.0, 1.0, len(demand.cut))
        pitch = sign * size * np.clip(1.0 - ((s - middle) / width) ** 2, 0.0, None) ** 4
        cut = with_moment(replace(demand.cut, pitch=pitch), demand.fruit, demand.cell.blade_length_m)
        other = exported(replace(demand, cut=cut))
        return replace(base, files=other.files) if elsewhere else other

    return edit, 0.5


EDITS: dict[str, tuple[Callable[[np.random.Generator], tuple[Edit, float]], int]] = {
    "joints, shaped": (_shaped, 12),
    "joints, retimed": (_retimed, 2),
    "joints, exchanged": (_exchanged, 2),
    "joints, detour": (_detour, 2),
    "moves": (_moves, 1),
    "document": (_stated, 3),
    "motion": (_other_motion, 1),
    "turning": (_turned, 1),
    "settings": (_settings, 1),
}
"""Kind → what draws such an edit and its largest size, and how often. Detours and the last three solve joints anew."""
