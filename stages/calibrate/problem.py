"""The forward problem: the recorded motion through the scanned body, as a profile that can be compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.errors import InputError
from disect_sim.many import Answer, Cut
from disect_sim.model import Model
from disect_sim.motions import RecordedMotion
from disect_sim.outcome import Outcome
from disect_sim.result import Result
from disect_sim.simulation import simulate
from disect_sim.torch_module import CuttingForce
from stages.calibrate.live import NearestCurve
from stages.calibrate.params import CalibrateParams
from stages.calibrate.recorded_cut import (
    PUNCTURE_WINDOW_S,
    RecordedCut,
    find_onset,
    find_puncture,
    top_of_body,
)
from stages.calibrate.validation import held_out_blocks
from stages.shared.fitting.low_pass import low_pass

NORM_ROUNDING_N = 1.0e-3
"""Rounds the norm at zero force, where it has no derivative [N]."""
MIN_WINDOW_S = 0.05
"""Shorter contact than this says nothing [s]."""
ALL_VALID = 0.999
"""Share of validity between two samples of the log that counts as valid: both must be."""
SETS_IN_N = 2.0
"""A force that passes this after the first touch is no dent and no noise [N]: here the heights are aligned."""
OFFSET = "offset_y"
"""The motion's parameter: height of the recorded motion over the aligned one [m]."""

Array = NDArray[np.float64]


class TrialFailedError(RuntimeError):
    """A simulation that did not reach its end: a bad trial of the fit, not an error of the program."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


@dataclass(frozen=True)
class Problem:
    """What is compared with what. Samples are those of the simulated window, shape [sample_count]."""

    model: Model
    module: CuttingForce
    time: Array
    """In the log's clock [s]."""
    height: Array
    """Of the knife's edge above the board, aligned, without the fitted offset [m]."""
    measured: Array
    """Norm of the filtered measured force [N]."""
    measured_force: Array
    """The filtered measured force on the knife [N], shape [sample_count, 3]."""
    drawn_m: float
    """How far the blade was drawn along itself during contact [m]."""
    filter_matrix: torch.Tensor
    """Low-pass, shape [sample_count, sample_count]."""
    contact: NDArray[np.bool_]
    """From contact onset to the end: where errors are reported."""
    valid: NDArray[np.bool_]
    """Samples that may be compared at all."""
    held_out: NDArray[np.bool_]
    """Valid samples the fit does not see."""
    weight: NDArray[np.int64]
    """How many times a sample counts in the loss."""
    onset_s: float
    """When the measured force sets in, SETS_IN_N after first touch [s]."""
    alignment_m: float
    """What was added to the recorded heights."""
    nearest: NearestCurve = field(default_factory=NearestCurve)
    """The best curve that was simulated, for people who watch the fit."""

    @property
    def training(self) -> torch.Tensor:
        """Indices of the samples the fit sees, repeated as often as they count."""
        seen = self.valid & ~self.held_out
        return torch.as_tensor(np.repeat(np.arange(len(seen)), np.where(seen, self.weight, 0)))

    @property
    def mean_force(self) -> float:
        """Mean measured force over the contact window [N]: what NMAE divides by."""
        return float(self.measured[self.contact & self.valid].mean())

    def run(self, values: Mapping[str, Array], *, differentiable: bool) -> tuple[Array, Result]:
        """Simulated profile [N], shape [sample_count], and the run; values: parameters and, perhaps, the offset."""
        cut = self.cut(values)
        result = simulate(cut.model, cut.motion, cut.parameters, differentiable=differentiable, **cut.options)
        if not result.outcome.ok or len(result.force) != len(self.time):
            raise TrialFailedError(result.outcome)
        profile = np.linalg.norm(self.filtered(result), axis=1)
        self.nearest.offer(profile, self.measured, self.contact & self.valid)
        return profile, result

    def cut(self, values: Mapping[str, Array]) -> Cut:
        """The run of `run`, to be simulated beside others; its force becomes a profile by `profile`."""
        given = {name: value for name, value in values.items() if name != OFFSET}
        motion = self.module.motion.with_parameters(**{OFFSET: values.get(OFFSET, np.asarray(0.0))})
        return Cut(self.model, motion, given, dict(self.module.options))

    def profile(self, answer: Answer[Array]) -> Array:
        """Simulated profile [N], shape [sample_count], from the force of a cut."""
        if answer.value is None or len(answer.value) != len(self.time):
            raise TrialFailedError(answer.outcome)
        return np.asarray(np.linalg.norm(self.filter_matrix.numpy() @ answer.value, axis=1), float)

    def filtered(self, result: Result) -> Array:
        """The run's force on the knife through the log's low-pass [N], shape [sample_count, 3]."""
        smooth: Array = self.filter_matrix.numpy() @ result.force
        return smooth

    def simulate(
        self, parameters: dict[str, torch.Tensor], motion: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, Result]:
        """Simulated profile [N], shape [sample_count], differentiable, and the run it comes from."""
        force = self.module(parameters, motion)
        result = self.module.last_result
        assert result is not None
        if not result.outcome.ok or len(force) != len(self.time):
            raise TrialFailedError(result.outcome)
        smooth = self.filter_matrix @ force
        norm = torch.sqrt((smooth**2).sum(dim=1) + NORM_ROUNDING_N**2) - NORM_ROUNDING_N
        self.nearest.offer(norm.detach().numpy(), self.measured, self.contact & self.valid)
        return norm, result


