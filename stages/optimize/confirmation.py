"""Does the reduction survive? The two motions again with a finer step, a finer mesh and other parameters."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from disect_sim import Model
from disect_sim.cut_mesh import CutMesh
from stages.optimize.params import OptimizeParams
from stages.optimize.passage import Passage
from stages.optimize.slicing_cut import CutFailedError, SlicingCut, Values
from stages.runtime.parallel import report_to_parent, run_parallel
from stages.shared.cut.cutting_model import cutting_model

PERTURBATION = 0.1
"""How far the check moves the parameters."""


@dataclass(frozen=True)
class Check:
    """One way to simulate the two motions again; sent to a process."""

    name: str
    model: Model
    values: Values
    passage: Passage
    params: OptimizeParams
    vertical: torch.Tensor
    slicing: torch.Tensor
    """Variables of the two motions."""

    def run(self) -> "Confirmed":
        """Simulate both."""
        cut = SlicingCut(self.model, (self.values,), self.passage, self.params)
        means = []
        for variables in (self.vertical, self.slicing):
            try:
                with torch.no_grad():
                    means.append(float(cut.mean_force(variables)))
            except CutFailedError:
                means.append(float("nan"))
        report_to_parent(self.name)
        return Confirmed(self.name, *means)


@dataclass(frozen=True)
class Confirmed:
    """Mean force of both motions under one check [N]; NaN if the cut did not finish."""

    name: str
    vertical_n: float
    slicing_n: float

    @property
    def reduction(self) -> float:
        """Share of the vertical cut's mean force that is saved; NaN if a cut did not finish."""
        return 1.0 - self.slicing_n / self.vertical_n


def confirm(base: Check, finer: CutMesh, finer_values: Values, *, processes: int) -> list[Confirmed]:
    """The reduction with half the step, half the edge, and the parameters drawn or scaled 10 % up and down."""
    params = base.params
    fine_model = cutting_model(finer, base.model.material, params.cut)
    generator = np.random.default_rng(params.seed)
    signs = generator.choice([-1.0, 1.0], len(base.values))
    mixed = {
        name: value * (1.0 + PERTURBATION * sign)
        for (name, value), sign in zip(base.values.items(), signs, strict=True)
    }
    checks = [
        replace(base, name="half the edge", model=fine_model, values=finer_values),
        replace(base, name="half the step", params=params.changed(dt_s=0.5 * params.cut.dt_s)),
        replace(base, name="parameters + 10 %", values=_scaled(base.values, 1.0 + PERTURBATION)),
        replace(base, name="parameters - 10 %", values=_scaled(base.values, 1.0 - PERTURBATION)),
        replace(base, name="parameters ± 10 %, drawn", values=mixed),
    ]
    return run_parallel(Check.run, checks, processes=processes)


def _scaled(values: Values, factor: float) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) * factor for name, value in values.items()}
