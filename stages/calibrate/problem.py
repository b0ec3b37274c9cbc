"""The forward problem: the recorded motion through the scanned body, as a profile that can be compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.signal import find_peaks

from disect_sim.cut_mesh import CutMesh
from disect_sim.many import Answer, Cut
from disect_sim.model import Model
from disect_sim.motions import RecordedMotion
from disect_sim.outcome import Outcome
from disect_sim.result import Result
from disect_sim.simulation import simulate
from disect_sim.torch_module import CuttingForce
from stages.calibrate.description import CalibrateParams
from stages.runtime.errors import InputError
from stages.shared.fitting import low_pass
from stages.shared.input_files import LOGS_NOTE
from stages.shared.pictures import FRUIT, TEXT, new_figure, pixels_of

# Errors, held-out samples and touched springs


TOUCHED_NS = 1.0e-4
"""Impulse below which a spring counts as not touched by the knife [N s]: 0.1 N for a millisecond."""

_Array = NDArray[np.float64]


def _held_out_blocks(time: _Array, block_s: float, fraction: float) -> NDArray[np.bool_]:
    """Hold out every n-th block of time after contact (time 0); shape [sample_count].

    A filter mixes neighbours within 1 / cut-off, so the first samples of a block are not entirely unseen.
    """
    if fraction == 0.0:
        return np.zeros(len(time), bool)
    every = max(2, round(1.0 / fraction))
    block = np.floor(time / block_s).astype(int)
    return (time >= 0.0) & (block % every == every - 1)


@dataclass(frozen=True)
class _Errors:
    """Differences of two profiles over the contact window."""

    nmae: float
    """Mean absolute error / mean measured force [-]."""
    mae_n: float
    peak_error_n: float
    """Largest simulated minus largest measured force [N]."""


def errors(simulated: _Array, measured: _Array, use: NDArray[np.bool_], mean_force: float) -> _Errors:
    """Return errors over the samples in use; profiles [N], shape [sample_count]."""
    mae = float(np.abs(simulated - measured)[use].mean())
    return _Errors(mae / mean_force, mae, float(simulated[use].max() - measured[use].max()))


def contact_impulse(result: Result) -> _Array:
    """Return the impulse of the knife on each spring's two edges over the run [N s], shape [spring_count].

    Evaluates the force once per stored state of a differentiable run.
    """
    tape = result.tape
    assert tape is not None
    system = tape.system
    count = system.model.spring_count
    total = np.zeros(count)
    for n in range(len(tape.states) - 2):
        x_n, x = tape.states[n + 1], tape.states[n + 2]
        system.begin(x_n, x, tape.stiffness[n], tape.poses[n], tape.poses[n + 1])
        system.gradient(x)
        force = system.normal_force.numpy() + system.friction_force.numpy()
        size = np.linalg.norm(force, axis=1)
        total += system.dt * (size[:count] + size[count:])
    return total


# Live view of a running fit


_SIZE_INCHES = (8.0, 4.5)


class _NearestCurve:
    """The simulated force curve nearest to the measured one, of all tried in this process."""

    def __init__(self) -> None:
        self.curve: _Array | None = None
        """Curve [N], shape [sample_count]; None before the first simulation ends."""
        self.error_n = np.inf
        """Mean distance from the measured curve [N]."""

    def offer(self, curve: _Array, measured: _Array, use: NDArray[np.bool_]) -> None:
        """Keep the curve if it is nearer over the samples in use."""
        error = float(np.abs(curve - measured)[use].mean())
        if error < self.error_n:
            self.curve, self.error_n = curve.copy(), error


def live_picture(problem: Any, text: str) -> NDArray[np.uint8]:
    """Draw measured force and the nearest curve so far; 8-bit pixels, shape [height, width, 3]."""
    figure, canvas = new_figure(_SIZE_INCHES)
    axis = figure.subplots()
    axis.plot(problem.time, problem.measured, color=TEXT, lw=1.5, label="measured")
    nearest = problem.nearest
    if nearest.curve is not None:
        label = f"nearest so far, {nearest.error_n:.2f} N off on average"
        axis.plot(problem.time, nearest.curve, color=FRUIT, lw=2, label=label)
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]")
    axis.set_title(text, color=TEXT)
    axis.legend(frameon=False)
    return pixels_of(canvas)


# Recorded cut: measurement, contact onset, and the part that is simulated


_ONSET_N = 1.0
"""Simulated force that counts as contact [N]; the onset of a log is found by ingest."""
_ONSET_HOLD_S = 0.03
"""Time the force must stay above the threshold to count as contact [s]."""
_PEAK_PROMINENCE = 0.02
"""Minimum prominence of the puncture peak, as a fraction of the largest force [-]."""
_PUNCTURE_UNTIL = 1.0 / 3.0
"""Part of the contact in which a puncture is looked for."""
_PUNCTURE_WINDOW_S = 0.05
"""Maximum distance of a simulated peak from the measured one [s]: one period of a 20 Hz low-pass."""


@dataclass(frozen=True)
class RecordedCut:
    """A force log in the cutting frame."""

    time: _Array
    """Time [s], strictly increasing, shape [m]."""
    position: _Array
    """Position of the edge (x, y up above the board, z along the blade) [m], shape [m, 3]."""
    velocity: _Array
    """Velocity of the edge [m/s], shape [m, 3]."""
    force: _Array
    """Force on the knife, tared [N], shape [m, 3]."""
    valid: NDArray[np.bool_]
    """Samples that may be compared, shape [m]."""
    onset_s: float
    """Time of first contact with the fruit."""
    pitch: _Array | None = None
    """Angle of a knife that turns in the cut plane [rad], shape [m]; None: it keeps its orientation."""


def read_recorded_cut(table: pl.DataFrame) -> RecordedCut | None:
    """Return the recorded cut in ingest's table; None if the scan has no log."""
    if not len(table):
        return None
    return RecordedCut(
        table["time_s"].to_numpy(),
        table["position_m"].to_numpy(),
        table["velocity_m_s"].to_numpy(),
        table["force_n"].to_numpy(),
        table["valid"].to_numpy(),
        float(table.filter("contact")["time_s"][0]),
        table["pitch_rad"].to_numpy() if "pitch_rad" in table.columns else None,
    )


