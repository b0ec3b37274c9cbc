"""Make the bundled force logs: SYNTHETIC recordings of two cuts through the synthetic apple beside this script.

    python -m data.sample.make_force_log        (in the project's directory)

writes synthetic_apple_log.json, a straight cut, and synthetic_apple_second_log.json, a sawing one, in the layout of a
robot's control server. Nothing in them was measured. The truth is not the model that calibrate fits: the simulator runs
on a finer mesh with shorter steps and shares of the edge toughness drawn from their prior; then each cut gets a factor
of its own and a departure over depth that no parameter can follow, drawn once with the sizes that real cuts show
(stages/shared/library/variation.json, cut and model_error). The reading has the noise of a real Panda, an offset with
drift (the tool's weight) and uneven sampling. No draw was repeated or chosen.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from disect_sim import KNIVES, MATERIALS, RecordedMotion, build_model, cut_by_plane, simulate
from stages.clean.clean import clean
from stages.clean.scan_file import read_scan
from stages.runtime.params import load_params
from stages.tetrahedralize.tetrahedralize import tetrahedralize

FOLDER = Path(__file__).parent
VARIATION = FOLDER.parents[1] / "stages" / "shared" / "library" / "variation.json"
CUT_SPREAD = 0.17
"""Standard deviation of the logarithm of a cut's force between cuts of one fruit, as `calibrate` learns it."""
TRUTH = {
    "edge_toughness": 520.0,
    "edge_rise": 1.2e-3,
    "edge_press": 0.17,
    "edge_drag": 0.31,
    "skin_toughness": 650.0,
    "skin_depth": 1.2e-3,
    "sdf_ke": 1300.0,
    "sdf_mu": 0.22,
}
"""What calibrate should come near to; everything else has the simulator's default.

The shares of the edge toughness, slice 0.52 : drag 0.31 : press 0.17, were drawn once from their prior between fruits
(seed 20271, rounded): they are not its mean."""
REST_S, RAMP_S, SPEED_M_S, RATE_HZ = 0.25, 0.15, 0.1, 200.0
ABOVE_M, LOWEST_M = 0.022, 0.002
"""Height of the edge over the apple's top at the start, and over the board at the end."""
BASE_M = np.array([0.36, -0.05, 0.009])
"""Board under the middle of the blade, in the robot's base frame."""
OFFSET_N, DRIFT_N = np.array([0.3, -0.2, 4.2]), 0.3
NOISE_N, NOISE_S = np.array([0.11, 0.06, 0.25]), 0.06
"""Standard deviation and correlation time of the reading, base frame: from the differences between three
contact-free runs of a real Panda (cucumber of the public logs); correlation 0.9 after 5 ms, 0.5 after 40 ms."""


@dataclass(frozen=True)
class Recording:
    """One of the two cuts."""

    name: str
    seed: int
    stroke_m: float
    """How far the blade is drawn to either side."""
    strokes_hz: float


RECORDINGS = (
    Recording("synthetic_apple_log.json", 20261, 0.0, 0.0),
    Recording("synthetic_apple_second_log.json", 20271, 0.012, 1.5),
)


def body() -> tuple[np.ndarray, np.ndarray]:
    """Nodes [m] and tets of the apple, finer at the cut than params.yaml asks for."""
    params = load_params(FOLDER.parents[1] / "params.yaml")
    scan = read_scan(FOLDER / "synthetic_apple.ply", max_faces=params.clean.max_faces)
    surface = clean(scan, params.clean).surface
    finer = params.tetrahedralize.model_copy(update={"cut_edge_m": 0.0065})
    mesh = tetrahedralize(surface, finer).mesh
    return mesh.nodes, mesh.tets


