"""The simulator's model of a body and knife as a section of params.yaml describes them."""

import numpy as np

from disect_sim import KNIVES, Model, build_model
from disect_sim.cut_mesh import CutMesh
from disect_sim.materials import Material
from stages.runtime.params import CuttingParams

OFF_PLANE_M = 1.0e-3
"""A cut surface farther than this from the knife's plane x = 0 is not what the knife cuts [m]: half its spine."""


def cutting_model(mesh: CutMesh, material: Material, params: CuttingParams) -> Model:
    """The body with the section's knife, boundary and damage law."""
    return build_model(
        mesh, material, KNIVES[params.knife], boundary=params.boundary, damage_law=params.damage_law
    )


def off_plane_m(mesh: CutMesh) -> float:
    """Largest distance of the cut surface from the knife's plane x = 0 [m]."""
    return float(np.abs(mesh.virtual_positions()[:, 0]).max())
