"""Motions for the first cut of a fruit, before any log: the vertical one and slicing ones within the arm's limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim import Model
from disect_sim.errors import InputError
from disect_sim.many import force_of, simulate_many
from stages.optimize.final_draw import NO_DRAW, final_draw
from stages.optimize.optimization import Measured
from stages.optimize.params import OptimizeParams
from stages.optimize.passage import passage_of
from stages.optimize.report import motion_rows
from stages.optimize.slicing_cut import SlicingCut, Values
from stages.optimize.starts import drawn_motions

Array = NDArray[np.float64]
VERTICAL = "vertical"


@dataclass(frozen=True)
class FirstCut:
    """One of the motions, simulated with the expected material."""

    name: str
    motion: Measured

    @property
    def drawn_m(self) -> float:
        """How far the blade goes along itself, from end to end [m]."""
        return float(np.ptp(self.motion.cut.trajectory(self.motion.variables).position[:, 2]))

    def table(self) -> pl.DataFrame:
        """Motion and force with the columns of optimize/motion, without a final draw."""
        return motion_rows(self.motion, NO_DRAW)

    def sensitivity(self) -> tuple[float, Mapping[str, Array]]:
        """Mean force [N], and its derivatives in the simulator's parameters by name."""
        return self.motion.cut.mean_force_and_sensitivity(self.motion.variables)


def first_cuts(
    model: Model,
    values: Values,
    params: OptimizeParams,
    count: int,
    progress: Callable[[float], None] | None = None,
) -> list[FirstCut]:
    """The vertical cut and `count` drawn slicing motions; those that stop before their end are left out."""
    cut = SlicingCut(model, (values,), passage_of(model.mesh, model.knife.length_m, params), params)
    motions = {VERTICAL: cut.straight()} | {
        f"slicing {i + 1}": motion for i, motion in enumerate(drawn_motions(cut, params, count))
    }
    answers = simulate_many(
        [cut.cuts(motion)[0] for motion in motions.values()],
        of=force_of,
        processes=params.processes,
        progress=progress,
    )
    found = [
        FirstCut(name, Measured(cut, motion, answer.value))
        for (name, motion), answer in zip(motions.items(), answers, strict=True)
        if answer.value is not None
    ]
    if len(found) < 2 or found[0].name != VERTICAL:
        raise InputError(
            f"probe: of {len(motions)} simulated first cuts {len(found)} came to their end. The vertical one and a "
            "slicing one are needed. Check the fruit's size and the section cut of params.yaml."
        )
    return found


def to_execute(first: FirstCut, model: Model, values: Values, params: OptimizeParams) -> pl.DataFrame:
    """The motion with its final draw, with the columns of optimize/motion."""
    draw = final_draw(model, values, first.motion.cut, first.motion.variables, params)
    return motion_rows(first.motion, draw)
