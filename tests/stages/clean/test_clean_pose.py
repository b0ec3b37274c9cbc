"""The cutting frame."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from stages.clean.clean import _choose_unit
from stages.clean.pose import Pose, cutting_pose
from stages.shared.surface import Surface, solid_moments
from tests.stages.scan_shapes import box

SIDES = (0.03, 0.05, 0.08)


def pose_of(surface: Surface, **changes: object) -> Pose:
    options = {"orientation": "auto", "rotation_deg": None, "turn_deg": 0.0, "cut_offset_m": 0.0} | changes
    return cutting_pose(surface, **options)


def placed(surface: Surface, **changes: object) -> np.ndarray:
    return pose_of(surface, **changes).apply(surface.vertices)


def test_moments_of_a_box() -> None:
    surface = Surface(box(SIDES).vertices + np.array([1.0, 2.0, 3.0]), box(SIDES).faces)
    centre, covariance = solid_moments(surface)
    np.testing.assert_allclose(centre, [1.0, 2.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(covariance, np.diag(np.square(SIDES) / 12.0), atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(quaternion=st.tuples(*[st.floats(-1.0, 1.0)] * 4).filter(lambda q: np.linalg.norm(q) > 0.1))
def test_a_box_lies_flat_with_its_long_side_across_the_knife(quaternion: tuple[float, ...]) -> None:
    surface = box(SIDES)
    turned = Surface(
        Rotation.from_quat(quaternion).apply(surface.vertices) + np.array([0.3, -0.2, 0.1]), surface.faces
    )
    pose = pose_of(turned)
    np.testing.assert_allclose(pose.rotation @ pose.rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(pose.rotation) == pytest.approx(1.0)
    vertices = pose.apply(turned.vertices)
    # Largest face down: 30 mm high; longest side along x; centre of mass over the origin.
    np.testing.assert_allclose(vertices.min(axis=0), [-0.04, 0.0, -0.025], atol=1e-9)
    np.testing.assert_allclose(vertices.max(axis=0), [0.04, 0.03, 0.025], atol=1e-9)


def test_axes_of_the_scan_can_be_kept() -> None:
    assert np.ptp(placed(box(SIDES), orientation="y_up")[:, 1]) == pytest.approx(0.05)
    assert np.ptp(placed(box(SIDES), orientation="z_up")[:, 1]) == pytest.approx(0.08)


def test_z_up_keeps_the_top_on_top() -> None:
    surface = box(SIDES)
    vertices = placed(surface, orientation="z_up")
    np.testing.assert_array_equal(vertices[:, 1] > 0.04, surface.vertices[:, 2] > 0.0)


def test_given_rotation_turn_and_cut_position() -> None:
    vertices = placed(box(SIDES), rotation_deg=(90.0, 0.0, 0.0))
    np.testing.assert_allclose(np.ptp(vertices, axis=0), [0.03, 0.08, 0.05], atol=1e-12)
    vertices = placed(box(SIDES), turn_deg=90.0)
    np.testing.assert_allclose(np.ptp(vertices, axis=0), [0.05, 0.03, 0.08], atol=1e-12)
    vertices = placed(box(SIDES), cut_offset_m=0.01)
    assert (vertices[:, 0].min(), vertices[:, 0].max()) == pytest.approx((-0.05, 0.03))


def test_positive_turn_is_counter_clockwise_from_above() -> None:
    pose = pose_of(box(SIDES), rotation_deg=(0.0, 0.0, 0.0), turn_deg=90.0)
    # Seen from +y with x to the right, z points down the page, so counter-clockwise takes x to -z.
    np.testing.assert_allclose(pose.rotation @ [1.0, 0.0, 0.0], [0.0, 0.0, -1.0], atol=1e-12)


@pytest.mark.parametrize("extent, factor", [(0.08, 1.0), (80.0, 0.001), (0.2, 1.0), (350.0, 0.001)])
def test_unit_by_size(extent: float, factor: float) -> None:
    assert _choose_unit(extent, unit="auto", scale=None).metres_per_unit == factor


@pytest.mark.parametrize("unit, factor", [("cm", 0.01), ("in", 0.0254), ("mm", 0.001)])
def test_unit_given(unit: str, factor: float) -> None:
    assert _choose_unit(0.08 / factor, unit=unit, scale=None).metres_per_unit == factor
