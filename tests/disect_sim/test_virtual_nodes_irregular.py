"""Meshes as the mesher makes them: pytetwild on an icosphere and, if at hand, on the paper's primitives."""

import contextlib

import numpy as np
import pytest
import trimesh

from disect_sim.cut_mesh import tet_volumes
from disect_sim.virtual_nodes.cutting import cut_by_plane, cut_by_surface
from tests.disect_sim.tet_meshes import assert_conserves, assert_two_manifold_bodies, sheet
from tests.real_data import real_file


def mesh_with_tetwild(surface, directory, edge_fraction=0.12):
    pytetwild = pytest.importorskip("pytetwild")
    # The mesher leaves __tracked_surface.stl in the working directory.
    with contextlib.chdir(directory):
        nodes, tets = pytetwild.tetrahedralize(
            np.asarray(surface.vertices, float),
            np.asarray(surface.faces, np.int32),
            edge_length_fac=edge_fraction,
        )[:2]
    tets = np.array(tets)
    flipped = tet_volumes(nodes, tets) < 0.0
    tets[flipped] = tets[flipped][:, [0, 2, 1, 3]]
    return nodes, tets


@pytest.fixture(scope="module")
def ball(tmp_path_factory):
    surface = trimesh.creation.icosphere(3, 0.035)
    surface.apply_translation((0, 0.035, 0))
    return mesh_with_tetwild(surface, tmp_path_factory.mktemp("mesher"))


@pytest.mark.parametrize("normal", [(1, 0, 0), (1, 0.4, -0.2), (0, 1, 0.1)])
def test_ball_is_cut_in_half(ball, normal):
    cut = cut_by_plane(*ball, point=(0, 0.035, 0), normal=normal)
    assert_conserves(cut, *ball)
    assert_two_manifold_bodies(cut)
    # 1280 faces lie up to 0.4 % inside the sphere and the mesher may move them by 0.1 % of the diagonal.
    assert cut.spring_area.sum() == pytest.approx(np.pi * 0.035**2, rel=0.02)
    assert cut.material_volume(1) == pytest.approx(cut.material_volume(-1), rel=0.02)
    assert 0 < cut.spring_surface.sum() < len(cut.spring_area)


def test_ball_is_cut_by_a_curved_surface(ball):
    vertices, faces = sheet(lambda y, z: 0.004 * np.sin(90 * y) + 3 * z**2, 60)
    cut = cut_by_surface(*ball, surface_vertices=vertices, surface_faces=faces)
    assert_conserves(cut, *ball)
    assert_two_manifold_bodies(cut)


@pytest.mark.parametrize(
    "name",
    [
        "ansys_sphere_5mm",
        pytest.param("ansys_cyl_5mm", marks=pytest.mark.slow),
        pytest.param("ansys_prism_5mm", marks=pytest.mark.slow),
    ],
)
def test_primitives_of_the_paper_are_cut(name, tmp_path):
    path = real_file("meshes", f"{name}.stl")
    nodes, tets = mesh_with_tetwild(trimesh.load_mesh(path), tmp_path)
    centre = nodes[tets].mean(axis=(0, 1))
    cut = cut_by_plane(nodes, tets, point=centre)
    assert_conserves(cut, nodes, tets)
    assert_two_manifold_bodies(cut)
    assert cut.tet_fraction.min() >= 0.999e-6
