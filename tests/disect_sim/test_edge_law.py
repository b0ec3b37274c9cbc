"""The edge law: closed forms of the force, energy balance, independence of mesh and step, exact gradients."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, RecordedMotion, cut_by_plane, simulate
from disect_sim.cut_mesh import box_mesh
from disect_sim.knife import Knife
from tests.disect_sim.gradient_cases import Case, parameters_of, slicing, smallest_error, straight
from tests.disect_sim.scenes import APPLE, block_model, irregular_block, regular_block

TOUGHNESS, WIDTH = 500.0, 0.03
"""[J/m^2], and the block's width along the blade [m]."""
PURE_SLICING = {"edge_press": 0.0, "edge_drag": 0.0}
"""Shares (1, 0, 0) of the toughness, whose closed forms are tested here; other shares: test_edge_shares.py."""
NO_FRICTION = {"sdf_mu": 1e-6, "edge_toughness": TOUGHNESS, "edge_rise": 0.6e-3} | PURE_SLICING
CUTTING = {"edge_toughness": 400.0, "skin_toughness": 600.0, "sdf_mu": 0.3, "sdf_stribeck": 0.1}


def descend(mesh, parameters, *, speed=0.1, slide=0.0, dt=2e-3, knife=None, boundary="free"):
    """Straight down at `speed` [m/s], drawn along the blade at `slide` [m/s], until 2 mm above the board."""
    model = block_model(mesh, damage_law="edge", boundary=boundary, knife=knife)
    duration = round(0.025 / speed / dt) * dt
    t = np.linspace(0.0, duration, 60)
    y = 0.027 - speed * t
    motion = RecordedMotion(t, np.stack([y, slide * (t - 0.5 * duration)], axis=1))
    return simulate(model, motion, parameters, duration=duration, dt=dt, sample_rate_hz=500.0)


def steady(result, low=0.4, high=0.9):
    """Mean force [N], shape [3], in the middle of the block."""
    count = len(result.force)
    return result.force[int(low * count) : int(high * count)].mean(axis=0)


def test_samples_cover_the_cut_and_move_with_it():
    mesh = irregular_block()
    samples = block_model(mesh).edge_samples
    # Crossings near a vertex were moved off the plane: quadrilaterals there are not quite flat.
    assert samples.area.sum() == pytest.approx(mesh.spring_area.sum(), rel=1e-5)
    assert np.asarray(samples.to_springs.sum(axis=1)).ravel() == pytest.approx(1.0)
    places = samples.places(mesh.nodes)
    assert np.abs(places[:, 0]).max() < 2e-4
    # A block's cut face: its rim is the block's outline.
    rim = np.minimum.reduce([places[:, 1], 0.025 - places[:, 1], 0.015 - np.abs(places[:, 2])])
    assert samples.skin_distance == pytest.approx(rim, abs=2e-4)
    shift = np.array([1e-3, -2e-3, 5e-4])
    assert samples.places(mesh.nodes + shift) == pytest.approx(places + shift)


def test_a_blade_pays_toughness_times_width():
    """F = G w in steady state; springs and the damping of the flanks' contact add 4 % at 0.1 m/s."""
    force = steady(descend(regular_block((5, 5, 5)), NO_FRICTION))
    assert force[1] == pytest.approx(TOUGHNESS * WIDTH, rel=0.06)
    assert abs(force[2]) < 0.02 * force[1]


@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_drawing_the_blade_follows_the_slice_push_curve(ratio):
    """F_y / F_y0 = 1 / (1 + xi^2) and F_z / F_y = -xi without friction: the same work on a longer way."""
    mesh = regular_block((5, 5, 5))
    speed = 0.05
    pushed = steady(descend(mesh, NO_FRICTION, speed=speed, boundary="held"))
    drawn = steady(descend(mesh, NO_FRICTION, speed=speed, slide=ratio * speed, boundary="held"))
    # Springs and flanks, which do not follow the curve, are 3 % of the pushed force.
    assert drawn[1] / pushed[1] == pytest.approx(1.0 / (1.0 + ratio**2), abs=0.03)
    assert drawn[2] / (TOUGHNESS * WIDTH) == pytest.approx(-ratio / (1.0 + ratio**2), abs=0.03)


