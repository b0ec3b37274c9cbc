"""Division of a body into slices: closed pieces, measures, how the rest stands, and refusals."""

import numpy as np
import pytest
import trimesh

from stages.runtime.errors import InputError
from stages.shared.slicing import Wanted, beyond, dice, dice_picture, divide, stands
from stages.shared.surface import Surface, is_closed

RADIUS = 0.03


def ball(radius: float = RADIUS) -> Surface:
    mesh = trimesh.creation.icosphere(subdivisions=4, radius=radius)
    vertices = np.asarray(mesh.vertices) + np.array([0.0, radius, 0.0])
    return Surface(vertices, np.asarray(mesh.faces, np.int32))


def box(width: float, height: float) -> Surface:
    mesh = trimesh.creation.box((width, height, 0.04))
    return Surface(
        np.asarray(mesh.vertices) + np.array([0.5 * width, 0.5 * height, 0.0]),
        np.asarray(mesh.faces, np.int32),
    )


def two_legs() -> Surface:
    """Two separate bodies side by side: no plane across them leaves one part."""
    legs = [trimesh.creation.box((0.06, 0.02, 0.01)) for _ in range(2)]
    for leg, z in zip(legs, (-0.02, 0.02), strict=True):
        leg.apply_translation([0.03, 0.01, z])
    both = trimesh.util.concatenate(legs)
    return Surface(np.asarray(both.vertices), np.asarray(both.faces, np.int32))


def test_pieces_are_closed_and_sum_to_the_body():
    body = ball()
    division = divide(body, Wanted(thickness_m=0.005), thinnest_m=0.002, held=True)
    assert len(division.pieces) == 12
    assert sum(piece.volume_m3 for piece in division.pieces) == pytest.approx(body.volume_m3, rel=1e-9)
    for piece in division.pieces[:-1]:
        rest = beyond(body, (division.normal, division.start_m + piece.to_m))
        assert is_closed(rest.faces)
        height = piece.to_m - RADIUS
        assert piece.area_m2 == pytest.approx(np.pi * (RADIUS**2 - height**2), rel=0.02)


def test_the_planes_follow_the_direction():
    body = ball()
    turned = divide(body, Wanted(count=4, normal=(1.0, 0.0, 1.0)), thinnest_m=0.002, held=True)
    straight = divide(body, Wanted(count=4), thinnest_m=0.002, held=True)
    assert [p.volume_m3 for p in turned.pieces] == pytest.approx(
        [p.volume_m3 for p in straight.pieces], rel=0.02
    )
    assert len(turned.cuts) == 3


def test_from_and_to_bound_the_slices():
    division = divide(ball(), Wanted(thickness_m=0.005, from_m=0.02, to_m=0.04), thinnest_m=0.002, held=True)
    assert [round(1e3 * piece.to_m) for piece in division.pieces] == [20, 25, 30, 35, 40, 60]


def test_a_ball_that_lost_a_side_tips_over_and_is_not_cut_unless_held():
    body = ball()
    across = np.array([1.0, 0.0, 0.0])
    assert stands(body, across, 0.0)
    assert not stands(body, across, 0.02), "the knife presses beside the base"
    assert not stands(beyond(body, (across, 0.0)), across, 0.001), "its centre of mass is beside the base"
    free = divide(body, Wanted(count=6), thinnest_m=0.002, held=False)
    held = divide(body, Wanted(count=6), thinnest_m=0.002, held=True)
    assert len(held.cuts) == 5 and held.not_cut == ()
    assert free.cuts == (), "only the middle is above the base, and half a ball does not stay on its point"
    assert len(free.not_cut) == 5 and all("tip over" in one.reason for one in free.not_cut)


def test_a_box_stands_down_to_its_last_slice():
    division = divide(box(0.06, 0.02), Wanted(thickness_m=0.02), thinnest_m=0.002, held=False)
    assert len(division.pieces) == 3 and division.not_cut == ()


def test_a_body_that_falls_apart_is_refused():
    division = divide(two_legs(), Wanted(thickness_m=0.01), thinnest_m=0.002, held=True)
    assert division.cuts == () and "2 parts" in division.not_cut[0].reason


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Wanted(thickness_m=0.1), "only 60.0 mm of fruit"),
        (Wanted(thickness_m=0.0), "positive length"),
        (Wanted(thickness_m=-0.005), "positive length"),
        (Wanted(thickness_m=float("nan")), "positive length"),
        (Wanted(thickness_m=float("inf")), "positive length"),
        (Wanted(thickness_m=0.001), "at least its spine"),
        (Wanted(count=40), "at least its spine"),
        (Wanted(), "Exactly one of"),
        (Wanted(thickness_m=0.005, count=3), "Exactly one of"),
        (Wanted(count=1), "2 to 100"),
        (Wanted(thickness_m=0.005, from_m=0.2), "within the fruit"),
        (Wanted(thickness_m=0.005, to_m=0.061), "within the fruit"),
        (Wanted(thickness_m=0.005, from_m=-0.001), "within the fruit"),
        (Wanted(thickness_m=0.005, from_m=float("nan")), "within the fruit"),
        (Wanted(thickness_m=0.005, from_m=0.04, to_m=0.03), "must be greater"),
        (Wanted(thickness_m=0.005, normal=(0.0, 0.0, 0.0)), "three finite numbers"),
        (Wanted(thickness_m=0.005, normal=(0.0, 1.0, 0.0)), "cuts vertically"),
        (Wanted(thickness_m=0.005, normal=(float("nan"), 0.0, 0.0)), "three finite numbers"),
    ],
)
def test_a_division_that_makes_no_sense_is_rejected(wanted, says):
    with pytest.raises(InputError, match=says):
        divide(ball(), wanted, thinnest_m=0.002, held=True)


def test_too_many_slices_are_rejected():
    with pytest.raises(InputError, match="At most 100"):
        divide(ball(), Wanted(thickness_m=5e-4), thinnest_m=1e-4, held=True)


def test_dice_are_closed_sum_to_the_body_and_are_boxes_where_the_body_is_one():
    body = box(0.06, 0.02)
    division = divide(body, Wanted(thickness_m=0.02), thinnest_m=0.002, held=True)
    diced = dice(body, division, 0.02, thinnest_m=0.002)
    assert len(diced.pieces) == 6 and diced.across_m == pytest.approx((0.02,))
    assert diced.volumes_m3 == pytest.approx([8e-6] * 6)
    assert sorted(diced.at) == [(row, column) for row in range(3) for column in range(2)]
    round_one = ball()
    diced = dice(
        round_one, divide(round_one, Wanted(count=5), thinnest_m=0.002, held=True), 0.01, thinnest_m=0.002
    )
    assert all(is_closed(piece.faces) for piece in diced.pieces)
    assert sum(diced.volumes_m3) == pytest.approx(round_one.volume_m3, rel=1e-9)
    assert 20 < len(diced.pieces) <= 30, "the corners of the grid lie outside the ball"
    with pytest.raises(InputError, match="thick"):
        dice(round_one, division, 0.001, thinnest_m=0.002)
    assert dice_picture(round_one, division, diced, "dice").std() > 5.0
