"""Bounded parameters as free ones: a sigmoid keeps every value inside its bounds."""

import math
from dataclasses import dataclass

import torch

from disect_sim.errors import InputError

LOGARITHMIC_RATIO = 10.0
"""Bounds further apart than this factor are covered in powers, so that 0.01 and 0.1 are as far apart as 0.1 and 1."""
SMALLEST_FRACTION = 1.0e-3
"""Of the upper bound: where the lower one is 0, values below this are out of reach (a logarithm needs a floor)."""
AT_BOUND_FRACTION = 0.01
"""A value within this share of the range (of its logarithm) from an end counts as at the bound."""
EDGE = 1.0e-4
"""Start values at or beyond a bound are taken this share of the range inside it; the sigmoid is flat at its ends."""


@dataclass(frozen=True)
class Bound:
    """The range of one parameter."""

    low: float
    high: float
    logarithmic: bool

    def value(self, free: torch.Tensor) -> torch.Tensor:
        """Values inside the bounds, from free numbers of any shape."""
        fraction = torch.sigmoid(free)
        if self.logarithmic:
            return self.low * torch.exp(math.log(self.high / self.low) * fraction)
        return self.low + (self.high - self.low) * fraction

    def free(self, value: torch.Tensor | float) -> torch.Tensor:
        """Inverse of `value`; what is outside is taken to the nearest end first."""
        fraction = self.fraction(value).clamp(EDGE, 1.0 - EDGE)
        return torch.log(fraction) - torch.log1p(-fraction)

    def fraction(self, value: torch.Tensor | float) -> torch.Tensor:
        """Where the value stands in the range, 0 to 1."""
        v = torch.as_tensor(value, dtype=torch.float64).clamp(self.low, self.high)
        if self.logarithmic:
            return torch.log(v / self.low) / math.log(self.high / self.low)
        return (v - self.low) / (self.high - self.low)

    def touches(self, value: float) -> bool:
        """True if the value has run into an end of the range."""
        fraction = float(self.fraction(value))
        return not AT_BOUND_FRACTION < fraction < 1.0 - AT_BOUND_FRACTION


def make_bound(name: str, low: float, high: float) -> Bound:
    """The bound of a parameter; wide positive ranges become logarithmic."""
    if not low < high:
        raise InputError(
            f"calibrate.bounds.{name} is [{low:g}, {high:g}]. The first number must be the lower one. Swap them."
        )
    if low == 0.0:
        low = SMALLEST_FRACTION * high
    return Bound(low, high, logarithmic=low > 0.0 and high / low >= LOGARITHMIC_RATIO)
