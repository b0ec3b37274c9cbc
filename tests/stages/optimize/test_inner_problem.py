"""The closed forms of the inner problem against torch: trajectories, every rule, MDMM's Lagrangian, the optimisers."""

import mdmm
import numpy as np
import pytest
import torch

from stages.optimize.constraints import Constraints, rules_of
from stages.optimize.descent import Curvature, ForceModel, lagrangian, solve
from stages.optimize.description import OPTIMISERS
from stages.optimize.kinematics import Trajectory
from stages.optimize.slicing_cut import _KEYFRAMES, COARSE
from stages.runtime.describe import load_named
from tests.stages.slicing_scenes import block, quick, slicing_cut

MODEL = block()
SEEDS = (1, 2, 3)


def _wild(cut, seed):
    return cut.straight() + 0.8 * np.random.default_rng(seed).standard_normal((3, cut.keyframes))


def _in_torch(cut, variables):
    """Position, velocity and acceleration at the coarse times by disect_sim's own motion, as torch functions."""
    motion = cut.cuts(cut.straight())[0].motion
    zero, one = (
        torch.as_tensor(np.stack(list(cut.motion_parameters(np.full((3, cut.keyframes), v)).values())))
        for v in (0.0, 1.0)
    )
    si = zero + (one - zero) * variables  # the keyframes are linear in the variables
    parameters = {name: torch.as_tensor(value) for name, value in motion.parameters.items()}
    parameters |= dict(zip(_KEYFRAMES, si, strict=False))
    times = torch.as_tensor(cut.times)
    times = torch.cat([times[:-1:COARSE], times[-1:]])
    return (
        motion.trajectory(times, parameters),
        motion.velocities(times, parameters),
        motion.accelerations(times, parameters),
    )


