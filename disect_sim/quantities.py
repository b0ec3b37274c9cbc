"""What a number a user can give is: default, usual range, unit, meaning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ParameterInfo:
    """What a parameter is. Whoever prints, bounds or stores parameters takes it from here."""

    default: float
    low: float
    """Lower end of the usual range."""
    high: float
    """Upper end of the usual range."""
    unit: str
    """SI unit, "-" for a plain number."""
    meaning: str
    per_area: bool = False
    """True if the value is stated per reference area, and multiplied by each spring's area ratio in the forces."""
