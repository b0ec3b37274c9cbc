"""Parameters of a run: defaults, bounds, units, meanings, elastic materials, and expansion to one value per spring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from disect_sim import laws
from disect_sim.laws import ParameterInfo
from disect_sim.outcome import InputError

REFERENCE_AREA_M2 = 1.2e-5
"""Area per spring for which spring and contact parameters are stated [m^2]: that of a 5 mm tet mesh."""


@dataclass(frozen=True)
class Material:
    """A linear-elastic material at small strain."""

    young_pa: float
    """Young's modulus [Pa]."""
    poisson: float
    """Poisson's ratio [-]."""
    density_kg_m3: float
    """Density [kg/m³]."""
    retardation_s: float = 1.0e-5
    """Kelvin-Voigt retardation time: viscous stress is this times the elastic stiffness times the strain rate [s]."""

    def __post_init__(self) -> None:
        if not (self.young_pa > 0.0 and 0.0 <= self.poisson < 0.5 and self.density_kg_m3 > 0.0):
            raise InputError(
                f"material: young_pa {self.young_pa}, poisson {self.poisson}, density_kg_m3 {self.density_kg_m3}. "
                "Modulus and density must be > 0 and 0 <= poisson < 0.5: at 0.5 a body keeps its volume exactly, which "
                "these elements cannot. Use 0.49 for flesh that is nearly incompressible, and correct the others."
            )
        if not self.retardation_s >= 0.0:
            raise InputError(
                f"material: retardation_s is {self.retardation_s}. It must be >= 0 s. Correct it."
            )

    def replaced(self, **changes: float) -> "Material":
        """Return the same material with some values changed."""
        return replace(self, **changes)

    @property
    def lame_mu_pa(self) -> float:
        """Second Lamé parameter (shear modulus) [Pa]."""
        return self.young_pa / (2.0 * (1.0 + self.poisson))

    @property
    def lame_lambda_pa(self) -> float:
        """First Lamé parameter [Pa]."""
        return self.young_pa * self.poisson / ((1.0 + self.poisson) * (1.0 - 2.0 * self.poisson))


MATERIALS = {
    "apple": Material(3.0e6, 0.17, 787.0),
    "potato": Material(2.0e6, 0.45, 630.0),
    "cucumber": Material(2.5e6, 0.37, 950.0),
    "banana": Material(3.048e3, 0.28, 1350.0),
    "jelly": Material(5.0e3, 0.47, 1050.0),
    "tomato": Material(1.0e5, 0.4, 1000.0),
    "avocado": Material(2.0e5, 0.4, 1000.0),
}
"""The first four as printed in Heiden et al. 2022, including the low modulus of the banana; the others, ripe fruit and
a dessert jelly, are assumed (stages/shared/library/priors.json).
"""
LARGE_M3 = {
    "apple": 280.0e-6,
    "potato": 340.0e-6,
    "cucumber": 320.0e-6,
    "banana": 250.0e-6,
    "jelly": 500.0e-6,
    "tomato": 190.0e-6,
    "avocado": 280.0e-6,
}
"""Volume of a large fruit [m³].

From the largest size in the USDA's FoodData Central: 223 g at 0.8 g/cm³, 369 g at 1.08, 301 g at 0.95, and 152 g
without the peel, which is 36 % of a banana, at 0.95; a tomato of 182 g. Avocado and jelly are assumed.
"""


