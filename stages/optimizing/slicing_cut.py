"""The cut that is optimised: a slicing motion through a model, and what its trajectory must obey."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim import CuttingForce, Model, Result, SlicingMotion
from stages.params import OptimizeParams

AMPLITUDE_M_S, FREQUENCY_RAD_S = 0.1, 10.0
"""Units of the optimiser's variables: they should all be about 1."""
RATE_HZ = 1000.0
"""Rate of the robot's controller, at which limits are checked and waypoints written."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Passage:
    """Where the knife must go."""

    start_m: float
    """Height of the edge at the start."""
    end_m: float
    """Height of the edge at the end: the clearance to the board."""
    z_m: float
    """Middle of the fruit along the blade."""
    lateral_limit_m: float
    """How far the knife may slide from z_m with the whole fruit still under the blade."""
    duration_s: float


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

    Variables, shape [3, keyframes]: amplitude / AMPLITUDE_M_S, frequency / FREQUENCY_RAD_S, and vertical velocity over
    that of the straight cut.
    """

    def __init__(
        self, model: Model, parameters: Mapping[str, Array], passage: Passage, params: OptimizeParams
    ) -> None:
        self.passage = passage
        self._motion = SlicingMotion(
            duration=passage.duration_s,
            initial_y=passage.start_m,
            initial_z=passage.z_m,
            keyframes=params.keyframes,
            sigma2_s2=params.sigma2_s2,
            window_s=params.window_s,
        )
        steps = round(passage.duration_s * RATE_HZ)
        self.times = torch.arange(steps + 1, dtype=torch.float64) / RATE_HZ
        self._force = CuttingForce(
            model, self._motion, dict(parameters), duration=passage.duration_s, dt=params.dt_s
        )
        unit = {**self._tensors(), "velocity_y": torch.ones(params.keyframes, dtype=torch.float64)}
        drop = float(self._motion.trajectory(self.times, unit)[-1, 1]) - passage.start_m
        self._straight_velocity = (passage.end_m - passage.start_m) / drop

    @property
    def result(self) -> Result:
        """The last simulation."""
        assert self._force.last_result is not None
        return self._force.last_result

    def straight(self) -> torch.Tensor:
        """Variables of the vertical cut of the same duration and end height."""
        variables = torch.zeros(3, len(self._motion.parameters["amplitude"]), dtype=torch.float64)
        variables[1:] = 1.0
        return variables

    def motion_parameters(self, variables: torch.Tensor) -> dict[str, torch.Tensor]:
        """The motion's parameters in SI units."""
        return {
            "amplitude": AMPLITUDE_M_S * variables[0],
            "frequency": FREQUENCY_RAD_S * variables[1],
            "velocity_y": self._straight_velocity * variables[2],
        }

    def force(self, variables: torch.Tensor) -> torch.Tensor:
        """Force on the knife [N], shape [samples, 3], by simulation."""
        return self._force(motion=self.motion_parameters(variables))

    def trajectory(self, variables: torch.Tensor) -> Trajectory:
        """Position, velocity and acceleration at the controller's rate."""
        parameters = {**self._tensors(), **self.motion_parameters(variables)}
        velocity, acceleration = torch.func.jvp(
            lambda times: self._motion.velocities(times, parameters), (self.times,), (torch.ones_like(self.times),)
        )
        return Trajectory(self._motion.trajectory(self.times, parameters), velocity, acceleration)

    def at_end_height(self, variables: torch.Tensor) -> torch.Tensor:
        """The variables with the descent scaled so that the knife ends exactly at its height."""
        with torch.no_grad():
            reached = float(self.trajectory(variables).position[-1, 1])
            scaled = variables.clone()
            scaled[2] *= (self.passage.end_m - self.passage.start_m) / (reached - self.passage.start_m)
        return scaled

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {name: torch.as_tensor(value) for name, value in self._motion.parameters.items()}
