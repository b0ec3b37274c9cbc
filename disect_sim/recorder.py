"""Collects what a run on the host shows, step by step."""

from collections.abc import Sequence

import numpy as np

from disect_sim.device_arrays import host
from disect_sim.edge_cut import moment
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.record import Record, named, tets_that_matter
from disect_sim.result import kept_step
from disect_sim.step_system import StepSystem


class Recorder(Record):
    """Keeps the observables of every step and the node positions at chosen times."""

    def __init__(
        self, system: StepSystem, poses: np.ndarray, keep_times: Sequence[float], force_limit_n: float
    ) -> None:
        stiffness = system.parameters.row("cut_spring_ke").copy()
        passed = np.zeros(0) if system.edge is None else system.edge.untouched
        super().__init__(system.model, system.dt, poses, keep_times, stiffness, passed)
        self._system = system
        self._force_limit_n = force_limit_n
        self._size = float(np.ptp(system.model.mesh.nodes, axis=0).max())
        self._matters = tets_that_matter(system.model)
        self._work = 0.0

    def start(self, x: np.ndarray, velocity: np.ndarray) -> None:
        """Record the state at time zero."""
        self._system.begin(x, x, self.stiffness[0], self._poses[0], self._poses[0])
        self._system.gradient(x)
        self._energy.append(self._energies(x, velocity))

    def step(
        self, x: np.ndarray, x_previous: np.ndarray, stiffness: np.ndarray, passed: np.ndarray
    ) -> Outcome | None:
        """Record the end of a step, right after `system.gradient(x)`. Returns an outcome if the run must stop."""
        system, dt = self._system, self._system.dt
        n = len(self._force) + 1
        self.statistics.steps = n
        away = np.abs(x - self._model.mesh.nodes)
        if not away.max() <= 10.0 * self._size:
            moved = away.max(axis=1)
            worst = int(moved.argmax())
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
        self.stiffness.append(stiffness)
        inverted = int(((system.volume_ratios() <= 0.0) & self._matters).sum())
        self.statistics.inverted_tets = max(self.statistics.inverted_tets, inverted)
        while self._keep and kept_step(self._keep[0], dt) <= n:
            self.positions[self._keep.pop(0)] = x.copy()
        if not np.linalg.norm(force) <= self._force_limit_n:
            detail = f"It reached {np.linalg.norm(force):.4g} N, the limit is {self._force_limit_n:g} N."
            return Outcome(OutcomeKind.KNIFE_JAMMED, detail, n)
        return None

    def _knife_wrench(self, x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Force [N] and torque about the knife's origin [N m] on the knife: the reaction to the forces on the body."""
        s, m = self._system, self._model
        normal, friction = host(s.normal_force), host(s.friction_force)
        a, b = x[m.contact_parents[:, 0]] - self._poses[n], x[m.contact_parents[:, 1]] - self._poses[n]
        u = (m.contact_coordinate * host(s.found))[:, None]
        u_ahead = (m.contact_coordinate * host(s.ahead_found))[:, None]
        torque = -moment(a + (b - a) * u, normal) - moment(a + (b - a) * u_ahead, friction)
        force = -(normal + friction).sum(axis=0)
        if s.load is not None:
            return force + s.load.on_knife, torque + s.load.torque_on_knife
        return force, torque

    def _touching_area(self) -> float:
        return float(host(self._system.touch) @ np.tile(self._model.mesh.spring_area, 2))

    def _energies(self, x: np.ndarray, velocity: np.ndarray) -> dict[str, float]:
        """Energies [J] at the x of the last `system.gradient`, and the knife's work so far."""
        system, edge = self._system, self._system.edge
        fracture = 0.0 if edge is None else edge.energy(self.passed[-1])
        return named(system.energies(), *system.motion_energies(x, velocity), fracture, self._work)
