"""The simulator's model of a body and knife as the section `cut` of params.yaml describes them."""

import numpy as np

from disect_sim import Model, build_model
from disect_sim.cut_mesh import CutMesh
from disect_sim.materials import Material
from stages.shared.cut.params import CutParams

OFF_PLANE_M = 1.0e-3
"""A cut surface farther than this from the knife's plane x = 0 is not what the knife cuts [m]: half its spine."""


def cutting_model(mesh: CutMesh, material: Material, cut: CutParams) -> Model:
    """The body with the cut's knife, boundary and damage law."""
    return build_model(mesh, material, cut.blade, boundary=cut.boundary, damage_law=cut.damage_law)


def off_plane_m(mesh: CutMesh) -> float:
    """Largest distance of the cut surface from the knife's plane x = 0 [m]."""
    return float(np.abs(mesh.virtual_positions()[:, 0]).max())
