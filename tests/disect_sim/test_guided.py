"""A body guided along the blade: the halves may open, but a drawn blade does not take them along."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, simulate
from disect_sim.model import HAND_N_M
from tests.disect_sim.gradient_cases import Case, slicing, smallest_error
from tests.disect_sim.scenes import block_model, regular_block
from tests.disect_sim.test_edge_law import CUTTING, descend, steady

MESH = regular_block((4, 4, 4))
DRAWN = CUTTING | {"edge_toughness": 800.0}


def drawn(boundary):
    """A drawn cut of the block, and how far its outer parts are then along the blade [m]."""
    model = block_model(MESH, damage_law="edge", boundary="guided")
    result = descend(MESH, DRAWN, speed=0.05, slide=0.1, boundary=boundary)
    moved = (list(result.positions.values())[-1] - MESH.nodes)[model.guided, 2]
    return result, float(np.average(moved, weights=model.node_volume[model.guided]))


def test_a_drawn_blade_takes_a_free_body_along_but_not_a_guided_one():
    """The hand bears what the blade pulls: force = stiffness times way, but for inertia and the board's friction."""
    _, free = drawn("free")
    result, guided = drawn("guided")
    assert abs(free) > 1e-3
    assert result.outcome.ok
    assert guided * HAND_N_M == pytest.approx(-result.force[-10:, 2].mean(), rel=0.1)


def test_guided_halves_open_as_free_ones_do():
    """Straight down, nothing is drawn along: the hand has nothing to do. 3 %: it also keeps the halves from turning."""
    free, guided = (steady(descend(MESH, CUTTING, boundary=boundary)) for boundary in ("free", "guided"))
    assert guided[1] == pytest.approx(free[1], rel=0.03)


@pytest.mark.parametrize("name", ["edge_toughness", "sdf_mu", "young_pa"])
def test_gradients_of_a_guided_body(name):
    case = Case(block_model(MESH, damage_law="edge", boundary="guided"), slicing(), DRAWN)
    assert smallest_error(case, {name: case.direction(name)}) <= 1e-4


@pytest.mark.parametrize("boundary", ["free", "guided"])
def test_a_body_that_is_not_fixed_rests_from_the_start(boundary):
    """The board bears its weight where it stands: it neither hops nor sinks by more than rounding of the contact."""
    model = block_model(MESH, boundary=boundary)
    result = simulate(model, ConstantVelocity(initial_y=1.0, velocity_y=0.0), duration=0.1, dt=2e-3)
    moved = (list(result.positions.values())[-1] - MESH.nodes)[:, 1]
    assert np.abs(moved).max() < 5e-6
