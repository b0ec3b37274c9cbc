"""The library of calibrated cuts, and what to expect of the next cut before its log is seen.

`cuts/<material>.json` holds one entry per calibrated cut: its name and source, the digests of its logs, how it was
simulated, and for each parameter what its log alone says: value and the standard deviation of its logarithm. All
numbers are sizes, so everything here is done in logarithms.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "cuts"
CUT_TO_CUT = 0.3
"""How much values differ between two cuts of one material, in logarithms: 0.3 is a factor of 1.35."""
SCALE_SPREAD = 0.07
"""How well the scale of a robot's force reading is known, in logarithms; it is the same in all its logs.

Known masses read 6 to 8 % high on a Panda that presses."""
CUT_SPREAD = 0.1
"""How much the force of one cut differs as a whole from that of its fruit, in logarithms."""
AMPLITUDE_SPREAD = float(np.hypot(SCALE_SPREAD, CUT_SPREAD))
"""Of the force read in one cut over that of the material: both together."""
NINETY = 1.6449
"""Half-width of the 90 % interval, in standard deviations."""
ANY_MATERIAL: Mapping[str, tuple[float, float]] = {
    "edge_toughness": (400.0, 0.8),
    "edge_rise": (1.5e-3, 0.4),
    "skin_toughness": (400.0, 1.0),
    "skin_depth": (1.0e-3, 0.4),
    "sdf_mu": (0.15, 0.6),
    "sdf_ke": (1000.0, 0.5),
    "cut_spring_ke": (500.0, 0.5),
    "young_pa": (2.5e6, 0.5),
}
"""Median of fruits and vegetables, and the standard deviation of its logarithm, where nothing of the material is known.

From toughness published for apple, potato and cucumber flesh, 100 to 1000 J/m^2, and friction of wet steel."""


@dataclass(frozen=True)
class Expected:
    """A parameter before the log is seen: the logarithm of its value is normal."""

    median: float
    """In the parameter's unit."""
    spread: float
    """Standard deviation of its logarithm [-]."""
    cuts: int
    """How many calibrated cuts of the material it rests on."""


def cuts_of(material: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The entries of a material; none if it has no file."""
    path = folder / f"{material}.json"
    if not path.is_file():
        return []
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cuts"]
    return entries


def expected(
    names: tuple[str, ...],
    material: str,
    damage_law: str,
    *,
    leave_out: Collection[str] = (),
    folder: Path = FOLDER,
) -> dict[str, Expected]:
    """The prior of each parameter from the material's cuts under that damage law.

    Entries whose name, or the digest of one of whose logs, is in `leave_out` do not count: a log that is fitted must
    not be what is expected of it.
    """
    cuts = [
        cut
        for cut in cuts_of(material, folder)
        if cut["damage_law"] == damage_law and not {cut["name"], *cut.get("logs", ())} & set(leave_out)
    ]
    out = {}
    for name in names:
        median, spread = ANY_MATERIAL[name]
        precision, weighted, count = 1.0 / spread**2, float(np.log(median)) / spread**2, 0
        # Normal-normal: the material's own mean is spread around that of all, cuts are spread around the material's.
        for cut in cuts:
            if name in cut["values"]:
                value, deviation = cut["values"][name]
                weight = 1.0 / (CUT_TO_CUT**2 + deviation**2)
                precision, weighted, count = (
                    precision + weight,
                    weighted + weight * float(np.log(value)),
                    count + 1,
                )
        mean = weighted / precision
        out[name] = Expected(float(np.exp(mean)), float(np.hypot(precision**-0.5, CUT_TO_CUT)), count)
    return out


def log_alone(
    before: Expected, value: float, deviation: float, least: float = 0.2
) -> tuple[float, float] | None:
    """What a log says of a parameter without what was expected: its value and the deviation of its logarithm.

    Args:
        before: The prior that the fit had.
        value: The fitted value, in the parameter's unit.
        deviation: Standard deviation after the log, in prior standard deviations.
        least: Share of the prior's information that the log must have added; None if it added less, as taking out the
            prior then leaves a value far from anything that was simulated.
    """
    added = (1.0 / deviation**2 - 1.0) / before.spread**2
    if added * before.spread**2 < least:
        return None
    after = 1.0 / (deviation * before.spread) ** 2
    mean = (np.log(value) * after - np.log(before.median) / before.spread**2) / added
    return float(np.exp(mean)), float(added**-0.5)
