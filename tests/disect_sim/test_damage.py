"""Damage of the springs: monotone, as stated, independent of the step, under every law of springs."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, OutcomeKind, simulate
from tests.disect_sim.scenes import block_model, irregular_block, step_system

LAWS = {"force": 0.1, "stretch": 2000.0, "cohesive": 1.0e-3}
"""Softness with which the block is cut through in a tenth of a second."""


@pytest.fixture(scope="module")
def mesh():
    return irregular_block()


def cut(mesh, law, dt=1e-3, duration=0.1, **parameters):
    model = block_model(mesh, damage_law=law)
    motion = ConstantVelocity(initial_y=0.0255, velocity_y=-0.2)
    values = {"cut_spring_softness": LAWS[law]} | parameters
    return simulate(model, motion, values, duration=duration, dt=dt)


@pytest.mark.parametrize("law", LAWS)
def test_stiffness_never_grows_and_never_gets_negative(mesh, law):
    result = cut(mesh, law)
    assert result.outcome.kind is OutcomeKind.COMPLETE
    assert (np.diff(result.stiffness, axis=0) <= 0.0).all()
    assert (result.stiffness >= 0.0).all()
    assert (result.stiffness[-1] == 0.0).sum() > 5
    assert 0.2 < result.cut_fraction[-1] <= 1.0


@pytest.mark.parametrize("law", LAWS)
def test_damage_does_not_depend_on_the_step(mesh, law):
    """Halving dt changes what is left of the springs by less than 2 % of what there was."""
    coarse, fine = cut(mesh, law, dt=1e-3), cut(mesh, law, dt=5e-4)
    gone = np.abs(coarse.cut_fraction - fine.cut_fraction[::2])
    assert coarse.cut_fraction[-1] > 0.2
    assert gone.max() < 0.02


@pytest.mark.parametrize("law", ["force", "stretch"])
def test_untouched_springs_stay_whole(mesh, law):
    result = cut(mesh, law, duration=0.04)
    # The edge is at y = 17.5 mm; springs more than 3 mm below it are out of reach of radius and tip.
    below = mesh.spring_position[:, 1] < 0.0145
    assert below.sum() > 20
    assert (result.stiffness[-1][below] == result.stiffness[0][below]).all()


def test_force_law_has_the_stated_rate(mesh):
    """dk/dt = -(softness / 1e-5 s) (|f+| + |f-|) per reference area, from a step with known knife forces."""
    model = block_model(mesh)
    dt, softness = 1e-3, 1e-3
    system = step_system(model, {"cut_spring_softness": softness}, dt)
    rest, pose = mesh.nodes, np.array([0.0, 0.015, 0.0])
    k = system.parameters.row("cut_spring_ke")
    system.begin(rest, rest, k, pose, pose)
    system.gradient(rest)
    force = np.linalg.norm(system.normal_force.numpy() + system.friction_force.numpy(), axis=1)
    s = model.spring_count
    expected = softness / 1e-5 * dt * (force[:s] + force[s:]) / model.spring_area_ratio
    lost = k - system.damaged(k, rest, pose, np.zeros(0))[0]
    pressed = force[:s] + force[s:] > 0.5
    assert pressed.sum() > 3
    # Both norms are rounded at 1 mN.
    assert lost[pressed] == pytest.approx(expected[pressed], rel=5e-3)
    assert (lost[force[:s] + force[s:] == 0.0] == 0.0).all()


def test_stretch_law_has_the_stated_rate_while_in_contact(mesh):
    model = block_model(mesh, damage_law="stretch")
    dt, softness = 1e-3, 100.0
    system = step_system(model, {"cut_spring_softness": softness}, dt)
    x = mesh.nodes.copy()
    side = np.zeros(len(x))
    side[mesh.tets] = mesh.tet_side[:, None]
    x[:, 0] += np.where(side > 0, 2e-4, 0.0)
    k = system.parameters.row("cut_spring_ke")
    for pose_y, touching in ((0.005, True), (10.0, False)):
        pose = np.array([0.0, pose_y, 0.0])
        system.begin(x, x, k, pose, pose)
        system.gradient(x)
        touch = system.touch.numpy().reshape(2, -1).mean(axis=0)
        lost = k - system.damaged(k, x, pose, np.zeros(0))[0]
        expected = np.minimum(k, softness / 1e-5 * dt * touch * 2e-4)
        # The stretch is rounded at 1e-7 m.
        assert lost == pytest.approx(expected, rel=2e-3)
        assert lost.any() == touching


def test_parting_costs_what_the_cohesive_law_states(mesh):
    """Opened in small steps, springs do ke opening^2 / 6 of work per reference area; on the way back they stay weak."""
    model = block_model(mesh, damage_law="cohesive")
    opening, ke = 1.0e-3, 500.0
    system = step_system(model, {"cut_spring_softness": opening, "cut_spring_ke": ke})
    side = np.zeros(len(mesh.nodes))
    side[mesh.tets] = mesh.tet_side[:, None]
    away = np.array([0.0, 10.0, 0.0])
    k = system.parameters.row("cut_spring_ke")
    work, ways = np.zeros(model.spring_count), np.linspace(0.0, 1.1 * opening, 221)
    for way in ways:
        x = mesh.nodes + np.where(side > 0, way, 0.0)[:, None] * [1.0, 0.0, 0.0]
        system.begin(x, x, k, away, away)
        system.gradient(x)
        k = system.damaged(k, x, away, np.zeros(0))[0]
        if way == ways[60]:
            weak = k.copy()
            system.begin(mesh.nodes, mesh.nodes, k, away, away)
            system.gradient(mesh.nodes)
            assert (system.damaged(k, mesh.nodes, away, np.zeros(0))[0] == weak).all()
        work += k * way * (ways[1] - ways[0])
    # A sum of 200 steps is within 1 / 200^2 of the integral; stretches are rounded at 1e-7 of 1e-3 m.
    assert work == pytest.approx(ke * opening**2 / 6.0, rel=1e-3)
    assert (k == 0.0).all()


def test_without_softness_nothing_is_cut(mesh):
    result = cut(mesh, "force", duration=0.06, cut_spring_softness=0.0)
    assert (result.stiffness[-1] == result.stiffness[0]).all()
    assert result.outcome.kind is OutcomeKind.NOTHING_CUT


def test_softer_springs_fail_sooner(mesh):
    fractions = [
        cut(mesh, "force", duration=0.06, cut_spring_softness=s).cut_fraction[-1] for s in (0.02, 0.2)
    ]
    assert fractions[0] < fractions[1]


def test_skin_softness_spares_the_inside(mesh):
    """Only skin springs weaken when only they are soft."""
    result = cut(mesh, "force", duration=0.06, cut_spring_softness=0.0, surface_cut_spring_softness=0.3)
    lost = result.stiffness[0] - result.stiffness[-1]
    assert (lost[~mesh.spring_surface] == 0.0).all()
    assert lost[mesh.spring_surface].max() > 0.0
