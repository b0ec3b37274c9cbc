"""The library of calibrated cuts, and the prior it gives for the next cut.

`cuts/<material>.json` has one entry per calibrated cut: its name and source, the digests of its logs, how it was
simulated, and for each parameter the information of its log alone: value and the standard deviation of its logarithm.
All numbers are positive, so everything here is done in logarithms.

Levels of variation: material → fruit of the material → cut of the fruit; the knife's sharpness acts on the toughness of
all its cuts, the scale of the force reading on all logs of an arm. `variation.json` has what was learnt of them from
real logs.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.runtime.files import LIBRARY_VARIABLE

FOLDER = Path(__file__).parent / "cuts"
INFORMED = 0.8
"""Posterior / prior standard deviation below which a log counts as informative of a parameter."""
FRUIT_SPREAD = 0.3
"""Standard deviation between two fruits of one material, in logarithms: 0.3 is a factor of 1.35."""
SCALE_SPREAD = 0.07
"""Standard deviation of the scale of a robot's force reading, in logarithms; it is the same in all its logs.

Known masses read 6 to 8 % high on a Panda that presses.
"""
VARIATION_FILE = Path(__file__).parent / "variation.json"
"""What `python -m lab.real_logs.learn_variation --write` learnt from real logs."""
VARIATION: dict[str, Any] = json.loads(VARIATION_FILE.read_text(encoding="utf-8"))
_PRIOR_SPREAD, PRIOR_CUTS = 0.1, 4.0
"""Spread of a cut's factor in logarithms expected before any pair was measured, and how many pairs that is worth."""


def cut_spread(factors: Sequence[float]) -> float:
    """Return the spread of one cut's factor in logarithms, from factors between two cuts of one fruit.

    Scaled inverse chi-squared posterior of the variance: the logarithm of a factor between two cuts has twice the
    variance of one cut. The result is the normal spread with the same 90 % interval as the Student distribution of the
    next cut's factor.
    """
    count = PRIOR_CUTS + len(factors)
    squares = 0.5 * float(np.sum(np.log(np.asarray(factors, float)) ** 2))
    variance = (PRIOR_CUTS * _PRIOR_SPREAD**2 + squares) / count
    return float(np.sqrt(variance) * _STUDENT_95[min(int(count), 14)] / NINETY)


NINETY = 1.6449
"""Half-width of the 90 % interval, in standard deviations."""
_STUDENT_95 = {
    4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833, 10: 1.812, 11: 1.796, 12: 1.782, 13: 1.771, 14: 1.761
}  # fmt: skip
"""95 % quantile of the Student distribution by degrees of freedom."""


NINETY_LEARNT = _STUDENT_95[min(VARIATION["model_error"]["logs"], 14)]
"""The same where the spread itself is known from the logs of the model error only."""
CUT_SPREAD = cut_spread(list(VARIATION["cut"]["factors"].values()))
"""Standard deviation of the force of one cut relative to its fruit, in logarithms."""
_KNIFE_SPREAD = float(VARIATION["knife"]["spread"])
"""Standard deviation of the edge toughness between knives (their sharpness), in logarithms."""
SHARPENED = "edge_toughness"
"""The parameter that the knife's sharpness acts on."""
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
"""Priors whose spread includes that between fruits of one material, which `expected` adds again."""


