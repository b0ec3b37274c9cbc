"""The export in memory that lab.attack.attack_certificate edits: a synthetic cut of the Panda that is certified."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lab.attack.motion_judge import Case, Sent
from stages.export.cell import cell_of
from stages.export.demand import Demand, Fruit, Parting
from stages.export.export_files import AIR, TO_READY, TO_START, ExportFiles, Variant
from stages.export.motion_checks import cut_phase
from stages.export.package import Plan, document_of, plan_of
from stages.export.trajectory_files import Recording, edge_axes
from stages.export.waypoints import CUT, PERIOD_S, EdgeMotion, trajectory_of, waypoint_table, whole_trajectory
from stages.runtime.params import load_params
from stages.shared.robots.robot import FOLDER, load_robot

ROOT = Path(__file__).parents[2]
TOP_M, WIDTH_M = 0.03, 0.05
"""Of the synthetic fruit."""
START_M, STROKE_M, STROKE_S, STROKES = 0.036, 0.03, 0.3, 2
PEAK_N = 40.0

Array = np.ndarray


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
        fruit, said = self.demand.fruit, files.document
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
            blade_rad=float(np.deg2rad(params.blade_angle_deg)),
            pitch_rad=self.demand.cut.pitch,
            least_height_m=params.min_board_clearance_m,
            fruit=(fruit.section_low_m, fruit.section_high_m, float(fruit.high_m[1])),
            half_blade_m=0.5 * params.cut.blade.length_m,
            cut=slice(start, end),
            force=self.demand.cut.force @ turn.T,
            couple=self.demand.cut.torque @ turn.T,
            tool=(self.demand.cell.tool_mass_kg, self.demand.cell.tool_com_m),
            links=json.loads((FOLDER / f"{self.demand.robot.name}.json").read_text())["links"],
            stiffness_nm_rad=params.joint_stiffness_nm_rad,
            deflection_m=params.max_deflection_m,
            sent=Sent(
                said["tool"]["mass_kg"],
                np.array(said["tool"]["com_in_flange_m"], float),
                np.array(said["frames"]["F_T_E"], float)[:3, 3],
                np.array(said["limits"]["acceleration_rad_s2"], float),
                said["demand"]["params"]["joint_stiffness_nm_rad"],
            ),
        )


def base_attack() -> Attack:
    """A synthetic cut of the Panda in the shipped cell that is certified."""
    params = load_params(ROOT / "params.yaml").export.changed(dwell_s=0.1, approach_height_m=0.01)
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
    return Attack(files(plan, demand, document_of(plan, demand, scan_id="attack")), demand)


def files(plan: Plan, demand: Demand, document: dict[str, Any]) -> ExportFiles:
    """As they would be read back."""
    variants, tables = [], []
    for name, place, edge, joints in (
        ("cut", "", plan.edge, plan.joints),
        ("air cut", f"{AIR}/", plan.air, plan.air_joints),
    ):
        table = waypoint_table(edge, joints, demand.cell)
        moves = (plan.moves[f"{place}{TO_START}"], plan.moves[f"{place}{TO_READY}"])
        trajectory = whole_trajectory(table, *moves, demand.robot.joint_names)
        variants.append(Variant(name, rows(joints.position), trajectory, trajectory, *moves))
        tables.append(table)
    shown = recording(tables[0], demand)
    return ExportFiles(Path(), document, tables[0], tables[0], tables[0], shown, *variants)


def recording(table: pl.DataFrame, demand: Demand) -> Recording:
    """What motion.mcap says of the waypoints."""
    trajectory = trajectory_of(table, demand.robot.joint_names)
    return Recording(
        trajectory.joint_names,
        trajectory.time_ns,
        trajectory.position,
        trajectory.velocity,
        np.zeros_like(trajectory.position),
        np.einsum("nji,nj->ni", edge_axes(table, demand.cell), table["force_n"].to_numpy()),
        table["edge_position_m"].to_numpy(),
    )


def rows(joints: Array) -> Array:
    """As in motion_1khz.csv."""
    return np.concatenate([PERIOD_S * np.arange(len(joints))[:, None], joints], axis=1)


def _motion() -> EdgeMotion:
    """Strokes along the blade from rest to rest while the edge goes down to the board."""
    count = round(STROKES * STROKE_S / PERIOD_S)
    time = np.arange(count + 1) / count
    down = [START_M * v for v in quintic(time)]
    position, velocity, acceleration = (np.zeros((count + 1, 3)) for _ in range(3))
    seconds = STROKES * STROKE_S
    for out, values, power in zip((position, velocity, acceleration), down, (0, 1, 2), strict=True):
        out[:, 1] = (START_M if power == 0 else 0.0) - values / seconds**power
    stroke = np.minimum((time * STROKES).astype(int), STROKES - 1)
    steps = quintic(time * STROKES - stroke)
    sign = np.where(stroke % 2 == 0, 1.0, -1.0)
    position[:, 2] = STROKE_M * np.where(stroke % 2 == 0, steps[0], 1.0 - steps[0]) - 0.5 * STROKE_M
    velocity[:, 2] = sign * STROKE_M * steps[1] / STROKE_S
    acceleration[:, 2] = sign * STROKE_M * steps[2] / STROKE_S**2
    inside = np.clip((TOP_M - position[:, 1]) / 0.01, 0.0, 1.0)
    force = PEAK_N * inside[:, None] * np.array([0.0, 1.0, 0.1])
    return EdgeMotion(position, velocity, acceleration, force, np.full(count + 1, CUT))


def quintic(s: Array) -> tuple[Array, Array, Array]:
    """A step from 0 to 1 with rest at both ends, and its derivatives."""
    return (
        s**3 * (10.0 + s * (6.0 * s - 15.0)),
        30.0 * s**2 * (1.0 - s) ** 2,
        60.0 * s * (1.0 - s) * (1.0 - 2.0 * s),
    )
