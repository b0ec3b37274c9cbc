"""Damage laws: how springs lose their stiffness. One line per law; its kernel is in disect_sim/kernels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from disect_sim.laws import choose
from disect_sim.quantities import ParameterInfo


@dataclass(frozen=True)
class DamageLaw:
    """A law and what it changes about the parameters."""

    kernels: str
    """Module of disect_sim.kernels whose kernel `damage` is the law (see kernels/damage.py)."""
    meaning: str
    parameters: Mapping[str, ParameterInfo] = field(default_factory=dict)
    """Spring parameters that mean something else under this law than SPRING_PARAMETERS says."""
    differentiable: bool = True


DAMAGE_LAWS = {
    "force": DamageLaw("damage_force", "springs weaken with the knife's force on them"),
    "stretch": DamageLaw(
        "damage_stretch",
        "springs weaken with their stretch while the knife touches them",
        {
            "cut_spring_softness": ParameterInfo(
                500.0, 10.0, 5000.0, "N/m per m", "how fast the spring weakens under the knife"
            )
        },
    ),
}
DEFAULT_DAMAGE_LAW = "force"


def damage_law(name: str) -> DamageLaw:
    """The law of that name; refuses an unknown one."""
    return choose("damage_law", name, DAMAGE_LAWS)