MEASURES = {
    "end_height_m": lambda p, v, a, passage: p[-1, 1],
    "lateral_m": lambda p, v, a, passage: (p[:, 2] - passage.z_m).abs().max(),
    "speed_m_s": lambda p, v, a, passage: (v**2).sum(dim=1).max().add(1e-12).sqrt(),
    "acceleration_along_m_s2": lambda p, v, a, passage: a[:, 1].abs().max(),
    "acceleration_vertical_m_s2": lambda p, v, a, passage: a[:, 0].abs().max(),
    "board_m": lambda p, v, a, passage: (passage.end_m - p[:, 1]).max(),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_trajectory_and_pullback_agree_with_torch(seed):
    cut = slicing_cut(quick(), MODEL)
    at = _wild(cut, seed)
    variables = torch.tensor(at, requires_grad=True)
    fields = _in_torch(cut, variables)
    trajectory, pullback = cut.coarse_trajectory(at)
    generator = np.random.default_rng(seed)
    bar = Trajectory(*(generator.standard_normal(tuple(field.shape)) for field in fields))
    for name, field in zip(("position", "velocity", "acceleration"), fields, strict=True):
        expected = field.detach().numpy()
        assert getattr(trajectory, name) == pytest.approx(
            expected, rel=0.0, abs=1e-12 * np.abs(expected).max()
        )
    total = sum(
        (torch.as_tensor(getattr(bar, name)) * field).sum()
        for name, field in zip(("position", "velocity", "acceleration"), fields, strict=True)
    )
    (expected_gradient,) = torch.autograd.grad(total, variables)
    found = pullback(bar)
    assert found == pytest.approx(expected_gradient.numpy(), rel=0.0, abs=1e-12 * np.abs(found).max())


def test_the_controllers_times_hold_the_coarse_ones():
    cut = slicing_cut(quick(), MODEL)
    at = _wild(cut, 1)
    coarse, _ = cut.coarse_trajectory(at)
    every = cut.trajectory(at)
    assert coarse.velocity[:-1] == pytest.approx(every.velocity[:-1:COARSE], abs=1e-15)
    assert coarse.position[-1] == pytest.approx(
        every.position[-1], abs=1e-9
    )  # quadrature over 4 ms and over 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MEASURES)
def test_every_rule_measures_what_torch_measures_and_has_its_gradient(name, seed):
    params = quick()
    cut = slicing_cut(params, MODEL)
    at = _wild(cut, seed)
    variables = torch.tensor(at, requires_grad=True)
    expected = MEASURES[name](*_in_torch(cut, variables), cut.passage)
    (expected_gradient,) = torch.autograd.grad(expected, variables)
    rule = next(rule for rule in rules_of(cut.passage, params) if rule.name == name)
    trajectory, pullback = cut.coarse_trajectory(at)
    reading = rule.measure(trajectory)
    assert reading.value == pytest.approx(expected.item(), rel=1e-12)
    bar = Trajectory.zeros(len(trajectory.velocity))
    getattr(bar, reading.quantity)[reading.row] = reading.slope
    size = float(expected_gradient.abs().max())
    assert pullback(bar) == pytest.approx(expected_gradient.numpy(), rel=0.0, abs=1e-12 * size)


def _torch_lagrangian(cut, params, model, radius, variables, multipliers):
    """The same with the package mdmm and autograd: value, gradient in the variables, gradient in the multipliers."""
    fields = _in_torch(cut, variables)
    rules = rules_of(cut.passage, params)
    constraints = []
    for rule, multiplier in zip(rules, multipliers, strict=True):
        kind = mdmm.EqConstraint if rule.equality else mdmm.MaxConstraint
        weight = params.constraints[rule.name]
        measured = MEASURES[rule.name](*fields, cut.passage) / rule.unit
        limit = torch.tensor(rule.limit / rule.unit, dtype=torch.float64)  # a plain number becomes a float32
        constraint = kind(lambda m=measured: m, limit, scale=weight.scale, damping=weight.damping)
        constraint.double()
        constraint.lmbda.data.fill_(multiplier)
        if not rule.equality:
            room = constraint.max - measured.detach() + multiplier / weight.damping
            constraint.slack.data.copy_(room.relu().sqrt())
        constraints.append(constraint)
    step = variables - torch.as_tensor(model.centre)
    slope, matrix = torch.as_tensor(model.slope), torch.as_tensor(model.curvature.matrix)
    wall = 10.0 * max(float(slope.norm()), 1e-3) / radius
    beyond = ((step * step).sum().add(1e-12).sqrt() - radius).relu()
    flat = step.reshape(-1)
    objective = (slope * step).sum() + 0.5 * flat @ (matrix @ flat) + 0.5 * wall * beyond * beyond
    objective = objective + params.speed_weight_s2_m2 * (fields[1] ** 2).sum(dim=1).mean()
    value = mdmm.MDMM(constraints)(objective).value
    gradients = torch.autograd.grad(value, [variables, *(c.lmbda for c in constraints)])
    return value.item(), gradients[0].numpy(), np.array([float(g) for g in gradients[1:]])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lagrangian_and_its_gradients_are_those_of_the_package_mdmm(seed):
    params = quick(speed_weight_s2_m2=0.3)
    cut = slicing_cut(params, MODEL)
    generator = np.random.default_rng(seed)
    centre, slope = _wild(cut, seed), generator.standard_normal((3, cut.keyframes))
    curvature = Curvature(slope, 0.3)
    curvature.learn(slope, 3.0 * slope)
    model = ForceModel(centre, slope, curvature)
    at = centre + 0.3 * generator.standard_normal(centre.shape)  # beyond the radius of 0.1
    constraints = Constraints(rules_of(cut.passage, params), params)
    constraints.multipliers = generator.standard_normal(6)
    value, gradient, ascent = lagrangian(cut, constraints, model, 0.1, params, at)
    expected = _torch_lagrangian(
        cut, params, model, 0.1, torch.tensor(at, requires_grad=True), constraints.multipliers
    )
    assert value == pytest.approx(expected[0], rel=1e-12)
    assert gradient == pytest.approx(expected[1], rel=0.0, abs=1e-12 * np.abs(gradient).max())
    assert ascent == pytest.approx(expected[2], rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_optimisers_step_like_torchs(name):
    generator = np.random.default_rng(4)
    ours = load_named(OPTIMISERS[name])()
    at, theirs = np.zeros(5), torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimiser = {"adamax": torch.optim.Adamax, "adam": torch.optim.Adam}[name]([theirs], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 40)
    for number in range(40):
        gradient = generator.standard_normal(5) * 10.0 ** generator.uniform(-3, 1)
        theirs.grad = torch.tensor(gradient)
        optimiser.step()
        schedule.step()
        at = at + ours.step(gradient, 0.01 * (1.0 + np.cos(np.pi * number / 40)))
    assert at == pytest.approx(theirs.detach().numpy(), rel=1e-10)


def test_the_multipliers_of_rules_that_hold_with_room_go_to_zero():
    params = quick(inner_iterations=200)
    cut = slicing_cut(params, MODEL)
    constraints = Constraints(rules_of(cut.passage, params), params)
    constraints.multipliers = np.full(6, 0.5)
    flat = Curvature(np.full((3, cut.keyframes), 0.01), 1.0)
    model = ForceModel(cut.straight(), np.zeros((3, cut.keyframes)), flat)
    solve(cut, constraints, model, 1.0, params)
    lateral = [rule.name for rule in constraints.rules].index("lateral_m")
    assert abs(constraints.multipliers[lateral]) < 0.1