def _medians(priors: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    return {
        name: (
            prior["median"],
            float(np.sqrt(prior["spread"] ** 2 - FRUIT_SPREAD**2))
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


def grain_of(material: str) -> float:
    """Return the toughness of a crack that advances around the fruit's axis over that of a radial one; 1 if unknown."""
    return float(PRIORS["grain"].get(material, {}).get("tangential", 1.0))


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


def _cuts_folder(folder: Path | None) -> Path:
    return folder or Path(os.environ.get(LIBRARY_VARIABLE) or FOLDER)


def cuts_of(material: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """Return the entries of a material; none if it has no file."""
    path = _cuts_folder(folder) / f"{material}.json"
    if not path.is_file():
        return []
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cuts"]
    return entries


def _entries(
    material: str, damage_law: str, leave_out: Collection[str], folder: Path | None
) -> list[dict[str, Any]]:
    """Return the material's cuts under a damage law, without those whose name or log is in `leave_out`."""
    return [
        cut
        for cut in cuts_of(material, folder)
        if cut["damage_law"] == damage_law and not {cut["name"], *cut.get("logs", ())} & set(leave_out)
    ]


def expected(
    names: tuple[str, ...],
    material: str,
    damage_law: str,
    *,
    knife: str = "",
    leave_out: Collection[str] = (),
    folder: Path | None = None,
) -> dict[str, Expected]:
    """Return the prior of each parameter for another fruit of the material, cut by a knife, from the library's cuts.

    Entries whose name, or the digest of one of whose logs, is in `leave_out` do not count: a log that is fitted must
    not be part of its own prior.
    """
    priors, before = {}, prior_of(material)
    for name in names:
        median, spread = before[name]
        sharpness = _KNIFE_SPREAD**2 if name == SHARPENED else 0.0
        cuts = [cut for cut in _entries(material, damage_law, leave_out, folder) if name in cut["values"]]
        values = np.array([cut["values"][name] for cut in cuts]).reshape(-1, 2)
        knives = np.array([cut["knife"] for cut in cuts], str)
        # Normal levels: the material's mean around that of all, the fruit's around the material's, the knife's share.
        alike = spread**2 + sharpness * (knives[:, None] == knives)
        covariance = alike + np.diag(FRUIT_SPREAD**2 + values[:, 1] ** 2)
        to_next = spread**2 + sharpness * (knives == knife)
        gain = np.linalg.solve(covariance, to_next)
        mean = np.log(median) + gain @ (np.log(values[:, 0]) - np.log(median))
        variance = spread**2 + sharpness + FRUIT_SPREAD**2 - gain @ to_next
        priors[name] = Expected(float(np.exp(mean)), float(np.sqrt(variance)), len(cuts))
    return priors


def sharpness_ratio(
    own: str, other: str, damage_law: str, *, leave_out: Collection[str] = (), folder: Path | None = None
) -> tuple[float, float]:
    """Return the edge toughness with another knife / with one's own [-], and the deviation of its logarithm.

    From the library's cuts of all materials by both knives; 1 for one knife.
    """
    if own == other:
        return 1.0, 0.0
    median, spread = ANY_MATERIAL[SHARPENED]
    rows = [
        (path.stem, cut["knife"], *cut["values"][SHARPENED])
        for path in sorted(_cuts_folder(folder).glob("*.json"))
        for cut in _entries(path.stem, damage_law, leave_out, folder)
        if SHARPENED in cut["values"]
    ]
    materials, knives = (np.array([row[i] for row in rows], str) for i in (0, 1))
    values, errors = (np.array([row[i] for row in rows], float) for i in (2, 3))
    covariance = (
        spread**2 * (materials[:, None] == materials)
        + _KNIFE_SPREAD**2 * (knives[:, None] == knives)
        + np.diag(FRUIT_SPREAD**2 + errors**2)
    )
    to_ratio = _KNIFE_SPREAD**2 * ((knives == other) * 1.0 - (knives == own))
    gain = np.linalg.solve(covariance, to_ratio)
    mean = float(gain @ (np.log(values) - np.log(median)))
    return float(np.exp(mean)), float(np.sqrt(2.0 * _KNIFE_SPREAD**2 - gain @ to_ratio))


def log_alone(before: Expected, value: float, deviation: float) -> tuple[float, float] | None:
    """Return the information of a log alone, without the prior: value and standard deviation of its logarithm.

    Args:
        before: The prior of the fit.
        value: The fitted value, in the parameter's unit.
        deviation: Posterior standard deviation, in prior standard deviations.

    Returns None if the log did not inform the parameter: removing the prior then gives a value far from anything that
    was simulated.
    """
    if deviation >= INFORMED:
        return None
    added = (1.0 / deviation**2 - 1.0) / before.spread**2
    after = 1.0 / (deviation * before.spread) ** 2
    mean = (np.log(value) * after - np.log(before.median) / before.spread**2) / added
    return float(np.exp(mean)), float(added**-0.5)
