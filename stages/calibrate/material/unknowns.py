"""Unknowns of a material: a few parameters, and differences between cuts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stages.calibrate.problem import OFFSET
from stages.shared.library.library import AMPLITUDE_SPREAD, SHARE_RATIOS, Expected, share_slopes, shares_of

AMPLITUDE = "amplitude"
"""Name of the amplitude: measured force of a cut / that of the material."""
HEIGHT_SPREAD_M = 0.7e-3
"""Standard deviation of the height of first contact in the log [m]."""

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uniform:
    """Uniform prior of a parameter between its bounds."""

    low: float
    high: float
    cuts: int = 0
    """Number of calibrated cuts behind it."""


def size_of(prior: Expected | Uniform, t: float) -> float:
    """Return the parameter whose standard normal number is t, in its unit."""
    if isinstance(prior, Uniform):
        return prior.low + (prior.high - prior.low) * float(ndtr(t))
    return prior.median * float(np.exp(prior.spread * t))


def relative_slope(prior: Expected | Uniform, t: float) -> float:
    """Return the derivative of its logarithm in t."""
    if isinstance(prior, Uniform):
        slope = (prior.high - prior.low) * float(np.exp(-0.5 * t * t)) / np.sqrt(2.0 * np.pi)
        return float(slope / size_of(prior, t))
    return prior.spread


@dataclass(frozen=True)
class MaterialUnknowns:
    """Standard normal numbers t ↔ the simulator's parameters; t = 0 is the prior median.

    Order: sizes, then amplitude and height of every cut.
    """

    prior: Mapping[str, Expected | Uniform]
    """Prior of the sizes."""
    constants: Mapping[str, float]
    """The simulator's other parameters."""
    cuts: int
    """Number of cuts."""
    per_cut: bool = True
    """False: cuts have no amplitude and height of their own."""

    @property
    def names(self) -> list[str]:
        """Names in the order of t; the second cut's end in _2, and so on."""
        out = list(self.prior)
        for cut in range(self.cuts if self.per_cut else 0):
            number = "" if cut == 0 else f"_{cut + 1}"
            out += [AMPLITUDE + number, OFFSET + number]
        return out

    def __len__(self) -> int:
        return self._common + (2 * self.cuts if self.per_cut else 0)

    def sizes(self, t: _Array) -> dict[str, float]:
        """Return the sizes, in their units, by the names of the unknowns."""
        return {name: size_of(p, float(x)) for (name, p), x in zip(self.prior.items(), t, strict=False)}

    def parameters(self, t: _Array) -> dict[str, float]:
        """Return the sizes as the simulator's parameters: edge_press and edge_drag instead of the ratios of shares."""
        sizes = self.sizes(t)
        own = {name: size for name, size in sizes.items() if name not in SHARE_RATIOS}
        return own | shares_of(sizes) if self.seeks_shares else own

    @property
    def seeks_shares(self) -> bool:
        """True if the shares of the edge toughness are among the unknowns."""
        return all(name in self.prior for name in SHARE_RATIOS)

    def share_derivative(self, t: _Array) -> dict[str, _Array]:
        """Return the derivatives of edge_press and edge_drag in t, each of shape [unknown_count]."""
        out = {"edge_press": np.zeros(len(t)), "edge_drag": np.zeros(len(t))}
        for ratio, slopes in share_slopes(self.sizes(t)).items():
            i = list(self.prior).index(ratio)
            for name, slope in slopes.items():
                out[name][i] = slope * relative_slope(self.prior[ratio], float(t[i]))
        return out

    def amplitude(self, t: _Array, cut: int = 0) -> float:
        """Return the measured force of a cut / that of the material [-]."""
        return float(np.exp(AMPLITUDE_SPREAD * t[self._common + 2 * cut])) if self.per_cut else 1.0

    def height(self, t: _Array, cut: int = 0) -> float:
        """Return the offset of a cut's recorded heights [m]."""
        return HEIGHT_SPREAD_M * float(t[self._common + 2 * cut + 1]) if self.per_cut else 0.0

    def values(self, t: _Array, cut: int = 0) -> dict[str, _Array]:
        """Return every parameter of the simulator and the cut's height offset."""
        given = dict(self.constants) | self.parameters(t) | {OFFSET: self.height(t, cut)}
        return {name: np.asarray(value, float) for name, value in given.items()}

    def material(self, t: _Array) -> dict[str, _Array]:
        """Return the simulator's parameters without the height of a cut."""
        return {name: value for name, value in self.values(t).items() if name != OFFSET}

    def next_cut(self, t: _Array, cuts: int) -> dict[str, _Array]:
        """Return the parameters of another cut of the fruit, after `cuts` cuts.

        Heights of all logs are determined in the same way, so the fitted offset is expected again.
        """
        height = np.mean([self.height(t, cut) for cut in range(cuts)])
        return self.material(t) | {OFFSET: np.asarray(height)}

    def derivative(self, t: _Array, cut: int, gradient: Mapping[str, _Array]) -> _Array:
        """Convert derivatives in a cut's parameters (by name, as from `values`) to those in t, except amplitude."""
        values = self.values(t, cut)
        out = np.zeros(len(t))
        for i, (name, p) in enumerate(self.prior.items()):
            if name not in SHARE_RATIOS:
                out[i] = relative_slope(p, float(t[i])) * float((gradient[name] * values[name]).sum())
        for name, slope in self.share_derivative(t).items() if self.seeks_shares else ():
            out += slope * float(np.sum(gradient[name]))
        if self.per_cut:
            out[self._common + 2 * cut + 1] = HEIGHT_SPREAD_M * float(gradient[OFFSET])
        return out

    def amplitude_index(self, cut: int) -> int:
        """Return the index of a cut's amplitude in t, if cuts have one; its height follows."""
        return self._common + 2 * cut

    def only(self, cuts: int) -> "MaterialUnknowns":
        """Return the unknowns of the first cuts alone."""
        return replace(self, cuts=cuts)

    @property
    def _common(self) -> int:
        return len(self.prior)
