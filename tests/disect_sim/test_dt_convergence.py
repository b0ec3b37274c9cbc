"""The force profile of a whole cut of the half-sphere apple does not depend on the step. Slow."""

import numpy as np
import pytest
import trimesh

from disect_sim import ConstantVelocity, OutcomeKind, cut_by_plane, simulate
from lab.real_logs.real_data import real_data
from tests.disect_sim.scenes import block_model, tetwild

pytestmark = [pytest.mark.slow, pytest.mark.ci]


def half_sphere_surface():
    """The paper's half sphere of 50 mm radius if the real data is there, else the same shape made here (synthetic)."""
    folder = real_data()
    if folder is not None:
        return trimesh.load_mesh(folder / "meshes" / "ansys_sphere_5mm.stl")
    sphere = trimesh.creation.icosphere(subdivisions=4, radius=0.05)
    return trimesh.PointCloud(np.maximum(sphere.vertices, (-1.0, 0.0, -1.0))).convex_hull


def test_profile_from_1_ms_to_half_a_millisecond(tmp_path):
    mesh = cut_by_plane(*tetwild(half_sphere_surface(), tmp_path, 0.06))
    model = block_model(mesh)
    motion = ConstantVelocity(initial_y=0.051, velocity_y=-0.05)
    parameters = {"cut_spring_softness": 0.1}
    coarse, fine = (simulate(model, motion, parameters, duration=0.9, dt=dt) for dt in (1e-3, 5e-4))
    assert coarse.outcome.kind is fine.outcome.kind is OutcomeKind.COMPLETE
    assert len(coarse.force) == len(fine.force) == 900
    apart = np.linalg.norm(coarse.force - fine.force, axis=1)
    scale = fine.force_norm.mean()
    assert scale > 1.0
    assert apart.mean() < 0.03 * scale
    assert np.abs(coarse.cut_fraction - fine.cut_fraction[::2]).max() < 0.02
