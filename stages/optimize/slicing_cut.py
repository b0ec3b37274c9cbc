"""The cut to be optimised: a slicing or rocking motion through a model, its mean force, and the force's gradient."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim import Model, RockingMotion, SlicingMotion, simulate
from disect_sim.many import Cut, force_of
from disect_sim.outcome import Outcome
from disect_sim.result import Result
from stages.optimize.constraints import RATE_HZ, Passage
from stages.optimize.description import OptimizeParams
from stages.optimize.kinematics import Kinematics, Pullback, Rock, Trajectory

AMPLITUDE_M_S, FREQUENCY_RAD_S, _DESCENT, PITCH_RAD_S = 0.1, 10.0, 0.2, 0.2
"""Units of the optimiser's variables: sawing speed, its frequency, fraction of the straight cut's descent, pitch rate.

An optimiser of Adam's kind moves every variable by about the learning rate, so a unit is what may change in ten steps
of 0.1.
"""
LEAST_WAY_M = 1.0e-12
"""Added to the descent of every sample, so that a motion that never goes down (possible in the ablation) has a mean."""
_LEAST_FORCE2_N2 = 1.0e-12
"""Added under the root of the force's norm, which is then differentiable at zero force."""
COARSE = 4
"""MDMM uses every fourth millisecond, where a maximum is the same to 0.1 %; the iterate is judged at every one."""
_KEYFRAMES = ("amplitude", "frequency", "velocity_y", "pitch_rate")
"""Parameters of the motion, in the order of the variables; the last of a rocking motion only."""

Array = NDArray[np.float64]
Values = Mapping[str, Array]


