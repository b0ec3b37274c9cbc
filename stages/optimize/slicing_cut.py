"""The cut that is optimised: a slicing motion through a model, and what its trajectory must obey."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim import CuttingForce, Model, SlicingMotion
from disect_sim.outcome import Outcome
from stages.optimize.params import OptimizeParams
from stages.optimize.passage import RATE_HZ, Passage

AMPLITUDE_M_S, FREQUENCY_RAD_S, DESCENT = 0.1, 10.0, 0.2
"""One unit of the optimiser's variables: sawing speed, its frequency, share of the straight cut's descent. An optimiser
of Adam's kind moves every variable by about the learning rate, so a unit is what may change in ten steps of 0.1."""
LEAST_WAY_M = 1.0e-12
"""Added to the way down of every sample: a motion that never goes down (the ablation's may) then has a mean too."""

Array = NDArray[np.float64]
Values = Mapping[str, Array]


class CutFailedError(RuntimeError):
    """A simulated cut that did not reach its end: a bad trial of the search, not an error of the program."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


@dataclass(frozen=True)
class Trajectory:
    """A motion at the controller's rate, in torch; time along the first axis."""

    position: torch.Tensor
    """[m], shape [n, 3]."""
    velocity: torch.Tensor
    """(y, z) [m/s], shape [n, 2]."""
    acceleration: torch.Tensor
    """(y, z) [m/s²], shape [n, 2]."""


class SlicingCut:
    """Force and trajectory of a slicing motion as torch functions of its variables.

    Variables, shape [3, keyframes]: amplitude / AMPLITUDE_M_S, frequency / FREQUENCY_RAD_S, and how much the descent
    differs from the straight cut's, in shares of DESCENT. `draws` holds one set of parameters, or several over which
    a robust motion is sought.
    """

    def __init__(
        self, model: Model, draws: Sequence[Values], passage: Passage, params: OptimizeParams
    ) -> None:
        self.passage = passage
        self.mean_over = params.mean_over
        self.keyframes = max(2, 1 + round(passage.duration_s / params.keyframe_spacing_s))
        self._motion = SlicingMotion(
            duration=passage.duration_s,
            initial_y=passage.start_m,
            initial_z=passage.z_m,
            keyframes=self.keyframes,
            sigma2_s2=params.sigma2_s2,
            window_s=params.window_s,
        )
        steps = round(passage.duration_s * RATE_HZ)
        self.times = torch.arange(steps + 1, dtype=torch.float64) / RATE_HZ
        self.sample_rate_hz = min(RATE_HZ, 1.0 / params.cut.dt_s)
        self._forces = [
            CuttingForce(
                model,
                self._motion,
                dict(draw),
                duration=passage.duration_s,
                dt=params.cut.dt_s,
                sample_rate_hz=self.sample_rate_hz,
            )
            for draw in draws
        ]
        unit = {**self._tensors(), "velocity_y": torch.ones(self.keyframes, dtype=torch.float64)}
        drop = float(self._motion.trajectory(self.times, unit)[-1, 1]) - passage.start_m
        self._straight_velocity = (passage.end_m - passage.start_m) / drop

    def straight(self) -> torch.Tensor:
        """Variables of the vertical cut of the same duration and end height."""
        variables = torch.zeros(3, self.keyframes, dtype=torch.float64)
        variables[1] = 1.0
        return variables

    def motion_parameters(self, variables: torch.Tensor) -> dict[str, torch.Tensor]:
        """The motion's parameters in SI units, each of shape [keyframes]."""
        return {
            "amplitude": AMPLITUDE_M_S * variables[0],
            "frequency": FREQUENCY_RAD_S * variables[1],
            "velocity_y": self._straight_velocity * (1.0 + DESCENT * variables[2]),
        }

    def forces(self, variables: torch.Tensor) -> list[torch.Tensor]:
        """Force on the knife [N], shape [samples, 3], by simulation, for every draw of the parameters."""
        motion = self.motion_parameters(variables)
        out = []
        for module in self._forces:
            out.append(module(motion=motion))
            result = module.last_result
            assert result is not None
            if not result.outcome.ok:
                raise CutFailedError(result.outcome)
        return out

    def mean_force(self, variables: torch.Tensor) -> torch.Tensor:
        """Mean norm of the force [N], over params.mean_over and the draws."""
        weights = self.weights(variables)
        return torch.stack([(weights * _norm(force)).sum() for force in self.forces(variables)]).mean()

    def weights(self, variables: torch.Tensor, over: str | None = None) -> torch.Tensor:
        """Share of every sample of the force in its mean, shape [samples]: of the time, or of the way down."""
        count = round(self.passage.duration_s * self.sample_rate_hz)
        if (over or self.mean_over) == "time":
            return torch.full((count,), 1.0 / count, dtype=torch.float64)
        times = torch.arange(count + 1, dtype=torch.float64) / self.sample_rate_hz
        parameters = {**self._tensors(), **self.motion_parameters(variables)}
        down = -self._motion.trajectory(times, parameters)[:, 1].diff()
        way = down.clamp(min=0.0) + LEAST_WAY_M
        return way / way.sum()

    def trajectory(self, variables: torch.Tensor, *, every: int = 1) -> Trajectory:
        """Position, velocity and acceleration at the controller's rate, or at every n-th of its times and the last."""
        parameters = {**self._tensors(), **self.motion_parameters(variables)}
        times = torch.cat([self.times[:-1:every], self.times[-1:]])
        return Trajectory(
            self._motion.trajectory(times, parameters),
            self._motion.velocities(times, parameters),
            self._motion.accelerations(times, parameters),
        )

    def at_end_height(self, variables: torch.Tensor) -> torch.Tensor:
        """The variables with the descent scaled so that the knife ends exactly at its height."""
        with torch.no_grad():
            reached = float(self.trajectory(variables).position[-1, 1])
            factor = (self.passage.end_m - self.passage.start_m) / (reached - self.passage.start_m)
            scaled = variables.detach().clone()
            scaled[2] = (factor * (1.0 + DESCENT * scaled[2]) - 1.0) / DESCENT
        return scaled

    @property
    def keyframe_times(self) -> Array:
        """[s], shape [keyframes]."""
        return np.linspace(0.0, self.passage.duration_s, self.keyframes)

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {name: torch.as_tensor(value) for name, value in self._motion.parameters.items()}


def speed_term(trajectory: Trajectory, params: OptimizeParams) -> torch.Tensor:
    """The objective's second part: the mean squared speed with its weight [-]."""
    return params.speed_weight_s2_m2 * (trajectory.velocity**2).sum(dim=1).mean()


def _norm(force: torch.Tensor) -> torch.Tensor:
    """Norm along the last axis, differentiable where there is no force."""
    return (force * force).sum(dim=-1).add(1e-12).sqrt()
