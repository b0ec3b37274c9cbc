"""What is kept of a run, and the Result that it becomes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from disect_sim.model import Model
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.result import Result, Statistics, kept_step, sampling_operator
from disect_sim.step_system import Energies

MATTERS_FRACTION = 0.01
"""A tet copy with less material than this may turn inside out unseen: it weighs and holds nothing."""
CUT_AT_ALL = 0.01
"""Share of the springs' stiffness that must go for a run to count as a cut."""


@dataclass(frozen=True)
class Observed:
    """Many steps at once, as a run on the device leaves them."""

    sums: np.ndarray
    """Force [N] and torque [N m] on the knife, touching area [m^2], kinetic energy and gravity's [J], tets inside out,
    energy of the edge law [J], shape [step_count, 11]."""
    parts: np.ndarray
    """Parts of the incremental energy [J] in the order of Energies, shape [step_count, 12]."""
    stiffness: np.ndarray
    """[N/m], shape [step_count + 1, spring_count]."""
    passed: list[np.ndarray]
    """How far the edge has passed [m] at the start and after every step; empty under other laws."""
    positions: dict[float, np.ndarray]
    """Nodes [m] at the times to keep."""


class Record:
    """The observables of every step and the node positions at chosen times."""

    def __init__(
        self,
        model: Model,
        dt: float,
        poses: np.ndarray,
        keep_times: Sequence[float],
        stiffness: np.ndarray,
        passed: np.ndarray,
    ) -> None:
        """poses: [m], shape [step_count + 1, 3]. stiffness, passed: at the start, as in Observed."""
        self._model, self._dt, self._poses = model, dt, poses
        self._keep = sorted(keep_times)
        self._force: list[np.ndarray] = []
        self._torque: list[np.ndarray] = []
        self._area: list[float] = []
        self._energy: list[dict[str, float]] = []
        self.stiffness: list[np.ndarray] = [stiffness]
        """Of the springs, per reference area [N/m], after every step."""
        self.passed: list[np.ndarray] = [passed]
        """How far the edge has passed every sample of the edge law [m] after every step; empty under other laws."""
        self.positions: dict[float, np.ndarray] = {}
        self.statistics = Statistics()

    def begin(self, parts: Energies, kinetic: float, gravity: float, fracture: float = 0.0) -> None:
        """The energies [J] at time zero."""
        self._energy.append(named(parts, kinetic, gravity, fracture, 0.0))

    def kept_steps(self, steps: int) -> dict[float, int]:
        """Time to keep → the step at whose end the positions are kept: the nearest, within the run."""
        nearest = {time: kept_step(time, self._dt) for time in self._keep}
        return {time: step for time, step in nearest.items() if step <= steps}

    def take(self, observed: Observed) -> None:
        """Record many steps that were run elsewhere, after the start."""
        self.statistics.steps = len(observed.sums)
        self.statistics.inverted_tets = int(observed.sums[:, 9].max(initial=0.0))
        self._force, self._torque = list(observed.sums[:, :3]), list(observed.sums[:, 3:6])
        self._area = list(observed.sums[:, 6])
        self.stiffness = list(observed.stiffness)
        self.passed = observed.passed or self.passed[:1] * len(observed.stiffness)
        self.positions |= observed.positions
        ways = np.diff(self._poses[: len(observed.sums) + 1], axis=0)
        before = observed.sums[:1, :3] if len(observed.sums) else np.zeros((0, 3))
        ends = np.concatenate([before, observed.sums[:, :3]])
        work = -np.cumsum((0.5 * (ends[:-1] + ends[1:]) * ways).sum(axis=1))
        for sums, parts, done in zip(observed.sums, observed.parts, work, strict=True):
            energies = Energies(*(float(part) for part in parts))
            self._energy.append(named(energies, float(sums[7]), float(sums[8]), float(sums[10]), float(done)))

    def result(self, outcome: Outcome | None, rate_hz: float, x: np.ndarray) -> Result:
        """The result; x is the last good state."""
        dt, steps = self._dt, len(self._force)
        mean = sampling_operator(dt, steps, rate_hz) if steps else sampling_operator(dt, 1, 0.5 / dt)[:, :0]
        self.positions[steps * dt] = x.copy()
        force = np.array(self._force).reshape(steps, 3)
        stiffness = np.array(self.stiffness)
        if outcome is None:
            outcome = self._verdict(stiffness)
        return Result(
            time=(np.arange(mean.shape[0]) + 1) / rate_hz,
            force=mean @ force,
            torque=mean @ np.array(self._torque).reshape(steps, 3),
            contact_area=mean @ np.array(self._area),
            step_time=np.arange(steps + 1) * dt,
            pose=self._poses[: steps + 1],
            stiffness=stiffness,
            energy={name: np.array([row[name] for row in self._energy]) for name in self._energy[0]},
            positions=self.positions,
            outcome=outcome,
            statistics=self.statistics,
        )

    def _verdict(self, stiffness: np.ndarray) -> Outcome:
        if self.statistics.inverted_tets:
            return Outcome(OutcomeKind.MESH_INVERTED, f"At worst {self.statistics.inverted_tets} at once.")
        if stiffness[-1].sum() > (1.0 - CUT_AT_ALL) * stiffness[0].sum():
            return Outcome(OutcomeKind.NOTHING_CUT)
        return Outcome(OutcomeKind.COMPLETE)


def named(
    parts: Energies, kinetic: float, gravity: float, fracture: float, knife_work: float
) -> dict[str, float]:
    """Energies [J] by the names of a result."""
    return {
        "kinetic": kinetic,
        "gravity": gravity,
        "elastic": parts.elastic,
        "springs": parts.springs + parts.overlap,
        "contact": parts.contact,
        "board": parts.board,
        "hold": parts.hold,
        "fracture": fracture,
        "knife_work": knife_work,
    }


def tets_that_matter(model: Model) -> np.ndarray:
    """Tets with enough material to count as inside out, shape [tet_count], bool."""
    full = np.abs(np.linalg.det(np.linalg.inv(model.tet_shape_gradients))) / 6.0
    matter: np.ndarray = model.tet_volume / full > MATTERS_FRACTION
    return matter
