"""A tilted, curved or turning knife: closed forms, energy balance, limits, exact gradients, order in the step."""

from functools import cache

import numpy as np
import pytest

from disect_sim import (
    Cut,
    InputError,
    RecordedMotion,
    RockingMotion,
    SlicingMotion,
    box_mesh,
    cut_by_plane,
    simulate,
    simulate_many,
)
from disect_sim.knife import Knife, knife_from
from disect_sim.motions import Motion
from disect_sim.newton import NewtonOptions
from tests.disect_sim.gradient_cases import CUTTING, DURATION, Case, smallest_error
from tests.disect_sim.knife_distance import knife_distance
from tests.disect_sim.scenes import (
    BLOCK_HEIGHT,
    BLOCK_HIGH,
    BLOCK_LOW,
    block_model,
    irregular_block,
    regular_block,
)
from tests.disect_sim.test_edge_law import NO_FRICTION, TOUGHNESS, WIDTH, descend, steady
from tests.disect_sim.tet_meshes import jittered_box

EDGE = {"edge_toughness": 400.0, "skin_toughness": 600.0, "sdf_mu": 0.3, "sdf_stribeck": 0.1}
SCREW = {
    "duration": DURATION,
    "initial_y": 0.0285,
    "velocity_y": -0.13,
    "amplitude": [0.1, 0.15, 0.12, 0.1, 0.14],
    "frequency": 60.0,
    "sigma2_s2": 0.03 * (DURATION / 0.9) ** 2,
    "window_s": 0.015,
}
"""Descent and strokes of a slicing motion through the block."""
ROCK = {"pivot": (0.0, 0.03), "initial_pitch": -0.06, "pitch_rate": [1.0, 1.5, 0.8, 0.6, 1.2]}
EXACT = {
    "duration": DURATION,
    "dt": 1e-3,
    "solver": "conjugate_gradients",
    "newton": NewtonOptions(tolerance_m=1e-11, cg_tolerance=1e-9),
}
"""Newton's method to rounding: the solver on the device has no chords, which leave 1e-9 of the force."""
BELLY = Knife(belly_radius_m=0.2, tilt_deg=4.0)
"""Curved and tilted: with ROCK it turns from 0.6 to 9.6 degrees."""


class PathWithPitch(Motion):
    """Functions of time: y, z [m] and pitch [rad]."""

    def __init__(self, path):
        self.parameters = {}
        self._path = path

    def trajectory(self, times, parameters):
        raise NotImplementedError

    def poses(self, times):
        y, z, pitch = np.broadcast_arrays(*self._path(times))
        return np.stack([0.0 * y, y, z, pitch], axis=1)


def rocking(**changes) -> RockingMotion:
    return RockingMotion(**(SCREW | ROCK | changes))


# Closed forms


@cache
def guillotine(alpha_deg: float, press: float = 0.0, height: float = BLOCK_HEIGHT):
    """Straight down at 50 mm/s with a straight edge tilted by alpha until it has left the block, and the depth of its
    low end below the top [m].
    """
    mesh = cut_by_plane(*box_mesh(BLOCK_LOW, (BLOCK_HIGH[0], height, BLOCK_HIGH[2]), (5, 5, 5)))
    model = block_model(mesh, damage_law="edge", boundary="held", knife=Knife(tilt_deg=alpha_deg))
    rise = 0.5 * WIDTH * np.tan(np.radians(alpha_deg))
    top, speed = height + rise + 1e-3, 0.05
    duration = round((height + 2.0 * rise + 5e-3) / speed / 2e-3) * 2e-3
    path = np.array([[top, 0.0], [top - speed * duration, 0.0]])
    motion = RecordedMotion(np.array([0.0, duration]), path)
    values = NO_FRICTION | {"edge_press": press}
    result = simulate(model, motion, values, duration=duration, dt=2e-3, sample_rate_hz=500.0)
    return result, height - top + speed * result.time + rise


def engaged_width(depth: np.ndarray, alpha_deg: float, height: float) -> np.ndarray:
    """Width of the block along z that the front of a tilted edge crosses [m], its low end that deep below the top."""
    slope = np.tan(np.radians(alpha_deg))
    inside = np.clip(depth, 0.0, WIDTH * slope) - np.clip(depth - height, 0.0, WIDTH * slope)
    return inside / slope


