"""Cuts by a plane: closed forms, conservation, topology, and what is refused."""

import numpy as np
import pytest
from scipy.spatial import ConvexHull, Delaunay

from disect_sim.cut_mesh import tet_volumes
from disect_sim.outcome import InputError
from disect_sim.virtual_nodes.cutting import cut_by_plane
from disect_sim.virtual_nodes.split import _duplicate_tets, tet_edges
from disect_sim.virtual_nodes.topology import outer_faces, pair_faces
from tests.disect_sim.tet_meshes import (
    BOX_VOLUME,
    assert_conserves,
    assert_two_manifold_bodies,
    delaunay_body,
    jittered_box,
    regular_box,
)

BOX_SECTION = 0.04 * 0.06


def off_plane(cut, point, normal):
    normal = np.asarray(normal, float) / np.linalg.norm(normal)
    return np.abs((cut.virtual_positions() - point) @ normal)


@pytest.mark.parametrize("offset", [0.0, 1e-3, -0.0071])
def test_box_cut_across_has_the_volumes_and_the_area_of_the_drawing(offset):
    nodes, tets = regular_box((5, 4, 6))
    cut = cut_by_plane(nodes, tets, point=(offset, 0, 0))
    assert cut.snapped_vertices == 0
    assert cut.material_volume(1) == pytest.approx(BOX_VOLUME * (0.025 - offset) / 0.05, rel=1e-12)
    assert cut.spring_area.sum() == pytest.approx(BOX_SECTION, rel=1e-12)
    assert_conserves(cut, nodes, tets)
    assert_two_manifold_bodies(cut)


@pytest.mark.parametrize("degrees", [5, 17, 33])
def test_tilted_plane_cuts_the_longer_section(degrees):
    nodes, tets = jittered_box(3, amount=0.0)
    angle = np.radians(degrees)
    # Through the box's centre line at half height, leaving through top and bottom.
    cut = cut_by_plane(
        nodes,
        tets,
        point=(0, 0.02, 0),
        normal=(np.cos(angle), np.sin(angle), 0),
        snap_tolerance_fraction=1e-4,
    )
    assert cut.snapped_vertices == 0
    assert cut.spring_area.sum() == pytest.approx(BOX_SECTION / np.cos(angle), rel=1e-12)
    assert cut.material_volume(1) == pytest.approx(BOX_VOLUME / 2, rel=1e-12)
    assert_conserves(cut, nodes, tets)


def test_ball_section_is_a_disc():
    # The hull of 2000 points on a sphere of radius r has edges h ≈ r √(4π/2000 · 2/√3) = 0.085 r. Its faces
    # lie up to h²/(6 r) ≈ 0.0012 r below the sphere, so section and volume are too small by less than
    # 2 · 0.12 %, or 4 · 0.12 % with uneven triangles; 1 % leaves a margin of two.
    radius, count = 0.035, 2000
    i = np.arange(count) + 0.5
    polar, azimuth = np.arccos(1 - 2 * i / count), np.pi * (1 + 5**0.5) * i
    shell = np.stack(
        [np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)], axis=1
    )
    inner = delaunay_body(1, 500, radius=0.95)[0]
    points = radius * np.concatenate([shell, inner])
    tets = Delaunay(points).simplices
    flipped = tet_volumes(points, tets) < 0.0
    tets[flipped] = tets[flipped][:, [0, 2, 1, 3]]
    cut = cut_by_plane(points, tets, point=(0.01, 0, 0), normal=(1, 0.3, 0.2))
    distance = 0.01 / np.sqrt(1 + 0.3**2 + 0.2**2)
    disc = np.pi * (radius**2 - distance**2)
    assert 0.99 * disc < cut.spring_area.sum() < disc
    cap_height = radius - distance
    cap = np.pi * cap_height**2 * (3 * radius - cap_height) / 3
    assert cut.material_volume(1) == pytest.approx(cap, rel=0.01)


def test_every_crossed_edge_has_one_spring_on_the_plane():
    nodes, tets = jittered_box(7)
    cut = cut_by_plane(nodes, tets, snap_tolerance_fraction=1e-4)
    assert cut.snapped_vertices == 0
    edges = tet_edges(tets)
    crossed = edges[np.prod(np.sign(nodes[edges, 0]), axis=1) < 0]
    parents = cut.node_original[cut.virtual_parents[cut.spring_virtual]]
    assert (np.sort(parents[:, 0]) == np.sort(parents[:, 1])).all()
    assert {tuple(e) for e in np.sort(parents[:, 0])} == {tuple(e) for e in crossed}
    assert len(cut.spring_area) == len(crossed)
    # Rounding of one interpolation on coordinates of a few centimetres.
    assert off_plane(cut, (0, 0, 0), (1, 0, 0)).max() < 1e-16
    z, y = cut.spring_position.T
    on_plus = cut.virtual_positions()[cut.spring_virtual[:, 0]]
    assert np.allclose(np.stack([z, y], axis=1), on_plus[:, [2, 1]], atol=1e-16)