SPRING_PARAMETERS = {
    "cut_spring_ke": ParameterInfo(
        500.0,
        100.0,
        8000.0,
        "N/m",
        "stiffness of the spring before damage, per reference area",
        per_area=True,
    ),
    "cut_spring_kd": ParameterInfo(
        0.1, 0.01, 0.15, "N·s/m", "damping of the spring, per reference area", per_area=True
    ),
    "cut_spring_softness": ParameterInfo(0.01, 0.0, 1.0, "-", "damage rate of the spring under the knife"),
    "sdf_ke": ParameterInfo(
        1000.0,
        500.0,
        8000.0,
        "N/m",
        "stiffness of the knife contact on firm flesh, per reference area",
        per_area=True,
    ),
    "sdf_kd": ParameterInfo(
        1.0, 0.1, 100.0, "N·s/m", "damping of the knife contact, per reference area", per_area=True
    ),
    "sdf_kf": ParameterInfo(0.01, 0.001, 8000.0, "m/s", "slip speed of full friction"),
    "sdf_mu": ParameterInfo(0.5, 0.02, 1.0, "-", "friction coefficient of the knife"),
    "sdf_stribeck": ParameterInfo(0.0, 0.0, 0.5, "-", "static friction coefficient minus sdf_mu"),
    "sdf_radius": ParameterInfo(0.5e-3, 0.1e-3, 1.2e-3, "m", "contact rounding of the knife"),
    "sdf_tip": ParameterInfo(1.0e-3, 0.2e-3, 3.0e-3, "m", "tip width: blend of flank and edge of the knife"),
    "edge_toughness": ParameterInfo(300.0, 5.0, 5000.0, "J/m^2", "fracture toughness"),
    "edge_rise": ParameterInfo(1.5e-3, 0.3e-3, 6.0e-3, "m", "edge rise length"),
    # From 44 public sawing cuts of zucchini, carrot and potato by a robot (KTH): slice : drag : press =
    # 0.43 : 0.32 : 0.25; between fruits log(slice / press) ~ N(0.54, 0.8) and log(drag / press) ~ N(0.25, 0.45).
    "edge_press": ParameterInfo(
        0.25, 0.0, 0.9, "-", "press share of the toughness, not lowered by drawing the blade"
    ),
    "edge_drag": ParameterInfo(
        0.32, 0.0, 0.9, "-", "drag share of the toughness, friction of the edge against the blade's velocity"
    ),
    "skin_toughness": ParameterInfo(
        0.0, 0.0, 2.0e4, "J/m^2", "skin toughness, in addition to edge_toughness"
    ),
    "skin_depth": ParameterInfo(1.0e-3, 0.3e-3, 4.0e-3, "m", "decay depth of the skin toughness"),
}
"""Parameters with one value per spring, or one for all; a damage law may change the meaning of some."""

MATERIAL_PARAMETERS = {
    "young_pa": ParameterInfo(3.0e6, 1.0e3, 1.0e8, "Pa", "Young's modulus"),
    "poisson": ParameterInfo(0.17, 0.01, 0.49, "-", "Poisson's ratio"),
    "density_kg_m3": ParameterInfo(787.0, 100.0, 3000.0, "kg/m^3", "density"),
    "retardation_s": ParameterInfo(
        1.0e-5, 0.0, 1.0e-1, "s", "retardation time: viscous stress / elastic stiffness"
    ),
}
"""Parameters of the body as a whole. Defaults come from the model's material."""

SURFACE_PREFIX = "surface_"
"""`surface_<spring parameter>` replaces the value for springs on the skin."""

SPRING_NAMES = tuple(SPRING_PARAMETERS)
CONTACT_NAMES = ("sdf_ke", "sdf_kd", "sdf_kf", "sdf_mu", "sdf_stribeck", "sdf_radius", "sdf_tip")
"""Columns of the contacts' parameter table, in the order of kernels/contact_point.py."""
CONTACT_PER_AREA = np.array([SPRING_PARAMETERS[name].per_area for name in CONTACT_NAMES])
"""True for the columns multiplied by the area ratio, shape [7], bool."""

_SHARE_ROUNDING = 1.0e-9
"""Rounding by which the shares of the toughness may exceed 1 in sum."""

Values = Mapping[str, float | np.ndarray]


def parameter_info(name: str, *, damage_law: str = laws.DEFAULT_DAMAGE_LAW) -> ParameterInfo:
    """Return the description of the named parameter under a damage law; a `surface_` prefix is ignored."""
    bare = name.removeprefix(SURFACE_PREFIX)
    changed = laws.damage_law(damage_law).parameters
    if bare in SPRING_PARAMETERS:
        return changed.get(bare, SPRING_PARAMETERS[bare])
    if name in MATERIAL_PARAMETERS:
        return MATERIAL_PARAMETERS[name]
    names = ", ".join((*SPRING_PARAMETERS, *MATERIAL_PARAMETERS))
    raise InputError(
        f"parameters: {name!r} is not a parameter. Known: {names}; spring parameters also with the prefix "
        f"'{SURFACE_PREFIX}' for the skin. Correct the name."
    )