@pytest.mark.parametrize("press", [0.0, 1.0])
@pytest.mark.parametrize(("alpha_deg", "height"), [(15.0, BLOCK_HEIGHT), (30.0, 0.01)])
def test_a_guillotine_pays_for_the_width_it_has_engaged(press, alpha_deg, height):
    """F_y = G w(depth) for slice and press share; sideways the press share takes G w tan a, the slice share nothing.

    The rise length l = 0.6 mm delays the force: its mean depth is 2 l, across the edge. Springs and the damped flanks,
    which a level cut has as well, add up to 8 %; where little is engaged, 0.5 N.
    """
    result, depth = guillotine(alpha_deg, press, height)
    alpha = np.radians(alpha_deg)
    width = engaged_width(depth - 2.0 * 0.6e-3 / np.cos(alpha), alpha_deg, height)
    whole = height + WIDTH * np.tan(alpha)
    for low, high in ((0.1, 0.25), (0.4, 0.6), (0.75, 0.9)):  # entering, engaged, leaving
        phase = (depth > low * whole) & (depth < high * whole)
        assert phase.sum() > 10
        force, expected = result.force[phase].mean(axis=0), TOUGHNESS * width[phase].mean()
        assert force[1] == pytest.approx(expected, rel=0.08, abs=0.5)
        assert abs(force[2]) == pytest.approx(press * expected * np.tan(alpha), rel=0.1, abs=0.5)


def test_a_guillotine_lowers_the_peak_by_the_width_it_engages():
    """A low block is never engaged as a whole: at 30 degrees 10 mm of height are 17 mm of the 30 mm of width."""
    level, tilted = (float(guillotine(alpha, 0.0, 0.01)[0].force[:, 1].max()) for alpha in (0.0, 30.0))
    assert tilted / level == pytest.approx(0.01 / np.tan(np.radians(30.0)) / WIDTH, abs=0.06)


@pytest.mark.parametrize("press", [0.0, 1.0])
def test_work_of_fracture_does_not_depend_on_the_tilt(press):
    """Every sample is passed once: G times the area of the cut; 16 rise lengths leave less than 2e-6 of it unpaid."""
    for height, alphas in ((BLOCK_HEIGHT, (0.0, 15.0)), (0.01, (0.0, 30.0))):
        for alpha in alphas:
            paid = guillotine(alpha, press, height)[0].energy["fracture"][-1]
            assert paid == pytest.approx(TOUGHNESS * WIDTH * height, rel=2e-3)


TURN_ABOUT = 0.1
"""Place of the pivot along z, level with the board [m]: the block reaches from arm 85 mm to 115 mm."""


def swinging(t):
    """The blade comes down about a pivot beside the block, from 19 to -1 degrees."""
    pitch = 0.33 - 0.8 * t
    return TURN_ABOUT * np.sin(pitch), TURN_ABOUT * (1.0 - np.cos(pitch)), pitch


@cache
def swung(dt=2e-3):
    model = block_model(regular_block((5, 5, 5)), damage_law="edge", boundary="held")
    return simulate(model, PathWithPitch(swinging), NO_FRICTION, duration=0.44, dt=dt, sample_rate_hz=500.0)


def test_an_edge_turning_about_a_fixed_pivot_meets_the_moment_of_its_toughness():
    """Every sample is passed straight across the edge: the moment about the pivot is the sum of toughness × arm.

    Along the front, arm D / cos p and length dD / cos p at the level distance D. Springs and flanks: as above.
    """
    result = swung()
    y, z, pitch = swinging(result.time - 0.5e-3)
    inside = (pitch > 0.04) & (pitch < 0.19)  # the whole width is engaged
    moment = result.torque[:, 0] + y * result.force[:, 2] - (z - TURN_ABOUT) * result.force[:, 1]
    expected = TOUGHNESS * WIDTH * TURN_ABOUT / np.cos(pitch) ** 2
    assert inside.sum() > 30
    assert moment[inside].mean() == pytest.approx(expected[inside].mean(), rel=0.08)


def test_energy_balance_of_a_turning_knife():
    """Its work, force × way and moment × angle, is fracture and stored energy; the rest is damping, as when level."""
    result = swung()
    energy = {name: values[-1] - values[0] for name, values in result.energy.items()}
    work = energy.pop("knife_work")
    assert energy["fracture"] == pytest.approx(TOUGHNESS * WIDTH * BLOCK_HEIGHT, rel=0.02)
    assert -0.005 * work < work - sum(energy.values()) < 0.08 * work


# Limits


