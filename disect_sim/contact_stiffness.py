"""Stiffness of the knife contact on a body of given modulus: sdf_ke in series with a layer of flesh.

The knife's rounding r (`sdf_radius`) and its tip width w (`sdf_tip`) displace a layer of flesh of the thickness r + w.
Per reference area A it has the stiffness E A / (r + w), in series with `sdf_ke`:

    1 / k = 1 / ke + (r + w) / (E A),   damping c = kd k / ke

Firm flesh (3 MPa) leaves 96 % of `sdf_ke`, flesh of 3 kPa 2 %. Without the layer, a contact far stiffer than
the body pushes soft flesh down, by friction and by the blunt tip, before the edge has parted it.
"""

from dataclasses import dataclass

import numpy as np

from disect_sim.parameters import REFERENCE_AREA_M2, ExpandedParameters


@dataclass(frozen=True)
class SeriesStiffness:
    """Contact stiffness and damping per reference area, one value per spring."""

    given: np.ndarray
    """`sdf_ke` [N/m], shape [spring_count]."""
    damping_given: np.ndarray
    """`sdf_kd` [N s/m], shape [spring_count]."""
    thickness: np.ndarray
    """Thickness of the layer, `sdf_radius` + `sdf_tip` [m], shape [spring_count]."""
    young: np.ndarray
    """Young's modulus [Pa], shape [spring_count]."""

    @property
    def layer(self) -> np.ndarray:
        """Stiffness of the layer [N/m], shape [spring_count]."""
        return self.young * REFERENCE_AREA_M2 / self.thickness

    @property
    def share(self) -> np.ndarray:
        """Share s of the given stiffness that acts [-], shape [spring_count]."""
        return self.layer / (self.given + self.layer)

    @property
    def stiffness(self) -> np.ndarray:
        """Stiffness k that acts [N/m], shape [spring_count]."""
        return self.given * self.share

    @property
    def damping(self) -> np.ndarray:
        """Damping c that acts [N s/m], shape [spring_count]."""
        return self.damping_given * self.share

    def pullback(self, stiffness_bar: np.ndarray, damping_bar: np.ndarray) -> "SeriesBars":
        """Return the gradients in the given values from those in k and c, each of shape [spring_count, columns]."""
        share, total = self.share[:, None], (self.given + self.layer)[:, None]
        share_bar = self.given[:, None] * stiffness_bar + self.damping_given[:, None] * damping_bar
        layer_bar = share_bar * self.given[:, None] / total**2
        return SeriesBars(
            given=share * stiffness_bar - share_bar * share / total,
            damping_given=share * damping_bar,
            thickness=-layer_bar * (self.layer / self.thickness)[:, None],
            young=layer_bar * (self.layer / self.young)[:, None],
        )


@dataclass(frozen=True)
class SeriesBars:
    """Gradients in the fields of SeriesStiffness, each of shape [spring_count, columns]."""

    given: np.ndarray
    damping_given: np.ndarray
    thickness: np.ndarray
    young: np.ndarray


def series_stiffness(parameters: ExpandedParameters) -> SeriesStiffness:
    """Return the contact stiffness of every spring of a body, or of several copies of it."""
    given = parameters.row("sdf_ke")
    young = [material.young_pa for material in parameters.materials]
    return SeriesStiffness(
        given,
        parameters.row("sdf_kd"),
        parameters.row("sdf_radius") + parameters.row("sdf_tip"),
        np.repeat(young, len(given) // len(young)),
    )
