"""Knife contact: action = reaction, virtual work, no adhesion, friction cone and direction, derivatives."""

from dataclasses import replace

import numpy as np
import pytest

from disect_sim import KNIVES, ConstantVelocity, simulate
from disect_sim.device_model import series_stiffness
from disect_sim.model import ONSET_M, REGULARISER_M
from disect_sim.newton import start_of_step
from tests.disect_sim.knife_distance import knife_distance
from tests.disect_sim.scenes import block_model, dense_hessian, irregular_block, step_system

DT = 1e-3
FAR = np.array([0.0, 10.0, 0.0])
INSIDE = np.array([0.0, 0.012, 0.0])
"""Knife with its edge halfway down the block [m]."""


@pytest.fixture(scope="module")
def mesh():
    return irregular_block()


class Press:
    """A step in which the knife is inside the block and both move a little, at random.

    Inertia is switched off by predicting the positions themselves, so that what the knife adds is seen unrounded.
    """

    def __init__(self, mesh, seed, parameters=None, knife_step=(0.0, -1e-4, 2e-5), shift=2e-4, **options):
        self.model = block_model(mesh, **options)
        self.system = step_system(self.model, parameters, DT)
        rng = np.random.default_rng(seed)
        rest = mesh.nodes
        self.start = rest + shift * rng.normal(size=rest.shape)
        self.x = self.start + 2e-5 * rng.normal(size=rest.shape)
        self.pose_n = INSIDE + 1e-3 * rng.normal(size=3) * (0.1, 1.0, 1.0)
        self.pose = self.pose_n + knife_step
        self.k = self.system.parameters.row("cut_spring_ke")

    def begin(self, *, knife=True):
        poses = (self.pose_n, self.pose) if knife else (FAR, FAR)
        self.system.begin(self.start, self.x, self.k, *poses)

    def force_on_nodes(self):
        """What the knife does to the nodes [N], shape [n, 3]: the gradient without it minus the gradient with it."""
        self.begin(knife=False)
        without = self.system.gradient(self.x).copy()
        self.begin()
        return without - self.system.gradient(self.x)

    def forces(self):
        """Normal and friction force per contact [N], each of shape [contact_count, 3]."""
        self.begin()
        self.system.gradient(self.x)
        return self.system.normal_force.numpy().copy(), self.system.friction_force.numpy().copy()


