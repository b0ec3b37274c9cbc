"""Metrics and numbers in words: a key's unit is in its name, so label and value follow from it."""

import math
from typing import Any

UNITS = {
    "_m_s2": "m/s²",
    "_m_s": "m/s",
    "_rad_s": "rad/s",
    "_m3": "m³",
    "_m2": "m²",
    "_ns": "N·s",
    "_nm": "N·m",
    "_hz": "Hz",
    "_deg": "°",
    "_rad": "rad",
    "_kg": "kg",
    "_pa": "Pa",
    "_m": "m",
    "_n": "N",
    "_s": "s",
    "_j": "J",
}
"""Endings of keys, longest first, and the unit they stand for."""
MISSING = "–"


def label(key: str) -> str:
    """`mean_force_n` → `mean force [N]`."""
    for ending, unit in UNITS.items():
        if key.endswith(ending):
            return f"{key.removesuffix(ending).replace('_', ' ')} [{unit}]"
    return key.replace("_", " ")


def number(value: Any) -> str:
    """A value as a person wants to read it: four digits for fractions, whole numbers whole."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "not finite"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {number(item)}" for key, item in value.items()) or MISSING
    if isinstance(value, list | tuple):
        return ", ".join(number(item) for item in value) or MISSING
    return str(value)


def percent(value: Any) -> str:
    """A share of one, in percent."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return f"{100.0 * value:.1f} %" if usable else MISSING
