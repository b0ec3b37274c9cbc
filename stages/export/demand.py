"""The demand an export is checked against: cell, optimised motion, fruit and simulated cut."""

import io
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.export.cell import Cell, cell_of, pitched
from stages.export.checks import Check, holds
from stages.export.description import ExportParams
from stages.export.export_files import MOTION, ExportFiles, bounded_table, named
from stages.export.waypoints import CUT, PERIOD_S, WAYPOINT_STRIDE, EdgeMotion, torque_of, whole_motion
from stages.runtime.errors import InputError
from stages.shared.robots.robot import Robot, limits_of, load_robot

# Optimised motion: exactly one row per millisecond


_SHORTEST = 10
"""Minimum number of rows."""
_GRID_S = 1e-9
_PITCH = "pitch_rad"
"""Column of a knife that turns; absent from a motion that does not."""
_LARGEST_PITCH_RAD = np.deg2rad(45.0)
"""Beyond it the blade cuts with its end rather than with its edge."""


def cut_of(table: pl.DataFrame) -> EdgeMotion:
    """Return the cut of the table optimize/motion; raise InputError if its rows are not 1 ms apart."""
    time = table["time_s"].to_numpy()
    if len(time) < _SHORTEST:
        raise InputError(
            f"The motion has {len(time)} rows. It needs at least {_SHORTEST}. Run optimize again."
        )
    off = np.abs(time - time[0] - PERIOD_S * np.arange(len(time)))
    if off.max() > _GRID_S:
        row = int((off > _GRID_S).argmax())
        raise InputError(
            f"The motion's row {row} is at {time[row]:.6f} s, {1e3 * off[row]:.3g} ms off the 1 ms grid. The robot "
            "needs exactly one row per millisecond. Run optimize again."
        )
    position, velocity, acceleration, force = (
        table[name].to_numpy() for name in ("position_m", "velocity_m_s", "acceleration_m_s2", "force_n")
    )
    bad = ~np.isfinite(np.concatenate([position, velocity, acceleration, force], axis=1)).all(axis=1)
    if bad.any():
        raise InputError(
            f"The motion's row {int(bad.argmax())} has NaN or infinity. All values must be finite. Run optimize again."
        )
    pitch = table[_PITCH].to_numpy() if _PITCH in table.columns else np.zeros(len(time))
    torque = torque_of(table) if pitch.any() else np.zeros_like(force)
    if not (
        np.isfinite(pitch).all() and np.isfinite(torque).all() and np.abs(pitch).max() <= _LARGEST_PITCH_RAD
    ):
        raise InputError(
            f"The motion turns the knife by up to {np.degrees(np.abs(pitch).max()):.3g}° from upright. At most "
            f"{np.degrees(_LARGEST_PITCH_RAD):.0f}° are allowed, and all values must be finite. Run optimize again."
        )
    return EdgeMotion(position, velocity, acceleration, force, np.full(len(time), CUT), pitch, torque)


# Material the simulated cut left uncut, from the tables of the stage replay


_WHOLE = 0.5
"""A spring with more than this fraction of its stiffness counts as uncut."""
_LINES = 200
"""Number of heights at which the section's width is evaluated."""


@dataclass(frozen=True)
class Parting:
    """State at the end of the simulated cut."""

    cut_fraction: float
    """Fraction of the springs' stiffness that is gone."""
    reached_fraction: float
    """Same for the springs above the final height of the edge, with equal weights."""
    end_position_m: NDArray[np.float64]
    """Position of the simulated knife at the last frame [m], shape [3]."""
    springs: int
    whole_heights_m: NDArray[np.float64]
    """Heights above the board, before the cut, of the uncut springs [m], ascending."""
    inverted_tets: int = 0
    """Largest number of elements of the simulated body that were inside out at once."""
    rigid_tops_m: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))
    """Upper outline (z, y) of rigid regions beside the cut plane [m], shape [count, 2]."""

    def remains(self) -> str:
        """Describe the uncut springs."""
        count = len(self.whole_heights_m)
        if count == 0:
            return f"none of {self.springs} springs remains"
        low, high = (f"{1e3 * height:.1f}" for height in self.whole_heights_m[[0, -1]])
        where = low if low == high else f"{low} to {high}"
        return f"{count} of {self.springs} springs remain, {where} mm above the board"