@pytest.mark.parametrize("law", ["edge", "force"])
def test_a_vanishing_tilt_gives_the_level_cut(law):
    """1e-13 rad move the blade's ends by 1e-14 m; the run repeats the level one to 1e-10 of the force.

    A rocking motion that does not rock gives the same bits.
    """
    values = EDGE if law == "edge" else CUTTING
    mesh, options = irregular_block(), EXACT
    level = simulate(block_model(mesh, damage_law=law), SlicingMotion(**SCREW), values, **options)
    tilted = block_model(mesh, damage_law=law, knife=Knife(tilt_deg=float(np.degrees(1e-13))))
    result = simulate(tilted, SlicingMotion(**SCREW), values, **options)
    assert np.abs(result.force - level.force).max() < 1e-10 * np.abs(level.force).max()
    still = RockingMotion(**SCREW, pivot=(0.0, 0.07))
    result = simulate(block_model(mesh, damage_law=law), still, values, **options)
    assert (result.force == level.force).all()


def test_a_curve_of_large_radius_is_straight():
    """At R = 1 km the ends of the block's edge rise by 0.1 µm: a deviation proportional to 1 / R."""
    mesh = irregular_block()
    away = []
    straight = descend(mesh, NO_FRICTION).force
    for radius in (1.0e3, 1.0e4):
        curved = descend(mesh, NO_FRICTION, knife=Knife(belly_radius_m=radius)).force
        away.append(np.abs(curved - straight).max() / np.abs(straight).max())
    assert away[0] < 1e-3
    assert away[1] < 0.2 * away[0]


def test_a_belly_enters_gradually_and_pays_the_same():
    """A block of 30 mm under R = 0.15 m: the ends of the front are 0.75 mm higher than its middle; steady force G w."""
    mesh = regular_block((5, 5, 5))
    result = descend(mesh, NO_FRICTION, knife=Knife(belly_radius_m=0.15))
    level = descend(mesh, NO_FRICTION)
    assert steady(result)[1] == pytest.approx(steady(level)[1], rel=0.02)
    early = slice(10, 25)  # 2 to 5 mm below the start, 2 mm above the block
    assert result.force[early, 1].mean() < 0.93 * level.force[early, 1].mean()