class CutFailedError(RuntimeError):
    """A simulated cut did not reach its end: a failed trial of the search, not an error of the program."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


class SlicingCut:
    """Force and trajectory of a slicing motion as functions of its variables.

    Variables, shape [3, keyframes]: amplitude / AMPLITUDE_M_S, frequency / FREQUENCY_RAD_S, and the difference of the
    descent from the straight cut's, in units of DESCENT; of a rocking motion a fourth row, pitch rate / PITCH_RAD_S.
    Without params.sawing the first two rows are held. `draws` has one set of parameters, or several for a robust
    motion.
    """

    def __init__(
        self, model: Model, draws: Sequence[Values], passage: Passage, params: OptimizeParams
    ) -> None:
        self.passage = passage
        self.mean_over = params.mean_over
        self.keyframes = max(2, 1 + round(passage.duration_s / params.keyframe_spacing_s))
        self._model, self._draws = model, [dict(draw) for draw in draws]
        self.rock = Rock(-model.knife.tilt_rad, passage.half_length_m) if params.rocking else None
        kind = SlicingMotion if self.rock is None else RockingMotion
        self._motion = kind(
            duration=passage.duration_s,
            initial_y=passage.start_m,
            initial_z=passage.z_m,
            keyframes=self.keyframes,
            sigma2_s2=params.sigma2_s2,
            window_s=params.window_s,
        )
        self.sample_rate_hz = min(RATE_HZ, 1.0 / params.cut.dt_s)
        self._options = {
            "duration": passage.duration_s,
            "dt": params.cut.dt_s,
            "sample_rate_hz": self.sample_rate_hz,
            "force_limit_n": params.cut.force_limit_n,
        }
        times = torch.arange(round(passage.duration_s * RATE_HZ) + 1, dtype=torch.float64) / RATE_HZ
        self._every = Kinematics(self._motion, times, self.rock)
        self._coarse = Kinematics(self._motion, torch.cat([times[:-1:COARSE], times[-1:]]), self.rock)
        self._samples = round(passage.duration_s * self.sample_rate_hz)
        at_samples = torch.arange(self._samples + 1, dtype=torch.float64) / self.sample_rate_hz
        self._sample_drop = np.diff(Kinematics(self._motion, at_samples).drop, axis=0)
        """Height per vertical velocity of each keyframe, sample by sample [s], shape [samples, keyframes]."""
        unit_drop = float(self._every.drop[-1].sum())
        self._low_m = 0.0
        """Height of the knife's origin above the lowest point of the edge at the end [m]: above zero if tilted."""
        if passage.blade is not None:
            level = np.array([0.0 if self.rock is None else self.rock.level_rad])
            self._low_m = -float(passage.blade.offsets(passage.blade.edge, level)[0].min())
        self._straight_velocity = (passage.end_m + self._low_m - passage.start_m) / unit_drop
        units = [AMPLITUDE_M_S, FREQUENCY_RAD_S, self._straight_velocity * _DESCENT, PITCH_RAD_S]
        self._rows = 3 if self.rock is None else 4
        self._units = np.array(units)[: self._rows, None]
        self._free = np.array([params.sawing, params.sawing, True, True], float)[: self._rows, None]
        """1 for the rows that the search may change."""

    def along(self, passage: Passage, params: OptimizeParams) -> "SlicingCut":
        """Return the cut of the same body with the same parameters along another passage."""
        return SlicingCut(self._model, self._draws, passage, params)

    @property
    def times(self) -> Array:
        """Times of the robot's controller [s]."""
        return self._every.times

    @property
    def keyframe_times(self) -> Array:
        """Keyframe times [s], shape [keyframes]."""
        return np.linspace(0.0, self.passage.duration_s, self.keyframes)

    def straight(self) -> Array:
        """Return the variables of the vertical cut of the same duration and end height."""
        variables = np.zeros((self._rows, self.keyframes))
        variables[1] = 1.0
        return variables

    def held(self, variables: Array) -> Array:
        """Return the variables with the rows that the search may not change as in the vertical cut."""
        straight = self.straight()
        return straight + self._free * (variables - straight)

    def motion_parameters(self, variables: Array) -> dict[str, Array]:
        """Return the motion's parameters in SI units, each of shape [keyframes]."""
        return dict(zip(_KEYFRAMES, self._si(variables), strict=False))

    def variables_of(self, times: Array, keyframes: Mapping[str, Array]) -> Array:
        """Return variables like the keyframes of another cut of the same body, stretched to this one's duration.

        keyframes: the motion's parameters in SI units at `times` [s]. Sawing keeps its speed and frequency, the descent
        its course over the part of the duration that has passed.
        """
        passed = self.keyframe_times / self.passage.duration_s * times[-1]
        amplitude, frequency, descent = (np.interp(passed, times, keyframes[name]) for name in _KEYFRAMES[:3])
        mean = descent.mean() or 1.0
        rows = [amplitude / AMPLITUDE_M_S, frequency / FREQUENCY_RAD_S, (descent / mean - 1.0) / _DESCENT]
        if self.rock is not None:
            rates = np.interp(passed, times, keyframes.get("pitch_rate", np.zeros(len(times))))
            rows.append(rates * (times[-1] / self.passage.duration_s) / PITCH_RAD_S)
        return np.stack(rows)

    def cuts(self, variables: Array) -> list[Cut]:
        """Return the cuts to simulate for this motion: one for every draw of the parameters."""
        motion = self._motion.with_parameters(**self.motion_parameters(variables), **self._start(variables))
        return [Cut(self._model, motion, draw, self._options) for draw in self._draws]

    def mean_of(self, forces: Sequence[Array], variables: Array) -> float:
        """Return the mean norm of the simulated forces [N], over params.mean_over and the draws."""
        weights = self.weights(variables)
        return float(np.mean([weights @ _norm(force) for force in forces]))

    def mean_force(self, variables: Array) -> float:
        """Return the same, simulated in this process."""
        return self.mean_of([force_of(_finished(cut)) for cut in self.cuts(variables)], variables)

    def mean_force_and_slope(self, variables: Array) -> tuple[float, Array]:
        """Return the mean norm of the force [N] by simulation, and its derivatives in the variables."""
        weights = self.weights(variables)
        mean, bar = 0.0, np.zeros_like(variables)
        share = 1.0 / len(self._draws)
        for cut in self.cuts(variables):
            result = _finished(cut, differentiable=True)
            norm = _norm(result.force)
            mean += share * float(weights @ norm)
            gradients = result.gradient(share * (weights / norm)[:, None] * result.force).motion
            bar += np.stack([gradients[name] for name in _KEYFRAMES[: self._rows]])
            bar[2] += share * self._weights_pullback(variables, norm)
            if self.rock is not None:
                lift = self._lift(variables)[1]
                by_start = float(gradients["initial_pitch"] + lift * gradients["initial_y"])
                by_start += share * self._lift_pullback(variables, norm)
                bar[3] -= by_start * self._every.drop[-1]
        return mean, bar * self._units * self._free

    def _inclined(self, variables: Array) -> float:
        """Return the inclination of the edge at the start [rad]: it ends level."""
        return -float(self._every.drop[-1] @ self._si(variables)[3])

    def _start(self, variables: Array) -> dict[str, float]:
        """Return height [m] and pitch [rad] at the start of a rocking motion, as parameters of the motion."""
        if self.rock is None:
            return {}
        inclined = self._inclined(variables)
        height = self.passage.start_m + self._lift(variables)[0]
        return {"initial_y": height, "initial_pitch": self.rock.level_rad + inclined}

    def mean_force_and_sensitivity(self, variables: Array) -> tuple[float, dict[str, Array]]:
        """Return the mean norm of the force [N] with the first draw, and its derivatives in the parameters by name."""
        result = _finished(self.cuts(variables)[0], differentiable=True)
        weights, norm = self.weights(variables), _norm(result.force)
        return float(weights @ norm), result.gradient((weights / norm)[:, None] * result.force).parameters

    def weights(self, variables: Array, over: str | None = None) -> Array:
        """Return the weight of every sample of the force in its mean, shape [samples]: by time, or by descent.

        The way by which a rocking motion begins higher is through air: it does not count as descent.
        """
        if (over or self.mean_over) == "time":
            return np.full(self._samples, 1.0 / self._samples)
        way = self._way(variables)
        return way / (way.sum() - self._lift(variables)[0])

    def _lift(self, variables: Array) -> tuple[float, float]:
        """Return how much higher the motion begins than a level cut [m], and the derivative in its inclination."""
        return (0.0, 0.0) if self.rock is None else self.rock.lift(self._inclined(variables))

    def _way(self, variables: Array) -> Array:
        """Return the descent, sample by sample [m]."""
        down = -(self._sample_drop @ self._si(variables)[2])
        return np.maximum(down, 0.0) + LEAST_WAY_M

    def _weights_pullback(self, variables: Array, norm: Array) -> Array:
        """Return derivatives of the mean of `norm` in the vertical velocities, through the weights alone."""
        if self.mean_over == "time":
            return np.zeros(self.keyframes)
        way = self._way(variables)
        total = way.sum() - self._lift(variables)[0]
        way_bar = (norm - (way @ norm) / total) / total
        return -np.einsum("nk,n->k", self._sample_drop, np.where(way > LEAST_WAY_M, way_bar, 0.0))

    def _lift_pullback(self, variables: Array, norm: Array) -> float:
        """Return the derivative of the mean of `norm` in the inclination at the start, through the weights alone."""
        if self.mean_over == "time":
            return 0.0
        way, (lift, slope) = self._way(variables), self._lift(variables)
        return float(way @ norm) / (way.sum() - lift) ** 2 * slope

    def trajectory(self, variables: Array) -> Trajectory:
        """Return position, velocity and acceleration at the controller's rate."""
        return self._every.trajectory(self._si(variables))

    def coarse_trajectory(self, variables: Array) -> tuple[Trajectory, "_VariablesPullback"]:
        """Return the same at every COARSE-th of its times and the last, and its pullback to the variables."""
        trajectory, pullback = self._coarse.with_pullback(self._si(variables))
        return trajectory, _VariablesPullback(pullback, self._units * self._free)

    def at_end_height(self, variables: Array) -> Array:
        """Scale the descent so that the knife ends exactly at its height; return the variables."""
        position = self.trajectory(variables).position
        start, reached = float(position[0, 1]), float(position[-1, 1])
        factor = (self.passage.end_m + self._low_m - start) / (reached - start)
        scaled = variables.copy()
        scaled[2] = (factor * (1.0 + _DESCENT * scaled[2]) - 1.0) / _DESCENT
        return scaled

    def _si(self, variables: Array) -> Array:
        """Return keyframes in SI units, of the variables' shape."""
        return (
            self._units * variables + np.array([0.0, 0.0, self._straight_velocity, 0.0])[: self._rows, None]
        )


class _VariablesPullback:
    """Map from derivatives in a trajectory to those in the variables."""

    def __init__(self, keyframes: Pullback, units: Array) -> None:
        self._keyframes, self._units = keyframes, units

    def __call__(self, bar: Trajectory) -> Array:
        """Return derivatives in the variables, of their shape."""
        return self._keyframes(bar) * self._units


def speed_term(trajectory: Trajectory, params: OptimizeParams, bar: Trajectory | None = None) -> float:
    """Return the objective's second part: the weighted mean squared speed [-]. Its derivatives are added to `bar`."""
    weight = params.speed_weight_s2_m2 / len(trajectory.velocity)
    if bar is not None:
        bar.velocity[:] += 2.0 * weight * trajectory.velocity
    return weight * float((trajectory.velocity**2).sum())


def _finished(cut: Cut, **options: bool) -> Result:
    """Simulate in this process; raise CutFailedError if the knife does not get through."""
    result = simulate(cut.model, cut.motion, cut.parameters, **{**cut.options, **options})
    if not result.outcome.ok:
        raise CutFailedError(result.outcome)
    return result


def _norm(force: Array) -> Array:
    return np.sqrt((force * force).sum(axis=-1) + _LEAST_FORCE2_N2)
