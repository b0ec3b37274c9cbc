"""Tools of fits and searches: resumable loop, Levenberg–Marquardt damping, low-pass, correlations, bounds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from stages.runtime.checkpoint import Checkpoint
from stages.runtime.errors import InputError

# Resumable loop: each iteration is saved, a killed search resumes


class _Resumable(Protocol):
    """A search that consists of iterations and can be saved between two of them as plain values and tensors."""

    def over(self) -> bool:
        """Return True if the search has ended."""

    def step(self) -> None:
        """Run one iteration and add to the history."""

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume, the history included."""

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a saved state, with the same results as without interruption."""


_Search = TypeVar("_Search", bound=_Resumable)


def run_to_end(
    search: _Search, checkpoint: Checkpoint, report: Callable[[_Search], None] | None = None
) -> _Search:
    """Iterate until the search is over, from its checkpoint if there is one; `report` is called after each save."""
    saved = checkpoint.load()
    if saved is not None:
        search.restore(saved)
    while not search.over():
        search.step()
        checkpoint.save(search.state())
        if report is not None:
            report(search)
    return search


# Levenberg–Marquardt damping


_FIRST_DAMPING = 1.0e-2
"""Initial damping relative to the curvature's scale; grows after a bad step and shrinks after a good one."""
_LEAST_DAMPING = 1.0e-6
_FACTOR = 5.0
_TRIES = 6
"""Damped steps tried per linearisation."""

_Array = NDArray[np.float64]
_Place = TypeVar("_Place")


def share_done(steps: int, limit: int) -> float:
    """Return the expected fraction done, 0 to 1, of a search that usually converges long before its limit of steps."""
    return (1.0 - _PER_STEP**steps) / (1.0 - _PER_STEP**limit)


_PER_STEP = 0.7
"""Part of the work that remains after one step; half of it is done after two steps."""


class Damping:
    """Damping of the steps of one search, kept from linearisation to linearisation."""

    def __init__(self) -> None:
        self.value = _FIRST_DAMPING

    def better(
        self,
        curvature: _Array,
        slope: _Array,
        scale: _Array,
        longest: float,
        place: Callable[[_Array], _Place | None],
    ) -> _Place | None:
        """Return the first point that is better, or None.

        Args:
            curvature: Curvature of the linearised problem, shape [n, n].
            slope: Its gradient, shape [n].
            scale: Matrix multiplied by the damping, shape [n, n].
            longest: Largest change of any unknown in one step.
            place: Returns the point a step leads to, if that is better.
        """
        for _ in range(_TRIES):
            step: _Array = -np.asarray(np.linalg.solve(curvature + self.value * scale, slope), float)
            step *= min(1.0, longest / max(float(np.abs(step).max()), 1e-300))
            point = place(step)
            if point is not None:
                self.value = max(self.value / _FACTOR, _LEAST_DAMPING)
                return point
            self.value *= _FACTOR
        return None


# Zero-phase low-pass, applied to measured and simulated force alike


_ORDER = 2
"""Order of the Butterworth filter, which runs forwards and backwards."""
_PADDING_PERIODS = 3.0
"""Extension of each end before filtering, in periods of the cut-off, so that the filter settles."""
MIN_SAMPLES = 12
"""Minimum record length; a shorter one is all edge."""


