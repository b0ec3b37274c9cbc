"""Collects what a run shows, step by step, and turns it into a Result."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from disect_sim.device_arrays import host
from disect_sim.model import Model
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.result import Result, Statistics, kept_step, sampling_operator
from disect_sim.step_system import Energies, StepSystem

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


class Recorder:
    """Keeps the observables of every step and the node positions at chosen times."""

    def __init__(
        self, system: StepSystem, poses: np.ndarray, keep_times: Sequence[float], force_limit_n: float
    ) -> None:
        self._system, self._model = system, system.model
        self._poses = poses
        self._keep = sorted(keep_times)
        self._force_limit_n = force_limit_n
        self._size = float(np.ptp(system.model.mesh.nodes, axis=0).max())
        self.matters = _fraction_in_model_order(system.model) > MATTERS_FRACTION
        """Tets with enough material to count as inside out, shape [tet_count], bool."""
        self._force: list[np.ndarray] = []
        self._torque: list[np.ndarray] = []
        self._area: list[float] = []
        self._stiffness: list[np.ndarray] = [system.parameters.row("cut_spring_ke").copy()]
        self.passed: list[np.ndarray] = [np.zeros(0) if system.edge is None else system.edge.untouched]
        """How far the edge has passed every sample of the edge law [m] after every step; empty under other laws."""
        self._energy: list[dict[str, float]] = []
        self._work = 0.0
        self.positions: dict[float, np.ndarray] = {}
        self.statistics = Statistics()

    @property
    def stiffness(self) -> list[np.ndarray]:
        """Spring stiffness per reference area [N/m] after every step."""
        return self._stiffness

    def start(self, x: np.ndarray, velocity: np.ndarray) -> None:
        """Record the state at time zero."""
        self._system.begin(x, x, self._stiffness[0], self._poses[0], self._poses[0])
        self._system.gradient(x)
        self._energy.append(self._energies(x, velocity))

    def step(
        self, x: np.ndarray, x_previous: np.ndarray, stiffness: np.ndarray, passed: np.ndarray
    ) -> Outcome | None:
        """Record the end of a step, right after `system.gradient(x)`. Returns an outcome if the run must stop."""
        system, dt = self._system, self._system.dt
        n = len(self._force) + 1
        self.statistics.steps = n
        moved = np.abs(x - self._model.mesh.nodes).max(axis=1)
        worst = int(moved.argmax())
        if not np.isfinite(moved[worst]) or moved[worst] > 10.0 * self._size:
            return Outcome(
                OutcomeKind.DIVERGED, f"At {n * dt:.4g} s a node was {moved[worst]:.3g} m away.", n, worst
            )
        force, torque = self._knife_wrench(x, n)
        mean_force = 0.5 * (force + self._force[-1]) if self._force else force
        self._work -= float(mean_force @ (self._poses[n] - self._poses[n - 1]))
        self.passed.append(passed)
        self._energy.append(self._energies(x, (x - x_previous) / dt))
        self._force.append(force)
        self._torque.append(torque)
        self._area.append(self._touching_area())
        self._stiffness.append(stiffness)
        inverted = int(((system.volume_ratios() <= 0.0) & self.matters).sum())
        self.statistics.inverted_tets = max(self.statistics.inverted_tets, inverted)
        while self._keep and kept_step(self._keep[0], dt) <= n:
            self.positions[self._keep.pop(0)] = x.copy()
        if not np.linalg.norm(force) <= self._force_limit_n:
            detail = f"It reached {np.linalg.norm(force):.4g} N, the limit is {self._force_limit_n:g} N."
            return Outcome(OutcomeKind.KNIFE_JAMMED, detail, n)
        return None

    def kept_steps(self, steps: int) -> dict[float, int]:
        """Time to keep → the step at whose end the positions are kept: the nearest, within the run."""
        dt = self._system.dt
        nearest = {time: kept_step(time, dt) for time in self._keep}
        return {time: step for time, step in nearest.items() if step <= steps}

    def take(self, observed: Observed) -> None:
        """Record many steps that were run elsewhere, after `start`."""
        self.statistics.steps = len(observed.sums)
        self.statistics.inverted_tets = int(observed.sums[:, 9].max(initial=0.0))
        self._force, self._torque = list(observed.sums[:, :3]), list(observed.sums[:, 3:6])
        self._area = list(observed.sums[:, 6])
        self._stiffness = list(observed.stiffness)
        self.passed = observed.passed or self.passed[:1] * len(observed.stiffness)
        self.positions |= observed.positions
        ways = np.diff(self._poses[: len(observed.sums) + 1], axis=0)
        before = observed.sums[:1, :3] if len(observed.sums) else np.zeros((0, 3))
        ends = np.concatenate([before, observed.sums[:, :3]])
        work = -np.cumsum((0.5 * (ends[:-1] + ends[1:]) * ways).sum(axis=1))
        for sums, parts, done in zip(observed.sums, observed.parts, work, strict=True):
            energies = Energies(*(float(part) for part in parts))
            self._energy.append(
                _named(energies, float(sums[7]), float(sums[8]), float(sums[10]), float(done))
            )

    def result(self, outcome: Outcome | None, rate_hz: float, x: np.ndarray) -> Result:
        """The result; x is the last good state."""
        dt, steps = self._system.dt, len(self._force)
        mean = sampling_operator(dt, steps, rate_hz) if steps else sampling_operator(dt, 1, 0.5 / dt)[:, :0]
        self.positions[steps * dt] = x.copy()
        force = np.array(self._force).reshape(steps, 3)
        stiffness = np.array(self._stiffness)
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

    def _knife_wrench(self, x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Force [N] and torque about the knife's origin [N m] on the knife: the reaction to the forces on the body."""
        s, m = self._system, self._model
        normal, friction = host(s.normal_force), host(s.friction_force)
        a, b = x[m.contact_parents[:, 0]] - self._poses[n], x[m.contact_parents[:, 1]] - self._poses[n]
        u = (m.contact_coordinate * host(s.found))[:, None]
        u_ahead = (m.contact_coordinate * host(s.ahead_found))[:, None]
        torques = np.cross(a + (b - a) * u, normal) + np.cross(a + (b - a) * u_ahead, friction)
        force, torque = -(normal + friction).sum(axis=0), -torques.sum(axis=0)
        if s.load is not None:
            return force + s.load.on_knife, torque + s.load.torque_on_knife
        return force, torque

    def _touching_area(self) -> float:
        return float(host(self._system.touch) @ np.tile(self._model.mesh.spring_area, 2))

    def _energies(self, x: np.ndarray, velocity: np.ndarray) -> dict[str, float]:
        """Energies [J] at the x of the last `system.gradient`, and the knife's work so far."""
        edge = self._system.edge
        return _named(
            self._system.energies(),
            float(0.5 * self._system.mass @ (velocity**2).sum(axis=1)),
            float(-self._system.mass @ (x @ self._model.gravity)),
            0.0 if edge is None else edge.energy(self.passed[-1]),
            self._work,
        )


def _named(
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


def _fraction_in_model_order(model: Model) -> np.ndarray:
    """Material fraction of the model's tets, shape [tet_count]."""
    full = np.abs(np.linalg.det(np.linalg.inv(model.tet_shape_gradients))) / 6.0
    return model.tet_volume / full
