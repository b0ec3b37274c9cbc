"""Edge motion at 1 kHz, the 100 Hz waypoints as table, CSV and JSON rows, and the 1 kHz joint file."""

import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.export.cell import Cell
from stages.export.description import ExportParams
from stages.export.inverse import JointMotion
from stages.export.trajectory_files import NANOSECONDS, Trajectory
from stages.runtime.errors import InputError

# Edge motion at 1 kHz: rest, approach, rest, cut, rest, retract, rest


PERIOD_S = 1e-3
"""Period of the robot's control loop [s]."""
WAYPOINT_STRIDE = 10
"""Samples per waypoint: 100 Hz. The motion is a whole number of these."""
CUT = "cut"


@dataclass(frozen=True)
class EdgeMotion:
    """The edge in the cutting frame, one row per millisecond; shape [n, 3] except phase and pitch."""

    position: NDArray[np.float64]
    """Position [m]."""
    velocity: NDArray[np.float64]
    """Velocity [m/s]."""
    acceleration: NDArray[np.float64]
    """Acceleration [m/s²]."""
    force: NDArray[np.float64]
    """Predicted force on the knife [N]."""
    phase: NDArray[np.str_]
    """rest, approach, cut or retract, shape [n]."""
    pitch: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Angle of the knife about x [rad], shape [n]; positive lowers the blade's +z end. Empty: it does not turn."""
    torque: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """Predicted moment of the force about the edge's centre [Nm], shape [n, 3]. Empty: none."""

    def __post_init__(self) -> None:
        if not len(self.pitch):
            object.__setattr__(self, "pitch", np.zeros(len(self.position)))
        if not len(self.torque):
            object.__setattr__(self, "torque", np.zeros_like(self.position))

    def __len__(self) -> int:
        return len(self.position)

    @property
    def turns(self) -> bool:
        """Whether the knife leaves its upright direction."""
        return bool(self.pitch.any())


def whole_motion(cut: EdgeMotion, params: ExportParams, *, lift_m: float = 0.0) -> EdgeMotion:
    """Return the cut between approach and retract, all raised by lift_m [m] (then without force)."""
    first, last = cut.position[0], cut.position[-1]
    top = first[1] + params.approach_height_m
    begin, end = float(cut.pitch[0]), float(cut.pitch[-1])
    pieces = [
        _rest(np.array([first[0], top, first[2]]), params.dwell_s, begin),
        _vertical(first, top, first[1], params, "approach", begin),
        _rest(first, params.dwell_s, begin),
        cut,
        _rest(last, params.dwell_s, end),
        _vertical(last, last[1], top, params, "retract", end),
        _rest(np.array([last[0], top, last[2]]), params.dwell_s, end),
    ]
    count = sum(map(len, pieces))
    missing = -(count - 1) % WAYPOINT_STRIDE
    pieces.append(_rest(pieces[-1].position[-1], missing * PERIOD_S, end))
    joined = EdgeMotion(
        *(np.concatenate([getattr(p, name) for p in pieces]) for name in EdgeMotion.__dataclass_fields__)
    )
    if lift_m == 0.0:
        return joined
    return EdgeMotion(
        joined.position + np.array([0.0, lift_m, 0.0]),
        joined.velocity,
        joined.acceleration,
        np.zeros_like(joined.force),
        joined.phase,
        joined.pitch,
    )


def _rest(position: NDArray[np.float64], duration_s: float, pitch: float) -> EdgeMotion:
    count = round(duration_s / PERIOD_S)
    zero = np.zeros((count, 3))
    return EdgeMotion(
        np.tile(position, (count, 1)), zero, zero, zero, np.full(count, "rest"), np.full(count, pitch)
    )