def parting_of(
    frames: pl.DataFrame, springs: pl.DataFrame, inverted_tets: int = 0, rigid_tops: str = "[]"
) -> Parting:
    """Return the parting from the tables replay/frames and replay/springs, and from notes of the first."""
    last = len(frames) - 1
    before = springs.filter(pl.col("frame") == 0)["plus_m"].to_numpy()[:, 1]
    remaining = springs.filter(pl.col("frame") == last)["remaining_fraction"].to_numpy()
    end = frames["knife_position_m"].to_numpy()[last]
    reached = before > end[1]
    return Parting(
        cut_fraction=float(frames["cut_fraction"][last]),
        reached_fraction=1.0 - float(remaining[reached].mean()) if reached.any() else 0.0,
        end_position_m=end,
        springs=len(remaining),
        whole_heights_m=np.sort(before[remaining > _WHOLE].astype(np.float64)),
        inverted_tets=inverted_tets,
        rigid_tops_m=np.array(json.loads(rigid_tops), float).reshape(-1, 2),
    )


def area_below(section: NDArray[np.float64], height_m: float) -> float:
    """Return the area of the cut section below a height above the board [m²]; section: outline as in Fruit.section."""
    low, high = float(section[..., 1].min()), min(height_m, float(section[..., 1].max()))
    if high <= low:
        return 0.0
    step = (high - low) / _LINES
    heights = low + step * (np.arange(_LINES) + 0.5)
    return step * sum(_width(section, height) for height in heights)


def _width(section: NDArray[np.float64], height: float) -> float:
    """Return the section's width at a height [m]: between the first and second crossing, the third and fourth, ..."""
    first, second = section[:, 0], section[:, 1]
    crossed = (first[:, 1] > height) != (second[:, 1] > height)
    a, b = first[crossed], second[crossed]
    crossings = np.sort(a[:, 0] + (height - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0]))
    pairs = len(crossings) // 2
    return float((crossings[1 : 2 * pairs : 2] - crossings[0 : 2 * pairs : 2]).sum())


@dataclass(frozen=True)
class Fruit:
    """The body on the board, in the cutting frame."""

    low_m: NDArray[np.float64]
    """Lower corner of its bounding box [m], shape [3]."""
    high_m: NDArray[np.float64]
    section_low_m: float
    """Start of its cut section along the blade [m]."""
    section_high_m: float
    section: NDArray[np.float64]
    """Segments of the section's outline as (z, y) [m], shape [n, 2, 2]."""
    silhouette: NDArray[np.float64]
    """All triangles of the surface as (z, y) [m], shape [n, 3, 2]."""


@dataclass(frozen=True)
class Demand:
    """Everything the certificate compares the files with."""

    robot: Robot
    cell: Cell
    params: ExportParams
    cut: EdgeMotion
    knife_of_motion: str
    """Knife for which the motion was optimised."""
    fruit: Fruit
    parting: Parting
    """Material the simulated cut of the motion left uncut."""
    provenance: dict[str, str]
    """Path → sha256 of everything upstream, computed from the files."""
    broken_links: tuple[str, ...]
    """Files that differ from what was recorded when they were used."""
    force_calibrated: bool = True
    """Whether a force log of this fruit was fitted; otherwise all forces are estimates from the library."""

    @property
    def level(self) -> bool:
        """Whether the whole edge is always as high as its centre: straight, untilted, and the motion does not turn."""
        return self.cell.level and not self.cut.turns

    @property
    def looked_at_m(self) -> tuple[float, ...]:
        """Places along the blade where speed and deflection are checked, from the edge's centre."""
        half = 0.5 * self.cell.blade_length_m
        return (0.0,) if self.level else (-half, 0.0, half)


def fruit_of(vertices: NDArray[np.float64], faces: NDArray[np.int32]) -> Fruit:
    """Return the fruit of a closed surface [m] whose cut plane is x = 0."""
    side = vertices[:, 0] >= 0.0
    crossed = faces[side[faces].any(axis=1) & ~side[faces].all(axis=1)]
    if len(crossed) == 0:
        raise InputError(
            f"The body reaches from x = {vertices[:, 0].min():.4f} to {vertices[:, 0].max():.4f} m, so the knife at "
            "x = 0 misses it. The cut plane must go through the body. Change halve.offset_m."
        )
    points = [[_crossing(vertices, f[i], f[(i + 1) % 3], side) for i in range(3)] for f in crossed]
    segments = np.array([[p for p in three if p is not None] for three in points])
    along = segments[..., 0]
    return Fruit(
        vertices.min(axis=0),
        vertices.max(axis=0),
        float(along.min()),
        float(along.max()),
        segments,
        vertices[faces][..., [2, 1]],
    )


