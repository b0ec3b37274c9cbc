"""The steps of clean on shapes whose answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.clean import topology
from stages.clean.components import _winding_number
from stages.clean.repair import _boundary_loops, _fill_holes
from stages.clean.resampling import measure_displacement, split_long_edges
from stages.clean.topology import flip_edges
from stages.shared.surface import Surface, edge_lengths, is_closed
from tests.stages.scan_shapes import ball, box, without_cap


def test_measures_of_a_box() -> None:
    surface = box((0.02, 0.03, 0.05))
    assert is_closed(surface.faces)
    assert surface.volume_m3 == pytest.approx(0.02 * 0.03 * 0.05)
    assert surface.area_m2 == pytest.approx(2 * (0.02 * 0.03 + 0.03 * 0.05 + 0.02 * 0.05))


def test_merging_a_triangle_soup_restores_the_surface() -> None:
    surface = ball(subdivisions=2)
    soup = Surface(
        surface.corners.reshape(-1, 3), np.arange(3 * len(surface.faces), dtype=np.int32).reshape(-1, 3)
    )
    merged = topology.merge_identical_vertices(soup)
    assert len(merged.vertices) == len(surface.vertices)
    assert is_closed(merged.faces)


def test_duplicates_and_degenerates_go() -> None:
    surface = box((0.02, 0.03, 0.05))
    extra = np.array([surface.faces[0][[1, 2, 0]], surface.faces[3][::-1], [0, 0, 1]], np.int32)
    dirty = Surface(surface.vertices, np.concatenate([surface.faces, extra]))
    tidy = topology.drop_degenerate_faces(topology.drop_duplicate_faces(dirty))
    np.testing.assert_array_equal(tidy.faces, surface.faces)


def test_boxes_joined_along_an_edge_come_apart() -> None:
    first = box((0.02, 0.02, 0.02))
    second = Surface(first.vertices + np.array([0.02, 0.02, 0.0]), first.faces)
    both = topology.merge_identical_vertices(
        Surface(
            np.concatenate([first.vertices, second.vertices]), np.concatenate([first.faces, second.faces + 8])
        )
    )
    assert topology.count_non_manifold_edges(both) == 1
    separate = topology.separate_non_manifold(both)
    assert topology.count_non_manifold_edges(separate) == 0
    assert len(separate.vertices) == 16
    assert separate.volume_m3 == pytest.approx(both.volume_m3)


def test_a_manifold_surface_is_not_taken_apart() -> None:
    surface = ball(subdivisions=2)
    assert len(topology.separate_non_manifold(surface).vertices) == len(surface.vertices)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), fraction=st.floats(0.0, 1.0))
def test_any_mixture_of_flipped_faces_is_turned_outward(seed: int, fraction: float) -> None:
    surface = ball(subdivisions=2)
    flip = np.random.default_rng(seed).random(len(surface.faces)) < fraction
    mixed = Surface(
        surface.vertices, np.where(flip[:, None], surface.faces[:, ::-1], surface.faces).astype(np.int32)
    )
    oriented = topology.orient_consistently(mixed)
    assert oriented is not None
    assert is_closed(oriented.faces)
    assert oriented.volume_m3 == pytest.approx(surface.volume_m3, rel=1e-12)


def test_a_moebius_strip_has_no_orientation() -> None:
    n = 12
    ring = np.arange(2 * n).reshape(n, 2)
    following = np.concatenate([ring[1:], ring[:1, ::-1]])
    faces = np.concatenate(
        [
            np.column_stack([ring[:, 0], ring[:, 1], following[:, 0]]),
            np.column_stack([ring[:, 1], following[:, 1], following[:, 0]]),
        ]
    ).astype(np.int32)
    angle = np.linspace(0.0, 2.0 * np.pi, n, endpoint=False)
    inner = np.column_stack([np.cos(angle), np.sin(angle), 0.0 * angle])
    vertices = np.stack([inner, 1.2 * inner + [0.0, 0.0, 0.1]], axis=1).reshape(-1, 3)
    assert topology.orient_consistently(Surface(vertices, faces)) is None


@settings(max_examples=15, deadline=None)
@given(target=st.floats(0.002, 0.02), sides=st.tuples(*[st.floats(0.01, 0.06)] * 3))
def test_splitting_keeps_shape_and_closedness(target: float, sides: tuple[float, float, float]) -> None:
    surface = box(sides)
    fine = split_long_edges(surface, target)
    assert is_closed(fine.faces)
    assert edge_lengths(fine).max() <= 4.0 / 3.0 * target + 1e-12
    assert fine.volume_m3 == pytest.approx(surface.volume_m3, rel=1e-9)
    assert fine.area_m2 == pytest.approx(surface.area_m2, rel=1e-9)


def test_flipping_rounds_triangles_and_keeps_a_flat_shape() -> None:
    surface = split_long_edges(box((0.03, 0.03, 0.03)), 0.004)
    flipped = flip_edges(surface)
    assert is_closed(flipped.faces)
    # Flips across the box's edges are forbidden by the angle between faces, so the box stays exactly a box.
    assert flipped.volume_m3 == pytest.approx(surface.volume_m3, rel=1e-12)
    assert flipped.area_m2 == pytest.approx(surface.area_m2, rel=1e-12)
    assert edge_lengths(flipped).mean() <= edge_lengths(surface).mean()


def test_holes_are_found_and_filled() -> None:
    sphere = ball(0.035, 4)
    height = sphere.corners.mean(axis=1)[:, 1]
    holed = Surface(sphere.vertices, sphere.faces[(height < 0.032) & (height > -0.032)])
    assert len(_boundary_loops(holed.faces)) == 2
    filled, holes = _fill_holes(holed, target_edge_m=0.003)
    assert holes == 2
    assert is_closed(topology.merge_identical_vertices(filled).faces)
    radius = np.linalg.norm(filled.vertices[np.unique(filled.faces)], axis=1)
    # A flat patch would lie at 32 mm; the faired one must stay within 1.5 mm of the 35 mm sphere.
    assert radius.min() > 0.0335


def test_winding_number_inside_and_outside() -> None:
    points = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.02, 0.01]])
    np.testing.assert_allclose(_winding_number(points, ball()), [1.0, 0.0, 1.0], atol=1e-9)


def test_displacement_of_a_shrunken_ball() -> None:
    sphere = ball(0.035, 4)
    smaller = Surface(sphere.vertices * 0.99, sphere.faces)
    measured = measure_displacement(sphere, smaller)
    # Concentric balls 0.35 mm apart; face centres lie 0.04 % inside the sphere and distances are float32.
    assert measured.raw_to_clean_max_m == pytest.approx(0.00035, rel=0.02)
    assert measured.raw_to_clean_rms_m == pytest.approx(0.00035, rel=0.02)
    assert measured.clean_to_raw_rms_m == pytest.approx(0.00035, rel=0.02)
    assert measured.filled_area_fraction == 0.0


def test_unseen_area_of_a_cap() -> None:
    sphere = ball(0.035, 5)
    measured = measure_displacement(without_cap(sphere, 0.0), sphere)
    # Half the sphere is missing; a rim as wide as 2 % of the diagonal (2.4 mm of 35) still counts as seen.
    assert measured.filled_area_fraction == pytest.approx(0.5 * (1.0 - 2.42 / 35.0), abs=0.01)
