"""The board: carries the weight, does not pull, rubs inside its cone; which nodes are held."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, simulate
from disect_sim.kernels.boundary import Board
from disect_sim.model import BoardProperties
from tests.disect_sim.scenes import APPLE, block_model, regular_block, step_system

FAR = np.array([0.0, 10.0, 0.0])
DT = 1e-3


@pytest.fixture(scope="module")
def mesh():
    return regular_block()


def board_force(mesh, shift, previous_shift, board=None):
    """Force of the board on the block [N], shape [n, 3], moved as a rigid body (so that nothing else acts)."""
    model = block_model(mesh, boundary="free", board=board or BoardProperties())
    system = step_system(model, dt=DT)
    x, start = mesh.nodes + shift, mesh.nodes + previous_shift
    system.begin(start, x, system.parameters.row("cut_spring_ke"), FAR, FAR)
    return -system.gradient(x)


def test_board_pushes_up_by_stiffness_per_reference_area(mesh):
    depth = 5e-4
    force = board_force(mesh, (0.0, 1e-3 - depth, 0.0), (0.0, 1e-3 - depth, 0.0))
    # Linear beyond the onset of 0.1 mm. All of the bottom's area presses; the sides' lowest nodes share theirs too.
    model = block_model(mesh)
    low = mesh.nodes[model.board_nodes, 1] < 1e-6
    expected = 100.0 * model.board_area_ratio[low].sum() * (depth - 0.5e-4)
    assert force.sum(axis=0) == pytest.approx([0.0, expected, 0.0], abs=1e-8)
    assert model.board_area_ratio[low].sum() > 0.04 * 0.03 / 1.2e-5


def test_board_never_pulls(mesh):
    """Leaving fast, with strong damping, from deep inside: no downward force anywhere."""
    strong = BoardProperties(kd=100.0)
    for rise in (1e-6, 1e-4, 2e-3):
        force = board_force(mesh, (0.0, rise, 0.0), (0.0, 0.0, 0.0), strong)
        assert force[:, 1].min() >= -1e-8
    above = board_force(mesh, (0.0, 1.1e-3, 0.0), (0.0, 1.1e-3, 0.0))
    assert np.abs(above).max() < 1e-8


def test_board_damps_approach_only(mesh):
    board = BoardProperties(kd=10.0)
    here = (0.0, 2e-4, 0.0)
    resting, falling, rising = (
        board_force(mesh, here, (0.0, y, 0.0), board)[:, 1].sum() for y in (2e-4, 3e-4, 1e-4)
    )
    assert falling > resting * 1.01
    assert rising == pytest.approx(resting, rel=1e-9)


@pytest.mark.parametrize("slip", [(1e-6, 0.0), (2e-4, 1e-4), (0.0, -5e-3)])
def test_friction_is_inside_its_cone_and_against_the_slip(mesh, slip):
    before = np.array([0.0, 4e-4, 0.0])
    step = np.array([slip[0], 0.0, slip[1]])
    force = board_force(mesh, before + step, before)
    pressed = force[:, 1] > 1e-6
    tangential = np.linalg.norm(force[:, ::2], axis=1)
    speed = np.linalg.norm(slip) / DT
    assert (tangential <= 0.6 * force[:, 1] + 1e-8).all()
    assert (force[pressed] @ step < 0.0).all()
    assert tangential[pressed] == pytest.approx(
        0.6 * np.tanh(4.0 * speed / 0.2) * force[pressed, 1], rel=1e-4
    )


def test_block_comes_to_rest_on_the_board_carrying_its_weight(mesh):
    """Dropped from contact height, a free block settles: the board's force is m g."""
    model = block_model(mesh, boundary="free", board=BoardProperties(kd=5.0))
    away = ConstantVelocity(initial_y=10.0, velocity_y=0.0)
    result = simulate(
        model,
        away,
        duration=0.3,
        dt=3e-3,
        initial_positions=mesh.nodes + np.array([0.0, 1e-3, 0.0]),
        differentiable=True,
    )
    assert result.outcome.ok
    states = result.tape.states
    speed = np.abs(states[-1] - states[-2]).max() / 3e-3
    assert speed < 1e-3
    system = step_system(model, dt=3e-3)
    system.begin(states[-2], states[-1], result.stiffness[-1], FAR, FAR)
    weight = 0.04 * 0.025 * 0.03 * APPLE.density_kg_m3 * 9.81
    # What is left of the motion: mass × change of speed / step, below 1 % of the weight.
    assert -system.gradient(states[-1])[:, 1].sum() == pytest.approx(weight, rel=0.01)


def test_held_glued_and_free_nodes(mesh):
    y, x = mesh.nodes[:, 1], mesh.nodes[:, 0]
    assert (block_model(mesh, boundary="glued").fixed == (y < 1e-3)).all()
    assert (block_model(mesh, boundary="held").fixed == ((y < 1e-3) & (np.abs(x) >= 0.01))).all()
    assert not block_model(mesh, boundary="free").fixed.any()


def test_held_nodes_do_not_move(mesh):
    model = block_model(mesh)
    assert model.fixed.any()
    result = simulate(model, ConstantVelocity(initial_y=0.0255, velocity_y=-0.2), duration=0.03)
    last = list(result.positions.values())[-1]
    assert (last[model.fixed] == mesh.nodes[model.fixed]).all()
    assert (last[~model.fixed] != mesh.nodes[~model.fixed]).any()


def test_struct_names_every_board_property():
    """A board property the kernels do not know would have no effect."""
    assert {"stiffness", "damping", "friction_speed", "mu", "radius"} <= set(Board.vars)
