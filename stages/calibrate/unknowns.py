"""The unknowns of a fit: one flat vector of free numbers ↔ the simulator's named parameters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.parameters import SURFACE_PREFIX, parameter_info
from stages.calibrate.problem import OFFSET
from stages.shared.fitting.bounded import Bound, make_bound

Values = dict[str, NDArray[np.float64]]
"""Parameter name → value, shape [] or [spring_count]."""


@dataclass(frozen=True)
class Unknowns:
    """Which parameters are sought, inside which bounds; the others are constants."""

    bounds: dict[str, Bound]
    sizes: dict[str, int]
    """1 for a shared parameter, the number of springs for an individual one."""
    constants: Values
    """All other parameters of the simulator."""

    def free(self, values: Mapping[str, NDArray[np.float64]]) -> torch.Tensor:
        """The flat vector for given values, shape [unknown_count]."""
        parts = [
            bound.free(torch.as_tensor(np.broadcast_to(values[name], (self.sizes[name],)).copy()))
            for name, bound in self.bounds.items()
        ]
        return torch.cat(parts)

    def parts(self, free: torch.Tensor) -> dict[str, torch.Tensor]:
        """The flat vector cut up by name, each of shape [size]."""
        return dict(zip(self.bounds, torch.split(free, list(self.sizes.values())), strict=True))

    def tensors(self, free: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """(parameters, motion) for the simulator, differentiable in the flat vector."""
        all_values = {name: torch.as_tensor(value) for name, value in self.constants.items()}
        for name, part in self.parts(free).items():
            value = self.bounds[name].value(part)
            all_values[name] = value[0] if self.sizes[name] == 1 else value
        motion = {OFFSET: all_values.pop(OFFSET)} if OFFSET in all_values else {}
        return all_values, motion

    def values(self, free: torch.Tensor) -> Values:
        """Every parameter, sought or constant, as numbers."""
        with torch.no_grad():
            parameters, motion = self.tensors(free)
        return {name: value.numpy().copy() for name, value in (parameters | motion).items()}


def parameter_bounds(
    names: Iterable[str], *, damage_law: str, offset_range_m: float, given: Mapping[str, tuple[float, float]]
) -> dict[str, Bound]:
    """Bounds of the named parameters: those given, else the simulator's own."""
    out = {}
    for name in names:
        if name == OFFSET:
            low, high = -offset_range_m, offset_range_m
        else:
            info = parameter_info(name, damage_law=damage_law)
            low, high = info.low, info.high
        low, high = given.get(name, (low, high))
        out[name] = make_bound(name, low, high)
    return out


def shared_unknowns(start: Mapping[str, float], bounds: Mapping[str, Bound]) -> tuple[Unknowns, Values]:
    """One number per parameter; skin parameters without a start value begin at that of the flesh."""
    values: Values = {name: np.asarray(value, float) for name, value in start.items()}
    for name in bounds:
        if name == OFFSET:
            values.setdefault(name, np.asarray(0.0))
        elif name not in values:
            values[name] = np.asarray(values[name.removeprefix(SURFACE_PREFIX)], float)
    constants = {name: value for name, value in values.items() if name not in bounds}
    return Unknowns(dict(bounds), dict.fromkeys(bounds, 1), constants), values


def individual_unknowns(
    names: Sequence[str], shared: Values, skin: NDArray[np.bool_], bounds: Mapping[str, Bound]
) -> tuple[Unknowns, Values]:
    """One number per spring for the named parameters, started from the shared fit, skin values included.

    The other parameters with bounds stay unknown too, with one number each, so that they can give way.
    """
    values = dict(shared)
    for name in names:
        flesh = values[name]
        on_skin = values.pop(SURFACE_PREFIX + name, flesh)
        values[name] = np.where(skin, on_skin, flesh)
    sought = [name for name in bounds if name in values]
    constants = {name: value for name, value in values.items() if name not in sought}
    sizes = {name: len(skin) if name in names else 1 for name in sought}
    return Unknowns({name: bounds[name] for name in sought}, sizes, constants), values
