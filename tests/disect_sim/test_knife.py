"""Distance to the knife: 1-Lipschitz, gradient and Hessian, flank, ends and spine, three knives."""

import numpy as np
import pytest

from disect_sim.knife import _END_BLEND_M, KNIVES, Knife, knife_from
from disect_sim.outcome import InputError
from tests.disect_sim.knife_distance import knife_distance

TIPS = (0.2e-3, 1e-3, 3e-3)
KNIFE = KNIVES["kitchen"]


def random_points(count, seed, knife=KNIFE):
    """Points [m] around the blade: half of them within a few mm of the edge, where the shape is sharpest."""
    rng = np.random.default_rng(seed)
    wide = rng.uniform((-0.02, -0.02, -0.6 * knife.length_m), (0.02, 0.06, 0.6 * knife.length_m), (count, 3))
    near = rng.normal(size=(count, 3)) * (1e-3, 2e-3, 0.2 * knife.length_m)
    return np.where(rng.uniform(size=(count, 1)) < 0.5, wide, near)


def distances(points, side, tip):
    return knife_distance(KNIFE, points, side, tip)


@pytest.mark.parametrize("tip", TIPS)
@pytest.mark.parametrize("side", [1, -1])
def test_distance_changes_no_faster_than_position(side, tip):
    p = random_points(4000, 1)
    q = np.where(
        np.arange(4000)[:, None] % 2, random_points(4000, 2), p + 1e-4 * random_points(4000, 3) / 0.02
    )
    apart = np.linalg.norm(p - q, axis=1)
    rise = np.abs(distances(p, side, tip)[0] - distances(q, side, tip)[0])
    assert (rise <= apart * (1.0 + 1e-9) + 1e-16).all()
    assert (np.linalg.norm(distances(p, side, tip)[1], axis=1) <= 1.0 + 1e-12).all()


@pytest.mark.parametrize("side", [1, -1])
def test_gradient_is_the_derivative_of_the_distance(side):
    points = random_points(2000, 7)
    gradient = distances(points, side, 1e-3)[1]
    step = 1e-8
    numeric = np.empty_like(gradient)
    for axis in range(3):
        move = step * np.eye(3)[axis]
        plus, minus = (distances(points + s * move, side, 1e-3)[0] for s in (1.0, -1.0))
        numeric[:, axis] = (plus - minus) / (2.0 * step)
    # Rounding of 1e-17 over a step of 1e-8, and the third derivative, 1 / tip^2, times its square.
    assert np.abs(numeric - gradient).max() < 1e-8


@pytest.mark.parametrize("tip", TIPS)
@pytest.mark.parametrize("side", [1, -1])
def test_hessian_is_the_derivative_of_the_gradient_and_convex(side, tip):
    points = random_points(1000, 8)
    hessian = distances(points, side, tip)[2]
    step = 1e-9
    numeric = np.stack(
        [
            (
                distances(points + step * np.eye(3)[a], side, tip)[1]
                - distances(points - step * np.eye(3)[a], side, tip)[1]
            )
            / (2.0 * step)
            for a in range(3)
        ],
        axis=2,
    )
    # The third derivative jumps where the rounding towards spine and ends begins: 1 / blend^2 * step = 1e-3.
    scale = 1.0 / tip + 1.0 / _END_BLEND_M
    assert np.abs(numeric - hessian).max() < 1e-5 * scale
    assert np.abs(hessian - hessian.transpose(0, 2, 1)).max() < 1e-12 * scale
    assert np.linalg.eigvalsh(hessian).min() > -1e-9 * scale


@pytest.mark.parametrize("tip", TIPS)
def test_one_sided_distance_approaches_the_flank_away_from_the_edge(tip):
    """Beside the flank the smooth shape lies outside the true one by tip^2 / (4 gap), which fades with the gap."""
    y = np.linspace(0.01, 0.03, 20)
    x = np.interp(y, [KNIFE.tip_m, KNIFE.height_m], [0.5 * KNIFE.edge_m, 0.5 * KNIFE.spine_m]) + 1e-3
    points = np.stack([x, y, 0.0 * y], axis=1)
    # Seen from the flank, which is straight, the gap of 1 mm is foreshortened by its slope.
    across, up = 0.5 * (KNIFE.spine_m - KNIFE.edge_m), KNIFE.height_m - KNIFE.tip_m
    to_flank = 1e-3 * up / np.hypot(across, up)
    smooth = distances(points, 1, tip)[0]
    assert (smooth >= to_flank - 1e-12).all()
    assert (smooth - to_flank < 0.3 * tip**2 / y).all()


