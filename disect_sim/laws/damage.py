"""Damage laws: how springs lose their stiffness. One line per law; its kernel is in disect_sim/kernels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from disect_sim.laws import choose
from disect_sim.quantities import ParameterInfo


@dataclass(frozen=True)
class DamageLaw:
    """A law and what it changes about the parameters."""

    kernels: str
    """Module of disect_sim.kernels with the law: its kernel `damage` (see kernels/damage.py), or kernels/edge.py."""
    meaning: str
    parameters: Mapping[str, ParameterInfo] = field(default_factory=dict)
    """Spring parameters that mean something else under this law than SPRING_PARAMETERS says."""
    ignores: tuple[str, ...] = ()
    """Spring parameters that have no effect under this law."""
    differentiable: bool = True

    @property
    def at_edge(self) -> bool:
        """Whether springs go where the edge has passed, at a price, and not by what they feel."""
        return self.kernels == "edge"


EDGE_PARAMETERS = ("edge_toughness", "edge_rise", "skin_toughness", "skin_depth")

DAMAGE_LAWS = {
    "cohesive": DamageLaw(
        "damage_cohesive",
        "springs soften with their widest opening, which costs ke opening² / 6 per reference area",
        {
            "cut_spring_softness": ParameterInfo(
                2.0e-3, 0.2e-3, 10.0e-3, "m", "opening at which the spring is gone"
            )
        },
        ignores=EDGE_PARAMETERS,
    ),
    "edge": DamageLaw(
        "edge", "the edge severs what it passes and pays for the area", ignores=("cut_spring_softness",)
    ),
    "force": DamageLaw(
        "damage_force", "the paper's: springs weaken with the knife's force on them", ignores=EDGE_PARAMETERS
    ),
    "stretch": DamageLaw(
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


def damage_law(name: str) -> DamageLaw:
    """The law of that name; refuses an unknown one."""
    return choose("damage_law", name, DAMAGE_LAWS)
