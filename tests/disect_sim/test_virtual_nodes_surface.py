"""Cuts by a triangle surface: against the plane, against closed forms, and what is refused."""

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

from disect_sim.outcome import InputError
from disect_sim.virtual_nodes.cutting import cut_by_plane, cut_by_surface
from disect_sim.virtual_nodes.signed_distance import CuttingSurface, TriangleBvh, _closest_on_triangles
from disect_sim.virtual_nodes.split import half_body
from tests.disect_sim.tet_meshes import (
    BOX_VOLUME,
    assert_conserves,
    assert_two_manifold_bodies,
    jittered_box,
    regular_box,
    sheet,
)


def cut(mesh, surface, **options):
    return cut_by_surface(*mesh, surface_vertices=surface[0], surface_faces=surface[1], **options)


def bowl(y, z):
    return 5.0 * ((y - 0.02) ** 2 + z**2) - 0.005


@pytest.mark.parametrize("cells", [1, 7])
def test_flat_surface_cuts_like_the_plane(cells):
    mesh = jittered_box(4)
    by_plane = cut_by_plane(*mesh)
    by_surface = cut(mesh, sheet(lambda y, z: 0.0 * y, cells))
    assert (by_surface.tets == by_plane.tets).all()
    assert (by_surface.virtual_parents == by_plane.virtual_parents).all()
    assert (by_surface.spring_surface == by_plane.spring_surface).all()
    # The root search stops within 1e-10 of an edge.
    assert np.allclose(by_surface.virtual_coordinate, by_plane.virtual_coordinate, atol=2e-10)
    assert np.allclose(by_surface.spring_position, by_plane.spring_position, atol=1e-11)
    assert np.allclose(by_surface.spring_area, by_plane.spring_area, atol=1e-12)


def test_flat_surface_through_the_vertices_of_a_grid():
    mesh = regular_box((4, 4, 6))
    result = cut(mesh, sheet(lambda y, z: 0.0 * y, 1))
    assert result.snapped_vertices == 5 * 7
    assert_conserves(result, *mesh)
    assert_two_manifold_bodies(result)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_curved_surface_conserves_and_leaves_two_bodies(seed):
    mesh = jittered_box(seed, (7, 6, 8))
    surface = sheet(lambda y, z: 0.006 * np.sin(80 * y + seed) + 4 * z**2)
    result = cut(mesh, surface)
    assert_conserves(result, *mesh)
    assert_two_manifold_bodies(result)
    off = np.abs(CuttingSurface(*surface).signed_distance(result.virtual_positions()))
    ends = result.nodes[result.virtual_parents]
    length = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    moved = np.minimum(result.virtual_coordinate, 1 - result.virtual_coordinate) <= 0.01 * (1 + 1e-9)
    assert (off[~moved] <= 2e-10 * length[~moved]).all()
    # Moved by the tolerance, 1 % of the edge, after the near end was within 1 % of its mean edge.
    assert (off[moved] <= 0.01 * (length[moved] + length.max())).all()


def test_volume_and_area_of_a_curved_cut_converge_with_the_square_of_the_edge():
    half_y, half_z, b = 0.02, 0.03, 5.0
    volume = BOX_VOLUME / 2 - (b * (half_y**2 + half_z**2) / 3 - 0.005) * 0.04 * 0.06
    y, z = (np.linspace(-h, h, 801) for h in (half_y, half_z))
    slope = np.sqrt(1 + 4 * b**2 * (y[:, None] ** 2 + z**2))
    area = np.trapezoid(np.trapezoid(slope, z, axis=1), y)
    surface = sheet(bowl, 100, half_size=0.033)
    errors = []
    for n in (5, 10, 20):
        result = cut(regular_box((n, n, n)), surface, snap_tolerance_fraction=1e-4)
        errors.append((abs(result.material_volume(1) / volume - 1), abs(result.spring_area.sum() / area - 1)))
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    # Second order, less a little for the surface's own triangles (0.7 mm beside tets of 2 mm).
    assert (rates > 1.7).all(), (errors, rates)


def test_shallow_double_crossings_of_a_curved_surface_are_cut_straight():
    # Edges of 7 mm bulge at most 7²/(8 · 20) = 0.3 mm, 4 % of the edge, through a cylinder of radius 20 mm.
    mesh = regular_box((7, 6, 9))
    result = cut(
        mesh, sheet(lambda y, z: np.sqrt(np.maximum(0.04**2 - z**2, 0)) - 0.035, 120, half_size=0.036)
    )
    assert_conserves(result, *mesh)
    assert_two_manifold_bodies(result)


def test_other_orientation_swaps_the_sides():
    mesh = jittered_box(5)
    vertices, faces = sheet(bowl)
    one, other = cut(mesh, (vertices, faces)), cut(mesh, (vertices, faces[:, ::-1]))
    assert other.material_volume(-1) == pytest.approx(one.material_volume(1), rel=1e-9)


def test_closed_surface_cuts_out_a_ball():
    mesh = jittered_box(6, (10, 8, 12))
    ball = trimesh.creation.icosphere(4, 0.015)
    result = cut(mesh, (ball.vertices + np.array([0.0, 0.02, 0.0]), ball.faces))
    inside = half_body(result, -1)
    assert_conserves(result, *mesh)
    assert inside.face_on_cut.all()
    assert not result.spring_surface.any()
    # Chords of 5 mm edges across a ball of radius 15 mm: (h/2r)²/2 ≈ 1.4 % of the radius, 4 % of the volume.
    assert result.material_volume(-1) == pytest.approx(ball.volume, rel=0.06)


