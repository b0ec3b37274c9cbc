"""The simulator as a torch function, so that torch optimisers work on it."""

from typing import Any

import numpy as np
import torch

from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.result import Result
from disect_sim.simulation import simulate


class CuttingForce(torch.nn.Module):
    """Knife force of a cut as a differentiable function of parameters and motion.

    `forward(parameters, motion)` takes dictionaries of tensors: spring, contact and material parameters (a scalar, or
    one value per spring) and parameters of the motion; what is missing keeps the value given at construction.
    Returns the force on the knife [N], shape [sample_count, 3], float64. The full result of the last call, with its
    outcome, is in `last_result`. Keyword options go to `simulate`.
    """

    def __init__(
        self, model: Model, motion: Motion, parameters: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.model, self.motion = model, motion
        self.parameters_given = dict(parameters or {})
        self.options = options
        self.last_result: Result | None = None

    def forward(
        self, parameters: dict[str, torch.Tensor] | None = None, motion: dict[str, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Force on the knife [N], shape [sample_count, 3]."""
        parameters, motion = parameters or {}, motion or {}
        names = tuple(parameters), tuple(motion)
        return _Simulate.apply(self, names, *parameters.values(), *motion.values())


class _Simulate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, module: CuttingForce, names: tuple[tuple[str, ...], ...], *tensors: torch.Tensor
    ) -> torch.Tensor:
        values = [t.detach().cpu().numpy().astype(np.float64) for t in tensors]
        split = len(names[0])
        given = module.parameters_given | dict(zip(names[0], values[:split], strict=True))
        motion = module.motion.with_parameters(**dict(zip(names[1], values[split:], strict=True)))
        wanted = any(ctx.needs_input_grad)
        result = simulate(module.model, motion, given, differentiable=wanted, **module.options)
        module.last_result = result
        ctx.result, ctx.names, ctx.like = result, names, [(t.dtype, t.device, t.shape) for t in tensors]
        return torch.as_tensor(result.force)

    @staticmethod
    def backward(ctx: Any, *force_bar: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients = ctx.result.gradient(force_bar[0].detach().cpu().numpy())
        flat = [gradients.parameters[n] for n in ctx.names[0]] + [gradients.motion[n] for n in ctx.names[1]]
        out = []
        for value, (dtype, device, shape) in zip(flat, ctx.like, strict=True):
            out.append(torch.as_tensor(np.asarray(value).reshape(shape), dtype=dtype, device=device))
        return None, None, *out