@pytest.mark.parametrize("seed", range(3))
def test_action_is_reaction(mesh, seed):
    press = Press(mesh, seed)
    normal, friction = press.forces()
    assert np.linalg.norm(normal.sum(axis=0)) > 0.05
    on_nodes = press.force_on_nodes()
    # Differences of gradients of size 1e2 N: rounding only.
    assert on_nodes.sum(axis=0) == pytest.approx((normal + friction).sum(axis=0), abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_force_on_the_knife_is_the_reaction_over_a_run(mesh, seed):
    """The reported force is minus what the nodes feel, sample by sample."""
    model = block_model(mesh)
    motion = ConstantVelocity(initial_y=0.0255, velocity_y=-0.2, z=1e-3 * seed)
    result = simulate(model, motion, duration=0.02, dt=DT, differentiable=True)
    system, tape = step_system(model), result.tape
    n = 15
    on_knife = []
    for step in (n - 1, n):
        x_before, x_n, x = tape.states[step : step + 3]
        start = start_of_step(
            system, step, tape.poses, x_n, x_before, *result.stiffness[[step, step - 1]], np.zeros(0)
        )
        gradients = []
        for where in (start._replace(pose_n=FAR, pose=FAR), start):
            system.begin(*where)
            gradients.append(system.gradient(x).copy())
        on_knife.append((gradients[1] - gradients[0]).sum(axis=0))
    # A sample as long as a step is the mean of the forces at both ends.
    assert result.force[n] == pytest.approx(np.mean(on_knife, axis=0), abs=1e-9)
    assert result.force[n, 1] > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_virtual_work_balances(mesh, seed):
    """Force on the parents times their displacement is what the penalty's energy loses (no friction, no damping)."""
    press = Press(mesh, seed, {"sdf_mu": 1e-9, "sdf_kd": 1e-9, "sdf_ke": 5000.0})
    direction = np.random.default_rng(seed).normal(size=press.x.shape)
    force = press.force_on_nodes()
    energies = []
    step = 1e-7
    for sign in (1.0, -1.0):
        press.system.gradient(press.x + sign * step * direction)
        energies.append(press.system.energies().contact)
    work = (force * direction).sum()
    assert abs(work) > 1e-2
    # Steps of 1e-7 m against an onset of 1e-4 m with a continuous force: 1e-6 relative.
    assert (energies[1] - energies[0]) / (2.0 * step) == pytest.approx(work, rel=1e-5)


@pytest.mark.parametrize("stribeck", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_gradient_and_hessian_of_a_step_in_contact(mesh, seed, stribeck):
    """Energy → gradient → Hessian of the whole step: contact with damping and friction, springs, board, tets."""
    parameters = {"sdf_kd": 50.0, "sdf_kf": 0.1, "sdf_stribeck": stribeck, "sdf_tip": 2e-3}
    press = Press(mesh, seed, parameters)
    free = ~press.model.fixed
    press.begin()
    gradient = press.system.gradient(press.x).copy()
    hessian = dense_hessian(press.system)
    energies = press.system.energies()
    assert min(energies.contact, energies.contact_damping, energies.friction, energies.board) > 0.0
    direction = np.random.default_rng(10 + seed).normal(size=press.x.shape)
    direction[~free] = 0.0
    # The gradient is C0 with kinks where ramps begin, so errors shrink with the step; energies limit it from below.
    step = 1e-8
    values, slopes = [], []
    for sign in (1.0, -1.0):
        slopes.append(press.system.gradient(press.x + sign * step * direction).copy())
        values.append(press.system.energies().total)
    slope = (gradient * direction).sum()
    assert (values[0] - values[1]) / (2.0 * step) == pytest.approx(slope, rel=1e-5, abs=1e-5)
    product = hessian @ direction[free].ravel()
    numeric = ((slopes[0] - slopes[1]) / (2.0 * step))[free].ravel()
    assert np.abs(numeric - product).max() < 1e-4 * np.abs(product).max()
    assert np.abs(hessian - hessian.T).max() < 1e-9 * np.abs(hessian).max()


@pytest.mark.parametrize("pull_back", [1e-4, -1e-3, 3e-3])
def test_knife_never_pulls(mesh, pull_back):
    """However fast the knife leaves, with however strong damping, the normal force points away from it."""
    press = Press(mesh, 1, {"sdf_kd": 100.0}, knife_step=(0.0, pull_back, 0.0))
    normal, _ = press.forces()
    s = press.system
    x, p = press.x, press.model.contact_parents
    u = (press.model.contact_coordinate * s.found.numpy())[:, None]
    points = x[p[:, 0]] + (x[p[:, 1]] - x[p[:, 0]]) * u - press.pose
    outward = knife_distance(press.model.knife, points, press.model.contact_side)[1]
    assert ((normal * outward).sum(axis=1) >= 0.0).all()
    # And it is along the outward direction, nothing else.
    assert np.abs(np.cross(normal, outward)).max() < 1e-9


def test_no_force_without_touch(mesh):
    press = Press(mesh, 2)
    press.pose_n = press.pose = np.array([0.0, 0.03, 0.0])
    normal, friction = press.forces()
    assert not normal.any()
    assert not friction.any()


@pytest.mark.parametrize("stribeck", [0.0, 0.4])
@pytest.mark.parametrize("kf", [0.01, 0.5])
@pytest.mark.parametrize("seed", range(2))
def test_friction_is_inside_its_cone_and_against_the_slip(mesh, seed, kf, stribeck):
    mu = 0.6
    press = Press(mesh, seed, {"sdf_mu": mu, "sdf_kf": kf, "sdf_stribeck": stribeck})
    _, friction = press.forces()
    s, m = press.system, press.model
    held, normal = s.friction_limit.numpy(), s.friction_normal.numpy()
    magnitude = np.linalg.norm(friction, axis=1)
    # Brown's curve: mu tanh(4 s) plus a bump of static friction, stribeck s / (s²/4 + 3/4)², highest at s = 1.
    assert (magnitude <= held * (mu + stribeck) * (1.0 + 1e-9)).all()
    assert (magnitude[held == 0.0] == 0.0).all()
    assert (held > 0.0).sum() > 10
    p = m.contact_parents
    u = (m.contact_coordinate * s.ahead_found.numpy())[:, None]
    # The nodes were at rest before, the knife was not: velocity to second order is 3/2 of the nodes' last move.
    moved = 1.5 * (press.x - press.start)
    slip = moved[p[:, 0]] + (moved[p[:, 1]] - moved[p[:, 0]]) * u - (press.pose - press.pose_n)
    slip -= normal * (normal * slip).sum(axis=1, keepdims=True)
    speed = np.linalg.norm(slip, axis=1) / DT
    aligned = (friction * slip).sum(axis=1)
    assert (aligned[held > 0.0] < 0.0).all()
    assert aligned == pytest.approx(-magnitude * speed * DT, abs=1e-12)
    ratio = speed / kf
    law = mu * np.tanh(4.0 * ratio) + stribeck * ratio / (0.25 * ratio**2 + 0.75) ** 2
    # Speeds are rounded at 1e-8 m/s.
    assert magnitude == pytest.approx(held * law, rel=1e-4, abs=1e-12)


def test_normal_force_is_linear_beyond_the_onset(mesh):
    """Force over stiffness is the depth less half the onset, where the gradient of the distance has length 1."""
    ke = 2000.0
    press = Press(mesh, 3, {"sdf_ke": ke, "sdf_kd": 1e-9})
    acting = series_stiffness(press.system.parameters).stiffness
    force = np.linalg.norm(press.forces()[0], axis=1) / np.tile(acting * press.model.spring_area_ratio, 2)
    m, x, s = press.model, press.x, press.system.found.numpy()
    a, b = x[m.contact_parents[:, 0]], x[m.contact_parents[:, 1]]
    points = a + (b - a) * (m.contact_coordinate * s)[:, None] - press.pose
    radius = press.system.parameters.row("sdf_radius")[0]
    barrier = REGULARISER_M * np.log(4.0 * s * (1.0 - s))
    tip = press.system.parameters.row("sdf_tip")[0]
    distance, gradient, _ = knife_distance(m.knife, points, m.contact_side, tip)
    depth = radius + m.contact_offset - distance + barrier
    deep = depth > 3.0 * ONSET_M
    assert deep.sum() > 5
    expected = (depth - 0.5 * ONSET_M) * np.linalg.norm(gradient, axis=1)
    assert force[deep] == pytest.approx(expected[deep], rel=1e-6)


def test_contact_point_stays_on_the_material_part_of_its_edge(mesh):
    press = Press(mesh, 4)
    press.forces()
    coordinate = press.system.found.numpy()
    assert ((coordinate >= 0.0) & (coordinate <= 1.0)).all()


def test_contact_point_is_the_nearest_to_the_knife(mesh):
    """Against brute force over the edge: the barrier may cost a few of its widths of 0.05 mm, not more."""
    press = Press(mesh, 5)
    press.forces()
    m, x = press.model, press.x
    s = np.linspace(0.0, 1.0, 201)
    a = x[m.contact_parents[:, 0]] - press.pose
    e = (x[m.contact_parents[:, 1]] - x[m.contact_parents[:, 0]]) * m.contact_coordinate[:, None]
    points = (a[:, None] + e[:, None] * s[None, :, None]).reshape(-1, 3)
    brute = knife_distance(m.knife, points, np.repeat(m.contact_side, 201))[0].reshape(-1, 201).min(axis=1)
    found = press.system.found.numpy()
    reached = knife_distance(m.knife, a + e * found[:, None], m.contact_side)[0]
    # Edges that cannot touch are not searched.
    near = brute < m.contact_offset + press.system.parameters.row("sdf_radius")[0]
    assert near.sum() > 20
    assert (reached - brute < 2e-4)[near].all()
    assert (press.system.touch.numpy()[~near] == 0.0).all()


def test_blade_that_ends_beside_the_block_touches_only_what_it_reaches(mesh):
    """A blade of 54 mm shifted by 27 mm covers half the block: contacts beyond its end stay free."""
    press = Press(mesh, 6, shift=0.0, knife=KNIVES["folding"])
    press.pose_n = press.pose = INSIDE + np.array([0.0, 0.0, 0.027])
    normal, _ = press.forces()
    z = np.tile(mesh.spring_position[:, 0], 2)
    touched = np.linalg.norm(normal, axis=1) > 0.0
    assert touched[z > 2e-3].any()
    assert not touched[z < -3e-3].any()


def test_knife_force_scales_with_area_not_with_count(mesh):
    """Doubling every tributary area at the same parameters doubles every contact force."""
    doubled = replace(mesh, spring_area=2.0 * mesh.spring_area)
    one, two = (Press(m, 7).forces()[0] for m in (mesh, doubled))
    assert two == pytest.approx(2.0 * one, rel=1e-12)
