"""Transported beside averaged parameters: the force of a vertical second cut with each."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from disect_sim.cut_mesh import CutMesh
from disect_sim.materials import Material
from disect_sim.result import Result
from disect_sim.simulation import simulate
from stages.shared.cut.cutting_model import cutting_model
from stages.shared.cut.straight_cut import straight_cut
from stages.transport.parameters import Values
from stages.transport.params import TransportParams
from stages.transport.spring_set import Floats


@dataclass(frozen=True)
class Comparison:
    """Force profiles of the same vertical cut with two sets of parameters."""

    time_s: Floats
    """Shape [sample_count]; as far as both runs came."""
    transported_n: Floats
    """Norm of the force on the knife [N], shape [sample_count]."""
    averaged_n: Floats
    """The same with average parameters."""
    outcome: str
    """How the runs ended, in a sentence."""

    @property
    def nmae(self) -> float | None:
        """Mean absolute difference over the mean transported force [-]; None if there was no force."""
        mean = float(self.transported_n.mean()) if len(self.time_s) else 0.0
        return float(np.abs(self.averaged_n - self.transported_n).mean()) / mean if mean > 0.0 else None


def compare(
    cut: CutMesh,
    material: Material,
    transported: Values,
    averaged: Values,
    params: TransportParams,
    *,
    body: dict[str, float],
    progress: Callable[[float], None] = lambda fraction: None,
) -> Comparison:
    """Simulate the vertical cut twice; a run that stops early is reported, not refused.

    `body` holds parameters of the material that were fitted with the springs'.
    """
    motion, duration = straight_cut(cut, params.cut)
    model = cutting_model(cut, material, params.cut)
    same = all(np.array_equal(transported[name], averaged[name]) for name in transported)

    def cut_with(values: Values, done: float) -> Result:
        return simulate(
            model,
            motion,
            {**body, **values},
            duration=duration,
            dt=params.cut.dt_s,
            sample_rate_hz=1.0 / params.cut.dt_s,
            force_limit_n=params.cut.force_limit_n,
            progress=lambda fraction: progress(done + 0.5 * fraction),
        )

    first = cut_with(transported, 0.0)
    last = first if same else cut_with(averaged, 0.5)
    count = min(len(first.time), len(last.time))
    outcome = str(last.outcome if first.outcome.ok else first.outcome)
    return Comparison(first.time[:count], first.force_norm[:count], last.force_norm[:count], outcome)