def read_further_cuts(table: pl.DataFrame) -> list[RecordedCut]:
    """Return further cuts of the fruit, in ingest's second table."""
    parts = table.partition_by("log", maintain_order=True)
    return [cut for cut in map(read_recorded_cut, parts) if cut is not None]


def own_logs(notes: Callable[[str], Mapping[str, str]]) -> list[str]:
    """Return the digests of the logs in ingest's tables; `notes` returns a table's notes."""
    tables = ("ingest/force", "ingest/further")
    return [digest for table in tables for digest in notes(table).get(LOGS_NOTE, "").split()]


def find_onset(time: _Array, norm: _Array, threshold_n: float = _ONSET_N) -> float | None:
    """Return the time [s] at which a force norm [N] rises above the threshold and stays there.

    None if it never does.
    """
    above = norm > threshold_n
    if not above.any():
        return None
    ends = np.searchsorted(time, time + _ONSET_HOLD_S)
    count = np.concatenate([[0], np.cumsum(above)])
    held = (count[ends] - count[:-1]) == (ends - np.arange(len(time)))
    starts = np.flatnonzero(above & held)
    if not len(starts):
        return None
    i = int(starts[0])
    if i == 0:
        return float(time[0])
    rise = norm[i] - norm[i - 1]
    share = 1.0 if rise <= 0.0 else (threshold_n - norm[i - 1]) / rise
    return float(time[i - 1] + np.clip(share, 0.0, 1.0) * (time[i] - time[i - 1]))


def find_puncture(time: _Array, norm: _Array, *, near_s: float | None = None) -> tuple[float, float] | None:
    """Return time [s] and height [N] of the first prominent peak in the first third of a profile: the puncture.

    A later peak is that of the whole cut. With `near_s`, the nearest peak at most _PUNCTURE_WINDOW_S from that time.
    None if there is none.
    """
    peaks, _ = find_peaks(norm, prominence=_PEAK_PROMINENCE * float(norm.max()))
    if near_s is None:
        peaks = [i for i in peaks if time[i] - time[0] <= _PUNCTURE_UNTIL * (time[-1] - time[0])]
    else:
        peaks = sorted(peaks, key=lambda i: abs(time[i] - near_s))
        peaks = [i for i in peaks[:1] if abs(time[i] - near_s) <= _PUNCTURE_WINDOW_S]
    return (float(time[peaks[0]]), float(norm[peaks[0]])) if len(peaks) else None