def test_a_blade_shorter_than_the_chord_pays_for_its_length():
    short = Knife(length_m=0.016)
    result = descend(regular_block((5, 5, 5)), NO_FRICTION, knife=short)
    # Beyond its ends the edge rises 4 : 1, with a soft start of 1 mm: 25 mm deep it reaches a few millimetres further.
    assert TOUGHNESS * 0.016 < steady(result)[1] < TOUGHNESS * 0.026
    assert result.cut_fraction[-1] < 0.9


def test_energy_balance():
    """Knife's work = fracture + elastic + springs + contact + board + height; the rest is damping: small, positive."""
    result = descend(irregular_block(), NO_FRICTION, speed=0.05, boundary="held")
    energy = {name: values[-1] - values[0] for name, values in result.energy.items()}
    work = energy.pop("knife_work")
    assert energy["fracture"] == pytest.approx(TOUGHNESS * WIDTH * 0.023, rel=0.1)
    lost = work - sum(energy.values())
    # Damping of contact and springs, and springs that are severed while stretched.
    assert -0.005 * work < lost < 0.06 * work


def test_force_does_not_depend_on_mesh_or_step():
    base = steady(descend(regular_block((3, 3, 3)), NO_FRICTION))[1]
    finer = steady(descend(regular_block((7, 7, 7)), NO_FRICTION))[1]
    quicker = steady(descend(regular_block((3, 3, 3)), NO_FRICTION, dt=1e-3))[1]
    assert finer == pytest.approx(base, rel=0.02)
    assert quicker == pytest.approx(base, rel=0.006)


@pytest.mark.parametrize("mesh", [regular_block(), regular_block((7, 7, 7)), irregular_block()])
def test_skin_has_the_same_meaning_on_every_mesh(mesh):
    """Its share, integrated over a block's cut face: of a rectangle by a fine grid, within 4 %; only the top counts."""
    depth = 1.5e-3
    samples = block_model(mesh).edge_samples
    y, z = np.meshgrid((np.arange(500) + 0.5) * 0.025 / 500, (np.arange(600) + 0.5) * 0.03 / 600)
    top = 0.025 - y
    counts = top < np.minimum.reduce([y, z, 0.03 - z])
    exact = float((np.exp(-top / depth) * counts).mean()) * 0.025 * 0.03
    share = samples.skin_above * np.exp(-samples.skin_distance / depth)
    assert samples.area @ share == pytest.approx(exact, rel=0.04)


def test_skin_costs_what_blade_enters_through_it():
    """Of an upright disc: toughness x skin's depth x width, as the blade enters through the upper half alone.

    The rim's curvature takes depth / radius of it, 5 %; facets and samples leave 3 %.
    """
    radius, depth = 0.02, 1.0e-3
    nodes, tets = box_mesh((-0.01, -1.0, -1.0), (0.01, 1.0, 1.0), (3, 16, 16))
    x, u, v = nodes.T  # a square becomes a disc
    y, z = u * np.sqrt(1.0 - 0.5 * v**2), v * np.sqrt(1.0 - 0.5 * u**2)
    mesh = cut_by_plane(np.stack([x, radius * (1.0 + y), radius * z], axis=1), tets)
    samples = block_model(mesh).edge_samples
    share = samples.skin_above * np.exp(-samples.skin_distance / depth)
    assert samples.area @ share == pytest.approx(2.0 * radius * depth * (1.0 - depth / radius), rel=0.03)
    below = samples.places(mesh.nodes)[:, 1] < radius
    assert samples.area[below] @ share[below] < 0.01 * (samples.area @ share)


