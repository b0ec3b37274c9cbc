"""Elastic materials of the paper's four fruits."""

from dataclasses import dataclass, replace

from disect_sim.errors import InputError


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
                "Modulus and density must be > 0 and 0 <= poisson < 0.5. Correct the material."
            )
        if not self.retardation_s >= 0.0:
            raise InputError(
                f"material: retardation_s is {self.retardation_s}. It must be >= 0 s. Correct it."
            )

    def replaced(self, **changes: float) -> "Material":
        """The same material with some values changed."""
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
}
"""Values as printed in Heiden et al. 2022; the banana's modulus is the paper's, low as it looks."""
LARGE_M3 = {"apple": 280.0e-6, "potato": 340.0e-6, "cucumber": 320.0e-6, "banana": 250.0e-6}
"""Volume of a large one [m³].

Of the largest size in the USDA's FoodData Central: 223 g at 0.8 g/cm³, 369 g at 1.08, 301 g at 0.95, and 152 g without
its peel, which is 36 % of a banana, at 0.95."""