def top_of_body(mesh: CutMesh) -> float:
    """Return the highest point of the cut face [m], where the knife first meets the body."""
    return float(mesh.virtual_positions()[:, 1].max())


NORM_ROUNDING_N = 1.0e-3
"""Rounds the norm at zero force, where it has no derivative [N]."""
_MIN_WINDOW_S = 0.05
"""Minimum duration of contact [s]."""
_ALL_VALID = 0.999
"""Interpolated validity above which a sample counts as valid: both neighbours must be."""
_SETS_IN_N = 2.0
"""Force after first contact at which the heights are aligned [N]; above dents and noise."""
OFFSET = "offset_y"
"""Parameter of the motion: height of the recorded motion above the aligned one [m]."""


class TrialFailedError(RuntimeError):
    """A simulation did not reach its end: a failed trial of the fit, not an error of the program."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


@dataclass(frozen=True)
class Problem:
    """Measured profile and simulation set-up. Samples are those of the simulated window, shape [sample_count]."""

    model: Model
    module: CuttingForce
    time: _Array
    """Time in the log's clock [s]."""
    height: _Array
    """Height of the edge above the board, aligned, without the fitted offset [m]."""
    measured: _Array
    """Norm of the filtered measured force [N]."""
    measured_force: _Array
    """The filtered measured force on the knife [N], shape [sample_count, 3]."""
    drawn_m: float
    """Distance the blade was drawn along itself during contact [m]."""
    filter_matrix: torch.Tensor
    """Matrix of the low-pass, shape [sample_count, sample_count]."""
    contact: NDArray[np.bool_]
    """Samples from contact onset to the end, over which errors are reported."""
    valid: NDArray[np.bool_]
    """Samples that may be compared at all."""
    held_out: NDArray[np.bool_]
    """Valid samples the fit does not see."""
    weight: NDArray[np.int64]
    """Number of times a sample counts in the loss."""
    onset_s: float
    """Time at which the measured force exceeds SETS_IN_N after first contact [s]."""
    alignment_m: float
    """Shift added to the recorded heights."""
    nearest: _NearestCurve = field(default_factory=_NearestCurve)
    """Nearest simulated curve, for the live view."""

    @property
    def training(self) -> torch.Tensor:
        """Indices of the training samples, repeated by their weight."""
        seen = self.valid & ~self.held_out
        return torch.as_tensor(np.repeat(np.arange(len(seen)), np.where(seen, self.weight, 0)))

    @property
    def mean_force(self) -> float:
        """Mean measured force over the contact window [N], the denominator of NMAE."""
        return float(self.measured[self.contact & self.valid].mean())

    def run(self, values: Mapping[str, _Array], *, differentiable: bool) -> tuple[_Array, Result]:
        """Return the simulated profile [N], shape [sample_count], and the run.

        values: parameters and, optionally, the offset.
        """
        cut = self.cut(values)
        result = simulate(cut.model, cut.motion, cut.parameters, differentiable=differentiable, **cut.options)
        if not result.outcome.ok or len(result.force) != len(self.time):
            raise TrialFailedError(result.outcome)
        profile = np.linalg.norm(self.filtered(result), axis=1)
        self.nearest.offer(profile, self.measured, self.contact & self.valid)
        return profile, result

    def cut(self, values: Mapping[str, _Array]) -> Cut:
        """Return the cut of `run`, to be simulated with others; `profile` turns its force into a profile."""
        given = {name: value for name, value in values.items() if name != OFFSET}
        motion = self.module.motion.with_parameters(**{OFFSET: values.get(OFFSET, np.asarray(0.0))})
        return Cut(self.model, motion, given, dict(self.module.options))

    def profile(self, answer: Answer[_Array]) -> _Array:
        """Return the simulated profile [N], shape [sample_count], from the force of a cut."""
        if answer.value is None or len(answer.value) != len(self.time):
            raise TrialFailedError(answer.outcome)
        return np.asarray(np.linalg.norm(self.filter_matrix.numpy() @ answer.value, axis=1), float)

    def filtered(self, result: Result) -> _Array:
        """Return the run's force on the knife through the log's low-pass [N], shape [sample_count, 3]."""
        smooth: _Array = self.filter_matrix.numpy() @ result.force
        return smooth

    def simulate(
        self, parameters: dict[str, torch.Tensor], motion: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, Result]:
        """Return the simulated profile [N], shape [sample_count], differentiable, and its run."""
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

    The module gets no parameters of its own: a `surface_` value left there would override the values of skin springs.
    """
    _check_log(cut)
    grid = np.arange(cut.time[0], cut.time[-1], 1.0 / params.rate_hz)
    onset = _sets_in(cut, grid, params.reading.filter_cutoff_hz)
    height = _at(grid, cut.time, cut.position[:, 1:2])[:, 0]
    top = top_of_body(model.mesh)
    at_onset = float(np.interp(onset, grid, height))
    shift = top - at_onset if params.align == "contact" else 0.0
    first, last = _window(grid, height + shift, onset, top, params)
    steps = round((last - first) / params.cut.dt_s)
    samples = int(np.floor(steps * params.cut.dt_s * params.rate_hz + 1e-9))
    time = first + (np.arange(samples) + 1) / params.rate_hz
    matrix = np.ascontiguousarray(low_pass(time, np.eye(samples), params.reading.filter_cutoff_hz))
    # A simulated sample is the mean over the interval that ends at its time.
    middle = time - 0.5 / params.rate_hz
    force = matrix @ _at(middle, cut.time, cut.force)
    valid = np.interp(time, cut.time, cut.valid.astype(float)) > _ALL_VALID
    contact = time >= onset
    if (contact & valid).sum() < _MIN_WINDOW_S * params.rate_hz:
        raise InputError(
            f"calibrate: only {(contact & valid).sum()} samples of the log are valid after contact at {onset:.3f} s. "
            f"{_MIN_WINDOW_S * params.rate_hz:.0f} are needed. Record the cut down to the board, or correct the log."
        )
    held = valid & _held_out_blocks(time - onset, params.hold_out_block_s, params.hold_out_fraction)
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


def _sets_in(cut: RecordedCut, grid: _Array, low_pass_hz: float) -> float:
    """Return the time at which the force is established [s]: real fruit dents before it is cut."""
    norm = np.linalg.norm(low_pass(grid, _at(grid, cut.time, cut.force), low_pass_hz), axis=1)
    touched = grid >= cut.onset_s
    found = find_onset(grid[touched], norm[touched], _SETS_IN_N) if touched.any() else None
    return cut.onset_s if found is None else found


def _at(time: _Array, known: _Array, values: _Array) -> _Array:
    """Interpolate columns of values [n, k] linearly at other times."""
    return np.stack([np.interp(time, known, column) for column in values.T], axis=1)


def _weight(time: _Array, measured: _Array, use: NDArray[np.bool_], near_puncture: int) -> NDArray[np.int64]:
    """Return weights: samples near the measured puncture, a short event in a long cut, count several times."""
    weight = np.ones(len(time), np.int64)
    puncture = find_puncture(time[use], measured[use])
    if puncture is not None:
        weight[np.abs(time - puncture[0]) <= _PUNCTURE_WINDOW_S] = near_puncture
    return weight


def _window(
    grid: _Array, height: _Array, onset: float, top: float, params: CalibrateParams
) -> tuple[float, float]:
    """Return the window from just above the body to just above the board, or to the end of the log [s]."""
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
    """Return the recorded motion over the body's middle, with time zero at the start of the window."""
    z = model.mesh.nodes[~model.mesh.node_ghost][:, 2]
    middle = 0.5 * float(z.min() + z.max())
    along = cut.position[:, 2] - float(np.interp(onset, cut.time, cut.position[:, 2])) + middle
    place = np.stack([np.zeros_like(along), cut.position[:, 1] + shift, along], axis=1)
    velocity = cut.velocity * np.array([0.0, 1.0, 1.0])
    if cut.pitch is not None:
        place = np.column_stack([place, cut.pitch])
        velocity = np.column_stack([velocity, np.gradient(cut.pitch, cut.time)])
    return RecordedMotion(cut.time - first, place, velocities=velocity)
