"""Damage laws, selected by name, and the description of a parameter.

To add a law, add its kernel and a line in the table. Importing the table loads neither Warp nor torch; the kernels
are imported when a run needs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from disect_sim.outcome import InputError


@dataclass(frozen=True)
class ParameterInfo:
    """Description of a parameter: default, usual range, unit and meaning. Tables, fit bounds and messages use it."""

    default: float
    low: float
    """Lower end of the usual range."""
    high: float
    """Upper end of the usual range."""
    unit: str
    """SI unit, "-" if dimensionless."""
    meaning: str
    per_area: bool = False
    """True if the value is stated per reference area and multiplied by each spring's area ratio in the forces."""


_Entry = TypeVar("_Entry")


def _choose(what: str, name: str, table: Mapping[str, _Entry]) -> _Entry:
    """Return the entry of that name; raise an InputError that lists the names otherwise."""
    if name not in table:
        names = ", ".join(map(repr, table))
        raise InputError(f"model: {what} is {name!r}. It must be one of {names}. Choose one.")
    return table[name]


# Damage laws: how springs lose their stiffness


@dataclass(frozen=True)
class _DamageLaw:
    """A damage law and the parameters whose meaning it changes."""

    kernel: str
    """Name of the law's kernel in kernels/damage.py, or "edge" for kernels/edge.py."""
    meaning: str
    parameters: Mapping[str, ParameterInfo] = field(default_factory=dict)
    """Spring parameters whose meaning differs from SPRING_PARAMETERS under this law."""
    ignores: tuple[str, ...] = ()
    """Spring parameters that have no effect under this law."""

    @property
    def at_edge(self) -> bool:
        """True if the passage of the edge releases the springs, spending fracture toughness."""
        return self.kernel == "edge"


EDGE_PARAMETERS = (
    "edge_toughness",
    "edge_rise",
    "edge_press",
    "edge_drag",
    "skin_toughness",
    "skin_depth",
)

DAMAGE_LAWS = {
    "cohesive": _DamageLaw(
        "damage_cohesive",
        "springs soften with their largest opening; fracture energy ke opening² / 6 per reference area",
        {
            "cut_spring_softness": ParameterInfo(
                2.0e-3, 0.2e-3, 10.0e-3, "m", "opening at which the spring has failed"
            )
        },
        ignores=EDGE_PARAMETERS,
    ),
    "edge": _DamageLaw(
        "edge",
        "the edge severs the springs it passes, with a fracture toughness",
        ignores=("cut_spring_softness",),
    ),
    "force": _DamageLaw(
        "damage_force", "the paper's: springs weaken with the knife's force on them", ignores=EDGE_PARAMETERS
    ),
    "stretch": _DamageLaw(
        "damage_stretch",
        "springs weaken with their stretch while the knife touches them",
        {
            "cut_spring_softness": ParameterInfo(
                500.0, 10.0, 5000.0, "N/m per m", "damage rate of the spring under the knife"
            )
        },
        ignores=EDGE_PARAMETERS,
    ),
}
DEFAULT_DAMAGE_LAW = "force"


def damage_law(name: str) -> _DamageLaw:
    """Return the damage law of that name; raise an InputError if it is unknown."""
    return _choose("damage_law", name, DAMAGE_LAWS)