def pose_problem(model: Model, cut: RecordedCut, params: CalibrateParams) -> Problem:
    """Choose the window, align the heights and filter the log.

    The module gets no parameters of its own: a `surface_` value left there would overrule the values of skin springs.
    """
    _check_log(cut)
    grid = np.arange(cut.time[0], cut.time[-1], 1.0 / params.rate_hz)
    onset = _sets_in(cut, grid, params.low_pass_hz)
    height = _at(grid, cut.time, cut.position[:, 1:2])[:, 0]
    top = top_of_body(model.mesh)
    at_onset = float(np.interp(onset, grid, height))
    shift = top - at_onset if params.align == "contact" else 0.0
    first, last = _window(grid, height + shift, onset, top, params)
    steps = round((last - first) / params.cut.dt_s)
    samples = int(np.floor(steps * params.cut.dt_s * params.rate_hz + 1e-9))
    time = first + (np.arange(samples) + 1) / params.rate_hz
    matrix = np.ascontiguousarray(low_pass(time, np.eye(samples), params.low_pass_hz))
    # A simulated sample is the mean over the interval that ends at its time.
    middle = time - 0.5 / params.rate_hz
    force = matrix @ _at(middle, cut.time, cut.force)
    valid = np.interp(time, cut.time, cut.valid.astype(float)) > ALL_VALID
    contact = time >= onset
    if (contact & valid).sum() < MIN_WINDOW_S * params.rate_hz:
        raise InputError(
            f"calibrate: only {(contact & valid).sum()} samples of the log are valid after contact at {onset:.3f} s. "
            f"{MIN_WINDOW_S * params.rate_hz:.0f} are needed. Record the cut down to the board, or correct the log."
        )
    held = valid & held_out_blocks(time - onset, params.hold_out_block_s, params.hold_out_fraction)
    measured = np.linalg.norm(force, axis=1)
    weight = _weight(time, measured, contact & valid, params.puncture_weight)
    along = np.interp(time[contact & valid], cut.time, cut.position[:, 2])
    motion = _motion(cut, model, first, onset, shift)
    module = CuttingForce(
        model,
        motion,
        duration=steps * params.cut.dt_s,
        dt=params.cut.dt_s,
        sample_rate_hz=params.rate_hz,
        force_limit_n=params.cut.force_limit_n,
    )
    aligned = np.interp(time, grid, height + shift)
    return Problem(
        model,
        module,
        time,
        aligned,
        measured,
        force,
        float(np.ptp(along)),
        torch.as_tensor(matrix),
        contact,
        valid,
        held,
        weight,
        onset,
        shift,
    )


def _check_log(cut: RecordedCut) -> None:
    if len(cut.time) < 2 or not (np.diff(cut.time) > 0.0).all():
        raise InputError(
            f"calibrate: the log has {len(cut.time)} samples. It needs at least 2, in order of time. Run ingest again."
        )


def _sets_in(cut: RecordedCut, grid: Array, low_pass_hz: float) -> float:
    """When the force is clearly there [s]: real fruit dents before it is cut, simulated fruit does not."""
    norm = np.linalg.norm(low_pass(grid, _at(grid, cut.time, cut.force), low_pass_hz), axis=1)
    touched = grid >= cut.onset_s
    found = find_onset(grid[touched], norm[touched], SETS_IN_N) if touched.any() else None
    return cut.onset_s if found is None else found


def _at(time: Array, known: Array, values: Array) -> Array:
    """Columns of values [n, k] at other times, linearly."""
    return np.stack([np.interp(time, known, column) for column in values.T], axis=1)


def _weight(time: Array, measured: Array, use: NDArray[np.bool_], near_puncture: int) -> NDArray[np.int64]:
    """Samples near the measured puncture count several times: it is a short event in a long cut."""
    weight = np.ones(len(time), np.int64)
    puncture = find_puncture(time[use], measured[use])
    if puncture is not None:
        weight[np.abs(time - puncture[0]) <= PUNCTURE_WINDOW_S] = near_puncture
    return weight


def _window(
    grid: Array, height: Array, onset: float, top: float, params: CalibrateParams
) -> tuple[float, float]:
    """From just above the body to just above the board, or as far as the log goes [s]."""
    before = np.flatnonzero((grid <= onset) & (height >= top + params.cut.start_clearance_m))
    first = float(grid[before[-1]]) if len(before) else float(grid[0])
    if first == grid[0] and height[0] < top:
        raise InputError(
            f"calibrate: the log begins with the knife {1e3 * (top - height[0]):.1f} mm below the body's top, "
            f"{1e3 * top:.1f} mm above the board. It must begin above the fruit. With calibrate.align=contact the "
            "heights are shifted to meet the scan."
        )
    below = np.flatnonzero((grid > onset) & (height <= params.cut.board_clearance_m))
    last = float(grid[below[0]]) if len(below) else float(grid[-1])
    return first, last


def _motion(cut: RecordedCut, model: Model, first: float, onset: float, shift: float) -> RecordedMotion:
    """The recorded motion over the body's middle, clock zero at the start of the window."""
    z = model.mesh.nodes[~model.mesh.node_ghost][:, 2]
    middle = 0.5 * float(z.min() + z.max())
    along = cut.position[:, 2] - float(np.interp(onset, cut.time, cut.position[:, 2])) + middle
    place = np.stack([np.zeros_like(along), cut.position[:, 1] + shift, along], axis=1)
    velocity = cut.velocity * np.array([0.0, 1.0, 1.0])
    return RecordedMotion(cut.time - first, place, velocities=velocity)
