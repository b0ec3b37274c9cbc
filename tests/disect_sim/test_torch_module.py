"""The simulator under torch: autograd says what the adjoint and differences say, and Adam gets somewhere."""

import numpy as np
import pytest
import torch

from disect_sim import ConstantVelocity, CuttingForce, InputError
from disect_sim.newton import NewtonOptions
from tests.disect_sim.scenes import block_model, regular_block

MOTION = ConstantVelocity(initial_y=0.0265, velocity_y=-0.27)


@pytest.fixture(scope="module")
def model():
    return block_model(regular_block())


def cutting_force(model, **options):
    tight = {"newton": NewtonOptions(tolerance_m=1e-10, cg_tolerance=1e-8), "duration": 0.03, "dt": 1e-3}
    return CuttingForce(model, MOTION, {"cut_spring_softness": 0.3}, **(tight | options))


def tensor(value, dtype=torch.float64):
    return torch.tensor(value, dtype=dtype, requires_grad=True)


def test_autograd_agrees_with_central_differences(model):
    simulator = cutting_force(model)
    ke = tensor(np.random.default_rng(0).uniform(400.0, 600.0, model.spring_count))
    mu, y = tensor(0.55), tensor(0.0265)
    weights = torch.tensor(np.random.default_rng(1).normal(size=(30, 3)))

    def loss(ke, mu, y):
        return (simulator({"cut_spring_ke": ke, "sdf_mu": mu}, {"initial_y": y}) * weights).sum()

    loss(ke, mu, y).backward()
    along = {0: 10.0 * torch.ones_like(ke), 1: torch.tensor(0.01), 2: torch.tensor(1e-4)}
    for which, direction in along.items():
        values = [ke.detach(), mu.detach(), y.detach()]
        sides = []
        for sign in (1.0, -1.0):
            moved = list(values)
            moved[which] = values[which] + sign * 1e-3 * direction
            sides.append(float(loss(*moved)))
        slope = float(((ke, mu, y)[which].grad * direction).sum())
        # A thousandth of 10 N/m, 0.01 and 0.1 mm: truncation below 1e-4.
        assert slope == pytest.approx((sides[0] - sides[1]) / 2e-3, rel=1e-4)


def test_force_is_that_of_simulate_and_the_result_is_kept(model):
    simulator = cutting_force(model)
    force = simulator()
    assert force.shape == (30, 3)
    assert force.dtype == torch.float64
    assert not force.requires_grad
    assert (force.numpy() == simulator.last_result.force).all()
    assert simulator.last_result.tape is None
    assert simulator.last_result.outcome.ok


def test_gradients_come_back_in_the_tensors_own_type_and_shape(model):
    ke = tensor(500.0, torch.float32)
    force = cutting_force(model)({"cut_spring_ke": ke})
    force.sum().backward()
    assert ke.grad.dtype == torch.float32
    assert ke.grad.shape == ()
    assert float(ke.grad) != 0.0


def test_only_what_is_asked_for_gets_a_gradient(model):
    ke, mu = tensor(500.0), torch.tensor(0.5, dtype=torch.float64)
    cutting_force(model)({"cut_spring_ke": ke, "sdf_mu": mu}).sum().backward()
    assert ke.grad is not None
    assert mu.grad is None


def test_adam_lowers_the_distance_to_a_measured_force(model):
    """Stiffness and friction started off: ten steps of Adam bring the force nearer to the (synthetic) target."""
    simulator = cutting_force(model, newton=None)
    with torch.no_grad():
        target = simulator({"cut_spring_ke": torch.tensor(500.0), "sdf_mu": torch.tensor(0.5)})
    scaled = {"cut_spring_ke": tensor(1.6), "sdf_mu": tensor(1.4)}
    truth = {"cut_spring_ke": 500.0, "sdf_mu": 0.5}
    optimiser = torch.optim.Adam(scaled.values(), lr=0.05)
    losses = []
    for _ in range(10):
        optimiser.zero_grad()
        force = simulator({name: truth[name] * s for name, s in scaled.items()})
        loss = (force - target).norm(dim=1).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]
    assert losses[-1] < 0.6 * losses[0]


def test_unknown_names_are_refused(model):
    with pytest.raises(InputError, match="not a parameter"):
        cutting_force(model)({"stiffness": tensor(1.0)})
    with pytest.raises(InputError, match="not a parameter of ConstantVelocity"):
        cutting_force(model)({}, {"amplitude": tensor(1.0)})
