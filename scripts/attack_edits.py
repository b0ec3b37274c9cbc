"""The edits of scripts.attack_certificate: of the joint files, the document, the motion and the settings."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from scripts.motion_judge import Case
from stages.export.cell import cell_of
from stages.export.demand import Demand, Fruit
from stages.export.export_files import AIR, TO_READY, TO_START, ExportFiles, Variant
from stages.export.inverse import JointMotion
from stages.export.motion_checks import cut_phase, edge_poses
from stages.export.package import Plan, document_of, plan_of
from stages.export.parting import Parting
from stages.export.recording_file import Recording
from stages.export.segments import CUT, PERIOD_S, EdgeMotion
from stages.export.waypoints import trajectory_of, waypoint_table
from stages.runtime.params import load_params
from stages.shared.robots.names import FOLDER
from stages.shared.robots.robot import load_robot

ROOT = Path(__file__).parents[1]
TOP_M, WIDTH_M = 0.03, 0.05
"""Of the synthetic fruit."""
START_M, STROKE_M, STROKE_S, STROKES = 0.036, 0.03, 0.3, 2
PEAK_N = 40.0

Array = np.ndarray
Edit = Callable[["Attack", float], "Attack"]


@dataclass(frozen=True)
class Attack:
    """An export in memory, and what it is held against."""

    files: ExportFiles
    demand: Demand

    def case(self) -> Case:
        """As plain numbers, for the judge."""
        params, files = self.demand.params, self.files
        start, end = cut_phase(files)
        yaw = np.deg2rad(params.blade_yaw_deg)
        along, up = np.array([np.cos(yaw), np.sin(yaw), 0.0]), np.array([0.0, 0.0, 1.0])
        turn = np.stack([np.cross(up, along), up, along], axis=1)
        fruit = self.demand.fruit
        return Case(
            motions={
                "cut": files.cut.joints,
                "air cut": files.air.joints,
                **{f"{v.name} to start": v.to_start for v in (files.cut, files.air)},
                **{f"{v.name} to ready": v.to_ready for v in (files.cut, files.air)},
            },
            board=np.array(params.board_position_m),
            yaw_rad=float(yaw),
            edge=np.array(params.edge_offset_m),
            least_height_m=params.min_board_clearance_m,
            fruit=(fruit.section_low_m, fruit.section_high_m, float(fruit.high_m[1])),
            half_blade_m=0.5 * params.cut.blade.length_m,
            cut=slice(start, end),
            force=self.demand.cut.force @ turn.T,
            tool=(params.tool_mass_kg, np.array(params.tool_com_m)),
            links=json.loads((FOLDER / f"{self.demand.robot.name}.json").read_text())["links"],
        )


def base_attack() -> Attack:
    """A synthetic cut of the Panda in the shipped cell that is certified."""
    params = load_params(ROOT / "params.yaml").export.changed(dwell_s=0.02, approach_height_m=0.01)
    angle = np.linspace(0.0, 2.0 * np.pi, 33)
    ring = np.stack([0.5 * WIDTH_M * np.cos(angle), 0.5 * TOP_M * (1.0 + np.sin(angle))], axis=1)
    half = 0.5 * WIDTH_M
    cut = _motion()
    demand = Demand(
        robot=load_robot("panda"),
        cell=cell_of(params),
        params=params,
        cut=cut,
        knife_of_motion=params.cut.knife_label,
        fruit=Fruit(
            np.array([-half, 0.0, -half]),
            np.array([half, TOP_M, half]),
            float(ring[:, 0].min()),
            float(ring[:, 0].max()),
            np.stack([ring[:-1], ring[1:]], axis=1),
            np.zeros((0, 3, 2)),
        ),
        parting=Parting(1.0, 1.0, cut.position[-1], 100, np.zeros(0)),
        provenance={},
        broken_links=(),
    )
    return exported(demand)


def exported(demand: Demand) -> Attack:
    """What export writes for the demand, in memory."""
    plan = plan_of(demand)
    return Attack(_files(plan, demand, document_of(plan, demand, scan_id="attack")), demand)


def _files(plan: Plan, demand: Demand, document: dict[str, Any]) -> ExportFiles:
    variants, tables = [], []
    for name, place, edge, joints in (
        ("cut", "", plan.edge, plan.joints),
        ("air cut", f"{AIR}/", plan.air, plan.air_joints),
    ):
        table = waypoint_table(edge, joints, demand.cell)
        trajectory = trajectory_of(table, demand.robot.joint_names)
        moves = (plan.moves[f"{place}{TO_START}"], plan.moves[f"{place}{TO_READY}"])
        variants.append(Variant(name, _rows(joints.position), trajectory, trajectory, *moves))
        tables.append(table)
    shown = _recording(tables[0], demand)
    return ExportFiles(Path(), document, tables[0], tables[0], tables[0], shown, *variants)


def _recording(table: pl.DataFrame, demand: Demand) -> Recording:
    """What motion.mcap says of the waypoints."""
    trajectory = trajectory_of(table, demand.robot.joint_names)
    turn = demand.cell.o_t_c[:3, :3]
    return Recording(
        trajectory.joint_names,
        trajectory.time_ns,
        trajectory.position,
        trajectory.velocity,
        np.zeros_like(trajectory.position),
        table["force_n"].to_numpy() @ turn,
        table["edge_position_m"].to_numpy(),
    )


def _rows(joints: Array) -> Array:
    return np.concatenate([PERIOD_S * np.arange(len(joints))[:, None], joints], axis=1)


def _motion() -> EdgeMotion:
    """Strokes along the blade from rest to rest while the edge goes down to the board."""
    count = round(STROKES * STROKE_S / PERIOD_S)
    time = np.arange(count + 1) / count
    down = [START_M * v for v in _quintic(time)]
    position, velocity, acceleration = (np.zeros((count + 1, 3)) for _ in range(3))
    seconds = STROKES * STROKE_S
    for out, values, power in zip((position, velocity, acceleration), down, (0, 1, 2), strict=True):
        out[:, 1] = (START_M if power == 0 else 0.0) - values / seconds**power
    stroke = np.minimum((time * STROKES).astype(int), STROKES - 1)
    steps = _quintic(time * STROKES - stroke)
    sign = np.where(stroke % 2 == 0, 1.0, -1.0)
    position[:, 2] = STROKE_M * np.where(stroke % 2 == 0, steps[0], 1.0 - steps[0]) - 0.5 * STROKE_M
    velocity[:, 2] = sign * STROKE_M * steps[1] / STROKE_S
    acceleration[:, 2] = sign * STROKE_M * steps[2] / STROKE_S**2
    inside = np.clip((TOP_M - position[:, 1]) / 0.01, 0.0, 1.0)
    force = PEAK_N * inside[:, None] * np.array([0.0, 1.0, 0.1])
    return EdgeMotion(position, velocity, acceleration, force, np.full(count + 1, CUT))


def _quintic(s: Array) -> tuple[Array, Array, Array]:
    return (
        s**3 * (10.0 + s * (6.0 * s - 15.0)),
        30.0 * s**2 * (1.0 - s) ** 2,
        60.0 * s * (1.0 - s) * (1.0 - 2.0 * s),
    )


# Edits of the joint files, with all copies renewed.


def _with_joints(base: Attack, which: int, joints: Array) -> Attack:
    """The cut (0) or the air cut (1) with other joints; waypoints and trajectories follow by differences."""
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
    trajectory = trajectory_of(table, demand.robot.joint_names)
    changed = replace(variant, rows=_rows(joints), from_yaml=trajectory, from_mcap=trajectory)
    if which == 1:
        return replace(base, files=replace(files, air=changed))
    same = {"waypoints": table, "csv_waypoints": table, "json_waypoints": table}
    return replace(base, files=replace(files, cut=changed, recording=_recording(table, demand), **same))


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
        row[begin:] += size * 200.0 * _quintic(np.clip((row[begin:] - begin) / 200.0, 0.0, 1.0))[0]
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
        files = replace(base.files, **{("cut", "air")[which]: changed})
        return replace(base, files=files)

    return edit, 1.0


# Edits of the document, the motion and the settings.


def _stated(generator: np.random.Generator) -> tuple[Edit, float]:
    """Numbers of cut.json that are not in other files: phases, lift, thresholds, frames, tool."""
    kind, sign = int(generator.integers(6)), generator.choice([-1.0, 1.0])
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
    """Other settings of the cell, within what params.yaml may say, exported as a whole."""
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
    )[generator.integers(12)]
    axis, sign = int(generator.integers(3)), generator.choice([-1.0, 1.0])

    def edit(base: Attack, size: float) -> Attack:
        value = getattr(base.demand.params, name)
        if isinstance(value, tuple):
            changed: Any = tuple(v + sign * size * reach * (i == axis) for i, v in enumerate(value))
        else:
            changed = abs(value + sign * size * reach) if "deg" not in name else value + sign * size * reach
        params = base.demand.params.changed(**{name: changed})
        return exported(replace(base.demand, params=params, cell=cell_of(params)))

    return edit, 1.0


EDITS: dict[str, tuple[Callable[[np.random.Generator], tuple[Edit, float]], int]] = {
    "joints, shaped": (_shaped, 12),
    "joints, retimed": (_retimed, 2),
    "joints, exchanged": (_exchanged, 2),
    "moves": (_moves, 1),
    "document": (_stated, 3),
    "motion": (_other_motion, 1),
    "settings": (_settings, 1),
}
"""Kind → what draws such an edit and its largest size, and how often. The last two solve the joints anew."""
