"""Draws docs/pictures/force_log_synthetic.png: raw, no-contact and net force of a synthetic log.

    python -m lab.docs.draw_force_log

The log is made here and goes through the stage `ingest` with the shipped params.yaml.
"""

from pathlib import Path

import numpy as np

from stages.ingest.ingest import force_picture, ingest
from stages.ingest.log_file import RobotLog
from stages.runtime.params import load_params

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "force_log_synthetic.png"
RATE_HZ = 200.0
START_M, LOWEST_M, CONTACT_M = 0.077, 0.010, 0.055


def synthetic_log(*, air: bool, seed: int) -> RobotLog:
    """A knife that goes down through a made-up fruit with a skin, on an arm with friction; not measured."""
    noise = np.random.default_rng(seed)
    time = np.arange(0.0, 1.9, 1.0 / RATE_HZ) + noise.uniform(-0.3, 0.3, 380) / RATE_HZ
    way = np.clip((time - 0.2) / 1.7, 0.0, 1.0)
    height = START_M - (START_M - LOWEST_M) * way**2 * (1.5 - 0.5 * way)
    depth = np.maximum(CONTACT_M - height, 0.0) * (not air)
    skin = 12.0 * np.exp(-(((depth - 0.006) / 0.003) ** 2)) * np.minimum(depth / 0.004, 1.0)
    cutting = 22.0 * (1.0 - np.exp(-depth / 0.012)) + skin
    friction = -4.5 + 7.0 * np.tanh((START_M - height) / 0.002) + 0.4 * np.sin((START_M - height) / 0.0025)
    upward = cutting + friction + noise.normal(0.0, 0.15, len(time))
    across = 0.15 * cutting + 0.3
    zero = np.zeros_like(time)
    return RobotLog(
        source_format="synthetic",
        time_s=time,
        clock="time",
        time_unit="s",
        position_m=np.column_stack([zero + 0.36, zero, height]),
        force_n=-np.column_stack([across, zero, upward]),
    )


def main() -> None:
    """Write the picture."""
    params = load_params(ROOT / "params.yaml").ingest
    airs = {f"air{i}": synthetic_log(air=True, seed=i) for i in (1, 2)}
    result = ingest(synthetic_log(air=False, seed=0), params, air_runs=airs)
    picture = force_picture(
        result.time_s,
        result.position_m[:, 1],
        result.raw_n,
        result.tare.force_n,
        result.net_n,
        result.filtered_norm_n,
        result.valid,
        onset=result.onset,
        title=f"Synthetic log, not measured.\nTare: {result.tare.method}",
    )
    PICTURE.write_bytes(picture)


if __name__ == "__main__":
    main()
