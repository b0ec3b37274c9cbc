"""How fast the force of the next slice becomes known: synthetic fruits with the variation that real cuts show.

    python -m lab.bench.slices_learning [--fruits 4000] [--spread 0.05]

Every fruit is calibrated with one cut, then sliced. Each cut has a factor of its own, drawn with the spread that real
pairs of cuts show (stages/shared/library/variation.json); the calibrated cut has one too, so that the model starts
wrong by it. The mean over depth of the model error, partly the same in all cuts of a fruit, is drawn as well. The
fruit's amplitude is what all its cuts have in common. --spread sets another spread from cut to cut, e.g. that of a more
uniform fruit; the software does not know it and learns it.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.shared.amplitude import SPREAD, learn
from stages.shared.library.library import VARIATION

SLICES = 8
_DEPTH_M = 0.05


def mean_departure(size: int, length_m: float, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return means over the depth of a unit Gaussian process with this correlation length, shape [size]."""
    depth = np.linspace(0.0, _DEPTH_M, 60)
    covariance = np.exp(-0.5 * ((depth[:, None] - depth[None]) / length_m) ** 2)
    return generator.standard_normal(size) * float(np.sqrt(covariance.mean()))


def forces(fruits: int, spread: float, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return force over the calibrated prediction, shape [fruits, SLICES], and the fruits' amplitudes, [fruits]."""
    generator = np.random.default_rng(seed)
    error = VARIATION["model_error"]["values"]
    logs = spread * generator.standard_normal((fruits, SLICES + 1))
    common = np.zeros((fruits, 1))
    for part in ("slow", "fast"):
        again, length = error[f"{part}_again"], error[f"{part}_length_m"]
        same = mean_departure(fruits, length, generator)[:, None]
        own = np.stack([mean_departure(fruits, length, generator) for _ in range(SLICES + 1)], axis=1)
        common += error[part] * np.sqrt(again) * same
        logs += error[part] * np.sqrt(1.0 - again) * own
    logs += common
    calibrated = logs[:, :1]  # the first cut
    return np.exp(logs[:, 1:] - calibrated), np.exp(common - calibrated)[:, 0]


def table(fruits: int, spread: float, seed: int = 0) -> list[dict[str, float]]:
    """Return one row per slice k: what was known before it was cut."""
    ratios, truth = forces(fruits, spread, seed)
    rows = []
    for k in range(SLICES):
        known = [learn(row[:k]) for row in ratios]
        factor = np.array([one.factor for one in known])
        inside = [a.next_low <= row[k] <= a.next_high for a, row in zip(known, ratios, strict=True)]
        rows.append(
            {
                "slice": k + 1,
                "error": float(np.abs(factor / ratios[:, k] - 1.0).mean()),
                "amplitude_error": float(np.sqrt((np.log(factor / truth) ** 2).mean())),
                "known_within": float(np.median([one.known_within for one in known])),
                "coverage": float(np.mean(inside)),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fruits", type=int, default=4000)
    parser.add_argument("--spread", type=float, default=SPREAD, help="from cut to cut, in logarithms")
    options = parser.parse_args(arguments)
    print(
        f"{options.fruits} fruits, {100 * options.spread:.1f} % from cut to cut; known before slice k is cut:\n"
    )
    print(
        "| k | error of its predicted force | amplitude off by (rms) | 90 % interval ± | inside the 90 % band |"
    )
    print("|---|---|---|---|---|")
    for row in table(options.fruits, options.spread):
        print(
            f"| {row['slice']:.0f} | {100 * row['error']:.1f} % | {100 * row['amplitude_error']:.1f} % "
            f"| {100 * row['known_within']:.1f} % | {100 * row['coverage']:.0f} % |"
        )


if __name__ == "__main__":
    main()
