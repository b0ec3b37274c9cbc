"""Backward Euler: free fall, momentum, energy, order in dt, symmetry, same bits every time."""

from dataclasses import fields

import numpy as np
import pytest

from disect_sim import ConstantVelocity, CutMesh, InputError, simulate
from disect_sim.newton import NewtonOptions
from tests.disect_sim.scenes import APPLE, block_model, irregular_block, regular_block

AWAY = ConstantVelocity(initial_y=10.0, velocity_y=0.0)
TIGHT = NewtonOptions(tolerance_m=1e-10, cg_tolerance=1e-8)
SOFT = APPLE.replaced(young_pa=3.0e4, retardation_s=0.0)
"""A hundred times softer than an apple and undamped: it swings within a few milliseconds."""
HIGH = np.array([0.0, 0.2, 0.0])
"""Lifts the block off the board [m], by less than the ten body sizes that count as running away."""


@pytest.fixture(scope="module")
def mesh():
    return regular_block()


def flying(mesh, velocity, *, material=APPLE, gravity=(0.0, 0.0, 0.0), duration=0.02, **options):
    """A free block in the air."""
    model = block_model(mesh, material, boundary="free", gravity=gravity)
    settings = {
        "dt": 1e-3,
        "newton": TIGHT,
        "initial_positions": mesh.nodes + HIGH,
        "initial_velocity": velocity,
    }
    result = simulate(model, AWAY, duration=duration, **(settings | options))
    assert result.outcome.ok, result.outcome
    return result


def test_free_fall_follows_backward_eulers_formula(mesh):
    start = np.tile([0.3, 2.0, -0.1], (len(mesh.nodes), 1))
    dt, n = 1e-3, 20
    result = flying(mesh, start, gravity=(0.0, -9.81, 0.0), keep_times=[0.01])
    for time, steps in ((0.01, 10), (n * dt, n)):
        fallen = start[0] * time + np.array([0.0, -9.81, 0.0]) * dt**2 * steps * (steps + 1) / 2.0
        # A rigid translation strains nothing; 1e-10 m is Newton's tolerance.
        assert np.abs(result.positions[time] - (mesh.nodes + HIGH + fallen)).max() < 1e-9


def momentum(result, mass):
    """Linear [kg m/s] and angular [kg m²/s] momentum of every step, shapes [steps, 3]."""
    states = np.array(result.tape.states)
    velocity = np.diff(states, axis=0) / result.tape.system.dt
    linear = np.einsum("n,snk->sk", mass, velocity)
    angular = np.einsum("n,snk->sk", mass, np.cross(states[1:], velocity))
    return linear, angular


def test_linear_momentum_is_conserved(mesh):
    velocity = np.random.default_rng(0).normal(size=mesh.nodes.shape)
    result = flying(mesh, velocity, material=SOFT, differentiable=True)
    linear, _ = momentum(result, result.tape.system.mass)
    scale = result.tape.system.mass.sum()
    # Inner forces cancel exactly; what is left is Newton's residual: 1e-10 m × mass / dt per step.
    assert np.abs(linear - linear[0]).max() < 1e-6 * scale


def test_angular_momentum_is_lost_only_to_first_order_in_the_step(mesh):
    """No torque acts; backward Euler's own loss is ω² dt per second (here 25 /s × dt), so half at half the step."""
    spin = np.cross([3.0, 0.0, 4.0], mesh.nodes - mesh.nodes.mean(axis=0))
    lost = []
    for dt in (1e-3, 5e-4):
        result = flying(mesh, spin, dt=dt, differentiable=True, duration=0.04)
        _, angular = momentum(result, result.tape.system.mass)
        about = np.linalg.norm(angular - np.cross(HIGH, momentum(result, result.tape.system.mass)[0]), axis=1)
        assert (np.diff(about) < 1e-9 * about[0]).all()
        lost.append(1.0 - about[-1] / about[0])
    assert lost[0] < 0.002
    assert lost[0] / lost[1] == pytest.approx(2.0, rel=0.1)


def total_energy(result):
    """All energy the body has, minus the work the knife has done [J], shape [steps + 1]."""
    return sum(v for k, v in result.energy.items() if k != "knife_work") - result.energy["knife_work"]


@pytest.mark.parametrize("retardation_s", [0.0, 1e-3])
def test_a_swinging_block_never_gains_energy(mesh, retardation_s):
    velocity = 0.3 * np.random.default_rng(1).normal(size=mesh.nodes.shape)
    material = SOFT.replaced(retardation_s=retardation_s)
    energy = total_energy(flying(mesh, velocity, material=material, duration=0.03))
    assert energy[0] > 0.0
    assert (np.diff(energy) <= 1e-9 * energy[0]).all()
    assert energy[-1] < 0.9 * energy[0]


def test_a_cut_never_gains_more_energy_than_the_knife_puts_in():
    model = block_model(irregular_block())
    motion = ConstantVelocity(initial_y=0.0265, velocity_y=-0.27)
    result = simulate(model, motion, {"cut_spring_softness": 0.3}, duration=0.1, dt=1e-3, newton=TIGHT)
    energy, work = total_energy(result)[1:], result.energy["knife_work"]
    assert (np.diff(work)[20:] > 0.0).all()
    # Elastic energy is not convex where tets turn: a thousandth of a step's work is left for that.
    assert np.diff(energy).max() < 1e-3 * np.diff(work).max()
    assert energy[-1] - energy[0] < -0.3 * work[-1]


def test_energy_at_time_zero_is_complete(mesh):
    """A block stretched by 10 % at the start has elastic energy at the start."""
    stretched = mesh.nodes * (1.1, 1.0, 1.0) + HIGH
    result = flying(mesh, None, initial_positions=stretched, duration=2e-3)
    assert result.energy["elastic"][0] > result.energy["elastic"][1]


