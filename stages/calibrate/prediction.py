"""Prediction of a cut that the fit has not seen, with its band, and the information of a planned log."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from disect_sim.cut_mesh import CutMesh
from disect_sim.many import force_of, simulate_many
from disect_sim.model import Model
from disect_sim.parameters import MATERIALS
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.discrepancy import NOTHING, LeftOver, read_left_over, scale_variance
from stages.calibrate.material.fit import best_amplitude, material_unknowns, repeated_profile
from stages.calibrate.material.likelihood import depth_likelihood
from stages.calibrate.material.search import MaterialSearch
from stages.calibrate.material.unknowns import MaterialUnknowns
from stages.calibrate.phase import Values
from stages.calibrate.problem import (
    OFFSET,
    Problem,
    RecordedCut,
    errors,
    find_onset,
    pose_problem,
    read_further_cuts,
    read_recorded_cut,
)
from stages.runtime.errors import InputError
from stages.runtime.stage_io import stage_workers
from stages.shared.cut import (
    cutting_model,
    of_material,
    read_cut_mesh,
    read_first_cut_values,
    read_possible_materials,
)
from stages.shared.knives.knife_file import described
from stages.shared.library.library import CUT_SPREAD, NINETY, NINETY_LEARNT, SHARPENED, sharpness_ratio

# Parameters before any log


def nominal_values(params: CalibrateParams, material: str, *, leave_out: Collection[str] = ()) -> Values:
    """Return the start values, with the prior median if the material is fitted."""
    values = {name: np.asarray(value, float) for name, value in params.start.items()}
    if params.fit != "material":
        return values
    unknowns = material_unknowns(material, params, cuts=0, leave_out=leave_out)
    expected = unknowns.parameters(np.zeros(len(unknowns)))
    return values | {name: np.asarray(size) for name, size in expected.items()}


# Uncertainty of a figure after the log of a planned motion


_Array = NDArray[np.float64]
_Sensitivity = tuple[float, Mapping[str, _Array]]
"""A figure, and its derivatives in the simulator's parameters by name."""


@dataclass(frozen=True)
class PlannedLog:
    """The log that a motion would give with the prior material, and the posterior it would leave."""

    motion: pl.DataFrame
    """Time, position, velocity and expected force, with the columns of optimize/motion."""
    model: Model
    unknowns: MaterialUnknowns
    params: CalibrateParams

    def covariance(self) -> _Array:
        """Return the posterior covariance of the unknowns, shape [unknown_count, unknown_count]; the prior is standard
        normal.

        Uses the fit's likelihood, linearised around the prior material.
        """
        problem = pose_problem(self.model, recorded(self.motion), self.params)
        use = problem.contact & problem.valid
        likelihood = depth_likelihood(problem, use, self.params.force_uncertainty_n)
        return MaterialSearch("probe", self.unknowns, [likelihood], 0).covariance()


def recorded(motion: pl.DataFrame) -> RecordedCut:
    """Return a motion with its force as a log."""
    time, force = motion["time_s"].to_numpy(), motion["force_n"].to_numpy()
    onset = find_onset(time, np.linalg.norm(force, axis=1))
    return RecordedCut(
        time,
        motion["position_m"].to_numpy(),
        motion["velocity_m_s"].to_numpy(),
        force,
        np.ones(len(time), bool),
        float(time[0]) if onset is None else onset,
        motion["pitch_rad"].to_numpy() if "pitch_rad" in motion.columns else None,
    )


def saving_slope(unknowns: MaterialUnknowns, vertical: _Sensitivity, slicing: _Sensitivity) -> _Array:
    """Return the derivatives of 1 - slicing / vertical in the unknowns at the prior material, shape [unknown_count]."""
    (straight_n, straight), (sliced_n, sliced) = vertical, slicing
    expected, no_offset = np.zeros(len(unknowns)), {OFFSET: np.zeros(())}
    by_straight, by_sliced = (
        unknowns.derivative(expected, 0, {**gradient, **no_offset}) for gradient in (straight, sliced)
    )
    out: _Array = sliced_n * by_straight / straight_n**2 - by_sliced / straight_n
    return out


def deviation(slope: _Array, covariance: _Array | None = None) -> float:
    """Return the standard deviation of a figure with this slope; the prior one without a covariance."""
    return float(np.linalg.norm(slope) if covariance is None else np.sqrt(slope @ covariance @ slope))


