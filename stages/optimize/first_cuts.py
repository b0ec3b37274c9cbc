"""Candidate motions for the first cut of a fruit, before any log: vertical and slicing, within the arm's limits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from disect_sim import Model
from disect_sim.cut_mesh import CutMesh
from disect_sim.many import force_of, simulate_many
from stages.optimize.constraints import Constraints, passage_of, rules_of
from stages.optimize.descent import nearest_feasible
from stages.optimize.description import OptimizeParams
from stages.optimize.final_draw import NO_DRAW, final_draw
from stages.optimize.optimize_report import motion_rows
from stages.optimize.search import Measured, drawn_motions
from stages.optimize.slicing_cut import AMPLITUDE_M_S, FREQUENCY_RAD_S, SlicingCut, Values
from stages.runtime.errors import InputError
from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, new_figure, pixels_of

_Array = NDArray[np.float64]
_VERTICAL = "vertical"


@dataclass(frozen=True)
class FirstCut:
    """One of the motions, simulated with the prior material."""

    name: str
    motion: Measured

    @property
    def drawn_m(self) -> float:
        """Distance the blade is drawn along itself [m]."""
        return float(np.ptp(self.motion.cut.trajectory(self.motion.variables).position[:, 2]))

    def table(self) -> pl.DataFrame:
        """Return motion and force with the columns of optimize/motion, without a final draw."""
        return motion_rows(self.motion, NO_DRAW)

    def sensitivity(self) -> tuple[float, Mapping[str, _Array]]:
        """Return the mean force [N], and its derivatives in the simulator's parameters by name."""
        return self.motion.cut.mean_force_and_sensitivity(self.motion.variables)


def first_cuts(
    model: Model,
    values: Values,
    params: OptimizeParams,
    count: int,
    progress: Callable[[float], None] | None = None,
) -> list[FirstCut]:
    """Simulate the vertical cut, one that saws from half of its duration on, and `count` random slicing motions.

    Those that stop before their end are dropped.
    """
    cut = SlicingCut(model, (values,), passage_of(model.mesh, model.knife, params), params)
    motions = {_VERTICAL: cut.straight(), "vertical, then sawing": _half_sawing(cut, params)} | {
        f"slicing {i + 1}": motion for i, motion in enumerate(drawn_motions(cut, params, count))
    }
    answers = simulate_many(
        [cut.cuts(motion)[0] for motion in motions.values()],
        of=force_of,
        processes=params.processes,
        progress=progress,
    )
    finished = [
        FirstCut(name, Measured(cut, motion, answer.value))
        for (name, motion), answer in zip(motions.items(), answers, strict=True)
        if answer.value is not None
    ]
    if len(finished) < 2 or finished[0].name != _VERTICAL:
        raise InputError(
            f"probe: {len(finished)} of {len(motions)} simulated first cuts finished. The vertical cut and at least "
            "one slicing cut must finish. Check the fruit's size and the section cut of params.yaml."
        )
    return finished


def _half_sawing(cut: SlicingCut, params: OptimizeParams) -> _Array:
    """Return a motion that descends vertically and then saws: its slice-push ratio ranges from 0 to the largest.

    A constant ratio leaves the shares of slicing, pressing and drag unknown.
    """
    wish = cut.straight()
    wish[0, wish.shape[1] // 2 :] = params.start_amplitude_range_m_s[1] / AMPLITUDE_M_S
    wish[1] = params.start_frequency_range_rad_s[1] / FREQUENCY_RAD_S
    return nearest_feasible(cut, Constraints(rules_of(cut.passage, params), params), wish, params)


def to_execute(first: FirstCut, model: Model, values: Values, params: OptimizeParams) -> pl.DataFrame:
    """Return the motion with its final draw, with the columns of optimize/motion."""
    draw = final_draw(model, values, first.motion.cut, first.motion.variables, params)
    return motion_rows(first.motion, draw)


# Picture of a probe


_MM = 1.0e3


def first_cuts_picture(
    mesh: CutMesh, chosen: FirstCut, bands: Mapping[str, float], before: float
) -> NDArray[np.uint8]:
    """Draw the uncertainty of the saving after every first cut, path and force of the chosen one.

    Returns 8-bit pixels, shape [height, width, 3].

    Args:
        mesh: The fruit.
        chosen: The first cut to execute.
        bands: By the name of the first cut, half of the saving's 90 % interval after its log [-].
        before: The same before any log [-].
    """
    figure, canvas = new_figure((12.0, 4.2))
    uncertainty, path, force = figure.subplots(1, 3)
    names = sorted(bands, key=lambda name: -bands[name])
    colours = [CUT if name == chosen.name else SCAN for name in names]
    uncertainty.barh(names, [100.0 * bands[name] for name in names], color=colours)
    uncertainty.axvline(100.0 * before, color=TEXT, lw=1, ls="--")
    uncertainty.set(xlabel="uncertainty of the saving [± percentage points] (dashed: before any log)")
    uncertainty.set_title("after the log of each first cut", color=TEXT, fontsize=10)

    table = chosen.table()
    position, newtons = table["position_m"].to_numpy(), table["force_n"].to_numpy()
    silhouette = mesh.nodes[~mesh.node_ghost][:, [2, 1]]
    hull = _MM * silhouette[ConvexHull(silhouette).vertices]
    path.fill(hull[:, 0], hull[:, 1], color=FRUIT, alpha=0.35, lw=0)
    path.plot(_MM * position[:, 2], _MM * position[:, 1], color=CUT, lw=1.5)
    path.axhline(0.0, color=TEXT, lw=1)
    path.set(xlabel="along the blade [mm]", ylabel="height [mm]", aspect="equal")
    path.set_title(f"path of the edge's middle: {chosen.name}", color=TEXT, fontsize=10)

    for values, colour, label in (
        (newtons[:, 1], CUT, "upward"),
        (np.abs(newtons[:, 2]), FRUIT, "along the blade, size"),
    ):
        force.plot(table["time_s"], values, color=colour, label=label)
    force.set(xlabel="time [s]", ylabel="expected force on the knife [N]")
    force.legend(frameon=False)
    return pixels_of(canvas)
