"""A whole cut with a loss, its adjoint gradient and its central differences."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from disect_sim import ConstantVelocity, RecordedMotion, SlicingMotion, simulate
from disect_sim.adjoint import Gradients
from disect_sim.laws import DAMAGE_LAWS
from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.newton import NewtonOptions
from disect_sim.parameters import MATERIAL_PARAMETERS, SPRING_PARAMETERS, parameter_info
from disect_sim.result import Result

DURATION = 0.1
"""Long enough for a knife of 0.27 m/s to pass through the block of 25 mm [s]."""

TIGHT = NewtonOptions(tolerance_m=1e-11, cg_tolerance=1e-7)
"""A difference quotient at a step of 1e-4 sees the noise of the forward run magnified 1e4 times: it must be small."""

CUTTING = {"cut_spring_softness": 0.3, "sdf_ke": 1500.0, "sdf_stribeck": 0.1}
"""Values that cut the block through; static friction above zero so that it has two sides to differ to."""


def parameters_of(law: str) -> tuple[str, ...]:
    """Every parameter that has an effect under a damage law."""
    ignored = DAMAGE_LAWS[law].ignores
    return (*(name for name in SPRING_PARAMETERS if name not in ignored), *MATERIAL_PARAMETERS)


ALL_PARAMETERS = parameters_of("force")


def straight(**changes) -> Motion:
    return ConstantVelocity(**({"initial_y": 0.0265, "velocity_y": -0.27} | changes))


def recorded() -> Motion:
    """A descent with a wobble along the blade, sampled at 100 Hz."""
    t = np.linspace(0.0, DURATION, 16)
    y = 0.0265 - 0.27 * t + 3e-4 * np.sin(90.0 * t)
    return RecordedMotion(t, np.stack([y, 2e-3 * np.sin(60.0 * t)], axis=1), offset_y=1e-4)


def slicing(**changes) -> Motion:
    """Two strokes of a few millimetres on the way down, at rest at both ends."""
    given = {
        "duration": DURATION,
        "initial_y": 0.0265,
        "velocity_y": -0.16,
        "amplitude": [0.1, 0.15, 0.12, 0.1, 0.14],
        "frequency": 60.0,
        "sigma2_s2": 0.03 * (DURATION / 0.9) ** 2,
        "window_s": 0.015,
    }
    return SlicingMotion(**(given | changes))


MOTIONS = {"constant": straight, "recorded": recorded, "slicing": slicing}


def loss_of(result: Result) -> tuple[float, np.ndarray]:
    """Mean norm of the knife force, rounded at 0.1 N so that it is smooth before the touch; and its derivative."""
    norm = np.sqrt((result.force**2).sum(axis=1) + 0.01)
    return float(norm.mean()), result.force / norm[:, None] / len(norm)


@dataclass
class Case:
    """A cut, and what the adjoint and the difference quotient say of its loss."""

    model: Model
    motion: Motion = field(default_factory=straight)
    parameters: dict = field(default_factory=lambda: dict(CUTTING))
    options: dict = field(default_factory=dict)

    def run(self, parameters=None, motion=None, **options) -> Result:
        return simulate(
            self.model,
            motion or self.motion,
            self.parameters if parameters is None else parameters,
            **({"duration": DURATION, "dt": 1e-3, "newton": TIGHT} | self.options | options),
        )

    @cached_property
    def result(self) -> Result:
        return self.run(differentiable=True)

    @cached_property
    def loss(self) -> float:
        return loss_of(self.result)[0]

    @cached_property
    def gradients(self) -> Gradients:
        return self.result.gradient(loss_of(self.result)[1])

    def value(self, name: str) -> np.ndarray:
        """Value of a parameter of the springs, the material or the motion."""
        if name in self.parameters:
            return np.asarray(self.parameters[name], float)
        if name in MATERIAL_PARAMETERS:
            return np.asarray(getattr(self.model.material, name))
        if name in self.motion.parameters and name not in SPRING_PARAMETERS:
            return self.motion.parameters[name]
        return np.asarray(parameter_info(name, damage_law=self.model.damage_law).default)

    def adjoint(self, name: str) -> np.ndarray:
        motion = self.gradients.motion
        return motion[name] if name in motion else self.gradients.parameters[name]

    def direction(self, name: str) -> np.ndarray:
        """What a relative change of 1 means: the value itself; for heights a millimetre."""
        height = name in ("initial_y", "initial_z", "offset_y")
        return np.full(self.value(name).shape, 1e-3) if height else self.value(name)

    def slope(self, directions: dict[str, np.ndarray]) -> float:
        """The adjoint's derivative of the loss when all named parameters move along their directions."""
        return sum(float((self.adjoint(name) * d).sum()) for name, d in directions.items())

    def difference(self, directions: dict[str, np.ndarray], size: float) -> float:
        """The same by central differences of the loss at value ± size × direction."""
        losses = []
        for sign in (1.0, -1.0):
            changed = {name: self.value(name) + sign * size * d for name, d in directions.items()}
            moving = {k: v for k, v in changed.items() if k in self.motion.parameters}
            motion = self.motion.with_parameters(**moving)
            values = {k: v for k, v in changed.items() if k not in moving}
            losses.append(loss_of(self.run(self.parameters | values, motion))[0])
        return (losses[0] - losses[1]) / (2.0 * size)

    def error(self, directions: dict[str, np.ndarray], size: float) -> float:
        """How far adjoint and difference are apart, relative to the difference with a floor of 0.1 loss.

        A derivative along a relative change below a tenth of the loss is a weak one: at the tolerance of 1e-4 the
        floor is 1e-5 of the loss, where a difference quotient ends, because Newton's method leaves 1e-9 of the loss as
        noise and a step of 1e-4 magnifies it ten thousand times.
        """
        difference = self.difference(directions, size)
        return abs(self.slope(directions) - difference) / max(abs(difference), 0.1 * self.loss)


def smallest_error(
    case: Case, directions: dict[str, np.ndarray], *, tolerance: float = 1e-4, first_step: float = 1e-5
) -> float:
    """Error at a relative step; where it is above the tolerance, at a tenth and a hundredth of that step.

    A spring that dies inside the step leaves a kink in the loss (its stiffness stops at zero), and a difference across
    a kink is the mean of two slopes. A smaller step crosses fewer of them; a wrong gradient stays wrong.
    """
    for size in (first_step, 0.1 * first_step, 0.01 * first_step):
        error = case.error(directions, size)
        if error <= tolerance:
            break
    return error