def with_moment(cut: EdgeMotion, fruit: Fruit, blade_m: float) -> EdgeMotion:
    """Return a turning cut with the moment of its force: as predicted, else that of a force in the section's middle."""
    if not cut.pitch.any() or cut.torque.any():
        return cut
    middle = 0.5 * (fruit.section_low_m + fruit.section_high_m)
    along = np.clip((middle - cut.position[:, 2]) / np.cos(cut.pitch), -0.5 * blade_m, 0.5 * blade_m)
    arm = pitched(cut.pitch)[:, :, 2] * along[:, None]
    return replace(cut, torque=np.cross(arm, cut.force))


def _crossing(
    vertices: NDArray[np.float64], a: int, b: int, side: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """Return the intersection of the edge a-b with x = 0, as (z, y), if there is one."""
    if side[a] == side[b]:
        return None
    share = vertices[a, 0] / (vertices[a, 0] - vertices[b, 0])
    point = vertices[a] + share * (vertices[b] - vertices[a])
    return point[[2, 1]]


# Robot, tool, timing and poses in cut.json: written by the export, compared with the cell by check 6


def robot_part(robot: Robot) -> dict[str, Any]:
    """Return names, client, file and kinematics of the robot."""
    return {
        "name": robot.name,
        "title": robot.title,
        "joint_names": list(robot.joint_names),
        "control": asdict(robot.control),
        "file_sha256": robot.file_sha256,
        "origin": robot.origin,
        "dh": {
            "convention": "Craig (modified), one row per joint, then the flange along z",
            "a_m": robot.table.a_m.tolist(),
            "d_m": robot.table.d_m.tolist(),
            "alpha_rad": robot.table.alpha_rad.tolist(),
            "theta_rad": robot.table.theta_rad.tolist(),
            "flange_m": robot.table.flange_m,
        },
    }


def tool_part(cell: Cell) -> dict[str, Any]:
    """Return knife, fixture and load."""
    return {
        "knife": cell.knife,
        "blade_length_m": cell.blade_length_m,
        "blade_height_m": cell.blade_height_m,
        "fixture_low_m": cell.fixture_low_m.tolist(),
        "fixture_high_m": cell.fixture_high_m.tolist(),
        "mass_kg": cell.tool_mass_kg,
        "com_in_flange_m": cell.tool_com_m.tolist(),
    }


def timing_part(edge: EdgeMotion) -> dict[str, Any]:
    """Return samples and phases of the whole motion."""
    starts = [0, *(np.flatnonzero(edge.phase[1:] != edge.phase[:-1]) + 1).tolist()]
    ends = [*(s - 1 for s in starts[1:]), len(edge) - 1]
    return {
        "period_s": PERIOD_S,
        "samples": len(edge),
        "waypoint_period_s": PERIOD_S * WAYPOINT_STRIDE,
        "phases": [
            {"phase": str(edge.phase[s]), "start_s": PERIOD_S * s, "end_s": PERIOD_S * e}
            for s, e in zip(starts, ends, strict=True)
        ],
    }


def pose_parts(demand: Demand, start: np.ndarray, air_start: np.ndarray) -> dict[str, Any]:
    """Return the ready pose and the air cut's height; start poses of cut and air cut [rad]."""
    return {
        "ready_pose_rad": demand.robot.ready_pose_rad.tolist(),
        "start_pose_rad": start.tolist(),
        "air_cut": {"lift_m": demand.params.air_cut_lift_m, "start_pose_rad": air_start.tolist()},
    }


def says_what_is_so(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check 6: values in cut.json that the run script uses are those of cell, robot, motion and joint files."""
    poses = [variant.joints[0] for variant in (files.cut, files.air)]
    expected = {
        "robot": robot_part(demand.robot),
        "tool": tool_part(demand.cell),
        "limits": limits_of(demand.robot),
        "timing": timing_part(whole_motion(demand.cut, demand.params)),
        **pose_parts(demand, *poses),
    }
    stated_parts = {name: files.document.get(name) for name in expected}
    expected["settings"] = demand.params.model_dump(mode="json")
    stated_parts["settings"] = files.document["demand"].get("params")
    plain = json.loads(json.dumps(expected))
    differ = [name for name, part in plain.items() if stated_parts[name] != part]
    return [
        holds(
            6,
            "cut.json agrees with cell, robot and motion",
            not differ,
            f"differs: {', '.join(differ)}" if differ else ", ".join(plain),
            remedy="The file belongs to another cell, robot or motion, or was changed; export again",
        )
    ]


# The demand as stated in the export's own files, so that the folder can be checked anywhere


def stated(demand: Demand) -> dict[str, Any]:
    """Return settings, fruit and the uncut material for cut.json."""
    fruit, parting = demand.fruit, demand.parting
    return {
        "params": demand.params.model_dump(mode="json"),
        "knife_of_motion": demand.knife_of_motion,
        "force_calibrated": demand.force_calibrated,
        "fruit": {
            "low_m": fruit.low_m.tolist(),
            "high_m": fruit.high_m.tolist(),
            "section_m": fruit.section.tolist(),
        },
        "parting": {
            "cut_fraction": _plain(parting.cut_fraction),
            "reached_fraction": _plain(parting.reached_fraction),
            "end_position_m": parting.end_position_m.tolist(),
            "springs": parting.springs,
            "whole_heights_m": parting.whole_heights_m.tolist(),
            "inverted_tets": parting.inverted_tets,
            **({"rigid_tops_m": parting.rigid_tops_m.tolist()} if len(parting.rigid_tops_m) else {}),
        },
    }


_MOTION_COLUMNS = ("position_m", "velocity_m_s", "acceleration_m_s2", "force_n")


def motion_bytes(cut: EdgeMotion) -> bytes:
    """Return the optimised motion at 1 kHz with its predicted force, as Parquet."""
    names = _MOTION_COLUMNS
    columns = (cut.position, cut.velocity, cut.acceleration, cut.force)
    frame = pl.DataFrame(
        [
            pl.Series("time_s", PERIOD_S * np.arange(len(cut)), pl.Float64),
            *(pl.Series(n, c, pl.Array(pl.Float64, 3)) for n, c in zip(names, columns, strict=True)),
            *(
                [pl.Series(_PITCH, cut.pitch), pl.Series("torque_nm", cut.torque, pl.Array(pl.Float64, 3))]
                * cut.turns
            ),
        ]
    )
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def demand_of_files(folder: Path, document: dict[str, Any]) -> Demand:
    """Return the demand as stated in the folder; the robot is that of this release's data file."""
    stated_demand = document["demand"]
    params = ExportParams.model_validate(stated_demand["params"])
    fruit, parting = stated_demand["fruit"], stated_demand["parting"]
    section = np.array(fruit["section_m"], float)
    return Demand(
        robot=load_robot(params.arm.robot),
        cell=cell_of(params),
        params=params,
        cut=cut_of(named(folder / MOTION, _motion_table)),
        knife_of_motion=stated_demand["knife_of_motion"],
        force_calibrated=bool(stated_demand.get("force_calibrated", True)),
        fruit=Fruit(
            np.array(fruit["low_m"], float),
            np.array(fruit["high_m"], float),
            float(section[..., 0].min()),
            float(section[..., 0].max()),
            section,
            np.zeros((0, 3, 2)),
        ),
        parting=Parting(
            _number(parting["cut_fraction"]),
            _number(parting["reached_fraction"]),
            np.array(parting["end_position_m"], float),
            int(parting["springs"]),
            np.array(parting["whole_heights_m"], float),
            int(parting.get("inverted_tets", 0)),
            np.array(parting.get("rigid_tops_m", []), float).reshape(-1, 2),
        ),
        provenance=document["provenance"]["upstream_sha256"],
        broken_links=(),
    )


def _motion_table(path: Path) -> pl.DataFrame:
    """Read motion.parquet; raise ValueError if it has other columns than the export writes."""
    table = bounded_table(path)
    plain = ["time_s", *_MOTION_COLUMNS]
    if table.columns not in (plain, [*plain, _PITCH, "torque_nm"]):
        raise ValueError(f"its columns are {', '.join(table.columns)}")
    return table


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
