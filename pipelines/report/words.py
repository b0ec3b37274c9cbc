"""Metrics and numbers in words: a key's unit is in its name, so label and value follow from it."""

import math
from collections.abc import Mapping
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
READABLE = {
    "m": (1e3, "mm"),
    "m²": (1e6, "mm²"),
    "m³": (1e6, "cm³"),
    "Pa": (1e-3, "kPa"),
    "J/m^2": (1.0, "J/m²"),
    "kg/m^3": (1.0, "kg/m³"),
}
"""Units of files → factor and unit for people: a fruit is centimetres wide, an edge tenths of a millimetre."""


def label(key: str) -> str:
    """`mean_force_n` → `mean force [N]`."""
    for ending, unit in UNITS.items():
        if key.endswith(ending):
            return f"{key.removesuffix(ending).replace('_', ' ')} [{unit}]"
    return key.replace("_", " ")


def readable(unit: str) -> tuple[float, str]:
    """What to multiply a value of this unit with, and the unit it then has."""
    return READABLE.get(unit, (1.0, unit))


def labelled(key: str, value: Any) -> tuple[str, Any]:
    """A metric for people: `board_margin_m`, 0.0015 → `board margin [mm]`, 1.5."""
    text = label(key)
    unit = text.rpartition("[")[2].removesuffix("]") if text.endswith("]") else ""
    factor, better = readable(unit)
    if better == unit or not _are_numbers(value):
        return text, value
    scaled = [factor * item for item in value] if isinstance(value, list | tuple) else factor * value
    return text.replace(f"[{unit}]", f"[{better}]"), scaled


def _are_numbers(value: Any) -> bool:
    items = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(item, int | float) and not isinstance(item, bool) for item in items)


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


def unseen(fit: Mapping[str, Any]) -> str:
    """How far the fit was off where it had not looked, from calibrate's metrics."""
    if fit.get("nmae_next_cut") is not None:
        return f"the next cut was predicted {percent(fit['nmae_next_cut'])} off"
    if fit.get("nmae_forecast") is not None:
        return f"the end of the cut was forecast {percent(fit['nmae_forecast'])} off"
    if fit.get("nmae_held_out") is not None:
        return f"{percent(fit['nmae_held_out'])} off where the fit did not look"
    return "not checked against a log"
