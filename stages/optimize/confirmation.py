"""Does the reduction survive? The two motions again with a finer step, a finer mesh and other parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from disect_sim import Model
from disect_sim.cut_mesh import CutMesh
from disect_sim.many import Answer, Cut
from disect_sim.solvers import forward_solver
from stages.optimize.params import OptimizeParams
from stages.optimize.passage import Passage
from stages.optimize.slicing_cut import Array, SlicingCut, Values
from stages.shared.cut.cutting_model import cutting_model
from stages.shared.cut.second_cut_values import Factors, of_material

PERTURBATION = 0.1
"""How far the check moves the parameters where nothing says how well they are known."""
POSSIBLE = "possible material"
"""How the rows of the posterior's draws begin."""
MATERIALS = 8
"""Possible materials that are tried: their extremes are about the 90 % band."""


@dataclass(frozen=True)
class Check:
    """One way to simulate the two motions again."""

    name: str
    model: Model
    values: Values
    passage: Passage
    params: OptimizeParams
    vertical: Array
    slicing: Array
    """Variables of the two motions."""

    def cuts(self) -> list[Cut]:
        """Both motions."""
        cut, solver = self._cut(), forward_solver(self.model.tet_count)
        cuts = [*cut.cuts(self.vertical), *cut.cuts(self.slicing)]
        return [replace(one, options={**one.options, "solver": solver}) for one in cuts]

    def confirmed(self, answers: Sequence[Answer[Array]]) -> "Confirmed":
        """The means, from the forces of both."""
        cut = self._cut()
        forces = [answer.value for answer in answers]
        pairs = zip((self.vertical, self.slicing), forces, strict=True)
        before, after = (
            float("nan") if force is None else cut.mean_of([force], motion) for motion, force in pairs
        )
        sliced = forces[1]
        peak = float("nan") if sliced is None else float(np.linalg.norm(sliced, axis=1).max())
        return Confirmed(self.name, before, after, peak)

    def _cut(self) -> SlicingCut:
        return SlicingCut(self.model, (self.values,), self.passage, self.params)


@dataclass(frozen=True)
class Confirmed:
    """Mean force of both motions under one check [N]; NaN if the cut did not finish."""

    name: str
    vertical_n: float
    slicing_n: float
    peak_n: float
    """Largest force of the optimised motion [N]."""

    @property
    def reduction(self) -> float:
        """Share of the vertical cut's mean force that is saved; NaN if a cut did not finish."""
        return 1.0 - self.slicing_n / self.vertical_n


def checks_of(
    base: Check, finer: CutMesh, finer_values: Values, materials: Sequence[Factors] = ()
) -> list[Check]:
    """Half the edge, half the step, and other parameters; the longest comes first.

    Other parameters are those of possible materials (factors by name), where calibrate has a posterior; else 10 % up,
    down and at random.
    """
    params = base.params
    fine_model = cutting_model(finer, base.model.material, params.cut)
    finer_checks = [
        replace(base, name="half the edge", model=fine_model, values=finer_values),
        replace(base, name="half the step", params=params.changed(dt_s=0.5 * params.cut.dt_s)),
    ]
    if materials:
        return finer_checks + [
            replace(base, name=f"{POSSIBLE} {i + 1}", values=of_material(base.values, factors))
            for i, factors in enumerate(materials[:MATERIALS])
        ]
    generator = np.random.default_rng(params.seed)
    signs = generator.choice([-1.0, 1.0], len(base.values))
    mixed = {
        name: value * (1.0 + PERTURBATION * sign)
        for (name, value), sign in zip(base.values.items(), signs, strict=True)
    }
    return [
        *finer_checks,
        replace(base, name="parameters + 10 %", values=_scaled(base.values, 1.0 + PERTURBATION)),
        replace(base, name="parameters - 10 %", values=_scaled(base.values, 1.0 - PERTURBATION)),
        replace(base, name="parameters ± 10 %, drawn", values=mixed),
    ]


def _scaled(values: Values, factor: float) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) * factor for name, value in values.items()}
