"""Knife motions: the position of the edge over time, differentiable in a few parameters.

A motion maps times [s], shape [n], to poses of the knife in the cutting frame (x across the cut, y up, z along the
blade): positions of its origin [m], shape [n, 3], or, if the motion turns the knife, x, y, z and pitch, shape [n, 4].
Pitch is the angle about x [rad], right-handed: a positive one lowers the +z end of the blade.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.interpolate import CubicHermiteSpline, CubicSpline

from disect_sim.outcome import InputError

_LARGEST_PITCH_RAD = np.radians(60.0)
"""Largest pitch of a rocking motion [rad]: beyond it the edge no longer points at the board."""
_GAUSS_POINTS = torch.tensor([-np.sqrt(0.6), 0.0, np.sqrt(0.6)], dtype=torch.float64)
_GAUSS_WEIGHTS = torch.tensor([5.0 / 18.0, 8.0 / 18.0, 5.0 / 18.0], dtype=torch.float64)


class Motion(ABC):
    """A knife motion with named parameters (each a float64 array)."""

    parameters: dict[str, np.ndarray]

    @abstractmethod
    def trajectory(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return poses, shape [n, 3 or 4], at increasing times [s], shape [n], by torch functions of the parameters."""

    def poses(self, times: np.ndarray) -> np.ndarray:
        """Return poses of the knife, positions [m] and any pitch [rad], shape [n, 3 or 4], at times [s], shape [n]."""
        with torch.no_grad():
            return self.trajectory(torch.as_tensor(times), self._tensors(False)).numpy()

    def pullback(self, times: np.ndarray, pose_bar: np.ndarray) -> dict[str, np.ndarray]:
        """Return the gradient in every parameter, given that in the poses [1/m, 1/rad], of the same shape."""
        tensors = self._tensors(True)
        with torch.enable_grad():  # torch switches it off inside the backward pass of CuttingForce
            poses = self.trajectory(torch.as_tensor(times), tensors)
        poses.backward(torch.as_tensor(pose_bar))
        return {
            k: np.zeros_like(self.parameters[k]) if t.grad is None else t.grad.numpy()
            for k, t in tensors.items()
        }

    def with_parameters(self, **changes: float | np.ndarray) -> "Motion":
        """Return the same motion with some parameters changed."""
        unknown = set(changes) - set(self.parameters)
        if unknown:
            raise InputError(
                f"motion: {', '.join(sorted(unknown))} is not a parameter of {type(self).__name__}. "
                f"Known: {', '.join(self.parameters)}. Correct the name."
            )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.parameters = self.parameters | {
            k: np.asarray(v, float).reshape(self.parameters[k].shape) for k, v in changes.items()
        }
        return other

    def _tensors(self, differentiate: bool) -> dict[str, torch.Tensor]:
        return {
            k: torch.tensor(v, dtype=torch.float64, requires_grad=differentiate)
            for k, v in self.parameters.items()
        }