def motion(recording: Recording, top_m: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Uneven times [s], heights of the edge over the board and its way along the blade [m].

    At rest, then down at constant speed; drawn to and fro from when it meets the apple.
    """
    start = top_m + ABOVE_M
    duration = REST_S + RAMP_S + (start - LOWEST_M) / SPEED_M_S
    rng = np.random.default_rng(recording.seed)
    count = int(duration * RATE_HZ)
    time = (np.arange(count) + rng.uniform(-0.3, 0.3, count)) / RATE_HZ
    time -= time[0]
    s = np.clip((time - REST_S) / RAMP_S, 0.0, None)
    travel = SPEED_M_S * RAMP_S * np.where(s < 1.0, s**3 - 0.5 * s**4, s - 0.5)
    height = np.maximum(start - travel, LOWEST_M)
    since = np.clip(time - time[np.argmax(height < top_m + 0.5 * ABOVE_M)], 0.0, None)
    along = 0.5 * recording.stroke_m * (1.0 - np.cos(2.0 * np.pi * recording.strokes_hz * since))
    return time, height, along


def departures(depth: np.ndarray) -> np.ndarray:
    """Factors on the force over depth [m] for all recordings, shape [recordings, depths]: truth over our model."""
    error = json.loads(VARIATION.read_text(encoding="utf-8"))["model_error"]["values"]
    rng = np.random.default_rng(20261)
    log_factor = rng.normal(0.0, CUT_SPREAD, (len(RECORDINGS), 1)) + np.zeros(len(depth))
    for part in ("slow", "fast"):
        lag = (depth[:, None] - depth) / error[f"{part}_length_m"]
        root = np.linalg.cholesky(np.exp(-0.5 * lag**2) + 1e-9 * np.eye(len(depth)))
        shared, *own = rng.normal(0.0, error[part], (1 + len(RECORDINGS), len(depth))) @ root.T
        again = error[f"{part}_again"]
        log_factor += np.sqrt(again) * shared + np.sqrt(1.0 - again) * np.array(own)
    return np.exp(log_factor)


def noise(rng: np.random.Generator, time: np.ndarray) -> np.ndarray:
    """Exponentially correlated noise of the reading [N], shape [n, 3]."""
    values = np.zeros((len(time), 3))
    values[0] = rng.normal(0.0, NOISE_N)
    for k, step in enumerate(np.diff(time), start=1):
        kept = np.exp(-step / NOISE_S)
        values[k] = kept * values[k - 1] + np.sqrt(1.0 - kept**2) * rng.normal(0.0, NOISE_N)
    return values


def log_of(recording: Recording, nodes: np.ndarray, tets: np.ndarray) -> dict[str, object]:
    """The log in the control server's layout; its z axis is up, its y axis along the blade."""
    cut = cut_by_plane(nodes, tets)
    model = build_model(cut, MATERIALS["apple"], KNIVES["kitchen"], boundary="guided", damage_law="edge")
    top = float(nodes[:, 1].max())
    time, height, along = motion(recording, top)
    zero = np.zeros_like(height)
    result = simulate(
        model,
        RecordedMotion(time, np.stack([zero, height, along], axis=1)),
        TRUTH,
        duration=float(np.floor(1e3 * time[-1])) * 1e-3,
        dt=1e-3,
    )
    middle = result.time - 0.5e-3  # a sample is the mean over the millisecond that ends at its time
    force = np.stack([np.interp(time, middle, column) for column in result.force.T], axis=1)
    depth = np.linspace(0.0, top, 200)
    force *= np.interp(top - height, depth, departures(depth)[RECORDINGS.index(recording)])[:, None]
    rng = np.random.default_rng(recording.seed + 1)
    across, up, lengthwise = force.T
    drift = DRIFT_N * np.sin(2.0 * np.pi * time / 2.5)
    reading = np.stack([across, lengthwise, up], axis=1) - OFFSET_N + noise(rng, time)
    reading[:, 2] += drift
    pose = np.tile(np.diag([1.0, -1.0, -1.0, 1.0]), (len(time), 1, 1))
    pose[:, :3, 3] = BASE_M + np.stack([zero, along, height], axis=1)
    exerted = np.concatenate([-reading, np.zeros_like(reading)], axis=1)
    return {
        "datetime": "SYNTHETIC: made by data/sample/make_force_log.py, nothing was measured",
        "time": time.round(5).tolist(),
        "O_T_EE": pose.transpose(0, 2, 1).reshape(-1, 16).round(6).tolist(),
        "O_F_ext_hat_K": exerted.round(3).tolist(),
    }


def main() -> None:
    """Write the logs beside this script."""
    nodes, tets = body()
    for recording in RECORDINGS:
        text = json.dumps(log_of(recording, nodes, tets), separators=(",", ":"))
        (FOLDER / recording.name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