@pytest.mark.parametrize("softer", [1.0, 100.0])
def test_a_loose_or_soft_body_does_not_bounce(softer):
    """The force of a step is taken before its motion: from step to step it must not swing."""
    model = block_model(
        regular_block((5, 5, 5)), APPLE.replaced(young_pa=3.0e6 / softer), damage_law="edge", boundary="free"
    )
    motion = ConstantVelocity(initial_y=0.027, velocity_y=-0.1)
    values = NO_FRICTION | {"edge_toughness": TOUGHNESS / softer, "cut_spring_ke": 500.0 / softer}
    result = simulate(model, motion, values, duration=0.2, dt=4e-3, sample_rate_hz=250.0)
    assert result.outcome.ok
    force = result.force[15:, 1]
    assert force.mean() == pytest.approx(TOUGHNESS / softer * WIDTH, rel=0.15)
    assert np.abs(np.diff(force)).mean() < 0.1 * force.mean()


def test_nothing_is_paid_twice():
    """A second pass through what has been parted meets only the flanks."""
    model = block_model(regular_block((5, 5, 5)), damage_law="edge", boundary="held")
    t = np.array([0.0, 0.1, 0.2, 0.3])
    y = np.array([0.027, 0.012, 0.024, 0.012])
    motion = RecordedMotion(t, np.stack([y, np.zeros(4)], axis=1))
    result = simulate(model, motion, NO_FRICTION, duration=0.3, dt=2e-3)
    paid = result.energy["fracture"]
    assert (np.diff(paid) >= -1e-12).all()
    assert paid[-1] == pytest.approx(paid[len(paid) // 2], rel=0.02)


@pytest.fixture(scope="module")
def cut():
    model = block_model(irregular_block(), damage_law="edge")
    return {"straight": Case(model, straight(), CUTTING), "slicing": Case(model, slicing(), CUTTING)}


STRAIGHT = [name for name in parameters_of("edge") if name not in PURE_SLICING]
"""Straight down all shares of the toughness are the same: their gradient is rounding (test_edge_shares.py)."""


@pytest.mark.parametrize("name", [*STRAIGHT, "initial_y", "velocity_y"])
def test_gradients_of_a_straight_cut(cut, name):
    case = cut["straight"]
    assert float(np.abs(case.adjoint(name)).max()) > 0.0
    assert smallest_error(case, {name: case.direction(name)}) <= 1e-4


@pytest.mark.parametrize(
    "name",
    [
        "edge_toughness",
        "edge_rise",
        "edge_press",
        "edge_drag",
        "skin_depth",
        "sdf_mu",
        "amplitude",
        "velocity_y",
    ],
)
def test_gradients_of_a_sawing_cut(cut, name):
    case = cut["slicing"]
    assert smallest_error(case, {name: case.direction(name)}) <= 1e-4


def test_gradients_of_a_short_blade():
    """The blade's end passes through the block: its place along z matters."""
    model = block_model(irregular_block(), damage_law="edge", knife=Knife(length_m=0.02))
    case = Case(model, slicing(initial_z=0.004), CUTTING)
    for name in ("edge_toughness", "initial_z"):
        assert smallest_error(case, {name: case.direction(name)}, first_step=1e-4) <= 3e-4


def test_many_gradients_are_the_single_ones(cut):
    result = cut["straight"].result
    bars = np.random.default_rng(0).standard_normal((3, *result.force.shape))
    together = result.gradients(bars)
    for bar, one in zip(bars, together, strict=True):
        alone = result.gradient(bar)
        for name in ("edge_toughness", "edge_rise", "skin_toughness", "skin_depth", "sdf_mu", "young_pa"):
            # The adjoint's linear solves end at a relative 1e-7.
            assert float(one.parameters[name]) == pytest.approx(float(alone.parameters[name]), rel=1e-4)
