"""Make the bundled force log: a SYNTHETIC recording of a cut through the synthetic apple beside this script.

    python -m data.sample.make_force_log        (in the project's directory)

writes synthetic_apple_log.json in the layout of a robot's control server. Nothing in it was measured: the force comes
from the simulator with the parameters below, on a finer mesh than the pipeline makes and with shorter steps, and gets
noise, an offset with drift (the tool's weight) and uneven sampling, so that ingest and calibrate have work to do.
"""

import json
from pathlib import Path

import numpy as np

from disect_sim import KNIVES, MATERIALS, RecordedMotion, build_model, cut_by_plane, simulate
from stages.clean.scan_file import read_scan
from stages.clean.stage import clean
from stages.runtime.params import load_params
from stages.tetrahedralize.stage import tetrahedralize

FOLDER = Path(__file__).parent
LOG_NAME = "synthetic_apple_log.json"
TRUTH = {
    "cut_spring_ke": 420.0,
    "cut_spring_softness": 0.25,
    "sdf_ke": 1300.0,
    "sdf_mu": 0.55,
    "sdf_radius": 0.4e-3,
    "sdf_tip": 1.3e-3,
    "surface_cut_spring_ke": 2500.0,
    "surface_cut_spring_softness": 0.12,
}
"""What calibrate should come near to; everything else has the simulator's default."""
SEED = 20261
REST_S, RAMP_S, SPEED_M_S, RATE_HZ = 0.25, 0.15, 0.1, 200.0
ABOVE_M, LOWEST_M = 0.022, 0.002
"""Height of the edge over the apple's top at the start, and over the board at the end."""
BASE_M = np.array([0.36, -0.05, 0.009])
"""Board under the middle of the blade, in the robot's base frame."""
NOISE_N, OFFSET_N, DRIFT_N = 0.3, np.array([0.3, -0.2, 4.2]), 0.3


def body() -> tuple[np.ndarray, np.ndarray]:
    """Nodes [m] and tets of the apple, finer at the cut than params.yaml asks for."""
    params = load_params(FOLDER.parents[1] / "params.yaml")
    scan = read_scan(FOLDER / "synthetic_apple.ply", max_faces=params.clean.max_faces)
    surface = clean(scan, params.clean).surface
    finer = params.tetrahedralize.model_copy(update={"cut_edge_m": 0.0065})
    mesh = tetrahedralize(surface, finer).mesh
    return mesh.nodes, mesh.tets


def heights(top_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Uneven times [s] and heights of the edge over the board [m]: at rest, then down at constant speed."""
    start = top_m + ABOVE_M
    duration = REST_S + RAMP_S + (start - LOWEST_M) / SPEED_M_S
    rng = np.random.default_rng(SEED)
    count = int(duration * RATE_HZ)
    time = (np.arange(count) + rng.uniform(-0.3, 0.3, count)) / RATE_HZ
    time -= time[0]
    s = np.clip((time - REST_S) / RAMP_S, 0.0, None)
    travel = SPEED_M_S * RAMP_S * np.where(s < 1.0, s**3 - 0.5 * s**4, s - 0.5)
    return time, np.maximum(start - travel, LOWEST_M)


def recording(nodes: np.ndarray, tets: np.ndarray) -> dict[str, object]:
    """The log in the control server's layout; its z axis is up, its y axis along the blade."""
    cut = cut_by_plane(nodes, tets)
    model = build_model(cut, MATERIALS["apple"], KNIVES["kitchen"])
    time, height = heights(float(nodes[:, 1].max()))
    zero = np.zeros_like(height)
    result = simulate(
        model,
        RecordedMotion(time, np.stack([zero, height, zero], axis=1)),
        TRUTH,
        duration=float(np.floor(1e3 * time[-1])) * 1e-3,
        dt=1e-3,
    )
    middle = result.time - 0.5e-3  # a sample is the mean over the millisecond that ends at its time
    force = np.stack([np.interp(time, middle, column) for column in result.force.T], axis=1)
    rng = np.random.default_rng(SEED + 1)
    across, up, along = force.T
    drift = DRIFT_N * np.sin(2.0 * np.pi * time / 2.5)
    reading = np.stack([across, along, up], axis=1) - OFFSET_N + rng.normal(0.0, NOISE_N, (len(time), 3))
    reading[:, 2] += drift
    pose = np.tile(np.diag([1.0, -1.0, -1.0, 1.0]), (len(time), 1, 1))
    pose[:, :3, 3] = BASE_M + np.stack([zero, zero, height], axis=1)
    exerted = np.concatenate([-reading, np.zeros_like(reading)], axis=1)
    return {
        "datetime": "SYNTHETIC: made by data/sample/make_force_log.py, nothing was measured",
        "time": time.round(5).tolist(),
        "O_T_EE": pose.transpose(0, 2, 1).reshape(-1, 16).round(6).tolist(),
        "O_F_ext_hat_K": exerted.round(3).tolist(),
    }


def main() -> None:
    """Write the log beside this script."""
    text = json.dumps(recording(*body()), separators=(",", ":"))
    (FOLDER / LOG_NAME).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