def _vertical(
    origin: NDArray[np.float64], start_m: float, end_m: float, params: ExportParams, phase: str, pitch: float
) -> EdgeMotion:
    """Return a vertical jerk-limited move from rest to rest; its end samples belong to the neighbours."""
    import ruckig

    generator = ruckig.Ruckig(1, PERIOD_S)
    request = ruckig.InputParameter(1)
    request.current_position, request.target_position = [start_m], [end_m]
    request.max_velocity = [params.approach_speed_m_s]
    request.max_acceleration = [params.approach_acceleration_m_s2]
    request.max_jerk = [params.approach_jerk_m_s3]
    request.duration_discretization = ruckig.DurationDiscretization.Discrete
    trajectory = ruckig.Trajectory(1)
    if generator.calculate(request, trajectory) not in (ruckig.Result.Working, ruckig.Result.Finished):
        raise InputError(
            f"No {phase} from height {start_m:.4f} m to {end_m:.4f} m is possible. Speed, acceleration and jerk of "
            "export.approach_* must allow one. Raise them."
        )
    times = PERIOD_S * np.arange(1, round(trajectory.duration / PERIOD_S))
    height, speed, push = (np.array([trajectory.at_time(t)[i][0] for t in times]) for i in range(3))
    zero = np.zeros((len(times), 3))
    position = np.tile(origin, (len(times), 1))
    position[:, 1] = height
    up = np.array([0.0, 1.0, 0.0])
    return EdgeMotion(
        position,
        speed[:, None] * up,
        push[:, None] * up,
        zero,
        np.full(len(times), phase),
        np.full(len(times), pitch),
    )


JOINT_RATES = ("q_rad", "dq_rad_s", "ddq_rad_s2")
_TORQUE = "torque_nm"


def _vector_widths(joint_count: int, *, turns: bool) -> dict[str, int]:
    """Return the columns of the waypoints besides time_s and phase; edge and force in the robot's base frame.

    A knife that turns also has the moment of the force about the edge's centre.
    """
    return {
        "edge_position_m": 3,
        "edge_velocity_m_s": 3,
        "edge_acceleration_m_s2": 3,
        "edge_quaternion_xyzw": 4,
        **dict.fromkeys(JOINT_RATES, joint_count),
        "force_n": 3,
        **({_TORQUE: 3} if turns else {}),
    }


def _joint_columns(joint_count: int) -> list[str]:
    """Return the columns of the 1 kHz file [s, rad]."""
    return ["t", *(f"q{i + 1}" for i in range(joint_count))]


def waypoint_table(edge: EdgeMotion, joints: JointMotion, cell: Cell) -> pl.DataFrame:
    """Return every tenth sample of the motion."""
    from scipy.spatial.transform import Rotation

    turn, origin = cell.o_t_c[:3, :3], cell.o_t_c[:3, 3]
    count = len(edge)
    turned = Rotation.from_matrix(turn) * Rotation.from_rotvec(np.outer(edge.pitch, [1.0, 0.0, 0.0]))
    upright = np.tile(Rotation.from_matrix(turn).as_quat(), (count, 1))
    columns = {
        "edge_position_m": edge.position @ turn.T + origin,
        "edge_velocity_m_s": edge.velocity @ turn.T,
        "edge_acceleration_m_s2": edge.acceleration @ turn.T,
        "edge_quaternion_xyzw": turned.as_quat() if edge.pitch.any() else upright,
        "q_rad": joints.position,
        "dq_rad_s": joints.velocity,
        "ddq_rad_s2": joints.acceleration,
        "force_n": edge.force @ turn.T,
        _TORQUE: edge.torque @ turn.T,
    }
    pick = slice(0, count, WAYPOINT_STRIDE)
    widths = _vector_widths(joints.position.shape[1], turns=edge.turns)
    return pl.DataFrame(
        [
            pl.Series("time_s", (PERIOD_S * np.arange(count))[pick], pl.Float64),
            pl.Series("phase", edge.phase[pick].tolist(), pl.String),
            *(pl.Series(k, columns[k][pick] + 0.0, pl.Array(pl.Float64, n)) for k, n in widths.items()),
        ]
    )


def waypoint_rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Convert the table to JSON rows."""
    return table.to_dicts()


def table_of_rows(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Convert JSON rows to a table."""
    schema: dict[str, Any] = {"time_s": pl.Float64, "phase": pl.String}
    widths = _vector_widths(len(rows[0]["q_rad"]) if rows else 0, turns=bool(rows) and _TORQUE in rows[0])
    return pl.DataFrame(rows, schema=schema | {k: pl.Array(pl.Float64, n) for k, n in widths.items()})


