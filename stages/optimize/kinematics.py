"""A slicing or rocking motion at fixed times in NumPy: position, velocity, acceleration, and their exact pullback.

MDMM evaluates hundreds of trajectories and gradients between two simulations. What depends on the times alone is
computed once; the rest is a few products of small matrices. The formulas are those of disect_sim.SlicingMotion, and of
RockingMotion about the middle of the edge.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.motions import SlicingMotion, gauss_points

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trajectory:
    """A motion in time, along the first axis; or the derivatives of a number in it."""

    position: _Array
    """Position [m], shape [n, 3]."""
    velocity: _Array
    """Velocity (y, z) [m/s], shape [n, 2]."""
    acceleration: _Array
    """Acceleration (y, z) [m/s²], shape [n, 2]."""
    turn: _Array = field(default_factory=lambda: np.zeros((0, 3)))
    """Pitch [rad], its rate [rad/s] and acceleration [rad/s²], shape [n, 3]; by default zero."""

    def __post_init__(self) -> None:
        if len(self.turn) != len(self.position):
            object.__setattr__(self, "turn", np.zeros((len(self.position), 3)))

    @classmethod
    def zeros(cls, count: int) -> "Trajectory":
        """Return a trajectory of zeros."""
        return cls(np.zeros((count, 3)), np.zeros((count, 2)), np.zeros((count, 2)))

    def until(self, count: int) -> "Trajectory":
        """Return the first rows."""
        return Trajectory(
            self.position[:count], self.velocity[:count], self.acceleration[:count], self.turn[:count]
        )


class _Saw:
    """Speed along the blade W (w·a) cos((w·b) t) at some times, with intermediates for its derivatives."""

    def __init__(self, weights: _Array, window: _Array, times: _Array, keyframes: _Array) -> None:
        self._weights, self._window, self._times = weights, window, times
        self.amplitude = weights @ keyframes[0]
        self.frequency = weights @ keyframes[1]
        phase = self.frequency * times
        self.cos, self.sin = np.cos(phase), np.sin(phase)

    @cached_property
    def speed(self) -> _Array:
        """Speed [m/s], shape [n]."""
        return self._window * self.amplitude * self.cos

    def pullback(self, speed_bar: _Array) -> tuple[_Array, _Array]:
        """Return derivatives in amplitudes and frequencies of the keyframes, given those in the speed."""
        scaled = self._window * speed_bar
        return (
            _sum(self._weights, scaled * self.cos),
            _sum(self._weights, -scaled * self.amplitude * self.sin * self._times),
        )


@dataclass(frozen=True)
class Rock:
    """How a rocking motion begins and ends."""

    level_rad: float
    """Pitch at the end, at which the edge is level: the opposite of the knife's tilt."""
    half_length_m: float
    """Half the fruit's length along the blade: an edge that begins inclined begins higher by its rise over it."""

    def lift(self, inclined_rad: float) -> tuple[float, float]:
        """Return how much higher an edge of this inclination begins [m], and the derivative [m/rad]."""
        sine = np.sin(inclined_rad)
        root = np.hypot(sine, _LEAST_SINE)
        return (
            self.half_length_m * (root - _LEAST_SINE),
            self.half_length_m * sine * np.cos(inclined_rad) / root,
        )


_LEAST_SINE = 1.0e-3
"""Rounds the size of the inclination at zero [-]."""