def test_one_sided_distances_are_mirror_images():
    points = random_points(500, 9)
    right, left = distances(points, 1, 1e-3), distances(points * (-1.0, 1.0, 1.0), -1, 1e-3)
    assert (right[0] == left[0]).all()
    assert (right[1] == left[1] * (-1.0, 1.0, 1.0)).all()


@pytest.mark.parametrize("side", [1, -1])
def test_spine_and_ends_push_their_own_way(side):
    half = 0.5 * KNIFE.length_m
    points = np.array([[0.0, 0.06, 0.0], [0.0, 0.02, half + 0.02], [0.0, 0.02, -half - 0.02]])
    d, gradient, _ = distances(points, side, 1e-3)
    assert d == pytest.approx([0.02, 0.02, 0.02], abs=1e-12)
    assert gradient == pytest.approx(
        np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]), abs=1e-12
    )


def test_only_the_lengths_of_the_three_knives_differ():
    point = np.array([[0.003, 0.01, 0.05]])
    distance = {name: float(knife_distance(knife, point, 1)[0][0]) for name, knife in KNIVES.items()}
    assert distance["kitchen"] == distance["slicing"]
    # 50 mm from its middle the folding knife of 54 mm is over: the plane of its end is the farthest.
    assert distance["folding"] == pytest.approx(0.05 - 0.027, rel=1e-9)


@pytest.mark.parametrize("wrong", [{"length_m": 0.0}, {"spine_m": -1.0}, {"edge_m": 3e-3}, {"tip_m": 0.05}])
def test_impossible_blades_are_refused(wrong):
    with pytest.raises(InputError, match="knife"):
        Knife(**wrong)


@pytest.mark.parametrize("name", KNIVES)
def test_a_knife_by_its_name(name):
    assert knife_from(name) is KNIVES[name]
    assert knife_from(KNIVES[name]) is KNIVES[name]


def test_a_knife_by_its_dimensions():
    measured = {"length_m": 0.2, "height_m": 0.03, "spine_m": 0.0015, "edge_m": 1e-4, "tip_m": 1e-4}
    assert knife_from(measured) == Knife(**measured)
    assert knife_from({"length_m": 0.2}) == Knife(length_m=0.2)


def test_a_bevel_stands_for_the_height_of_the_small_wedge():
    """A wedge of 30 degrees as thick as the edge: half the thickness over the tangent of half the angle."""
    knife = knife_from({"edge_m": 1e-4, "bevel_deg": 30})
    assert knife.tip_m == pytest.approx(0.5e-4 / np.tan(np.radians(15.0)))
    # The paper's wedge, 0.08 mm thick and 0.04 mm high, is one of 90 degrees.
    assert knife_from({"bevel_deg": 90.0}).tip_m == pytest.approx(Knife().tip_m)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("bread", "'bread' is not a known knife. Known: kitchen, slicing, folding"),
        ({"width_m": 0.1}, "width_m is not a knife dimension. Known: .*bevel_deg"),
        ({"length_m": "long"}, "length_m is 'long'. It must be a number"),
        ({"length_m": True}, "must be a number"),
        ({"length_m": -0.1}, "length_m is -0.1. It must be > 0 m"),
        ({"length_m": float("nan")}, "must be > 0 m"),
        ({"bevel_deg": 0.0}, "between 0 and 180 degrees"),
        ({"bevel_deg": 30.0, "tip_m": 1e-4}, "beside tip_m"),
        ({"spine_m": 1e-3, "edge_m": 2e-3}, "must be convex"),
    ],
)
def test_descriptions_that_are_no_knife_are_refused(description, message):
    with pytest.raises(InputError, match=message):
        knife_from(description)
