"""How sure a figure would be after the log of a motion that has not been executed yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.model import Model
from stages.calibrate.material_fit.likelihood import depth_likelihood
from stages.calibrate.material_fit.search import MaterialSearch
from stages.calibrate.material_fit.unknowns import MaterialUnknowns
from stages.calibrate.params import CalibrateParams
from stages.calibrate.problem import OFFSET, pose_problem
from stages.calibrate.recorded_cut import RecordedCut, find_onset
from stages.runtime.parallel import stage_workers

Array = NDArray[np.float64]
Sensitivity = tuple[float, Mapping[str, Array]]
"""A figure, and its derivatives in the simulator's parameters by name."""


@dataclass(frozen=True)
class PlannedLog:
    """The log that a motion would give with the expected material; what a fit would then know."""

    motion: pl.DataFrame
    """Time, position, velocity and expected force, with the columns of optimize/motion."""
    model: Model
    unknowns: MaterialUnknowns
    params: CalibrateParams

    def covariance(self) -> Array:
        """Of the unknowns after the log, shape [unknown_count, unknown_count]; before it they are standard normal.

        By the fit's own likelihood, linear around the expected material.
        """
        problem = pose_problem(self.model, recorded(self.motion), self.params)
        use = problem.contact & problem.valid
        likelihood = depth_likelihood(problem, use, self.params.force_uncertainty_n)
        return MaterialSearch("probe", self.unknowns, [likelihood], 0).covariance()


def recorded(motion: pl.DataFrame) -> RecordedCut:
    """A motion with its force as a log of it."""
    time, force = motion["time_s"].to_numpy(), motion["force_n"].to_numpy()
    onset = find_onset(time, np.linalg.norm(force, axis=1))
    return RecordedCut(
        time,
        motion["position_m"].to_numpy(),
        motion["velocity_m_s"].to_numpy(),
        force,
        np.ones(len(time), bool),
        float(time[0]) if onset is None else onset,
    )


def saving_slope(unknowns: MaterialUnknowns, vertical: Sensitivity, slicing: Sensitivity) -> Array:
    """Derivatives of 1 - slicing / vertical in the unknowns at the expected material, shape [unknown_count]."""
    (straight_n, straight), (sliced_n, sliced) = vertical, slicing
    expected, no_offset = np.zeros(len(unknowns)), {OFFSET: np.zeros(())}
    by_straight, by_sliced = (
        unknowns.derivative(expected, 0, {**gradient, **no_offset}) for gradient in (straight, sliced)
    )
    out: Array = sliced_n * by_straight / straight_n**2 - by_sliced / straight_n
    return out


def deviation(slope: Array, covariance: Array | None = None) -> float:
    """Standard deviation of a figure with this slope; before any log if there is no covariance."""
    return float(np.linalg.norm(slope) if covariance is None else np.sqrt(slope @ covariance @ slope))


def expected_parameters(unknowns: MaterialUnknowns) -> dict[str, Array]:
    """The simulator's parameters of the expected material."""
    return unknowns.material(np.zeros(len(unknowns)))


def covariances(logs: Sequence[PlannedLog], on_done: Callable[[int], None]) -> list[Array]:
    """Of every planned log, side by side in processes; on_done gets how many are there."""
    with stage_workers(logs[0].params.processes) as workers:
        return workers.run(PlannedLog.covariance, logs, on_done=on_done)
