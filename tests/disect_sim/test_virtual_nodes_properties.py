"""Random planes through random meshes: what must hold for every cut."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from disect_sim.cut_mesh import tet_volumes
from disect_sim.virtual_nodes.cutting import cut_by_plane
from disect_sim.virtual_nodes.split import half_body, tet_edges
from tests.disect_sim.tet_meshes import (
    assert_conserves,
    assert_two_manifold_bodies,
    delaunay_body,
    jittered_box,
    regular_box,
)

seeds = st.integers(0, 2**32 - 1)
tolerances = st.sampled_from([1e-4, 1e-3, 0.01, 0.05, 0.2])
few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def meshes(draw):
    kind = draw(st.sampled_from(["delaunay", "jittered", "regular"]))
    if kind == "delaunay":
        return delaunay_body(draw(seeds), draw(st.integers(20, 120)))
    if kind == "jittered":
        return jittered_box(draw(seeds), tuple(draw(st.tuples(*[st.integers(2, 5)] * 3))))
    return regular_box(tuple(draw(st.tuples(*[st.integers(2, 5)] * 3))))


@st.composite
def planes(draw, nodes, tets):
    """A plane well inside the body: anywhere, or exactly through a vertex, an edge or a face of the mesh."""
    rng = np.random.default_rng(draw(seeds))
    normal = rng.normal(size=3)
    centre = nodes[tets].mean(axis=(0, 1))
    through = draw(st.sampled_from(["anything", "vertex", "edge", "face"]))
    if through == "anything":
        return centre + 0.2 * rng.uniform(-1, 1) * (nodes[rng.integers(len(nodes))] - centre), normal
    # The vertex nearest to the centre is inside the body, and so is every plane through it.
    middle = np.argmin(np.linalg.norm(nodes - centre, axis=1))
    around = tets[(tets == middle).any(axis=1)]
    tet = rng.choice(around)
    a, (b, c) = nodes[middle], nodes[rng.permuted(tet[tet != middle])[:2]]
    if through == "edge":
        normal = np.cross(b - a, normal)
    elif through == "face":
        normal = np.cross(b - a, c - a)
    return a, normal


@few
@given(st.data(), tolerances)
def test_every_cut_conserves_and_leaves_two_bodies(data, tolerance):
    nodes, tets = data.draw(meshes())
    point, normal = data.draw(planes(nodes, tets))
    cut = cut_by_plane(nodes, tets, point=point, normal=normal, snap_tolerance_fraction=tolerance)
    cut.check()
    assert_conserves(cut, nodes, tets)
    assert_two_manifold_bodies(cut)
    assert cut.tet_fraction.min() >= 0.999 * tolerance**3
    assert (cut.virtual_coordinate >= 0.999 * tolerance).all()
    assert (cut.virtual_coordinate <= 1 - 0.999 * tolerance).all()
    assert (cut.node_masses(1.0) > 0).all()


@few
@given(st.data())
def test_virtual_nodes_lie_on_the_plane_or_within_the_tolerance_of_it(data):
    nodes, tets = data.draw(meshes())
    point, normal = data.draw(planes(nodes, tets))
    tolerance = 0.01
    cut = cut_by_plane(nodes, tets, point=point, normal=normal, snap_tolerance_fraction=tolerance)
    off = np.abs((cut.virtual_positions() - point) @ normal) / np.linalg.norm(normal)
    ends = cut.nodes[cut.virtual_parents]
    length = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    moved = np.minimum(cut.virtual_coordinate, 1 - cut.virtual_coordinate) <= tolerance * (1 + 1e-9)
    # 1e-12 m: rounding on bodies of centimetres. A moved crossing is off by at most the tolerance of its
    # edge, plus, where its near end changed sides, that end's distance, below the tolerance of its mean edge.
    assert (off[~moved] < 1e-12).all()
    mean_edge = length.max()
    assert (off[moved] <= tolerance * (length[moved] + mean_edge)).all()


@few
@given(st.data(), seeds)
def test_turning_everything_changes_nothing(data, seed):
    nodes, tets = data.draw(meshes())
    rng = np.random.default_rng(seed)
    centre, normal = nodes.mean(axis=0) + 1e-3 * rng.uniform(-1, 1, 3), rng.normal(size=3)
    turn = Rotation.random(rng=seed % 2**32)
    cut = cut_by_plane(nodes, tets, point=centre, normal=normal)
    turned = cut_by_plane(turn.apply(nodes), tets, point=turn.apply(centre), normal=turn.apply(normal))
    assert (turned.tets == cut.tets).all()
    assert (turned.spring_virtual == cut.spring_virtual).all()
    # Crossings are quotients of rounded distances: 1e-16 of a 3 cm body over a distance above 1 % of an edge.
    assert np.allclose(turned.virtual_coordinate, cut.virtual_coordinate, atol=1e-10)
    assert np.allclose(turned.tet_fraction, cut.tet_fraction, atol=1e-10)
    assert np.allclose(turned.spring_area, cut.spring_area, rtol=1e-7, atol=1e-16)


@few
@given(st.data(), seeds)
def test_the_other_way_round_swaps_the_sides(data, seed):
    nodes, tets = data.draw(meshes())
    rng = np.random.default_rng(seed)
    centre, normal = nodes.mean(axis=0) + 1e-3 * rng.uniform(-1, 1, 3), rng.normal(size=3)
    cut = cut_by_plane(nodes, tets, point=centre, normal=normal)
    swapped = cut_by_plane(nodes, tets, point=centre, normal=-normal)
    for side in (1, -1):
        assert swapped.material_volume(side) == pytest.approx(cut.material_volume(-side), rel=1e-12)
        ids = [np.sort(c.tet_original[c.tet_side == s]) for c, s in ((cut, side), (swapped, -side))]
        assert (ids[0] == ids[1]).all()
    assert np.allclose(np.sort(swapped.spring_area), np.sort(cut.spring_area), rtol=1e-9, atol=1e-18)


@few
@given(seeds)
def test_numbering_of_the_input_does_not_change_the_cut(seed):
    nodes, tets = delaunay_body(seed, 50)
    rng = np.random.default_rng(seed)
    new_place = rng.permutation(len(nodes))
    shuffled = np.empty_like(nodes)
    shuffled[new_place] = nodes
    cut = cut_by_plane(nodes, tets, normal=(1, 2, 3))
    other = cut_by_plane(shuffled, new_place[rng.permutation(tets)], normal=(1, 2, 3))
    assert len(other.nodes) == len(cut.nodes)
    # Where crossings were moved the quadrilaterals are not flat, and their diagonal follows the numbering.
    relative = 1e-12 if cut.snapped_vertices == 0 else 0.02
    assert other.material_volume(1) == pytest.approx(cut.material_volume(1), rel=relative)
    assert other.spring_area.sum() == pytest.approx(cut.spring_area.sum(), rel=relative)


def test_the_same_input_gives_the_same_bits():
    nodes, tets = delaunay_body(3, 200)
    first, second = (cut_by_plane(nodes, tets, normal=(1, 0.2, 0)) for _ in range(2))
    for name in first.__dataclass_fields__:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name
    assert np.array_equal(half_body(first, 1).faces, half_body(second, 1).faces)


@few
@given(seeds)
def test_linear_fields_are_integrated_exactly_by_the_half_bodies(seed):
    """Centroid of the two halves, weighted by volume, is the body's: no material is in the wrong place."""
    nodes, tets = delaunay_body(seed, 40)
    cut = cut_by_plane(nodes, tets, normal=(1, 1, 0))
    volume = tet_volumes(nodes, tets)
    body = (volume[:, None] * nodes[tets].mean(axis=1)).sum(axis=0)
    moment = np.zeros(3)
    for side in (1, -1):
        half = half_body(cut, side)
        corners = half.vertices[half.faces]
        wedge = np.einsum("ij,ij->i", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])) / 6
        moment += (wedge[:, None] * corners.sum(axis=1) / 4).sum(axis=0)
    assert np.allclose(moment, body, atol=1e-12 * volume.sum())


def test_edges_are_listed_once():
    _, tets = regular_box((1, 1, 1))
    # A cube in six tets: 12 edges, 6 face diagonals, 1 main diagonal.
    assert len(tet_edges(tets)) == 19
