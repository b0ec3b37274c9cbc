"""The library of calibrated cuts, and the prior it gives for the next cut.

`cuts/<material>.json` has one entry per calibrated cut: its name and source, the digests of its logs, how it was
simulated, and for each parameter the information of its log alone: value and the standard deviation of its logarithm.
All numbers are positive, so everything here is done in logarithms.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "cuts"
_CUT_TO_CUT = 0.3
"""Standard deviation between two cuts of one material, in logarithms: 0.3 is a factor of 1.35."""
SCALE_SPREAD = 0.07
"""Standard deviation of the scale of a robot's force reading, in logarithms; it is the same in all its logs.

Known masses read 6 to 8 % high on a Panda that presses.
"""
FACTORS_FILE = "cut_factors.json"
"""Measured factors between two cuts of one fruit (`python -m lab.real_logs.cut_factors`)."""
_PRIOR_SPREAD, _PRIOR_CUTS = 0.1, 4.0
"""Spread of a cut's factor in logarithms expected before any pair was measured, and how many pairs that is worth."""


def cut_spread(factors: Sequence[float]) -> float:
    """Return the spread of one cut's factor in logarithms, from factors between two cuts of one fruit.

    Scaled inverse chi-squared posterior of the variance: the logarithm of a factor between two cuts has twice the
    variance of one cut. The result is the normal spread with the same 90 % interval as the Student distribution of the
    next cut's factor.
    """
    count = _PRIOR_CUTS + len(factors)
    squares = 0.5 * float(np.sum(np.log(np.asarray(factors, float)) ** 2))
    variance = (_PRIOR_CUTS * _PRIOR_SPREAD**2 + squares) / count
    return float(np.sqrt(variance) * _STUDENT_95[min(int(count), 14)] / NINETY)


NINETY = 1.6449
"""Half-width of the 90 % interval, in standard deviations."""
_STUDENT_95 = {
    4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833, 10: 1.812, 11: 1.796, 12: 1.782, 13: 1.771, 14: 1.761
}  # fmt: skip
"""95 % quantile of the Student distribution by degrees of freedom."""


def _measured_factors() -> list[float]:
    content = json.loads((Path(__file__).parent / FACTORS_FILE).read_text(encoding="utf-8"))
    return list(content["factors"].values())


CUT_SPREAD = cut_spread(_measured_factors())
"""Standard deviation of the force of one cut relative to its fruit, in logarithms."""
AMPLITUDE_SPREAD = float(np.hypot(SCALE_SPREAD, CUT_SPREAD))
"""Standard deviation of the amplitude, the force read in one cut / that of the material: both combined."""
_SLICE_OVER_PRESS, _DRAG_OVER_PRESS = "slice_over_press", "drag_over_press"
SHARE_RATIOS = (_SLICE_OVER_PRESS, _DRAG_OVER_PRESS)
"""Ratios of the shares of the edge toughness, a / e and m / e: positive numbers, whose logarithms are normal.

They represent the simulator's edge_press (e) and edge_drag (m), which are bounded and must not sum to more than 1.
"""
RATIO_BOUNDS = (0.1, 10.0)
"""Range of both ratios where the prior is uniform."""
PRIORS: dict[str, Any] = json.loads((Path(__file__).parent / "priors.json").read_text(encoding="utf-8"))
"""Priors of any fruit with their sources, and values from the literature (`scan2cut materials` prints them)."""
_BETWEEN_FRUITS = {*SHARE_RATIOS}
"""Priors whose spread includes that between cuts of one material, which `expected` adds again."""


