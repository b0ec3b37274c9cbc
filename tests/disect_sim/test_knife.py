"""Distance to the knife: sign, 1-Lipschitz, gradient and Hessian, ends and spine, brute force, three knives."""

import numpy as np
import pytest

from disect_sim.knife import _END_BLEND_M, KNIVES, Knife, knife_from
from disect_sim.outcome import InputError

TIPS = (0.2e-3, 1e-3, 3e-3)
KNIFE = KNIVES["kitchen"]


def random_points(count, seed, knife=KNIFE):
    """Points [m] around the blade: half of them within a few mm of the edge, where the shape is sharpest."""
    rng = np.random.default_rng(seed)
    wide = rng.uniform((-0.02, -0.02, -0.6 * knife.length_m), (0.02, 0.06, 0.6 * knife.length_m), (count, 3))
    near = rng.normal(size=(count, 3)) * (1e-3, 2e-3, 0.2 * knife.length_m)
    return np.where(rng.uniform(size=(count, 1)) < 0.5, wide, near)


def distances(points, side, tip):
    """All of Knife.distance, exact if side is 0."""
    sides = None if side == 0 else np.full(len(points), float(side))
    return KNIFE.distance(points, side=sides, tip_width_m=tip)


@pytest.mark.parametrize("tip", TIPS)
@pytest.mark.parametrize("side", [1, -1, 0])
def test_distance_changes_no_faster_than_position(side, tip):
    p = random_points(4000, 1)
    q = np.where(
        np.arange(4000)[:, None] % 2, random_points(4000, 2), p + 1e-4 * random_points(4000, 3) / 0.02
    )
    apart = np.linalg.norm(p - q, axis=1)
    rise = np.abs(distances(p, side, tip)[0] - distances(q, side, tip)[0])
    assert (rise <= apart * (1.0 + 1e-9) + 1e-16).all()
    assert (np.linalg.norm(distances(p, side, tip)[1], axis=1) <= 1.0 + 1e-12).all()


def inside_prism(points, knife=KNIFE):
    """Whether points are inside the blade, from the corners of the pentagon alone."""
    x, y, z = np.abs(points[:, 0]), points[:, 1], np.abs(points[:, 2])
    half_width = np.interp(
        y, [0.0, knife.tip_m, knife.height_m], [0.0, 0.5 * knife.edge_m, 0.5 * knife.spine_m]
    )
    return (x < half_width) & (y > 0.0) & (y < knife.height_m) & (z < 0.5 * knife.length_m)


@pytest.mark.parametrize("name", KNIVES)
def test_exact_distance_is_negative_inside_and_only_there(name):
    knife = KNIVES[name]
    points = random_points(4000, 4, knife)
    points[::3] *= (0.03, 1.0, 1.0)
    inside = inside_prism(points, knife)
    assert 200 < inside.sum() < 3800
    assert ((knife.distance(points)[0] < 0.0) == inside).all()


def prism_surface(knife, spacing):
    """Points on the surface of the blade [m], closer together than `spacing` near its edge and ends."""
    corners = np.array(
        [
            [0.0, 0.0],
            [0.5 * knife.edge_m, knife.tip_m],
            [0.5 * knife.spine_m, knife.height_m],
            [-0.5 * knife.spine_m, knife.height_m],
            [-0.5 * knife.edge_m, knife.tip_m],
        ]
    )
    outline = []
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        count = int(np.ceil(np.linalg.norm(b - a) / spacing)) + 1
        outline.append(a + (b - a) * np.linspace(0.0, 1.0, count)[:, None])
    return np.concatenate(outline)


@pytest.mark.parametrize("name", KNIVES)
def test_exact_distance_agrees_with_brute_force(name):
    """Beside the blade the nearest surface point is on the outline; beyond its end, on the end face's outline."""
    knife = KNIVES[name]
    spacing = 2e-5
    outline = prism_surface(knife, spacing)
    points = random_points(300, 5, knife)
    points = points[~inside_prism(points, knife)]
    section = np.linalg.norm(points[:, None, :2] - outline[None], axis=2).min(axis=1)
    flat = points * (1.0, 1.0, 0.0)
    section[inside_prism(flat, knife)] = 0.0
    beyond = np.maximum(np.abs(points[:, 2]) - 0.5 * knife.length_m, 0.0)
    brute = np.hypot(section, beyond)
    found = knife.distance(points)[0]
    assert (beyond > 0.0).sum() > 20
    # Sampling misses the nearest point by at most half a spacing.
    assert (found <= brute + 1e-12).all()
    assert np.abs(found - brute).max() < 0.5 * spacing


def test_exact_depth_inside_agrees_with_brute_force():
    outline = prism_surface(KNIFE, 2e-5)
    rng = np.random.default_rng(6)
    y = rng.uniform(0.0, 0.04, 200)
    points = np.stack([rng.uniform(-1.0, 1.0, 200) * 0.02 * y, y, rng.uniform(-0.03, 0.03, 200)], axis=1)
    points = points[inside_prism(points)]
    brute = np.linalg.norm(points[:, None, :2] - outline[None], axis=2).min(axis=1)
    assert len(points) > 100
    assert np.abs(KNIFE.distance(points)[0] + brute).max() < 1e-5


@pytest.mark.parametrize("side", [1, -1, 0])
def test_gradient_is_the_derivative_of_the_distance(side):
    points = random_points(2000, 7)
    gradient = distances(points, side, 1e-3)[1]
    # The exact distance has kinks: compare where the gradient is the same a step to either side.
    step = 1e-8
    smooth = np.ones(len(points), bool)
    numeric = np.empty_like(gradient)
    for axis in range(3):
        move = step * np.eye(3)[axis]
        (plus, g_plus, _), (minus, g_minus, _) = (
            distances(points + s * move, side, 1e-3) for s in (1.0, -1.0)
        )
        numeric[:, axis] = (plus - minus) / (2.0 * step)
        smooth &= np.abs(g_plus - g_minus).max(axis=1) < 1e-2
    assert smooth.mean() > 0.99
    # Rounding 1e-17 / 1e-8; curvature of the exact distance, 1/|d|, adds at most 1e-6 beyond 0.1 mm of a corner.
    assert np.abs(numeric - gradient)[smooth].max() < 1e-4
    assert np.median(np.abs(numeric - gradient)) < 1e-8


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
    smooth, exact = distances(points, 1, tip)[0], distances(points, 0, tip)[0]
    assert (smooth >= exact - 1e-12).all()
    assert (smooth - exact < 0.3 * tip**2 / y).all()


def test_one_sided_distances_are_mirror_images():
    points = random_points(500, 9)
    right, left = distances(points, 1, 1e-3), distances(points * (-1.0, 1.0, 1.0), -1, 1e-3)
    assert (right[0] == left[0]).all()
    assert (right[1] == left[1] * (-1.0, 1.0, 1.0)).all()


@pytest.mark.parametrize("side", [1, 0])
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
    found = {name: float(knife.distance(point)[0][0]) for name, knife in KNIVES.items()}
    assert found["kitchen"] == found["slicing"]
    # 50 mm from its middle the folding knife of 54 mm is over.
    assert found["folding"] == pytest.approx(np.hypot(found["kitchen"], 0.05 - 0.027), rel=1e-9)


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
