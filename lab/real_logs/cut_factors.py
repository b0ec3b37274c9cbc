"""Measures how much the force of two cuts of one fruit differs as a whole, without any model.

    python -m lab.real_logs.cut_factors            prints the factors and the spread that follows from them
    python -m lab.real_logs.cut_factors --write    also writes stages/shared/library/cut_factors.json

Needs the real data (lab/notes/real_data.md). The factor of a pair is the number by which the first cut's force,
repeated at the same heights, has to be multiplied for the least mean absolute error against the second cut.
"""

import json
import sys

import numpy as np
from numpy.typing import NDArray

from lab.real_logs.fit_real_logs import ROOT, recorded
from stages.calibrate.material.fit import best_factor
from stages.calibrate.problem import RecordedCut
from stages.shared.library.library import FACTORS_FILE, cut_spread

PAIRS = (("apple", "apple_second"), ("potato", "potato_second"))
"""Two cuts each of one fruit, by one knife and one arm. Cuts that are kept aside are not among them."""
SLICE_M = 1e-3


def force_over_height(cut: RecordedCut) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return heights below first touch [m] and the mean force there [N], over slices of 1 mm."""
    norm = np.linalg.norm(cut.force, axis=1)
    used = cut.valid & (cut.time >= cut.time[np.argmax(norm > 2.0)])
    depth = cut.position[used, 1].max() - cut.position[used, 1]
    slices = (depth / SLICE_M).astype(int)
    count = np.bincount(slices)
    force = np.bincount(slices, norm[used]) / np.maximum(count, 1)
    present = count > 0
    heights = SLICE_M * (np.flatnonzero(present) + np.float64(0.5))
    return np.asarray(heights, np.float64), force[present]


def factor(first: RecordedCut, second: RecordedCut) -> float:
    """Return the factor on the first cut with the least mean absolute error against the second."""
    height, force = force_over_height(first)
    other_height, other = force_over_height(second)
    return best_factor(np.interp(other_height, height, force), other)


def main() -> None:
    """Print the factors; write them with --write."""
    factors = {f"{first} → {second}": factor(recorded(first), recorded(second)) for first, second in PAIRS}
    for pair, value in factors.items():
        print(f"{pair:32} {value:.3f}")
    spread = cut_spread(list(factors.values()))
    print(f"spread of one cut, in logarithms: {spread:.3f}")
    if "--write" in sys.argv:
        content = {
            "meaning": "force of a second cut over that of the first, same fruit, knife and arm",
            "command": "python -m lab.real_logs.cut_factors --write",
            "source": "eric-heiden/panda-force, vertical cuts of a Franka Panda",
            "factors": {pair: round(value, 4) for pair, value in factors.items()},
        }
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (ROOT / "stages" / "shared" / "library" / FACTORS_FILE).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