class ConstantVelocity(Motion):
    """A straight cut: height initial_y [m] at t = 0, vertical velocity velocity_y [m/s], constant z."""

    def __init__(self, *, initial_y: float = 0.08, velocity_y: float = -0.05, z: float = 0.0) -> None:
        self.parameters = {"initial_y": np.array(initial_y, float), "velocity_y": np.array(velocity_y, float)}
        self._z = float(z)

    def trajectory(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """See Motion."""
        y = parameters["initial_y"] + parameters["velocity_y"] * times
        return torch.stack([torch.zeros_like(y), y, torch.full_like(y, self._z)], dim=1)


class RecordedMotion(Motion):
    """A measured trajectory, interpolated smoothly; offset_y [m] shifts it in height.

    times [s], strictly increasing, shape [m]; positions (y, z), (x, y, z) [m] or, of a knife that turns, (x, y, z,
    pitch) [m, rad], shape [m, 2 to 4]; velocities likewise, if measured. Before the first and after the last sample the
    knife is at rest.
    """

    def __init__(
        self,
        times: np.ndarray,
        positions: np.ndarray,
        *,
        velocities: np.ndarray | None = None,
        offset_y: float = 0.0,
    ) -> None:
        t = np.asarray(times, float)
        p = _columns(positions, len(t))
        if len(t) < 2 or not (np.diff(t) > 0.0).all() or not (np.isfinite(t).all() and np.isfinite(p).all()):
            raise InputError(
                f"recorded motion: {len(t)} samples. It needs at least 2, finite and in increasing time. Clean the log."
            )
        self._first, self._last = t[0], t[-1]
        if velocities is None:
            self._spline = CubicSpline(t, p)
        else:
            self._spline = CubicHermiteSpline(t, p, _columns(velocities, len(t)))
        self.parameters = {"offset_y": np.array(offset_y, float)}

    def trajectory(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """See Motion."""
        base = torch.as_tensor(self._spline(np.clip(times.detach().numpy(), self._first, self._last)))
        up = torch.zeros(base.shape[1], dtype=torch.float64)
        up[1] = 1.0
        return base + parameters["offset_y"] * up


@dataclass(frozen=True)
class _Blend:
    """Weights by which a slicing motion multiplies its keyframes at some times."""

    weights: torch.Tensor
    """Weights of the keyframes [-], shape [..., k]."""
    weight_rates: torch.Tensor
    """Time derivatives of the weights [1/s], shape [..., k]."""
    window: torch.Tensor
    """Window [-], shape [...]."""
    window_rate: torch.Tensor
    """Time derivative of the window [1/s], shape [...]."""


class SlicingMotion(Motion):
    """Slicing while descending: keyframes blended by radial basis functions, inside a window of rest at both ends.

    At time t, with weights w_i = exp(-(t - t_i)^2 / (2 sigma^2)) of k equidistant keyframes:

        dz/dt = W(t) (sum a_i w_i) cos((sum b_i w_i) t)        dy/dt = W(t) (sum c_i w_i)

    amplitude a [m/s], frequency b [rad/s], velocity_y c [m/s], shape [k]. W rises from 0 to 1 over `window_s` and falls
    again before `duration`, with two continuous derivatives, so that velocity and acceleration are zero at both ends.
    """

    def __init__(
        self,
        *,
        duration: float = 0.9,
        initial_y: float = 0.08,
        initial_z: float = 0.0,
        amplitude: np.ndarray | float = 0.05,
        frequency: np.ndarray | float = 30.0,
        velocity_y: np.ndarray | float = -0.05,
        keyframes: int = 5,
        sigma2_s2: float = 0.03,
        window_s: float = 0.12,
    ) -> None:
        if not (keyframes >= 1 and duration > 2.0 * window_s >= 0.0 and sigma2_s2 > 0.0):
            raise InputError(
                f"slicing motion: {keyframes} keyframes, duration {duration} s, window {window_s} s. It needs at least "
                "one keyframe and a duration longer than two windows. Lengthen the motion."
            )
        self._duration, self._window, self._sigma2 = float(duration), float(window_s), float(sigma2_s2)
        self._keyframe_times = torch.linspace(0.0, duration, keyframes, dtype=torch.float64)
        self.parameters = {
            "initial_y": np.array(initial_y, float),
            "initial_z": np.array(initial_z, float),
            "amplitude": np.broadcast_to(np.asarray(amplitude, float), (keyframes,)).copy(),
            "frequency": np.broadcast_to(np.asarray(frequency, float), (keyframes,)).copy(),
            "velocity_y": np.broadcast_to(np.asarray(velocity_y, float), (keyframes,)).copy(),
        }

    def velocities(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return (dy/dt, dz/dt) [m/s], shape [..., 2]."""
        blend = self.blend(times)
        w = blend.weights
        phase = (w @ parameters["frequency"]) * times
        dz = (w @ parameters["amplitude"]) * torch.cos(phase)
        return torch.stack([blend.window * (w @ parameters["velocity_y"]), blend.window * dz], dim=-1)

    def accelerations(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return (d²y/dt², d²z/dt²) [m/s²], shape [..., 2]: the derivatives of `velocities`."""
        blend = self.blend(times)
        w, w_rate, window, window_rate = blend.weights, blend.weight_rates, blend.window, blend.window_rate
        a, b, c = (parameters[name] for name in ("amplitude", "frequency", "velocity_y"))
        phase, phase_rate = (w @ b) * times, (w @ b) + (w_rate @ b) * times
        saw = (w @ a) * torch.cos(phase)
        saw_rate = (w_rate @ a) * torch.cos(phase) - (w @ a) * torch.sin(phase) * phase_rate
        ddy = window_rate * (w @ c) + window * (w_rate @ c)
        return torch.stack([ddy, window_rate * saw + window * saw_rate], dim=-1)

    def trajectory(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """See Motion; the velocities are integrated by three-point Gauss quadrature between the times."""
        at, shares = gauss_points(times)
        travelled = torch.cumsum((self.velocities(at, parameters) * shares[..., None]).sum(dim=1), dim=0)
        y = parameters["initial_y"] + travelled[:, 0]
        z = parameters["initial_z"] + travelled[:, 1]
        return torch.stack([torch.zeros_like(y), y, z], dim=1)

    def blend(self, times: torch.Tensor) -> "_Blend":
        """Return keyframe weights and window at the times, with their time derivatives."""
        weights = torch.exp(-((times[..., None] - self._keyframe_times) ** 2) / (2.0 * self._sigma2))
        rise, fall = times / self._window, (self._duration - times) / self._window
        rate = self._edge_rate(rise) * self._edge(fall) - self._edge(rise) * self._edge_rate(fall)
        return _Blend(
            weights,
            weights * (self._keyframe_times - times[..., None]) / self._sigma2,
            self._edge(rise) * self._edge(fall),
            rate / self._window,
        )

    @staticmethod
    def _edge(z: torch.Tensor) -> torch.Tensor:
        """Quintic step: 0 to 1 with zero first and second derivatives at both ends."""
        c = torch.clamp(z, 0.0, 1.0)
        return c**3 * (10.0 + c * (6.0 * c - 15.0))

    @staticmethod
    def _edge_rate(z: torch.Tensor) -> torch.Tensor:
        """Return the derivative of _edge."""
        c = torch.clamp(z, 0.0, 1.0)
        return 30.0 * c**2 * (1.0 - c) ** 2


class RockingMotion(SlicingMotion):
    """A slicing motion whose knife turns about a point of the blade, the pivot.

    The slicing motion moves the pivot; the pitch p follows keyframes of its rate, blended like those of the descent:

        dp/dt = W(t) (sum d_i w_i)        origin = slicing motion + pivot - R(p) pivot

    pitch_rate d [rad/s], shape [k], and initial_pitch [rad] are parameters. `pivot`: its height over the knife's origin
    and place along the blade, (y, z) [m], at pitch zero: the tip, the heel or any other point. With a slicing motion at
    rest that point stays where it is. Without pitch the motion is the slicing motion.
    """

    def __init__(
        self,
        *,
        pivot: tuple[float, float] = (0.0, 0.0),
        initial_pitch: float = 0.0,
        pitch_rate: np.ndarray | float = 0.0,
        keyframes: int = 5,
        **slicing: Any,
    ) -> None:
        super().__init__(keyframes=keyframes, **slicing)
        if len(pivot) != 2 or not np.isfinite(pivot).all():
            raise InputError(
                f"rocking motion: pivot is {pivot}. It must be height and place along the blade, two numbers [m]. "
                "Correct it."
            )
        self._pivot = (float(pivot[0]), float(pivot[1]))
        self.parameters |= {
            "initial_pitch": np.array(initial_pitch, float),
            "pitch_rate": np.broadcast_to(np.asarray(pitch_rate, float), (keyframes,)).copy(),
        }
        largest = np.abs(self.poses(np.linspace(0.0, self._duration, 200))[:, 3]).max()
        if not largest <= _LARGEST_PITCH_RAD:
            raise InputError(
                f"rocking motion: the pitch reaches {np.degrees(largest):.4g} degrees. It must stay within "
                f"{np.degrees(_LARGEST_PITCH_RAD):.0f}. Lower initial_pitch or pitch_rate."
            )

    def pitch_rates(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return dp/dt [rad/s], shape [...]."""
        blend = self.blend(times)
        return blend.window * (blend.weights @ parameters["pitch_rate"])

    def pitch_accelerations(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return d²p/dt² [rad/s²], shape [...]: the derivative of `pitch_rates`."""
        blend, rate = self.blend(times), parameters["pitch_rate"]
        return blend.window_rate * (blend.weights @ rate) + blend.window * (blend.weight_rates @ rate)

    def trajectory(self, times: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """See Motion."""
        at, shares = gauss_points(times)
        turned = torch.cumsum((self.pitch_rates(at, parameters) * shares).sum(dim=1), dim=0)
        pitch = parameters["initial_pitch"] + turned
        c, s, (up, along) = torch.cos(pitch), torch.sin(pitch), self._pivot
        back = torch.stack(
            [torch.zeros_like(c), up * (1.0 - c) + along * s, along * (1.0 - c) - up * s], dim=1
        )
        return torch.cat([super().trajectory(times, parameters) + back, pitch[:, None]], dim=1)


def gauss_points(times: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return three Gauss points per interval between times, from 0 [s], and their weights [s], shape [n, 3]."""
    start = torch.cat([torch.zeros(1, dtype=torch.float64), times[:-1]])
    half = 0.5 * (times - start)[:, None]
    return start[:, None] + half + half * _GAUSS_POINTS, 2.0 * half * _GAUSS_WEIGHTS


def with_pitch(poses: np.ndarray, tilt_rad: float = 0.0) -> np.ndarray:
    """Return poses with pitch, shape [n, 4], of poses with or without, shape [n, 3 or 4]; tilt_rad is added to it."""
    if poses.shape[-1] == 4 and tilt_rad == 0.0:
        return poses
    pitch = poses[..., 3:] if poses.shape[-1] == 4 else np.zeros((*poses.shape[:-1], 1))
    return np.concatenate([poses[..., :3], pitch + tilt_rad], axis=-1)


def _columns(values: np.ndarray, count: int) -> np.ndarray:
    v = np.asarray(values, float)
    if v.ndim != 2 or v.shape[0] != count or v.shape[1] not in (2, 3, 4):
        raise InputError(
            f"recorded motion: an array of shape {v.shape} for {count} times. It must be [{count}, 2] (y, z), "
            f"[{count}, 3] (x, y, z) or [{count}, 4] (x, y, z, pitch). Reshape it."
        )
    return v if v.shape[1] > 2 else np.concatenate([np.zeros((count, 1)), v], axis=1)
