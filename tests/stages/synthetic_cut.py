"""A synthetic slicing motion over a synthetic fruit, as the tables that export reads. Nothing here was measured."""

from pathlib import Path

import numpy as np
import polars as pl
import torch
import trimesh

from disect_sim.motions import SlicingMotion
from stages.export.demand import Demand, Parting
from stages.export.description import ExportParams
from stages.export.export import Exported, _demand_of, export
from stages.export.export_files import Chain
from stages.runtime.params import load_params

ROOT = Path(__file__).parents[2]
PARAMS = load_params(ROOT / "params.yaml").export
_CHAIN = Chain({"optimize/motion.parquet": "0" * 64}, ())
"""Of hashes upstream, of which there are none here."""
FRUIT_HEIGHT_M = 0.06
END_HEIGHT_M = 0.001

Body = tuple[pl.DataFrame, pl.DataFrame]


def motion_table(
    *,
    duration: float = 1.5,
    amplitude: np.ndarray | float = 0.06,
    frequency: np.ndarray | float = 8.0,
    start_m: float = 0.07,
    end_m: float = END_HEIGHT_M,
    window_s: float = 0.15,
    force_n: float = 40.0,
    z_m: float = 0.0,
) -> pl.DataFrame:
    """The table optimize/motion of a slicing motion that descends from start_m to end_m and is centred at z_m."""
    time = torch.arange(round(duration * 1000) + 1, dtype=torch.float64) * 1e-3
    options = {
        "duration": duration,
        "initial_y": start_m,
        "amplitude": amplitude,
        "frequency": frequency,
        "window_s": window_s,
    }
    probe = SlicingMotion(velocity_y=-1.0, **options)
    path = probe.poses(time.numpy())
    middle = 0.5 * (path[:, 2].min() + path[:, 2].max())
    speed = -(start_m - end_m) / (start_m - path[-1, 1])
    motion = SlicingMotion(velocity_y=speed, initial_z=z_m - middle, **options)
    parameters = {k: torch.as_tensor(v) for k, v in motion.parameters.items()}
    return table_of(
        time.numpy(),
        motion.poses(time.numpy()),
        _three(motion.velocities(time, parameters).numpy()),
        _three(motion.accelerations(time, parameters).numpy()),
        force_n,
    )


def table_of(
    time: np.ndarray, position: np.ndarray, velocity: np.ndarray, acceleration: np.ndarray, force_n: float
) -> pl.DataFrame:
    """The table, with a force [N] that pushes the knife up and back while it is in the fruit."""
    inside = np.clip((FRUIT_HEIGHT_M - position[:, 1]) / 0.01, 0.0, 1.0)
    force = force_n * inside[:, None] * np.array([0.0, 1.0, 0.0])
    force[:, 2] -= 0.3 * force_n * inside * np.tanh(velocity[:, 2] / 0.01)
    columns = {
        "position_m": position,
        "velocity_m_s": velocity,
        "acceleration_m_s2": acceleration,
        "force_n": force,
    }
    return pl.DataFrame(
        [
            pl.Series("time_s", time, pl.Float64),
            *(pl.Series(name, values, pl.Array(pl.Float64, 3)) for name, values in columns.items()),
        ]
    )


def turning(motion: pl.DataFrame, degrees: float, *, end_degrees: float = 0.0) -> pl.DataFrame:
    """The motion with a knife that rocks by `degrees` in the middle of the cut and ends it at another angle."""
    share = np.clip((np.linspace(0.0, 1.0, len(motion)) - 0.05) / 0.9, 0.0, 1.0)
    rise = share**3 * (10.0 + share * (6.0 * share - 15.0))
    pitch = np.deg2rad(degrees) * np.sin(np.pi * share) ** 4 + np.deg2rad(end_degrees) * rise
    return motion.with_columns(pl.Series("pitch_rad", pitch, pl.Float64))


def parting_at_end(motion: pl.DataFrame, *, cut_fraction: float = 0.99) -> Parting:
    """A simulated cut that follows the motion to its end and leaves one spring near the board."""
    return Parting(cut_fraction, 1.0, motion["position_m"].to_numpy()[-1], 100, np.array([0.0008]))


def replay_tables(motion: pl.DataFrame, *, cut_fraction: float = 0.99) -> tuple[pl.DataFrame, pl.DataFrame]:
    """replay/frames and replay/springs of a cut with two springs, the lower of which survives."""
    ends = motion["position_m"].to_numpy()[[0, -1]]
    vec = pl.Array(pl.Float64, 3)
    frames = pl.DataFrame(
        [
            pl.Series("time_s", motion["time_s"].to_numpy()[[0, -1]], pl.Float64),
            pl.Series("knife_position_m", ends, vec),
            pl.Series("force_n", np.zeros((2, 3)), vec),
            pl.Series("force_norm_n", np.zeros(2), pl.Float64),
            pl.Series("cut_fraction", [0.0, cut_fraction], pl.Float64),
        ]
    )
    places = np.array([[0.0, 0.03, 0.0], [0.0, 0.0008, 0.0]] * 2, np.float32)
    springs = pl.DataFrame(
        [
            pl.Series("frame", [0, 0, 1, 1], pl.Int32),
            pl.Series("plus_m", places, pl.Array(pl.Float32, 3)),
            pl.Series("minus_m", places, pl.Array(pl.Float32, 3)),
            pl.Series("remaining_fraction", [1.0, 1.0, 0.0, 0.9], pl.Float32),
        ]
    )
    return frames, springs


def demand_for(
    motion: pl.DataFrame,
    params: ExportParams = PARAMS,
    *,
    body: Body | None = None,
    parting: Parting | None = None,
) -> Demand:
    """What an export of the motion through the body is held against."""
    parting = parting or parting_at_end(motion)
    return _demand_of(motion, body or body_tables(), parting, _CHAIN, params, knife="kitchen")


def exported_cut(
    place: Path,
    motion: pl.DataFrame,
    params: ExportParams = PARAMS,
    *,
    body: Body | None = None,
    parting: Parting | None = None,
    knife: str = "kitchen",
    force_calibrated: bool = True,
    scan_id: str = "synthetic",
) -> Exported:
    """The motion through the body, exported below a folder, certified or not."""
    parting = parting or parting_at_end(motion)
    body = body or body_tables()
    return export(
        place,
        motion,
        body,
        parting,
        _CHAIN,
        params,
        knife=knife,
        scan_id=scan_id,
        force_calibrated=force_calibrated,
    )


def certified_folder(
    folder: Path, motion: pl.DataFrame, params: ExportParams, scan_id: str = "synthetic"
) -> Path:
    """The motion exported below a folder; it is certified."""
    exported = exported_cut(folder, motion, params, scan_id=scan_id)
    assert exported.certificate.certified, exported.certificate.verdict
    return exported.folder


def body_tables(width_m: float = 0.05) -> tuple[pl.DataFrame, pl.DataFrame]:
    """halve/vertices and halve/faces of an ellipsoid of this width along the blade, on the board."""
    ball = trimesh.creation.icosphere(subdivisions=3)
    vertices = ball.vertices * [0.04, 0.5 * FRUIT_HEIGHT_M, 0.5 * width_m] + [0.0, 0.5 * FRUIT_HEIGHT_M, 0.0]
    return (
        pl.DataFrame([pl.Series("position_m", vertices, pl.Array(pl.Float64, 3))]),
        pl.DataFrame([pl.Series("vertices", ball.faces.astype(np.int32), pl.Array(pl.Int32, 3))]),
    )


def _three(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((len(values), 1)), values], axis=1)
