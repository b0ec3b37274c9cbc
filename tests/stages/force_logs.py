"""Synthetic force logs: a knife goes down through a made-up fruit, and the truth is known."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.ingest.description import IngestParams
from stages.runtime.params import load_params
from stages.shared.robots.robot import flange_pose, jacobian, load_robot

ROOT = Path(__file__).parents[2]
PANDA = load_robot("panda").table
PARAMS: IngestParams = load_params(ROOT / "params.yaml").ingest
START_M, LOWEST_M, CONTACT_M = 0.0767, 0.0100, 0.0500
"""Heights of the edge above the robot's base: at the start, at the end, and where the fruit begins."""
READY = np.array([0.0, 0.37, 0.0, -2.9, 0.0, 3.27, 0.785])
"""Joint angles with the flange pointing down [rad]."""


def with_params(**changes: object) -> IngestParams:
    return PARAMS.changed(**changes)


@dataclass
class SyntheticCut:
    """A recording, and the truth it was made from."""

    time_s: np.ndarray
    position_m: np.ndarray
    """Base frame, shape [n, 3]."""
    cutting_n: np.ndarray
    """True force on the knife, base frame, shape [n, 3]."""
    reading_n: np.ndarray
    """The same with what the arm reads in air, shape [n, 3]."""


def synthetic_cut(
    *, rate_hz: float = 200.0, air: bool = False, seed: int = 0, first_s: float = 0.0, noise_n: float = 0.1
) -> SyntheticCut:
    """Rest for 0.2 s, then down in 1.6 s; uneven samples; the arm reads −4 N at rest and +3 N when it moves."""
    rng = np.random.default_rng(seed)
    count = int(1.8 * rate_hz)
    time = np.linspace(0.0, 1.8, count) + rng.uniform(-0.3, 0.3, count) / rate_hz
    s = np.clip((time - 0.2) / 1.6, 0.0, 1.0)
    height = START_M - (START_M - LOWEST_M) * (s**2 * (1.5 - 0.5 * s))
    position = np.column_stack([np.full(count, 0.357), np.full(count, -0.05), height])
    depth = np.maximum(CONTACT_M - height, 0.0) * (not air)
    up = 25.0 * (1.0 - np.exp(-depth / 0.008))
    cutting = np.column_stack([0.2 * up, -0.1 * up, up])
    below = START_M - height
    in_air = np.column_stack(
        [0.3 + 0 * s, 0.1 + 0 * s, -4.0 + 7.0 * np.tanh(below / 0.002) + 0.5 * np.sin(below / 0.003)]
    )
    reading = cutting + in_air + rng.normal(0.0, noise_n, (count, 3))
    return SyntheticCut(time + first_s, position, cutting, reading)


def joints_of(cut: SyntheticCut) -> np.ndarray:
    """Joint angles that bring the flange to the positions, shape [n, 7]."""
    joints, row = [], READY
    for target in cut.position_m:
        for _ in range(30):
            error = target - flange_pose(PANDA, row[None])[0, :3, 3]
            if np.abs(error).max() < 1e-12:
                break
            row = row + np.linalg.pinv(jacobian(PANDA, row[None])[0, :3]) @ error
        joints.append(row)
    return np.array(joints)


def torques_of(cut: SyntheticCut, joints: np.ndarray) -> np.ndarray:
    """External torques in the robot's sign, which are Jᵀ of the force that it exerts, shape [n, 7]."""
    wrench = np.column_stack([-cut.reading_n, np.zeros((len(joints), 3))])
    return np.einsum("nij,ni->nj", jacobian(PANDA, joints), wrench)


def poses_of(cut: SyntheticCut) -> np.ndarray:
    """Column-major poses with the tool pointing down, shape [n, 16]."""
    poses = np.tile(np.diag([1.0, -1.0, -1.0, 1.0]), (len(cut.time_s), 1, 1))
    poses[:, :3, 3] = cut.position_m
    return poses.transpose(0, 2, 1).reshape(-1, 16)


def recording(cut: SyntheticCut) -> dict:
    """The control server's layout, with null fields as the real ones have."""
    return {
        "time": cut.time_s.tolist(),
        "O_T_EE": poses_of(cut).tolist(),
        "O_F_ext_hat_K": np.column_stack([-cut.reading_n, 0 * cut.reading_n]).tolist(),
        "force": None,
        "wrench": None,
        "datetime": "synthetic",
    }


def write_recording(path: Path, cut: SyntheticCut, **changes: object) -> Path:
    path.write_text(json.dumps({**recording(cut), **changes}))
    return path


def libfranka_text(cut: SyntheticCut, joints: np.ndarray, *, old: bool) -> str:
    """What logToCSV writes since 0.9.1, or before."""
    state = ("q", "q_d", "dq", "dq_d", "tau_J", "tau_ext_hat_filtered")
    command = (("q_d", 7), ("dq_d", 7), ("O_T_EE_d", 16), ("O_dP_EE_d", 6), ("tau_J_d", 7))
    if old:
        names = ["duration", "success rate", *(f"{n}[{i}]" for n in state for i in range(7))]
        header = (
            ", ".join(names)
            + ",sent commands,"
            + ", ".join(f"{n}[{i}]" for n, k in command for i in range(k))
        )
    else:
        names = ["time", "success_rate", *(f"state.{n}[{i}]" for n in state for i in range(7))]
        header = ",".join([*names, *(f"cmd.{n}[{i}]" for n, k in command for i in range(k))])
    other = np.full((len(joints), 7), 9.0)
    rows = np.column_stack([1e3 * cut.time_s, other[:, 0], joints, *[other] * 4, torques_of(cut, joints)])
    between = ",," if old else ","
    commands = ",".join(["8"] * 43)
    lines = [",".join(repr(float(cell)) for cell in row) + between + commands for row in rows]
    return "\n".join([header, *lines]) + "\n"


KTH_START_NS = 1588763858930413213
"""A time stamp of 2020, in ns: more digits than a 64-bit float has."""


def kth_tables(cut: SyntheticCut, *, delay_s: float = 0.0) -> dict[str, str]:
    """forces.txt and positions.txt of a KTH run; the stamps of the positions come `delay_s` later."""
    lead = "%time,field.header.seq,field.header.stamp,field.header.frame_id"
    force_columns = [f"field.wrench.{kind}.{axis}" for kind in ("force", "torque") for axis in "xyz"]
    columns = {"forces.txt": force_columns, "positions.txt": [f"field.vector.{axis}" for axis in "xyz"]}
    values = {"forces.txt": np.pad(cut.reading_n, ((0, 0), (0, 3))), "positions.txt": cut.position_m}
    tables = {}
    for name, names in columns.items():
        late = delay_s if name == "positions.txt" else 0.0
        stamps = [KTH_START_NS + round(1e9 * (t + late)) for t in cut.time_s.tolist()]
        rows = [
            ",".join([str(stamp + 150000), str(k), str(stamp), "", *map(repr, row)])
            for k, (stamp, row) in enumerate(zip(stamps, values[name].tolist(), strict=True))
        ]
        tables[name] = "\n".join([",".join([lead, *names]), *rows]) + "\n"
    return tables


def write_kth(path: Path, tables: dict[str, str]) -> Path:
    """A ZIP archive of the files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in tables.items():
            archive.writestr(name, text)
    return path