def _medians(priors: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    return {
        name: (
            prior["median"],
            float(np.sqrt(prior["spread"] ** 2 - _CUT_TO_CUT**2))
            if name in _BETWEEN_FRUITS
            else prior["spread"],
        )
        for name, prior in priors.items()
    }


ANY_MATERIAL: Mapping[str, tuple[float, float]] = _medians(PRIORS["priors"])
"""Median of fruits and vegetables, and the standard deviation of its logarithm, for an unknown material."""


def sources_of(material: str | None) -> dict[str, dict[str, Any]]:
    """Return the priors of a material before any cut, with their sources: those of any fruit, replaced by its own."""
    return {**PRIORS["priors"], **PRIORS["materials"].get(material, {}).get("priors", {})}


def prior_of(material: str | None) -> dict[str, tuple[float, float]]:
    """Return median and standard deviation of the logarithm before any cut of the material; None: of any fruit."""
    return _medians(sources_of(material))


def body_source(material: str) -> str:
    """Return the source of a material's modulus, Poisson's ratio and density."""
    return str(PRIORS["materials"].get(material, {}).get("body", "Heiden et al. 2022"))


@dataclass(frozen=True)
class Expected:
    """Prior of a parameter: the logarithm of its value is normal."""

    median: float
    """Median in the parameter's unit."""
    spread: float
    """Standard deviation of its logarithm [-]."""
    cuts: int
    """Number of calibrated cuts of the material behind it."""


def shares_of(ratios: Mapping[str, float]) -> dict[str, float]:
    """Return the simulator's edge_press and edge_drag [-] from the ratios by name."""
    press = 1.0 / (1.0 + ratios[_SLICE_OVER_PRESS] + ratios[_DRAG_OVER_PRESS])
    return {"edge_press": press, "edge_drag": ratios[_DRAG_OVER_PRESS] * press}


def share_slopes(ratios: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the derivatives of edge_press and edge_drag in the logarithm of each ratio, by ratio and parameter."""
    shares = shares_of(ratios)
    press, drag = shares["edge_press"], shares["edge_drag"]
    cut = ratios[_SLICE_OVER_PRESS] * press
    return {
        _SLICE_OVER_PRESS: {"edge_press": -press * cut, "edge_drag": -drag * cut},
        _DRAG_OVER_PRESS: {"edge_press": -press * drag, "edge_drag": drag * (1.0 - drag)},
    }


def cuts_of(material: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return the entries of a material; none if it has no file."""
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
    """Return the prior of each parameter from the material's cuts under that damage law.

    Entries whose name, or the digest of one of whose logs, is in `leave_out` do not count: a log that is fitted must
    not be part of its own prior.
    """
    cuts = [
        cut
        for cut in cuts_of(material, folder)
        if cut["damage_law"] == damage_law and not {cut["name"], *cut.get("logs", ())} & set(leave_out)
    ]
    priors, before = {}, prior_of(material)
    for name in names:
        median, spread = before[name]
        precision, weighted, count = 1.0 / spread**2, float(np.log(median)) / spread**2, 0
        # Normal-normal: the material's own mean is spread around that of all, cuts are spread around the material's.
        for cut in cuts:
            if name in cut["values"]:
                value, deviation = cut["values"][name]
                weight = 1.0 / (_CUT_TO_CUT**2 + deviation**2)
                precision, weighted, count = (
                    precision + weight,
                    weighted + weight * float(np.log(value)),
                    count + 1,
                )
        mean = weighted / precision
        priors[name] = Expected(float(np.exp(mean)), float(np.hypot(precision**-0.5, _CUT_TO_CUT)), count)
    return priors


def log_alone(
    before: Expected, value: float, deviation: float, least: float = 0.2
) -> tuple[float, float] | None:
    """Return the information of a log alone, without the prior: value and standard deviation of its logarithm.

    Args:
        before: The prior of the fit.
        value: The fitted value, in the parameter's unit.
        deviation: Posterior standard deviation, in prior standard deviations.
        least: Fraction of the prior's information that the log must have added; None is returned if it added less, as
            removing the prior then gives a value far from anything that was simulated.
    """
    added = (1.0 / deviation**2 - 1.0) / before.spread**2
    if added * before.spread**2 < least:
        return None
    after = 1.0 / (deviation * before.spread) ** 2
    mean = (np.log(value) * after - np.log(before.median) / before.spread**2) / added
    return float(np.exp(mean)), float(added**-0.5)
