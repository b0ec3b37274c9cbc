"""Elastic materials of the paper's four fruits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Material:
    """A linear-elastic material at small strain."""

    young_pa: float
    """Young's modulus [Pa]."""
    poisson: float
    """Poisson's ratio [-]."""
    density_kg_m3: float
    """Density [kg/m³]."""

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
