"""Perceptually uniform colours for numbers."""

from functools import cache

STEPS = 256
MAP, DATA_MAP = "viridis", "cividis"
"""For values of the fruit and the knife, and for how much data there is."""


@cache
def colour_map(name: str) -> tuple[str, ...]:
    """256 colours as #rrggbb, from low to high."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return tuple(to_hex(colormaps[name](i / (STEPS - 1))) for i in range(STEPS))


def colour_of(fraction: float, name: str = MAP) -> str:
    """The colour of a fraction from 0 to 1."""
    return colour_map(name)[round(min(max(fraction, 0.0), 1.0) * (STEPS - 1))]
