"""The simulator as a torch function, for torch optimisers."""

from typing import Any

import numpy as np
import torch

from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.result import Result
from disect_sim.simulation import simulate


class _Cutting(torch.nn.Module):
    """A cut as a differentiable function of parameters and motion."""

    def __init__(
        self, model: Model, motion: Motion, parameters: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.model, self.motion = model, motion
        self.parameters_given = dict(parameters or {})
        self.options = options
        self.last_result: Result | None = None

    def _simulated(
        self, parameters: dict[str, torch.Tensor] | None, motion: dict[str, torch.Tensor] | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        parameters, motion = parameters or {}, motion or {}
        names = tuple(parameters), tuple(motion)
        force, nodes = _Simulate.apply(self, names, *parameters.values(), *motion.values())
        return force, nodes


class CuttingForce(_Cutting):
    """Knife force of a cut as a differentiable function of parameters and motion.

    `forward(parameters, motion)` takes dictionaries of tensors: spring, contact and material parameters (a scalar, or
    one value per spring) and parameters of the motion; missing ones keep the value given at construction. Returns the
    force on the knife [N], shape [sample_count, 3], float64. The full result of the last call, with its outcome, is in
    `last_result`. Keyword options are passed to `simulate`.
    """

    def forward(
        self, parameters: dict[str, torch.Tensor] | None = None, motion: dict[str, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Return the force on the knife [N], shape [sample_count, 3]."""
        return self._simulated(parameters, motion)[0]


class CuttingMotion(_Cutting):
    """CuttingForce that also returns the node positions at the times given by the option `keep_times` [s]."""

    def forward(
        self, parameters: dict[str, torch.Tensor] | None = None, motion: dict[str, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the force on the knife [N], shape [sample_count, 3], and nodes [m], shape [time_count, node_count, 3].

        Times are in increasing order; times that a run did not reach are missing.
        """
        return self._simulated(parameters, motion)


class _Simulate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, module: _Cutting, names: tuple[tuple[str, ...], ...], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values = [t.detach().cpu().numpy().astype(np.float64) for t in tensors]
        split = len(names[0])
        given = module.parameters_given | dict(zip(names[0], values[:split], strict=True))
        motion = module.motion.with_parameters(**dict(zip(names[1], values[split:], strict=True)))
        needs_gradient = any(ctx.needs_input_grad)
        result = simulate(module.model, motion, given, differentiable=needs_gradient, **module.options)
        module.last_result = result
        ctx.result, ctx.names, ctx.like = result, names, [(t.dtype, t.device, t.shape) for t in tensors]
        ctx.times = [
            time for time in sorted(module.options.get("keep_times", ())) if time in result.positions
        ]
        nodes = np.array([result.positions[time] for time in ctx.times]).reshape(
            -1, module.model.node_count, 3
        )
        return torch.as_tensor(result.force), torch.as_tensor(nodes)

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        force_bar, position_bar = (bar.detach().cpu().numpy() for bar in bars)
        gradients = ctx.result.gradient(force_bar, dict(zip(ctx.times, position_bar, strict=True)))
        flat = [gradients.parameters[n] for n in ctx.names[0]] + [gradients.motion[n] for n in ctx.names[1]]
        tensors = []
        for value, (dtype, device, shape) in zip(flat, ctx.like, strict=True):
            tensors.append(torch.as_tensor(np.asarray(value).reshape(shape), dtype=dtype, device=device))
        return None, None, *tensors