def parquet_bytes(table: pl.DataFrame) -> bytes:
    """Convert the table to Parquet."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def csv_bytes(table: pl.DataFrame) -> bytes:
    """Convert the table to CSV with one column per number, exact."""
    names, columns = ["time_s"], [table["time_s"].to_numpy()[:, None]]
    for name, width in _vector_widths(
        table["q_rad"].to_numpy().shape[1], turns=_TORQUE in table.columns
    ).items():
        names += [f"{name}[{i}]" for i in range(width)]
        columns.append(table[name].to_numpy())
    lines = _lines(np.concatenate(columns, axis=1))
    phases = table["phase"].to_list()
    body = [f"{line},{phase}" for line, phase in zip(lines, phases, strict=True)]
    return ("\n".join([",".join([*names, "phase"]), *body]) + "\n").encode()


def table_of_csv(data: bytes) -> pl.DataFrame:
    """Read the table from such a CSV."""
    flat = pl.read_csv(io.BytesIO(data), infer_schema=False)
    names = [name for name in flat.columns if name != "phase"]
    widths = _vector_widths(sum(name.startswith("q_rad[") for name in names), turns=f"{_TORQUE}[0]" in names)
    numbers = {name: np.array([float(v) for v in flat[name].to_list()]) for name in names}
    return pl.DataFrame(
        [
            pl.Series("time_s", numbers["time_s"], pl.Float64),
            flat["phase"],
            *(
                pl.Series(
                    k, np.stack([numbers[f"{k}[{i}]"] for i in range(n)], axis=1), pl.Array(pl.Float64, n)
                )
                for k, n in widths.items()
            ),
        ]
    )


def joint_csv_bytes(joints: NDArray[np.float64]) -> bytes:
    """Return every sample: time [s] and joints [rad], exact; fewer digits would disturb the jerk."""
    time = PERIOD_S * np.arange(len(joints))
    rows = np.concatenate([time[:, None], joints], axis=1)
    return ("\n".join([",".join(_joint_columns(joints.shape[1])), *_lines(rows)]) + "\n").encode()


def joint_rows(data: bytes) -> NDArray[np.float64]:
    """Return time and joints of a 1 kHz file, shape [n, 1 + joint_count]; raise ValueError if it isn't one."""
    head, *lines = data.decode().splitlines()
    columns = head.split(",")
    if columns != _joint_columns(len(columns) - 1):
        raise ValueError(f"the columns are {head}")
    rows = np.array([[float(value) for value in line.split(",")] for line in lines])
    return rows.reshape(-1, len(columns))


def trajectory_of(table: pl.DataFrame, joint_names: tuple[str, ...]) -> Trajectory:
    """Return the joint waypoints of the table."""
    return Trajectory(
        joint_names,
        np.rint(table["time_s"].to_numpy() * NANOSECONDS).astype(np.int64),
        *(table[name].to_numpy() for name in JOINT_RATES),
    )


def whole_trajectory(
    table: pl.DataFrame,
    to_start: NDArray[np.float64],
    to_ready: NDArray[np.float64],
    joint_names: tuple[str, ...],
) -> Trajectory:
    """Return the trajectory to play: from the ready pose to the start, the waypoints of the table, and back."""
    motion = [table[name].to_numpy() for name in JOINT_RATES]
    before, after = central_rates(to_start), central_rates(to_ready)
    joined = [
        np.concatenate([a[:-1:WAYPOINT_STRIDE], b, c[WAYPOINT_STRIDE::WAYPOINT_STRIDE]])
        for a, b, c in zip(before, motion, after, strict=True)
    ]
    time = NANOSECONDS // 1000 * WAYPOINT_STRIDE * np.arange(len(joined[0]), dtype=np.int64)
    return Trajectory(joint_names, time, *joined)


def torque_of(table: pl.DataFrame) -> NDArray[np.float64]:
    """Return the moment of the force about the edge's centre [Nm], shape [n, 3], of waypoints or of a motion."""
    return table[_TORQUE].to_numpy() if _TORQUE in table.columns else np.zeros((len(table), 3))


def central_rates(q: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return joints [rad] at 1 kHz with velocity and acceleration by central differences; they rest at both ends."""
    dq, ddq = np.zeros_like(q), np.zeros_like(q)
    dq[1:-1] = (q[2:] - q[:-2]) / (2.0 * PERIOD_S)
    ddq[1:-1] = (q[2:] - 2.0 * q[1:-1] + q[:-2]) / PERIOD_S**2
    return q, dq, ddq


def _lines(rows: NDArray[np.float64]) -> list[str]:
    """Format numbers exactly, as Python does: zero is 0.0, which type-guessing readers take for a float."""
    return [",".join(map(repr, row)) for row in rows.tolist()]