@dataclass(frozen=True)
class ExpandedParameters:
    """All parameters of a run, one value per spring."""

    spring: np.ndarray
    """Shape [parameter kind, spring_count], rows in the order of SPRING_NAMES."""
    materials: tuple[Material, ...]
    """Materials of the bodies: one, or one per copy."""
    given: dict[str, np.ndarray]
    """Parameters the user gave, as arrays (shape [] or [spring_count])."""

    @property
    def material(self) -> Material:
        """The material of the only body."""
        (material,) = self.materials
        return material

    def row(self, name: str) -> np.ndarray:
        """Return the values of the named spring parameter, shape [spring_count]."""
        return self.spring[SPRING_NAMES.index(name)]


def expand(values: Values, material: Material, surface: np.ndarray, damage_law: str) -> ExpandedParameters:
    """Expand user values and defaults to one value per spring for every parameter."""
    count = len(surface)
    given = {name: np.asarray(value, float) for name, value in values.items()}
    for name, value in given.items():
        info = parameter_info(name, damage_law=damage_law)
        if value.shape not in ((), (count,)) or (name in MATERIAL_PARAMETERS and value.shape != ()):
            rule = "one number" if name in MATERIAL_PARAMETERS else f"one number, or one per spring ({count})"
            raise InputError(f"parameters: {name} has shape {value.shape}. It takes {rule}. Reshape it.")
        if not np.isfinite(value).all() or (value < 0.0).any() or (info.low > 0.0 and (value == 0.0).any()):
            raise InputError(
                f"parameters: {name} has the value {value.min():g}. It must be finite and positive "
                f"(usual range {info.low:g} to {info.high:g} {info.unit}). Correct it."
            )
    spring = np.empty((len(SPRING_NAMES), count))
    for row, name in enumerate(SPRING_NAMES):
        spring[row] = given.get(name, np.asarray(parameter_info(name, damage_law=damage_law).default))
        skin = given.get(SURFACE_PREFIX + name)
        if skin is not None:
            spring[row] = np.where(surface, skin, spring[row])
    _check_shares(spring[SPRING_NAMES.index("edge_press")], spring[SPRING_NAMES.index("edge_drag")])
    body = {name: float(given[name]) for name in MATERIAL_PARAMETERS if name in given}
    return ExpandedParameters(spring, (material.replaced(**body),), given)


def _check_shares(press: np.ndarray, drag: np.ndarray) -> None:
    """Reject toughness shares that sum to more than 1; shapes [spring_count]."""
    worst = int(np.argmax(press + drag)) if len(press) else 0
    if len(press) and press[worst] + drag[worst] > 1.0 + _SHARE_ROUNDING:
        raise InputError(
            f"parameters: edge_press {press[worst]:g} + edge_drag {drag[worst]:g} = {press[worst] + drag[worst]:g}. "
            "They are shares of edge_toughness, and the slice share 1 - edge_press - edge_drag must not be "
            "negative. Lower one of them."
        )


def joined(sets: Sequence[ExpandedParameters]) -> ExpandedParameters:
    """Concatenate the parameters of several copies of a body."""
    return ExpandedParameters(
        np.concatenate([one.spring for one in sets], axis=1), tuple(one.material for one in sets), {}
    )


def collect_gradient(
    expanded: ExpandedParameters,
    spring_bar: np.ndarray,
    material_bar: Mapping[str, float],
    surface: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the gradient in every parameter, in the shape it was given in (a scalar for those left at their default).

    spring_bar: gradient per spring, shape [parameter kind, spring_count].
    """
    gradients: dict[str, np.ndarray] = {}
    for row, name in enumerate(SPRING_NAMES):
        skin_name = SURFACE_PREFIX + name
        inner = spring_bar[row]
        if skin_name in expanded.given:
            skin = np.where(surface, inner, 0.0)
            gradients[skin_name] = skin if expanded.given[skin_name].ndim else skin.sum()
            inner = np.where(surface, 0.0, inner)
        individual = name in expanded.given and expanded.given[name].ndim
        gradients[name] = inner.copy() if individual else inner.sum()
    for name, value in material_bar.items():
        gradients[name] = np.asarray(value)
    return gradients