def test_material_end_of_each_virtual_node_is_on_its_own_side():
    nodes, tets = jittered_box(8)
    cut = cut_by_plane(nodes, tets)
    assert (np.sign(cut.nodes[cut.virtual_parents[:, 0], 0]) == cut.virtual_side).all()
    assert (np.sign(cut.nodes[cut.virtual_parents[:, 1], 0]) == -cut.virtual_side).all()


def test_surface_springs_are_those_on_the_skin():
    nodes, tets = regular_box((5, 4, 6))
    cut = cut_by_plane(nodes, tets)
    z, y = cut.spring_position.T
    rim = np.isclose(np.abs(z), 0.03) | np.isclose(y, 0.0) | np.isclose(y, 0.04)
    assert rim.any() and not rim.all()
    assert (cut.spring_surface == rim).all()


def test_real_nodes_are_the_input_vertices_in_their_order():
    nodes, tets = jittered_box(2)
    cut = cut_by_plane(nodes, tets)
    assert (cut.node_original[: len(nodes)] == np.arange(len(nodes))).all()
    assert not cut.node_ghost[: len(nodes)].any()
    assert cut.node_ghost[len(nodes) :].all()
    assert (cut.nodes == nodes[cut.node_original]).all()


def test_unused_vertices_do_not_become_nodes():
    nodes, tets = jittered_box(2)
    stray = np.concatenate([nodes, [[1.0, 1.0, 1.0]]])
    assert len(cut_by_plane(stray, tets).nodes) == len(cut_by_plane(nodes, tets).nodes)


def test_neighbouring_copies_share_ghosts_and_unconnected_ones_do_not():
    # Two tets on both sides of the triangle 1, 2, 3, which is below the surface; tips 0 and 4 are above it.
    tets = np.array([[0, 1, 2, 3], [4, 1, 3, 2]])
    apart = _duplicate_tets(tets, np.array([1, -1, -1, -1, 1]), pair_faces(tets))
    above = apart.tets[apart.tet_side == 1]
    assert not set(above[0]) & set(above[1])
    assert apart.piece_count.tolist() == [2, 1]
    # With vertex 1 above as well, the material is connected across the triangle and so are its ghosts.
    joined = _duplicate_tets(tets, np.array([1, 1, -1, -1, 1]), pair_faces(tets))
    above = joined.tets[joined.tet_side == 1]
    assert len(set(above[0]) & set(above[1])) == 3
    assert joined.piece_count.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("point", "normal"),
    [
        ((0, 0, 0), (1, 0, 0)),  # through vertices, along edges and faces of the grid
        ((0, 0, 0), (1, 0, 0.1)),  # through a row of vertices
        ((0, 0.02, 0), (0, 1, 0)),
        ((0, 0.02, 0), (1.25, 1, 0)),  # through the grid's diagonals
        ((1e-5, 0, 0), (1, 0, 0)),  # within the tolerance of vertices
        ((-1e-5, 0, 0), (1, 0, 0)),
        ((1e-17, 0, 0), (1, 0, 0)),
    ],
)
def test_plane_through_vertices_and_along_edges(point, normal):
    nodes, tets = regular_box((4, 4, 6))
    cut = cut_by_plane(nodes, tets, point=point, normal=normal)
    assert cut.snapped_vertices > 0
    assert_conserves(cut, nodes, tets)
    assert_two_manifold_bodies(cut)
    assert cut.tet_fraction.min() >= 0.99e-6
    longest = np.linalg.norm(np.diff(nodes[tet_edges(tets)], axis=1), axis=2).max()
    # A crossing is moved by at most the tolerance (1 %) of its edge, which is no longer than the longest.
    assert off_plane(cut, point, normal).max() <= 0.01 * longest * (1 + 1e-9) + 1e-5


def test_face_lying_in_the_plane_does_not_become_a_flake():
    # An L: the lower floor reaches over to x < 0, the upper floor ends exactly in the plane x = 0.
    nodes, tets = regular_box((4, 4, 4))
    centre = nodes[tets].mean(axis=1)
    tets = tets[~((centre[:, 0] > 0) & (centre[:, 1] > 0.02))]
    cut = cut_by_plane(nodes, tets)
    assert_conserves(cut, nodes, tets)
    assert_two_manifold_bodies(cut)
    assert cut.material_volume(1) == pytest.approx(BOX_VOLUME / 4, rel=0.02)