def expected_parameters(unknowns: MaterialUnknowns) -> dict[str, _Array]:
    """Return the simulator's parameters of the prior material."""
    return unknowns.material(np.zeros(len(unknowns)))


def covariances(logs: Sequence[PlannedLog], on_done: Callable[[int], None]) -> list[_Array]:
    """Return the covariance of every planned log, computed in parallel; on_done is called with the number done."""
    with stage_workers(logs[0].params.processes) as workers:
        return workers.run(PlannedLog.covariance, logs, on_done=on_done)


_Read = Callable[[str], pl.DataFrame]


@dataclass(frozen=True)
class Prediction:
    """A predicted profile and its errors."""

    problem: Problem
    predicted: _Array
    """Predicted force [N], shape [sample_count]."""
    low: _Array
    """5 % quantile [N], shape [sample_count]."""
    high: _Array
    """95 % quantile [N], shape [sample_count]."""
    guesses: dict[str, _Array]
    """Profiles of the baselines by name [N], each of shape [sample_count]."""
    draws: int

    @property
    def use(self) -> NDArray[np.bool_]:
        """Samples that are compared: in contact and valid."""
        return self.problem.contact & self.problem.valid

    def nmae(self, profile: _Array) -> float:
        """Return the mean absolute error of a profile / mean measured force [-]."""
        return errors(profile, self.problem.measured, self.use, self.problem.mean_force).nmae

    @property
    def amplitude(self) -> float:
        """Factor on the prediction that would fit best [-]."""
        return best_amplitude(self.problem, self.predicted)

    @property
    def coverage(self) -> float:
        """Fraction of the measured samples inside the band [-]."""
        inside = (self.problem.measured >= self.low) & (self.problem.measured <= self.high)
        return float(inside[self.use].mean())

    @property
    def half_width(self) -> float:
        """Mean half-width of the band / mean predicted force [-]."""
        return float(0.5 * (self.high - self.low)[self.use].mean() / self.predicted[self.use].mean())

    def figures(self) -> dict[str, object]:
        """Return all figures as plain numbers."""
        return {
            "nmae": self.nmae(self.predicted),
            "nmae_with_amplitude": self.nmae(self.amplitude * self.predicted),
            "amplitude": self.amplitude,
            "coverage": self.coverage,
            "band_half_width": self.half_width,
            "draws": self.draws,
            **{f"nmae_{name}": self.nmae(profile) for name, profile in self.guesses.items()},
            **{
                f"nmae_{name}_with_amplitude": self.nmae(best_amplitude(self.problem, profile) * profile)
                for name, profile in self.guesses.items()
            },
        }

    def table(self) -> pl.DataFrame:
        """Return measured and predicted force, one row per sample."""
        p = self.problem
        columns = {
            "time_s": p.time,
            "height_m": p.height,
            "measured_n": p.measured,
            "predicted_n": self.predicted,
            "low_n": self.low,
            "high_n": self.high,
            **{f"{name}_n": profile for name, profile in self.guesses.items()},
            "compared": self.use,
        }
        return pl.DataFrame(columns)


