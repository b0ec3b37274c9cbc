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


def rgb(colour: str) -> tuple[int, int, int]:
    """#rrggbb as red, green and blue, 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def colour_of(fraction: float, name: str = MAP) -> str:
    """The colour of a fraction from 0 to 1."""
    return colour_map(name)[round(min(max(fraction, 0.0), 1.0) * (STEPS - 1))]
