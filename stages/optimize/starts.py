"""Where the search begins: the vertical cut, and a few seeded slicing motions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim import Model
from disect_sim.many import Answer
from stages.optimize.constraints import Constraints, rules_of
from stages.optimize.descent import Descent, descend
from stages.optimize.inner_problem import nearest_feasible
from stages.optimize.live import Reached
from stages.optimize.params import OptimizeParams
from stages.optimize.passage import Passage
from stages.optimize.slicing_cut import AMPLITUDE_M_S, FREQUENCY_RAD_S, SlicingCut, Values
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.parallel import report_to_parent
from stages.shared.cut.second_cut_values import Factors, of_material

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Start:
    """One descent, as it is sent to a process."""

    name: str
    constrained: bool
    variables: Array
    model: Model
    draws: tuple[Values, ...]
    passage: Passage
    params: OptimizeParams
    scale_n: float
    """Mean force of the vertical cut."""
    scan_dir: Path | None
    key: str
    state: dict[str, Any] | None = None
    """Where an earlier part of the descent ended."""

    def run(self) -> Descent:
        """Descend; every iteration is reported to the parent process."""
        cut = SlicingCut(self.model, self.draws, self.passage, self.params)

        def report(run: Descent) -> None:
            if run.history:
                best = run.best if self.constrained and run.feasible else None
                reached = Reached(self.name, len(run.history), run.history[-1]["mean_force_n"])
                if best is not None:
                    reached = replace(reached, best=best.variables, best_mean_n=best.mean_force_n)
                report_to_parent(reached)

        return descend(
            cut,
            self.variables,
            self.params,
            scale_n=self.scale_n,
            constrained=self.constrained,
            checkpoint=Checkpoint(
                self.scan_dir, self.key, stage="optimize", part=self.name.replace(" ", "-")
            ),
            report=report,
            state=self.state,
        )


def near_vertical(cut: SlicingCut, params: OptimizeParams) -> Array:
    """The first start: the vertical cut, just enough beside it that the descent can leave it.

    A vertical cut is a symmetric point: its gradient in the amplitude is zero.
    """
    variables = cut.straight()
    variables[0] = params.start_amplitude_m_s / AMPLITUDE_M_S
    return variables


def drawn_motions(cut: SlicingCut, params: OptimizeParams, count: int) -> list[Array]:
    """So many seeded slicing motions, each brought into the limits."""
    generator = np.random.default_rng(params.seed)
    rules = rules_of(cut.passage, params)
    out = []
    for _ in range(count):
        wish = cut.straight()
        wish[0] = generator.uniform(*params.start_amplitude_range_m_s) / AMPLITUDE_M_S
        wish[1] = generator.uniform(*params.start_frequency_range_rad_s) / FREQUENCY_RAD_S
        out.append(nearest_feasible(cut, Constraints(rules, params), wish, params))
    return out


def chosen_starts(
    cut: SlicingCut, params: OptimizeParams, drawn: Sequence[tuple[Array, Answer[Array]]]
) -> dict[str, Array]:
    """The first start, and of the drawn motions those with the least force; what did not finish is left out."""
    means = [
        (cut.mean_of([force.value], motion), motion) for motion, force in drawn if force.value is not None
    ]
    best = sorted(means, key=lambda pair: pair[0])[: params.starts - 1]
    return {"vertical": near_vertical(cut, params)} | {
        f"drawn {i + 1}": variables for i, (_, variables) in enumerate(best)
    }


def parameter_draws(
    values: Values, params: OptimizeParams, materials: Sequence[Factors] = ()
) -> tuple[Values, ...]:
    """The parameters themselves and, for a robust motion, other sets.

    Those of possible materials, as factors by name, where calibrate has a posterior; else seeded variations by
    draw_spread.
    """
    if materials:
        return (values, *(of_material(values, factors) for factors in materials[: params.draws - 1]))
    generator = np.random.default_rng(params.seed)
    draws: list[Values] = [values]
    for _ in range(1, params.draws):
        factors = np.exp(params.draw_spread * generator.standard_normal(len(values)))
        draws.append({name: value * f for (name, value), f in zip(values.items(), factors, strict=True)})
    return tuple(draws)