def test_border_that_leans_over_outside_the_body_is_no_cut():
    # A tray: the floor x = 0 cuts the body, the walls lean inwards beside it. Continued beyond their borders
    # the walls would pass through the body's corners, where the sign of the distance indeed changes.
    profile = np.array([(0.02, -0.032), (0.0, -0.045), (0.0, 0.045), (0.02, 0.032)])
    vertices = np.array([(x, y, z) for x, z in profile for y in (-0.05, 0.09)])
    i = 2 * np.arange(3)
    faces = np.concatenate([np.stack([i, i + 1, i + 3], axis=1), np.stack([i, i + 3, i + 2], axis=1)])
    nodes, tets = jittered_box(0, (6, 5, 7))
    corner = (nodes[:, 0] > 0.02) & (np.abs(nodes[:, 2]) > 0.027)
    assert (CuttingSurface(vertices, faces).signed_distance(nodes[corner]) < 0).any()
    result, flat = cut((nodes, tets), (vertices, faces)), cut_by_plane(nodes, tets)
    assert (result.tets == flat.tets).all()
    assert result.material_volume(1) == pytest.approx(flat.material_volume(1), rel=1e-9)


def test_surface_that_misses_is_refused():
    with pytest.raises(InputError, match="misses the body"):
        cut(regular_box(), sheet(lambda y, z: 0.1 + 0.0 * y))


def test_surface_that_ends_inside_is_refused():
    vertices, faces = sheet(lambda y, z: 0.0 * y, 24, half_size=0.012)
    with pytest.raises(InputError, match="ends inside the body and leaves it in one piece"):
        cut(jittered_box(1), (vertices, faces))


def test_fold_narrower_than_a_tet_is_refused():
    with pytest.raises(InputError, match="more than once"):
        cut(regular_box((5, 4, 5)), sheet(lambda y, z: 0.02 * np.exp(-((z / 0.0015) ** 2)), 200))


def test_surface_that_leaves_three_pieces_is_refused():
    # A wave that dips out of the far face of the box and comes back.
    with pytest.raises(InputError, match="pieces"):
        cut(jittered_box(2, (12, 6, 12), 0.05), sheet(lambda y, z: 0.04 * np.cos(100 * z), 120))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda v, f: (v * np.nan, f), "not finite"),
        (lambda v, f: (v, f[:0]), "at least one triangle"),
        (lambda v, f: (v, f + len(v)), "point to vertices"),
        (lambda v, f: (v[:, :2], f), "have vertices|has vertices"),
        (lambda v, f: (v, np.concatenate([f[:1, ::-1], f[1:]])), "opposite orientation"),
        (lambda v, f: (v, np.concatenate([f, f[:1]])), "more than two triangles"),
        (lambda v, f: (v, np.concatenate([f, [[0, 1, 1]]])), "no area"),
    ],
)
def test_malformed_surfaces_are_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        cut(regular_box(), change(*sheet(bowl, 4)))


def test_signed_distance_to_a_ball():
    ball = trimesh.creation.icosphere(3, 1.0)
    points = np.random.default_rng(0).normal(size=(500, 3))
    distance = CuttingSurface(ball.vertices, ball.faces).signed_distance(points)
    radius = np.linalg.norm(points, axis=1)
    # 1280 faces: edges of 0.15, at most h²/6 ≈ 0.004 inside the sphere.
    assert np.allclose(distance, radius - 1.0, atol=0.005)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.floats(0.01, 10.0))
def test_nearest_triangle_is_that_of_an_exhaustive_search(seed, count, size):
    rng = np.random.default_rng(seed)
    corners = rng.normal(size=(count, 1, 3)) + size * rng.normal(size=(count, 3, 3))
    points = 2.0 * rng.normal(size=(30, 3))
    nearest = TriangleBvh(corners).nearest(points)
    every = np.stack(
        [
            np.linalg.norm(_closest_on_triangles(points, np.broadcast_to(c, (30, 3, 3)))[0] - points, axis=1)
            for c in corners
        ],
        axis=1,
    )
    assert np.allclose(every[np.arange(30), nearest], every.min(axis=1), rtol=0, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_closest_point_beats_every_other_point_of_the_triangle(seed):
    rng = np.random.default_rng(seed)
    corners, point = rng.normal(size=(1, 3, 3)), rng.normal(size=(1, 3))
    closest, _ = _closest_on_triangles(point, corners)
    weights = rng.dirichlet([0.5, 0.5, 0.5], 300)
    others = weights @ corners[0]
    assert np.linalg.norm(closest - point) <= np.linalg.norm(others - point, axis=1).min() + 1e-12
    # And it is a point of the triangle.
    barycentric = np.linalg.lstsq(
        np.vstack([corners[0].T, np.ones(3)]), np.append(closest[0], 1.0), rcond=None
    )[0]
    assert np.allclose(barycentric @ corners[0], closest[0], atol=1e-9)
    assert barycentric.min() > -1e-9