def predict(
    read: _Read,
    material: str,
    params: CalibrateParams,
    other: pl.DataFrame,
    *,
    knife: str | dict[str, Any] | None = None,
    mesh: CutMesh | None = None,
    own: Collection[str] = (),
) -> Prediction:
    """Predict the force of another cut of the scan's fruit.

    Args:
        read: Maps the name of one of the scan's artifacts to its table.
        material: Material of the scan.
        params: Section `calibrate` of its parameters.
        other: Log of the other cut, as in ingest/force.
        knife: Knife of the other cut, if it was another: the toughness changes by the expected ratio of sharpness.
        mesh: Body and plane of the other cut; those of the scan's first cut by default.
        own: Names and digests of the library's entries that are of these cuts.
    """
    if knife is not None:
        described(knife)  # refuses an unknown one
    used = params.cut if knife is None else params.changed(knife=knife).cut
    sharpness, sharpness_spread = sharpness_ratio(
        params.cut.knife_label, used.knife_label, used.damage_law, leave_out=own
    )
    first = read_cut_mesh(read)
    model = cutting_model(mesh or first, MATERIALS[material], used)
    cut, known = read_recorded_cut(other), read_recorded_cut(read("ingest/force"))
    if cut is None or known is None:
        raise InputError(
            "predict: the scan has no force log. A prediction needs a fitted material. Run the scan with --log first."
        )
    problem = pose_problem(model, cut, params)
    heights = _heights(read("calibrate/posterior"))
    fitted = _on_mesh(read_first_cut_values(read), first, mesh or first)
    fitted[OFFSET] = np.asarray(heights.mean() if len(heights) else 0.0)
    fitted[SHARPENED] = sharpness * fitted[SHARPENED]
    materials = read_possible_materials(read, model.surface)
    tried = [
        fitted,
        nominal_values(params, material, leave_out=own),
        *(of_material(fitted, factors) for factors in materials),
    ]
    # The model error belongs to the body and plane of the fitted cut.
    lefts = [NOTHING] if mesh else read_left_over(read("calibrate/left_over")) or [NOTHING]
    # A fit spring by spring has no model discrepancy, nor have its draws.
    of_draws = lefts[1:] or lefts * len(materials)
    answers = simulate_many([problem.cut(values) for values in tried], of=force_of)
    predicted = lefts[0].at(problem.height) * problem.profile(answers[0])
    nominal = problem.profile(answers[1])
    drawn = [
        left.at(problem.height) * problem.profile(answer)
        for left, answer in zip(of_draws, answers[2:], strict=True)
        if answer.outcome.ok
    ]
    return Prediction(
        problem,
        predicted,
        *band(problem, predicted, drawn, lefts[0], cuts=max(1, len(heights)), knife=sharpness_spread),
        {
            "repeated": _repeated(
                cutting_model(first, MATERIALS[material], params.cut) if mesh else model,
                [known, *read_further_cuts(read("ingest/further"))],
                params,
                problem,
            ),
            "nominal": nominal,
        },
        len(drawn),
    )


def _on_mesh(values: Mapping[str, _Array], first: CutMesh, other: CutMesh) -> dict[str, _Array]:
    """Return the fitted values on the springs of another mesh: those of the nearest spring, skin from skin."""
    if other is first:
        return dict(values)
    nearest = np.zeros(len(other.spring_position), int)
    for skin in (False, True):
        these, those = first.spring_surface == skin, other.spring_surface == skin
        if not these.any():
            these = ~these
        found = cKDTree(first.spring_position[these]).query(other.spring_position[those])[1]
        nearest[those] = np.flatnonzero(these)[found]
    count = len(first.spring_position)
    return {name: value[nearest] if np.shape(value) == (count,) else value for name, value in values.items()}


def _repeated(model: Model, cuts: Sequence[RecordedCut], params: CalibrateParams, problem: Problem) -> _Array:
    """Return the mean measured force of the fitted cuts at the same heights [N], shape [sample_count]."""
    profiles = [repeated_profile(pose_problem(model, cut, params), problem.height) for cut in cuts]
    return np.asarray(np.mean(profiles, axis=0))


def _heights(posterior: pl.DataFrame) -> _Array:
    """Return the height offsets of the fit's logs [m]; the next log's height is determined in the same way."""
    return posterior.filter(pl.col("name").str.starts_with(OFFSET))["value"].to_numpy()


def band(
    problem: Problem,
    predicted: _Array,
    drawn: Sequence[_Array],
    left: LeftOver,
    *,
    cuts: int = 1,
    knife: float = 0.0,
) -> tuple[_Array, _Array]:
    """Return the ends of the 90 % band [N], each of shape [sample_count].

    Args:
        problem: The cut that is predicted.
        predicted: Its force [N], shape [sample_count].
        drawn: The same for possible materials, each with its model discrepancy.
        left: Model discrepancy of the fit.
        cuts: Number of fitted logs: each adds information on the reading's scale, none on the next cut's own factor.
        knife: Deviation of the logarithm of the ratio of sharpness to the logs' knife; 0 for the same knife.
    """
    as_a_whole = np.sqrt(CUT_SPREAD**2 + scale_variance(cuts) + knife**2)
    spread = np.std(drawn, axis=0) if len(drawn) > 1 else np.zeros_like(predicted)
    model_error = left.deviation_at(problem.height) * float(predicted[problem.contact].mean())
    along = NINETY_LEARNT * np.sqrt(spread**2 + model_error**2)
    below, above = (np.hypot(predicted * np.expm1(sign * NINETY * as_a_whole), along) for sign in (-1.0, 1.0))
    return np.maximum(0.0, predicted - below), predicted + above