class Kinematics:
    """All motions of one duration at the same times [s], as functions of their keyframes.

    Keyframes, shape [3, k] or, of a rocking motion, [4, k]: amplitude [m/s], frequency [rad/s], vertical velocity
    [m/s], pitch rate [rad/s]. A rocking motion ends with a level edge, so that its rates give the pitch at its start.
    """

    def __init__(self, motion: SlicingMotion, times: torch.Tensor, rock: Rock | None = None) -> None:
        self.rock = rock
        blend = motion.blend(times)
        self.times: _Array = times.numpy()
        self._weights, self._weight_rates = blend.weights.numpy(), blend.weight_rates.numpy()
        self._window, self._window_rate = blend.window.numpy(), blend.window_rate.numpy()
        self._start = np.array([0.0, motion.parameters["initial_y"], motion.parameters["initial_z"]])
        between, shares = gauss_points(times)
        inner = motion.blend(between)
        keyframes = self._weights.shape[1]
        self._between_shares: _Array = shares.numpy()
        self._between_times = between.numpy().reshape(-1)
        self._between_weights = inner.weights.numpy().reshape(-1, keyframes)
        self._between_window = inner.window.numpy().reshape(-1)
        down = shares[..., None] * inner.window[..., None] * inner.weights
        self.drop: _Array = down.sum(dim=1).cumsum(dim=0).numpy()
        """Height above start per keyframe velocity [s], shape [n, k]: the descent is linear in them."""
        self._vertical_velocity = self._window[:, None] * self._weights
        self._vertical_acceleration = (
            self._window_rate[:, None] * self._weights + self._window[:, None] * self._weight_rates
        )

    def trajectory(self, keyframes: _Array) -> Trajectory:
        """Return the motion of these keyframes."""
        return self.with_pullback(keyframes)[0]

    def with_pullback(self, keyframes: _Array) -> tuple[Trajectory, "Pullback"]:
        """Return the motion, and its pullback to the keyframes."""
        between = _Saw(self._between_weights, self._between_window, self._between_times, keyframes)
        at = _Saw(self._weights, self._window, self.times, keyframes)
        way = (between.speed.reshape(-1, 3) * self._between_shares).sum(axis=1)
        out = Trajectory.zeros(len(self.times))
        out.position[:] = self._start
        out.position[:, 1] += self.drop @ keyframes[2]
        out.position[:, 2] += np.cumsum(way)
        out.velocity[:, 0] = self._vertical_velocity @ keyframes[2]
        out.velocity[:, 1] = at.speed
        out.acceleration[:, 0] = self._vertical_acceleration @ keyframes[2]
        rates = self._weight_rates @ keyframes[0], self._weight_rates @ keyframes[1]
        phase_rate = at.frequency + rates[1] * self.times
        saw_rate = rates[0] * at.cos - at.amplitude * at.sin * phase_rate
        out.acceleration[:, 1] = self._window_rate * at.amplitude * at.cos + self._window * saw_rate
        inclined = 0.0
        if self.rock is not None:
            inclined = -float(self.drop[-1] @ keyframes[3])
            out.turn[:, 0] = self.rock.level_rad + inclined + self.drop @ keyframes[3]
            out.turn[:, 1] = self._vertical_velocity @ keyframes[3]
            out.turn[:, 2] = self._vertical_acceleration @ keyframes[3]
            out.position[:, 1] += self.rock.lift(inclined)[0]
        return out, Pullback(self, at, between, rates[0], phase_rate, inclined)


@dataclass(frozen=True)
class Pullback:
    """Map from derivatives in a trajectory to those in its keyframes."""

    kinematics: Kinematics
    at: _Saw
    between: _Saw
    amplitude_rate: _Array
    phase_rate: _Array
    inclined_rad: float
    """Inclination of the edge at the start."""

    def __call__(self, bar: Trajectory) -> _Array:
        """Return derivatives in the keyframes, shape [3 or 4, k]; `bar`: derivatives of a number in the trajectory."""
        k = self.kinematics
        out = np.zeros((3 if k.rock is None else 4, k.drop.shape[1]))
        out[2] = (
            _sum(k.drop, bar.position[:, 1])
            + _sum(k._vertical_velocity, bar.velocity[:, 0])
            + _sum(k._vertical_acceleration, bar.acceleration[:, 0])
        )
        later = np.cumsum(bar.position[::-1, 2])[::-1]  # a displacement moves everything after it
        for saw, speed_bar in (
            (self.at, bar.velocity[:, 1]),
            (self.between, (later[:, None] * k._between_shares).reshape(-1)),
        ):
            amplitude_bar, frequency_bar = saw.pullback(speed_bar)
            out[0] += amplitude_bar
            out[1] += frequency_bar
        self._add_acceleration(bar.acceleration[:, 1], out)
        if k.rock is not None:
            start = bar.turn[:, 0].sum() + k.rock.lift(self.inclined_rad)[1] * bar.position[:, 1].sum()
            out[3] = (
                _sum(k.drop, bar.turn[:, 0])
                + _sum(k._vertical_velocity, bar.turn[:, 1])
                + _sum(k._vertical_acceleration, bar.turn[:, 2])
                - start * k.drop[-1]
            )
        return out

    def _add_acceleration(self, bar: _Array, out: _Array) -> None:
        """Add the pullback of the acceleration W' A cos p + W (A' cos p - A sin p p'), with A = w·a, p = (w·b) t."""
        k, at, t = self.kinematics, self.at, self.kinematics.times
        window, window_rate = k._window * bar, k._window_rate * bar
        out[0] += _sum(k._weights, window_rate * at.cos - window * at.sin * self.phase_rate)
        out[0] += _sum(k._weight_rates, window * at.cos)
        phase = -(window_rate * at.amplitude + window * self.amplitude_rate) * at.sin
        phase -= window * at.amplitude * at.cos * self.phase_rate
        phase_rate = -window * at.amplitude * at.sin
        out[1] += _sum(k._weights, phase * t + phase_rate) + _sum(k._weight_rates, phase_rate * t)


def _sum(weights: _Array, values: _Array) -> _Array:
    """Return Σ_n weights[n, k] values[n]; not a BLAS product, whose last digits depend on the number of threads."""
    return np.einsum("nk,n->k", weights, values)
