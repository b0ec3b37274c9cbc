"""Halving the edge length changes the mean force by less than 10 %. Slow."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, OutcomeKind, cut_by_plane, simulate
from tests.disect_sim.scenes import block_model, regular_block, saved_block, tetwild_block

pytestmark = [pytest.mark.slow, pytest.mark.ci]

OFF_CENTRE = np.array([6e-4, 0.0, 0.0])
"""The mesher likes to put vertices on the middle plane of a box; cut beside it [m]."""


def cut(mesh):
    motion = ConstantVelocity(initial_y=0.0265, velocity_y=-0.1)
    result = simulate(block_model(mesh), motion, {"cut_spring_softness": 0.1}, duration=0.25)
    assert result.outcome.kind is OutcomeKind.COMPLETE
    return result


def test_regular_mesh():
    """Odd numbers of cells across the cut, so that no vertex lies on it: edges of 8, 5, 5 and 4.4, 2.8, 2.7 mm."""
    coarse, fine = (cut(regular_block(cells)).force_norm.mean() for cells in ((5, 5, 6), (9, 9, 11)))
    assert fine == pytest.approx(coarse, rel=0.1)


def test_irregular_mesh(tmp_path):
    """Edges of 5.6 and 2.8 mm; the mesher's dice alone are worth ±4 %, hence the mean of three coarse meshes."""
    forces = []
    for edge_fraction in (0.1, 0.1, 0.1, 0.05):
        nodes, tets = tetwild_block(tmp_path, edge_fraction)
        forces.append(cut(cut_by_plane(nodes + OFF_CENTRE, tets)).force_norm.mean())
    coarse, fine = np.mean(forces[:3]), forces[3]
    assert fine == pytest.approx(coarse, rel=0.1)


def test_vertices_on_the_cut_plane_make_no_difference():
    """Springs crowd around them: with normals from the nearest springs the force was 7 to 16 % higher."""
    nodes, tets = saved_block("synthetic_block_tetwild_fine")
    on_plane, beside = cut_by_plane(nodes, tets), cut_by_plane(nodes + OFF_CENTRE, tets)
    assert on_plane.snapped_vertices > 15
    assert beside.snapped_vertices == 0
    assert cut(on_plane).force_norm.mean() == pytest.approx(cut(beside).force_norm.mean(), rel=0.03)
