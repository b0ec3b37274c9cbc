"""Tiny synthetic cuts for the tests of calibrate: a block of 400 tets, cut in a fifth of a second."""

from pathlib import Path

import numpy as np
import polars as pl

from disect_sim import RecordedMotion, simulate
from disect_sim.model import Model
from stages.calibrate.description import CalibrateParams
from stages.calibrate.problem import RecordedCut, find_onset
from stages.runtime.artifacts import polars_dtype
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.params import load_params
from stages.shared.fitting import low_pass
from tests.disect_sim.scenes import BLOCK_HEIGHT, block_model, regular_block

ROOT = Path(__file__).parents[2]
SHIPPED: CalibrateParams = load_params(ROOT / "params.yaml").calibrate
TRUTH = {
    "cut_spring_ke": 700.0,
    "cut_spring_kd": 0.1,
    "cut_spring_softness": 0.3,
    "sdf_ke": 1500.0,
    "sdf_kd": 1.0,
    "sdf_kf": 0.01,
    "sdf_mu": 0.7,
    "sdf_stribeck": 0.0,
    "sdf_radius": 0.6e-3,
    "sdf_tip": 1.2e-3,
}
RATE_HZ = 500.0


def quick(**changes: object) -> CalibrateParams:
    """The paper's law and fit, made quick: 4 ms steps, no individual phase, heights as recorded."""
    base = {
        "damage_law": "force",
        "boundary": "held",
        "fit": "springs",
        "dt_s": 0.004,
        "rate_hz": 250.0,
        "align": "recorded",
        "individual_iterations": 0,
        "shared_iterations": 3,
        "enough_n": 0.0,
        "shared": ["cut_spring_ke", "sdf_mu"],
        "start": {**TRUTH, "cut_spring_ke": 500.0, "sdf_mu": 0.55},
    }
    return SHIPPED.changed(**{**base, **changes})


def record(
    model: Model,
    parameters: dict[str, object],
    *,
    speed: float = 0.12,
    noise_n: float = 0.0,
    seed: int = 0,
    dt: float = 0.004,
    end: float = 0.003,
    slide: float = 0.0,
) -> RecordedCut:
    """A simulated log: the knife starts 12 mm above the block and stops `end` [m] above the board.

    It goes down at `speed` and is drawn along the blade at `slide` [m/s].
    """
    top = BLOCK_HEIGHT + 0.012
    steps = int((top - end) / speed / dt)
    ends = np.array([0.0, steps * dt])
    way = np.stack([top - speed * ends, slide * (ends - ends.mean())], axis=1)
    motion = RecordedMotion(ends, way)
    result = simulate(model, motion, parameters, duration=steps * dt, dt=dt, sample_rate_hz=1.0 / dt)
    time = np.arange(0.0, steps * dt, 1.0 / RATE_HZ)
    # A sample is the mean over the step that ends at its time.
    middle = result.time - 0.5 * dt
    force = np.stack([np.interp(time, middle, column) for column in result.force.T], axis=1)
    force += np.random.default_rng(seed).normal(0.0, noise_n, force.shape) * np.array([0.0, 1.0, 0.0])
    velocity = np.tile([0.0, -speed, slide], (len(time), 1))
    onset = find_onset(time, np.linalg.norm(low_pass(time, force, SHIPPED.reading.filter_cutoff_hz), axis=1))
    assert onset is not None
    return RecordedCut(time, motion.poses(time), velocity, force, np.ones(len(time), bool), onset)


def force_frame(cut: RecordedCut) -> pl.DataFrame:
    """A recorded cut as ingest/force; what calibrate does not read is zero."""
    values = {
        "time_s": cut.time,
        "position_m": cut.position,
        "velocity_m_s": cut.velocity,
        "force_n": cut.force,
        "valid": cut.valid,
        "contact": cut.time >= cut.onset_s,
    }
    count = len(cut.time)
    columns = []
    for column in ARTIFACTS["ingest/force"].columns:
        dtype = polars_dtype(column.dtype)
        shape = (count, 3) if isinstance(dtype, pl.Array) else count
        columns.append(pl.Series(column.name, values.get(column.name, np.zeros(shape)), dtype))
    return pl.DataFrame(columns)


def small_block() -> Model:
    """About 200 tets."""
    return block_model(regular_block((3, 3, 3)))