def low_pass(
    time_s: NDArray[np.float64], values: NDArray[np.float64], cutoff_hz: float
) -> NDArray[np.float64]:
    """Low-pass without delay, for samples at uneven times.

    The samples are resampled to an even grid of the same mean rate, filtered forwards and backwards, and interpolated
    at their own times.

    Args:
        time_s: Strictly increasing times [s], shape [n].
        values: Values to filter, shape [n] or [n, k].
        cutoff_hz: Frequency at which the amplitude is halved [Hz].
    """
    from scipy.signal import butter, sosfiltfilt

    count = len(time_s)
    if count < MIN_SAMPLES:
        raise InputError(
            f"The low-pass got {count} samples. It needs at least {MIN_SAMPLES}. Give a longer record."
        )
    rate_hz = (count - 1) / (time_s[-1] - time_s[0])
    if not cutoff_hz < 0.5 * rate_hz:
        raise InputError(
            f"The low-pass's cutoff is {cutoff_hz:g} Hz, the record has {rate_hz:.4g} samples per second. The cutoff "
            f"must be below half of that, {0.5 * rate_hz:.4g} Hz. Lower reading.filter_cutoff_hz."
        )
    even = np.linspace(time_s[0], time_s[-1], count)
    columns = values.reshape(count, -1)
    gridded = np.stack([np.interp(even, time_s, column) for column in columns.T], axis=1)
    padding = int(np.ceil(_PADDING_PERIODS * rate_hz / cutoff_hz))
    sections = butter(_ORDER, cutoff_hz, fs=rate_hz, output="sos")
    smooth = sosfiltfilt(sections, gridded, axis=0, padlen=min(count - 1, padding))
    back = np.stack([np.interp(time_s, even, column) for column in smooth.T], axis=1)
    return back.reshape(values.shape)


# Correlation functions of Gaussian fields


def correlation(a: _Array, b: _Array, length: float) -> _Array:
    """Return exp(-d² / 2 length²) of the distances between points a and b, shape [len(a), len(b)]."""
    matrix: _Array = np.exp(-0.5 * ((a[:, None] - b) / length) ** 2)
    return matrix


def rough_correlation(a: _Array, b: _Array, length: float) -> _Array:
    """Return the same for a field with kinks: Matérn 3/2, (1 + √3 d / length) exp(-√3 d / length)."""
    far = np.sqrt(3.0) * np.abs(a[:, None] - b) / length
    matrix: _Array = (1.0 + far) * np.exp(-far)
    return matrix


_LOGARITHMIC_RATIO = 10.0
"""Ratio of bounds above which a logarithmic scale is used, so that 0.01 and 0.1 are as far apart as 0.1 and 1."""
_SMALLEST_FRACTION = 1.0e-3
"""Smallest reachable fraction of the upper bound if the lower bound is 0 (a logarithm needs a floor)."""
_AT_BOUND_FRACTION = 0.01
"""Distance from an end, as a fraction of the range (or of its logarithm), at which a value counts as at the bound."""
_EDGE = 1.0e-4
"""Start values at or beyond a bound are moved this fraction of the range inside; the sigmoid is flat at its ends."""


@dataclass(frozen=True)
class Bound:
    """The range of one parameter."""

    low: float
    high: float
    logarithmic: bool

    def value(self, free: torch.Tensor) -> torch.Tensor:
        """Return values inside the bounds, from free numbers of any shape."""
        fraction = torch.sigmoid(free)
        if self.logarithmic:
            return self.low * torch.exp(math.log(self.high / self.low) * fraction)
        return self.low + (self.high - self.low) * fraction

    def free(self, value: torch.Tensor | float) -> torch.Tensor:
        """Return the inverse of `value`; values outside are clipped first."""
        fraction = self.fraction(value).clamp(_EDGE, 1.0 - _EDGE)
        return torch.log(fraction) - torch.log1p(-fraction)

    def fraction(self, value: torch.Tensor | float) -> torch.Tensor:
        """Return the position of the value in the range, 0 to 1."""
        v = torch.as_tensor(value, dtype=torch.float64).clamp(self.low, self.high)
        if self.logarithmic:
            return torch.log(v / self.low) / math.log(self.high / self.low)
        return (v - self.low) / (self.high - self.low)

    def touches(self, value: float) -> bool:
        """Return True if the value has reached an end of the range."""
        fraction = float(self.fraction(value))
        return not _AT_BOUND_FRACTION < fraction < 1.0 - _AT_BOUND_FRACTION


def make_bound(name: str, low: float, high: float) -> Bound:
    """Return the bound of a parameter; wide positive ranges become logarithmic."""
    if not low < high:
        raise InputError(
            f"calibrate.bounds.{name} is [{low:g}, {high:g}]. The first number must be the lower one. Swap them."
        )
    if low == 0.0:
        low = _SMALLEST_FRACTION * high
    return Bound(low, high, logarithmic=low > 0.0 and high / low >= _LOGARITHMIC_RATIO)
