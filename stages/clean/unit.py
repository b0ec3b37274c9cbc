"""Which unit a scan is in, judged by its size."""

from dataclasses import dataclass

from disect_sim.errors import InputError

METRES_PER = {"m": 1.0, "cm": 0.01, "mm": 0.001, "in": 0.0254}
METRES_RANGE = (0.015, 0.6)
"""A largest extent in this range is a fruit in metres: 15 mm (a berry) to 600 mm (a long melon)."""
MILLIMETRES_RANGE = (25.0, 600.0)
"""A largest extent in this range is a fruit in millimetres; between the two ranges it could be in cm or
inches too."""


@dataclass(frozen=True)
class UnitChoice:
    """The factor to metres and how it was found."""

    metres_per_unit: float
    reason: str


def choose_unit(largest_extent: float, *, unit: str, scale: float | None) -> UnitChoice:
    """Factor from file units to metres.

    Args:
        largest_extent: largest side of the bounding box [file unit].
        unit: "auto", "m", "cm", "mm" or "in".
        scale: metres per file unit; overrides `unit` if given.
    """
    if scale is not None:
        choice = UnitChoice(scale, f"scale {scale:g} m per unit given")
    elif unit != "auto":
        choice = UnitChoice(METRES_PER[unit], f"unit {unit} given")
    elif METRES_RANGE[0] <= largest_extent <= METRES_RANGE[1]:
        choice = UnitChoice(METRES_PER["m"], f"metres, since the largest extent is {largest_extent:.4g}")
    elif MILLIMETRES_RANGE[0] <= largest_extent <= MILLIMETRES_RANGE[1]:
        choice = UnitChoice(
            METRES_PER["mm"], f"millimetres, since the largest extent is {largest_extent:.4g}"
        )
    else:
        raise InputError(
            f"The unit of the scan is ambiguous: its largest extent is {largest_extent:.4g}. "
            f"{METRES_RANGE[0]:g} to {METRES_RANGE[1]:g} is taken as metres, "
            f"{MILLIMETRES_RANGE[0]:g} to {MILLIMETRES_RANGE[1]:g} as millimetres. "
            "Give clean.unit (m, cm, mm or in) or clean.scale (metres per unit) in the scan's scan.yaml."
        )
    size = largest_extent * choice.metres_per_unit
    if not METRES_RANGE[0] <= size <= METRES_RANGE[1]:
        raise InputError(
            f"With {choice.reason} the scan is {size:.4g} m long. A fruit must be between "
            f"{METRES_RANGE[0]:g} and "
            f"{METRES_RANGE[1]:g} m. Change clean.unit or clean.scale."
        )
    return choice