def test_error_is_of_first_order_in_the_step(mesh):
    """A soft block let go while it flies apart: positions after 4 ms at three steps."""
    stretching = (mesh.nodes - mesh.nodes.mean(axis=0)) * (30.0, 0.0, 0.0)
    ends = [
        list(flying(mesh, stretching, material=SOFT, duration=4e-3, dt=dt).positions.values())[-1]
        for dt in (1e-4, 5e-5, 2.5e-5)
    ]
    coarse, fine = (np.linalg.norm(ends[i] - ends[i + 1]) for i in (0, 1))
    assert coarse > 1e-6
    # Ratio of successive differences: 2 for a first-order scheme.
    assert 0.9 < np.log2(coarse / fine) < 1.1


def both(mesh: CutMesh) -> CutMesh:
    """A body beside itself turned by 180° about the vertical: together they are symmetric as no single mesh is."""
    nodes = mesh.nodes + np.array([0.0, 0.0, 0.02])
    # Turned, the sides swap: what was x > 0 is x < 0.
    turned = {
        "nodes": nodes * (-1.0, 1.0, -1.0),
        "tet_side": -mesh.tet_side,
        "virtual_side": -mesh.virtual_side,
    }
    turned["spring_virtual"] = mesh.spring_virtual[:, ::-1] + len(mesh.virtual_parents)
    turned["spring_position"] = -mesh.spring_position * (1.0, -1.0)
    turned["tets"] = mesh.tets + len(nodes)
    turned["virtual_parents"] = mesh.virtual_parents + len(nodes)
    turned["node_original"] = mesh.node_original + mesh.node_original.max() + 1
    turned["tet_original"] = mesh.tet_original + mesh.tet_original.max() + 1
    joined = {"snapped_vertices": 0}
    for field in fields(CutMesh):
        if field.name not in ("snapped_vertices", "anatomy"):
            first = nodes if field.name == "nodes" else getattr(mesh, field.name)
            second = turned.get(field.name, getattr(mesh, field.name))
            joined[field.name] = np.concatenate([first, second]).astype(first.dtype)
    return CutMesh(**joined)


def test_resultant_of_a_symmetric_press_is_vertical():
    model = block_model(both(irregular_block()))
    motion = ConstantVelocity(initial_y=0.0265, velocity_y=-0.27)
    result = simulate(model, motion, {"cut_spring_softness": 0.3}, duration=0.05, dt=1e-3, newton=TIGHT)
    assert result.force[-1, 1] > 1.0
    # Each half alone feels a sideways force; together they cancel to Newton's tolerance.
    assert np.abs(result.force[:, [0, 2]]).max() < 1e-4 * result.force[:, 1].max()
    assert np.abs(result.torque[:, [0, 2]]).max() < 1e-4 * result.force[:, 1].max() * 0.03


def press(mesh, **options):
    motion = ConstantVelocity(initial_y=0.0265, velocity_y=-0.27)
    settings = {"duration": 0.04, "dt": 1e-3} | options
    return simulate(block_model(mesh), motion, {"cut_spring_softness": 0.3}, **settings)


def test_two_runs_give_the_same_bits(mesh):
    first, second = press(mesh), press(mesh)
    assert (first.force == second.force).all()
    assert (first.force != 0.0).any()
    assert (first.stiffness == second.stiffness).all()
    assert (list(first.positions.values())[-1] == list(second.positions.values())[-1]).all()


def test_same_bits_with_and_without_gradients(mesh):
    plain, taped = press(mesh), press(mesh, differentiable=True)
    assert (plain.force == taped.force).all()
    assert (plain.wrench == taped.wrench).all()
    assert (plain.stiffness == taped.stiffness).all()
    assert all((plain.energy[k] == taped.energy[k]).all() for k in plain.energy)


def test_gradients_have_the_same_bits_and_leave_the_result_alone(mesh):
    taped = press(mesh, differentiable=True)
    force = taped.force.copy()
    ones = np.ones_like(force)
    first, second = taped.gradient(ones), taped.gradient(ones)
    assert (taped.force == force).all()
    assert first.parameters == second.parameters
    assert (first.poses == second.poses).all()


def test_result_has_the_promised_shapes(mesh):
    seen = []
    result = press(mesh, sample_rate_hz=500.0, keep_times=[0.0105, 0.02], progress=seen.append)
    assert result.time == pytest.approx(np.arange(1, 21) / 500.0)
    assert result.force.shape == result.torque.shape == (20, 3)
    assert result.wrench.shape == (20, 6)
    assert result.contact_area.shape == (20,)
    assert result.pose.shape == (41, 3)
    assert result.stiffness.shape == (41, len(mesh.spring_area))
    assert list(result.positions) == [0.0105, 0.02, pytest.approx(0.04)]
    assert seen == pytest.approx(np.arange(1, 41) / 40.0)
    # Touching area: at most both faces of the cut.
    assert 0.0 < result.contact_area.max() <= 2.0 * mesh.spring_area.sum()


def test_sampled_force_is_the_mean_over_the_interval(mesh):
    every, slow = press(mesh), press(mesh, sample_rate_hz=250.0)
    assert slow.force == pytest.approx(every.force.reshape(10, 4, 3).mean(axis=1), abs=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [{"duration": 0.0}, {"dt": -1e-3}, {"dt": 1.0}, {"device": "cuda:0"}],
)
def test_impossible_settings_are_refused(mesh, wrong):
    import warp as wp

    if wrong == {"device": "cuda:0"} and wp.is_cuda_available():
        pytest.skip("a CUDA device is here")
    with pytest.raises(InputError, match="simulate"):
        simulate(block_model(mesh), AWAY, **({"duration": 0.01} | wrong))