def test_a_turned_scene_gives_turned_forces():
    """A whole scene and its knife turned about x by 20 degrees: the knife's frame is what counts.

    The block is glued without gravity or board, so that nothing else singles out a direction.
    """
    angle = np.radians(20.0)
    turn = np.array([[1.0, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
    nodes, tets = box_mesh(BLOCK_LOW, BLOCK_HIGH, (3, 3, 3))
    lift = np.array([0.0, 0.5, 0.0])  # far from the board
    t = np.linspace(0.0, DURATION, 30)
    down = np.stack([0.0 * t, 0.0285 - 0.2 * t, 0.05 * t], axis=1)
    found = []
    for rotation, pitch in ((np.eye(3), 0.0), (turn, angle)):
        mesh = cut_by_plane(nodes @ rotation.T + lift, tets)
        model = block_model(mesh, damage_law="edge", boundary="free", gravity=(0.0, 0.0, 0.0))
        way = down @ rotation.T + lift
        path = PathWithPitch(
            lambda s, way=way, pitch=pitch: (np.interp(s, t, way[:, 1]), np.interp(s, t, way[:, 2]), pitch)
        )
        values = EDGE | {"skin_toughness": 0.0}
        result = simulate(model, path, values, duration=DURATION, dt=1e-3, newton=NewtonOptions(1e-11, 1e-7))
        found.append((result.force @ rotation, result.torque @ rotation))
    for level, turned in zip(*found, strict=True):
        assert np.abs(level - turned).max() < 1e-7 * np.abs(level).max()


# Gradients


MOTION_PARAMETERS = tuple(rocking().parameters)


@pytest.fixture(scope="module")
def cases():
    """A box that no other test cuts, jittered, under an odd knife: curved, tilted, its end inside the body."""
    mesh = cut_by_plane(*jittered_box(11, (3, 3, 3)))
    knife = Knife(length_m=0.05, belly_radius_m=0.12, tilt_deg=4.0)
    motion = rocking(initial_y=0.0435, initial_z=0.02, pivot=(0.002, 0.02))
    return {
        "edge": Case(block_model(mesh, damage_law="edge", knife=knife), motion, EDGE, EXACT | {"dt": 2e-3}),
        "force": Case(block_model(mesh, knife=knife), motion, CUTTING, EXACT | {"dt": 2e-3}),
    }


def error_in(case, name):
    """Relative error at a step of 1e-6: larger ones cross kinks, smaller ones see rounding."""
    along = np.array(0.03) if name == "initial_pitch" else case.direction(name)
    assert float(np.abs(case.adjoint(name)).max()) > 0.0
    return smallest_error(case, {name: along}, tolerance=1e-6, first_step=1e-6)


@pytest.mark.parametrize("name", MOTION_PARAMETERS)
def test_gradients_in_every_parameter_of_the_motion(cases, name):
    assert cases["edge"].result.outcome.ok
    assert error_in(cases["edge"], name) < 1e-6


@pytest.mark.parametrize("name", ["initial_pitch", "pitch_rate", "sdf_mu", "young_pa"])
def test_gradients_under_the_force_law(cases, name):
    assert error_in(cases["force"], name) < 1e-6


def test_gradients_by_the_factor_on_the_host_are_those_on_the_device(cases):
    """The factor's chords leave 1e-9 of the force, the adjoint's solves end at 1e-7."""
    case = cases["edge"]
    host = Case(case.model, case.motion, EDGE, {"dt": 2e-3, "solver": "cholesky"}).gradients
    assert case.gradients.poses.shape == (51, 4)
    assert np.abs(host.poses - case.gradients.poses).max() < 1e-5 * np.abs(host.poses).max()
    assert host.motion["pitch_rate"] == pytest.approx(case.gradients.motion["pitch_rate"], rel=1e-4)


def test_many_gradients_in_pitch_are_the_single_ones(cases):
    result = cases["edge"].result
    bars = np.random.default_rng(0).standard_normal((3, *result.force.shape))
    for bar, one in zip(bars, result.gradients(bars), strict=True):
        alone = result.gradient(bar)
        assert one.motion["pitch_rate"] == pytest.approx(alone.motion["pitch_rate"], rel=1e-4)


# Paths through the code, order in the step


@pytest.mark.parametrize("law", ["edge", "force"])
def test_a_run_on_the_device_and_a_batch_repeat_the_host(law):
    """Force, torque and work; a batch holds a knife that turns beside one that does not."""
    values = (EDGE if law == "edge" else CUTTING) | {"sdf_stribeck": 0.0}
    model = block_model(irregular_block(), damage_law=law, knife=BELLY)
    options = {"duration": DURATION, "dt": 1e-3, "newton": NewtonOptions(1e-9, 1e-6)}
    motions = [rocking(), SlicingMotion(**SCREW)]
    cuts = [Cut(model, motion, values, options | {"device": "cpu"}) for motion in motions]
    batch = simulate_many(cuts, batch=True)
    for motion, answer in zip(motions, batch, strict=True):
        host = simulate(model, motion, values, solver="cholesky", **options)
        device = simulate(model, motion, values, solver="conjugate_gradients", **options)
        for other in (device, answer.value):
            assert np.abs(other.wrench - host.wrench).max() < 1e-5 * np.abs(host.wrench).max()
            assert other.energy["knife_work"] == pytest.approx(host.energy["knife_work"], rel=1e-5, abs=1e-8)
            assert (other.pitch == host.pitch).all()


def test_turning_keeps_the_order_in_the_step():
    """A knife that presses, saws and turns, without damage, whose kinks would hide the order.

    Measured rates: 1.6 level and 1.5 to 1.6 turning, as inertia is of first order; a turning rate of first order in
    the slip would give a larger error than the level knife's.
    """

    def force(dt, knife, turning):
        def path(t):
            return 0.0235 + 2e-3 * np.cos(20.0 * t), 4e-3 * np.sin(30.0 * t), turning * np.sin(25.0 * t)

        model = block_model(irregular_block(), knife=knife)
        values = {"cut_spring_softness": 0.0, "sdf_mu": 0.3}
        motion = PathWithPitch(path)
        return simulate(model, motion, values, duration=0.2, dt=dt, sample_rate_hz=100.0).force[2:]

    def errors(*scene):
        exact = force(2.5e-4, *scene)
        return [np.abs(force(dt, *scene) - exact).mean() / np.abs(exact).mean() for dt in (4e-3, 1e-3)]

    level = errors(None, 0.0)
    for knife in (None, Knife(belly_radius_m=0.2, tilt_deg=2.0)):
        turning = errors(knife, 0.05)
        assert turning[0] < 1.1 * level[0]
        assert turning[1] < 1.1 * level[1]
        assert 0.5 * np.log2(turning[0] / turning[1]) > 1.4


# Curves and bad input


def test_a_curved_knifes_distance_is_convex_and_its_gradient_exact():
    knife = knife_from(
        {"edge_curve": [[z, 0.02 * max(0.0, z / 0.075) ** 3] for z in np.linspace(-0.075, 0.075, 16)]}
    )
    rng = np.random.default_rng(3)
    points = rng.normal(size=(2000, 3)) * (1e-3, 3e-3, 0.04)
    _, gradient, hessian = knife_distance(knife, points, 1)
    step = 1e-8
    numeric = np.stack(
        [
            (knife_distance(knife, points + s, 1)[0] - knife_distance(knife, points - s, 1)[0]) / (2.0 * step)
            for s in step * np.eye(3)
        ],
        axis=1,
    )
    assert np.abs(numeric - gradient).max() < 1e-7
    assert np.linalg.eigvalsh(hessian).min() > -1e-9 / 1e-3
    assert np.linalg.norm(gradient, axis=1).max() < np.sqrt(1.0 + 0.85**2)


def test_a_circular_edge_has_its_radius():
    """A polynomial of degree 6 follows the circle to 1 µm at the smallest radius allowed, the blade's length."""
    z = np.linspace(-0.075, 0.075, 301)
    for radius in (0.15, 0.5):
        height = Knife(belly_radius_m=radius).edge_height_m(z)
        assert height == pytest.approx(radius - np.sqrt(radius**2 - z**2), abs=1e-6)
    table = [[float(place), float(radius - np.sqrt(radius**2 - place**2)) + 0.003] for place in z[::20]]
    assert knife_from({"edge_curve": table}).edge_height_m(z) == pytest.approx(height, abs=1e-6)


CURVE = [[-0.075, 0.004], [0.0, 0.0], [0.075, 0.004]]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"edge_curve": [[-0.075, 0.0], [0.0, 0.001], [0.075, 0.0]]}, "not convex: at 0 m .* 1 mm above"),
        ({"edge_curve": CURVE, "belly_radius_m": 0.3}, "Give one of them"),
        ({"edge_curve": CURVE[:2]}, "needs at least 3"),
        ({"edge_curve": CURVE[::-1]}, "increasing place"),
        ({"edge_curve": [[-0.03, 0.0], [0.0, 0.0], [0.03, 0.0]]}, "from end to end of the blade"),
        ({"edge_curve": [[-0.075, 0.0], [0.0, 0.0], [0.075, 0.09]]}, "slope of edge_curve changes by 1.2"),
        ({"edge_curve": [[-0.075, 0.0], [0.05, 0.0], [0.06, 0.001], [0.075, 0.014]]}, "misses edge_curve by"),
        ({"edge_curve": 0.3}, "must be a list of pairs"),
        ({"edge_curve": [["a", 0.0], [0.0, 0.0], [0.1, 0.0]]}, "must be a number"),
        ({"belly_radius_m": 0.1}, "at least the blade's length"),
        ({"belly_radius_m": 0.3, "height_m": 0.008}, "must stay below the spine"),
        ({"tilt_deg": 50.0}, "at most 45 degrees"),
        ({"tilt_deg": float("nan")}, "at most 45 degrees"),
    ],
)
def test_edges_that_are_none_are_refused(description, message):
    with pytest.raises(InputError, match=message):
        knife_from(description)


def test_a_pitch_beyond_the_range_is_refused():
    with pytest.raises(InputError, match=r"reaches 17\d\S* degrees\. It must stay within 60"):
        rocking(initial_pitch=-3.0)
    with pytest.raises(InputError, match="pivot"):
        rocking(pivot=(0.0, float("nan")))


def test_the_pivot_stays_where_the_slicing_motion_takes_it():
    """pose + R(pitch) pivot = slicing motion + pivot, at all times; at rest at both ends."""
    times = np.linspace(0.0, DURATION, 400)
    motion = rocking(pivot=(0.003, 0.05))
    poses, base = motion.poses(times), SlicingMotion(**SCREW).poses(times)
    c, s = np.cos(poses[:, 3]), np.sin(poses[:, 3])
    pivot = np.stack([0.0 * c, 0.003 * c - 0.05 * s, 0.003 * s + 0.05 * c], axis=1)
    assert poses[:, :3] + pivot == pytest.approx(base + np.array([0.0, 0.003, 0.05]), abs=1e-15)
    speed = np.diff(poses[:, 3]) / np.diff(times)
    assert np.abs(speed[[0, -1]]).max() < 1e-4 * np.abs(speed).max()
    assert poses[-1, 3] > poses[0, 3] + 0.05
