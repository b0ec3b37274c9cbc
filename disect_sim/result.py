"""What a run returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from disect_sim.errors import InputError
from disect_sim.outcome import Outcome

if TYPE_CHECKING:
    from disect_sim.adjoint import Gradients, Tape


@dataclass
class Statistics:
    """What the integrator did."""

    steps: int = 0
    newton_iterations: int = 0
    line_search_cuts: int = 0
    cg_iterations: int = 0
    factorisations: int = 0
    indefinite_hessians: int = 0
    inverted_tets: int = 0
    """Most tets inside out at the end of any step."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by activity [s]: gradient, hessian, factorisation, solve, other; or device, other if a run stays there."""

    @property
    def newton_per_step(self) -> float:
        """Mean number of Newton iterations."""
        return self.newton_iterations / max(1, self.steps)


@dataclass(frozen=True)
class Result:
    """A simulated cut. Per sample: means over sampling intervals that end at `time`; per step: values at its end."""

    time: np.ndarray
    """End of the sampling intervals [s], shape [sample_count]."""
    force: np.ndarray
    """Resultant force on the knife [N], shape [sample_count, 3]."""
    torque: np.ndarray
    """Resultant torque on the knife about its origin [N m], shape [sample_count, 3]."""
    contact_area: np.ndarray
    """Cut surface in touch with the knife, both halves [m^2], shape [sample_count]."""
    step_time: np.ndarray
    """Times of the states [s], shape [step_count + 1]."""
    pose: np.ndarray
    """Knife positions [m], shape [step_count + 1, 3]."""
    stiffness: np.ndarray
    """Spring stiffness per reference area [N/m], shape [step_count + 1, spring_count]."""
    energy: dict[str, np.ndarray]
    """Energies and accumulated work [J], each of shape [step_count + 1]."""
    positions: dict[float, np.ndarray]
    """Node positions [m], shape [node_count, 3], at the times asked for and, last, at the end."""
    outcome: Outcome
    statistics: Statistics
    tape: "Tape | None" = field(default=None, repr=False)

    @property
    def force_norm(self) -> np.ndarray:
        """Norm of the force on the knife [N], shape [sample_count]: what a robot's log is compared with."""
        return np.linalg.norm(self.force, axis=1)

    @property
    def wrench(self) -> np.ndarray:
        """Force and torque on the knife [N, N m], shape [sample_count, 6]."""
        return np.concatenate([self.force, self.torque], axis=1)

    @property
    def cut_fraction(self) -> np.ndarray:
        """Share of the springs' stiffness that is gone, shape [step_count + 1]."""
        return 1.0 - self.stiffness.sum(axis=1) / self.stiffness[0].sum()

    def gradient(
        self, force_bar: np.ndarray, position_bar: Mapping[float, np.ndarray] | None = None
    ) -> "Gradients":
        """Gradients of a loss whose derivative in `force` is force_bar, shape [sample_count, 3].

        position_bar: its derivatives in `positions` [1/m], by time, each of shape [node_count, 3].
        """
        bars = {time: np.asarray(bar, float)[None] for time, bar in (position_bar or {}).items()}
        return self.gradients(np.asarray(force_bar, float)[None], bars)[0]

    def gradients(
        self, force_bars: np.ndarray, position_bars: Mapping[float, np.ndarray] | None = None
    ) -> "list[Gradients]":
        """Gradients of many losses together, for much less than one by one; shape [loss_count, sample_count, 3].

        position_bars: by time of `positions`, each of shape [loss_count, node_count, 3].
        """
        if self.tape is None:
            raise InputError(
                "gradient: this run kept no states. A gradient needs them. Call simulate with differentiable=True."
            )
        from disect_sim.adjoint import pullback

        unknown = [time for time in position_bars or {} if time not in self.positions]
        if unknown:
            raise InputError(
                f"gradient: there are no positions at {', '.join(f'{time:g}' for time in unknown)} s. They are there "
                f"at {', '.join(f'{time:g}' for time in self.positions)} s. Name the times in keep_times."
            )
        return pullback(self.tape, force_bars, position_bars or {})


def kept_step(time: float, dt: float) -> int:
    """The step at whose end the positions of a time to keep [s] are kept: the nearest, never the start."""
    return max(1, int(np.ceil(time / dt - 0.5)))


def sampling_operator(dt: float, steps: int, rate_hz: float) -> sp.csr_matrix:
    """Means over sampling intervals of what is known at the end of every step, shape [samples, steps].

    Between the ends of two steps it is a straight line, in the first step a constant.
    """
    samples = int(np.floor(steps * dt * rate_hz + 1e-9))
    edges = np.arange(samples + 1) / rate_hz
    first = np.clip(np.floor(edges[:-1] / dt + 1e-9).astype(int), 0, steps - 1)
    last = np.clip(np.ceil(edges[1:] / dt - 1e-9).astype(int), 1, steps)
    width = int((last - first).max()) if samples else 0
    rows, columns, weights = [], [], []
    for offset in range(width):
        step = first + offset
        low, high = np.maximum(edges[:-1], step * dt), np.minimum(edges[1:], (step + 1) * dt)
        use = np.flatnonzero((step < last) & (high > low))
        step, low, high = step[use], low[use], high[use]
        at_end = np.clip(0.5 * (low + high) / dt - step, 0.0, 1.0)
        rows += [use, use]
        columns += [step, np.maximum(step - 1, 0)]
        weights += [(high - low) * rate_hz * at_end, (high - low) * rate_hz * (1.0 - at_end)]
    if not rows:
        return sp.csr_matrix((0, steps))
    shape = (samples, steps)
    return sp.csr_matrix(
        (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns))), shape=shape
    )
