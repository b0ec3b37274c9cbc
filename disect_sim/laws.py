"""The laws that are chosen by name. A law is added by a file with its kernels and a line in its table.

Importing the tables costs neither Warp nor torch; the kernels load when a run needs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from disect_sim.outcome import InputError

# What a number a user can give is: default, usual range, unit, meaning.


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


_Entry = TypeVar("_Entry")


def _choose(what: str, name: str, table: Mapping[str, _Entry]) -> _Entry:
    """The entry of that name, or a refusal that says what there is."""
    if name not in table:
        known = ", ".join(map(repr, table))
        raise InputError(f"model: {what} is {name!r}. It must be one of {known}. Choose one.")
    return table[name]


# Damage laws: how springs lose their stiffness. One line per law; its kernel is in disect_sim/kernels.


@dataclass(frozen=True)
class _DamageLaw:
    """A law and what it changes about the parameters."""

    kernel: str
    """Name of the law's kernel in kernels/damage.py, or "edge" for kernels/edge.py."""
    meaning: str
    parameters: Mapping[str, ParameterInfo] = field(default_factory=dict)
    """Spring parameters that mean something else under this law than SPRING_PARAMETERS says."""
    ignores: tuple[str, ...] = ()
    """Spring parameters that have no effect under this law."""
    differentiable: bool = True

    @property
    def at_edge(self) -> bool:
        """Whether springs go where the edge has passed, at a price, and not by what they feel."""
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
        "springs soften with their widest opening, which costs ke opening² / 6 per reference area",
        {
            "cut_spring_softness": ParameterInfo(
                2.0e-3, 0.2e-3, 10.0e-3, "m", "opening at which the spring is gone"
            )
        },
        ignores=EDGE_PARAMETERS,
    ),
    "edge": _DamageLaw(
        "edge",
        "the edge severs what it passes, at a fracture toughness per area",
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
                500.0, 10.0, 5000.0, "N/m per m", "how fast the spring weakens under the knife"
            )
        },
        ignores=EDGE_PARAMETERS,
    ),
}
DEFAULT_DAMAGE_LAW = "force"


def damage_law(name: str) -> _DamageLaw:
    """The law of that name; refuses an unknown one."""
    return _choose("damage_law", name, DAMAGE_LAWS)


# Contact laws: which distance to the knife its contact uses. One line per law; see kernels/contact_point.py.


@dataclass(frozen=True)
class _ContactLaw:
    """A law and what can be asked of it."""

    code: int
    """Number by which kernels/contact_point.py, the only file that asks, tells the laws apart."""
    meaning: str
    differentiable: bool


CONTACT_LAWS = {
    "one_sided": _ContactLaw(0, "smooth distance to the flank on the edge's own side", differentiable=True),
    "exact": _ContactLaw(1, "the paper's two-sided distance", differentiable=False),
}
DEFAULT_CONTACT_LAW = "one_sided"


def contact_law(name: str) -> _ContactLaw:
    """The law of that name; refuses an unknown one."""
    return _choose("contact_law", name, CONTACT_LAWS)