def test_ring_is_cut_in_two_places_at_once():
    # A box with a hole from bottom to top, 1 cm along x and 2 cm along z, leaves two arches.
    nodes, tets = regular_box((5, 4, 6))
    centre = nodes[tets].mean(axis=1)
    tets = tets[~((np.abs(centre[:, 0]) < 0.005) & (np.abs(centre[:, 2]) < 0.01))]
    cut = cut_by_plane(nodes, tets)
    assert cut.spring_area.sum() == pytest.approx(0.04 * (0.06 - 0.02), rel=1e-12)
    assert cut.material_volume(1) == pytest.approx(0.04 * (0.025 * 0.06 - 0.005 * 0.02), rel=1e-12)
    assert_conserves(cut, nodes, tets)
    assert_two_manifold_bodies(cut)


def test_half_of_a_convex_body_is_the_hull_of_its_corners():
    nodes, tets = delaunay_body(5)
    normal = np.array([0.3, -1.0, 0.4])
    height = nodes @ normal
    cut = cut_by_plane(nodes, tets, normal=normal, snap_tolerance_fraction=1e-4)
    assert cut.snapped_vertices == 0
    edges = tet_edges(outer_faces(tets)[:, [0, 1, 2, 0]])
    edges = edges[np.prod(np.sign(height[edges]), axis=1) < 0]
    t = height[edges[:, 0]] / (height[edges[:, 0]] - height[edges[:, 1]])
    rim = nodes[edges[:, 0]] + t[:, None] * (nodes[edges[:, 1]] - nodes[edges[:, 0]])
    for side in (1, -1):
        hull = ConvexHull(np.concatenate([nodes[side * height > 0], rim]))
        assert cut.material_volume(side) == pytest.approx(hull.volume, rel=1e-9)


@pytest.mark.parametrize("point", [(0.1, 0, 0), (-0.1, 0, 0), (0.025, 0, 0), (-0.025, 0, 0)])
def test_plane_that_misses_or_only_touches_is_refused(point):
    with pytest.raises(InputError, match="misses the body"):
        cut_by_plane(*regular_box(), point=point)


def test_more_than_two_pieces_are_refused():
    nodes, tets = regular_box((4, 4, 6))
    centre = nodes[tets].mean(axis=1)
    u_shape = tets[~((np.abs(centre[:, 2]) < 0.01) & (centre[:, 1] > 0.01))]
    with pytest.raises(InputError, match=r"leaves 3 pieces \(2 on the positive side and 1 on the negative"):
        cut_by_plane(nodes, u_shape, point=(0, 0.025, 0), normal=(0, 1, 0))


def test_loose_piece_is_refused():
    nodes, tets = regular_box((4, 2, 2))
    both = np.concatenate([nodes, nodes + np.array([0.0, 0.0, 0.2])])
    with pytest.raises(InputError, match="leaves 4 pieces"):
        cut_by_plane(both, np.concatenate([tets, tets + len(nodes)]))


def quarters_joined_at_the_ends(bridge_from_x):
    """Two diagonal quarters of the box that touch along its middle line, joined where |x| > bridge_from_x."""
    nodes, tets = regular_box((5, 4, 4))
    centre = nodes[tets].mean(axis=1)
    quarters = (centre[:, 1] > 0.02) == (centre[:, 2] > 0.0)
    return nodes, tets[quarters | (np.abs(centre[:, 0]) > bridge_from_x)]


def test_body_that_touches_itself_along_an_edge_is_refused():
    # One cell long, so that both ends of the touching edge belong to both quarters.
    with pytest.raises(InputError, match=r"touches itself at [1-9]"):
        cut_by_plane(*quarters_joined_at_the_ends(0.005), point=(0.02, 0, 0))


def test_vertices_where_a_body_only_touches_itself_are_separated():
    nodes, tets = quarters_joined_at_the_ends(0.015)
    cut = cut_by_plane(nodes, tets, point=(0.02, 0, 0))
    real = cut.node_original[~cut.node_ghost]
    # The line has four vertices; the two inside touch only, the two at the ends belong to the bridges.
    assert len(real) == len(nodes[np.unique(tets)]) + 2
    assert_conserves(cut, nodes, tets)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda n, t: (n * np.nan, t), "not finite"),
        (lambda n, t: (n, t[:, [0, 2, 1, 3]]), "flat or inverted"),
        (lambda n, t: (n, t + 1), "point to nodes"),
        (lambda n, t: (n, t[:0]), "at least one tet"),
        (lambda n, t: (n[:, :2], t), r"must be \[n, 3\]"),
        (lambda n, t: (n, np.concatenate([t, t[:1], t[:1]])), "more than two tets"),
    ],
)
def test_malformed_meshes_are_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        cut_by_plane(*change(*regular_box()))


@pytest.mark.parametrize(
    "options",
    [
        {"normal": (0, 0, 0)},
        {"normal": (np.nan, 0, 0)},
        {"point": (np.inf, 0, 0)},
        {"snap_tolerance_fraction": 0.0},
        {"snap_tolerance_fraction": 0.5},
    ],
)
def test_malformed_planes_are_refused(options):
    with pytest.raises(InputError):
        cut_by_plane(*regular_box(), **options)
