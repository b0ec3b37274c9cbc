"""A loss of node positions: adjoint against central differences, alone and beside one of the force; torch too."""

import numpy as np
import pytest
import torch

from disect_sim import CuttingMotion, InputError, simulate
from tests.disect_sim.gradient_cases import CUTTING, DURATION, TIGHT, loss_of, straight
from tests.disect_sim.scenes import block_model, irregular_block

TIMES = (0.031, 0.06, 0.09)
OPTIONS = {"duration": DURATION, "dt": 1e-3, "keep_times": TIMES}


@pytest.fixture(scope="module", params=["force", "edge"])
def model(request):
    return block_model(irregular_block(), damage_law=request.param)


def weights(model):
    """Which sum of the positions is asked: random, so that no symmetry hides a mistake."""
    return np.random.default_rng(5).standard_normal((len(TIMES), model.node_count, 3))


def run(model, parameters, **options):
    return simulate(model, straight(), parameters, newton=TIGHT, **OPTIONS | options)


def loss(model, result, *, force):
    """In millimetres, so that force and positions count alike."""
    value = 1e3 * sum(
        float((w * result.positions[t]).sum()) for w, t in zip(weights(model), TIMES, strict=True)
    )
    return value + (loss_of(result)[0] if force else 0.0)


def values_of(model):
    base = {name: value for name, value in CUTTING.items() if name != "cut_spring_softness"}
    if model.damage_law == "edge":
        return base | {"edge_toughness": 500.0, "sdf_mu": 0.3}
    return base | {"cut_spring_softness": 0.3, "sdf_mu": 0.3}


@pytest.mark.parametrize("force", [False, True])
def test_agrees_with_central_differences(model, force):
    parameters = values_of(model)
    result = run(model, parameters, differentiable=True)
    assert result.outcome.ok
    force_bar = loss_of(result)[1] if force else np.zeros_like(result.force)
    bars = {t: 1e3 * w for w, t in zip(weights(model), TIMES, strict=True)}
    gradient = result.gradient(force_bar, bars).parameters
    slope = sum(float(gradient[name]) * value for name, value in parameters.items())
    errors = []
    for step in (1e-3, 1e-4):
        ends = [
            loss(
                model,
                run(model, {name: value * (1.0 + s) for name, value in parameters.items()}),
                force=force,
            )
            for s in (step, -step)
        ]
        difference = (ends[0] - ends[1]) / (2.0 * step)
        errors.append(abs(slope / difference - 1.0))
    # All parameters by the same share. The better of two steps: a long one may cross a kink, a short one is noisy.
    assert min(errors) < 1e-3, errors


def test_torch_gives_the_same_gradient(model):
    parameters = values_of(model)
    cut = CuttingMotion(model, straight(), newton=TIGHT, **OPTIONS)
    tensors = {
        name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for name, value in parameters.items()
    }
    force, nodes = cut(tensors)
    result = run(model, parameters, differentiable=True)
    assert nodes.shape == (len(TIMES), model.node_count, 3)
    assert (nodes[1].detach().numpy() == result.positions[TIMES[1]]).all()
    ((nodes * torch.as_tensor(weights(model))).sum() + force.sum()).backward()
    bars = dict(zip(TIMES, weights(model), strict=True))
    expected = result.gradient(np.ones_like(result.force), bars).parameters
    for name, tensor in tensors.items():
        assert float(tensor.grad) == pytest.approx(float(expected[name]), rel=1e-9)


def test_times_and_shapes_that_do_not_fit_are_refused(model):
    result = run(model, values_of(model), differentiable=True, duration=0.04, keep_times=(0.02,))
    zero, nodes = np.zeros_like(result.force), np.zeros((model.node_count, 3))
    with pytest.raises(InputError, match=r"no positions at 0.03 s. They were kept at 0.02, 0.04 s"):
        result.gradient(zero, {0.03: nodes})
    with pytest.raises(InputError, match=r"must be \(\d+, 3\) for 1, like result.positions"):
        result.gradient(zero, {0.02: nodes[:-1]})
