"""Result of a run, and the records it is built from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from disect_sim.device_arrays import host
from disect_sim.edge_cut import moment
from disect_sim.model import Model
from disect_sim.motions import with_pitch
from disect_sim.outcome import InputError, Outcome, OutcomeKind
from disect_sim.step_system import Energies, StepSystem
from disect_sim.stop import stopped

if TYPE_CHECKING:
    from disect_sim.adjoint import Gradients, Tape


@dataclass
class Statistics:
    """Counters of the integrator."""

    steps: int = 0
    newton_iterations: int = 0
    line_search_cuts: int = 0
    cg_iterations: int = 0
    factorisations: int = 0
    indefinite_hessians: int = 0
    inverted_tets: int = 0
    """Largest number of inverted tets at the end of any step."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by activity [s]: gradient, hessian, factorisation, solve, other; or device, other for runs on the device."""

    @property
    def newton_per_step(self) -> float:
        """Mean number of Newton iterations per step."""
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
    """Area of the cut surface in contact with the knife, both halves [m^2], shape [sample_count]."""
    step_time: np.ndarray
    """Times of the states [s], shape [step_count + 1]."""
    pose: np.ndarray
    """Knife positions [m], shape [step_count + 1, 3]."""
    pitch: np.ndarray
    """Angle of the blade about x, the tilt in its holder included [rad], shape [step_count + 1]."""
    stiffness: np.ndarray
    """Spring stiffness per reference area [N/m], shape [step_count + 1, spring_count]."""
    energy: dict[str, np.ndarray]
    """Energies and accumulated work [J], each of shape [step_count + 1]."""
    positions: dict[float, np.ndarray]
    """Node positions [m], shape [node_count, 3], at the requested times and, last, at the end."""
    outcome: Outcome
    statistics: Statistics
    tape: "Tape | None" = field(default=None, repr=False)

    def __repr__(self) -> str:
        peak = f"peak force {self.force_norm.max():.3g} N, " if len(self.force) else ""
        share = f"cut {100.0 * self.cut_fraction[-1]:.0f} %"
        return f"Result({len(self.time)} samples, {peak}{share}, {self.outcome.kind.name.lower()})"

    @property
    def force_norm(self) -> np.ndarray:
        """Norm of the force on the knife [N], shape [sample_count], as compared with a robot's log."""
        return np.linalg.norm(self.force, axis=1)

    @property
    def wrench(self) -> np.ndarray:
        """Force and torque on the knife [N, N m], shape [sample_count, 6]."""
        return np.concatenate([self.force, self.torque], axis=1)

    @property
    def cut_fraction(self) -> np.ndarray:
        """Fraction of the springs' stiffness that is gone, shape [step_count + 1]."""
        return 1.0 - self.stiffness.sum(axis=1) / self.stiffness[0].sum()

    def gradient(
        self, force_bar: np.ndarray, position_bar: Mapping[float, np.ndarray] | None = None
    ) -> "Gradients":
        """Return the gradients of a loss whose derivative in `force` is force_bar, shape [sample_count, 3].

        position_bar: its derivatives in `positions` [1/m], by time, each of shape [node_count, 3].
        """
        bars = {time: np.asarray(bar, float)[None] for time, bar in (position_bar or {}).items()}
        return self.gradients(np.asarray(force_bar, float)[None], bars)[0]

    def gradients(
        self, force_bars: np.ndarray, position_bars: Mapping[float, np.ndarray] | None = None
    ) -> "list[Gradients]":
        """Return the gradients of many losses together, much faster than one by one.

        force_bars: shape [loss_count, sample_count, 3].
        position_bars: by time of `positions`, each of shape [loss_count, node_count, 3].
        """
        if self.tape is None:
            raise InputError(
                "gradient: this run stored no states. A gradient needs them. Call simulate with differentiable=True."
            )
        from disect_sim.adjoint import pullback

        unknown = [time for time in position_bars or {} if time not in self.positions]
        if unknown:
            raise InputError(
                f"gradient: there are no positions at {', '.join(f'{time:g}' for time in unknown)} s. They were kept "
                f"at {', '.join(f'{time:g}' for time in self.positions)} s. Name the times in keep_times."
            )
        return pullback(self.tape, force_bars, position_bars or {})


def kept_step(time: float, dt: float) -> int:
    """Return the step at whose end the positions of a time to keep [s] are kept: the nearest, never the start."""
    return max(1, int(np.ceil(time / dt - 0.5)))


def sampling_operator(dt: float, steps: int, rate_hz: float) -> sp.csr_matrix:
    """Return the operator from values at the end of every step to means over sampling intervals, shape [samples,
    steps].

    Values are interpolated linearly between the ends of steps and constant in the first step.
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


# Records of a run


_MATTERS_FRACTION = 0.01
"""Tet copies with less material than this may invert without being counted: they hardly carry mass or force."""
_CUT_AT_ALL = 0.01
"""Minimum fraction of the springs' stiffness that must go for a run to count as a cut."""


@dataclass(frozen=True)
class Observed:
    """Observables of many steps, as returned by a run on the device."""

    sums: np.ndarray
    """Force [N] and torque [N m] on the knife, touching area [m^2], kinetic and gravitational energy [J], inverted
    tets, work of fracture [J] and drag power [W] of the edge law, shape [step_count, 12].
    """
    parts: np.ndarray
    """Parts of the incremental energy [J] in the order of Energies, shape [step_count, 12]."""
    stiffness: np.ndarray
    """Spring stiffness [N/m], shape [step_count + 1, spring_count]."""
    passed: list[np.ndarray]
    """Largest depth of the edge at every sample [m], at the start and after every step; empty under other laws."""
    positions: dict[float, np.ndarray]
    """Node positions [m] at the times to keep."""


class Record:
    """Observables of every step and node positions at chosen times."""

    def __init__(
        self,
        model: Model,
        dt: float,
        poses: np.ndarray,
        keep_times: Sequence[float],
        stiffness: np.ndarray,
        passed: np.ndarray,
    ) -> None:
        """Start a record. poses: [m, rad], shape [step_count + 1, 3 or 4]. stiffness, passed: at the start, as in
        Observed.
        """
        self._model, self._dt, self._poses = model, dt, with_pitch(poses)
        self._keep = sorted(keep_times)
        self._force: list[np.ndarray] = []
        self._torque: list[np.ndarray] = []
        self._area: list[float] = []
        self._energy: list[dict[str, float]] = []
        self.stiffness: list[np.ndarray] = [stiffness]
        """Spring stiffness per reference area [N/m], after every step."""
        self.passed: list[np.ndarray] = [passed]
        """Largest depth of the edge at every sample of the edge law [m] after every step; empty under other laws."""
        self.positions: dict[float, np.ndarray] = {}
        self.statistics = Statistics()

    def begin(self, parts: Energies, kinetic: float, gravity: float) -> None:
        """Set the energies [J] at time zero."""
        self._energy.append(_named(parts, kinetic, gravity))

    def kept_steps(self, steps: int) -> dict[float, int]:
        """Return time to keep → step at whose end the positions are kept: the nearest, within the run."""
        nearest = {time: kept_step(time, self._dt) for time in self._keep}
        return {time: step for time, step in nearest.items() if step <= steps}

    def take(self, observed: Observed) -> None:
        """Record many steps that ran elsewhere, after the start."""
        self.statistics.steps = len(observed.sums)
        self.statistics.inverted_tets = int(observed.sums[:, 9].max(initial=0.0))
        self._force, self._torque = list(observed.sums[:, :3]), list(observed.sums[:, 3:6])
        self._area = list(observed.sums[:, 6])
        self.stiffness = list(observed.stiffness)
        self.passed = observed.passed or self.passed[:1] * len(observed.stiffness)
        self.positions |= observed.positions
        ways = np.diff(self._poses[: len(observed.sums) + 1], axis=0)
        loads = observed.sums[:, :4]  # force, and torque about x, on which a knife that turns does work
        ends = np.concatenate([loads[:1], loads])
        work = -np.cumsum((0.5 * (ends[:-1] + ends[1:]) * ways).sum(axis=1))
        power = observed.sums[:, 11]
        drag = self._dt * np.cumsum(0.5 * (np.concatenate([power[:1], power[:-1]]) + power))
        for sums, parts, dragged, done in zip(observed.sums, observed.parts, drag, work, strict=True):
            energies = Energies(*(float(part) for part in parts))
            motion, fracture = (float(sums[7]), float(sums[8])), float(sums[10])
            self._energy.append(
                _named(energies, *motion, fracture=fracture, drag=float(dragged), knife_work=float(done))
            )

    def result(self, outcome: Outcome | None, rate_hz: float, x: np.ndarray) -> Result:
        """Return the result; x is the last good state."""
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
            pose=self._poses[: steps + 1, :3],
            pitch=self._poses[: steps + 1, 3],
            stiffness=stiffness,
            energy={name: np.array([row[name] for row in self._energy]) for name in self._energy[0]},
            positions=self.positions,
            outcome=outcome,
            statistics=self.statistics,
        )

    def _verdict(self, stiffness: np.ndarray) -> Outcome:
        if self.statistics.inverted_tets:
            return Outcome(OutcomeKind.MESH_INVERTED, f"At most {self.statistics.inverted_tets} at once.")
        if stiffness[-1].sum() > (1.0 - _CUT_AT_ALL) * stiffness[0].sum():
            return Outcome(OutcomeKind.NOTHING_CUT)
        return Outcome(OutcomeKind.COMPLETE)


def _named(
    parts: Energies,
    kinetic: float,
    gravity: float,
    *,
    fracture: float = 0.0,
    drag: float = 0.0,
    knife_work: float = 0.0,
) -> dict[str, float]:
    """Return energies [J] by the names of a result.

    Under the edge law, fracture is the work of fracture and drag the energy dissipated by the edge's drag, both so far.
    """
    return {
        "kinetic": kinetic,
        "gravity": gravity,
        "elastic": parts.elastic,
        "springs": parts.springs + parts.overlap,
        "contact": parts.contact,
        "board": parts.board,
        "hold": parts.hold,
        "fracture": fracture,
        "drag": drag,
        "knife_work": knife_work,
    }


def tets_that_matter(model: Model) -> np.ndarray:
    """Return the tets with enough material to count when inverted, shape [tet_count], bool."""
    full = np.abs(np.linalg.det(np.linalg.inv(model.tet_shape_gradients))) / 6.0
    matter: np.ndarray = model.tet_volume / full > _MATTERS_FRACTION
    return matter


# Recording on the host, step by step


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
        self._work, self._drag = 0.0, 0.0
        self._drag_power_w: float | None = None

    def start(self, x: np.ndarray, velocity: np.ndarray) -> None:
        """Record the state at time zero."""
        self._system.begin(x, x, self.stiffness[0], self._poses[0], self._poses[0])
        self._system.gradient(x)
        self._energy.append(self._energies(x, velocity))

    def step(
        self, x: np.ndarray, x_previous: np.ndarray, stiffness: np.ndarray, passed: np.ndarray
    ) -> Outcome | None:
        """Record the end of a step, right after `system.gradient(x)`. Return an outcome if the run must stop."""
        system, dt = self._system, self._system.dt
        n = len(self._force) + 1
        self.statistics.steps = n
        away = np.abs(x - self._model.mesh.nodes)
        if not away.max() <= 10.0 * self._size:
            moved = away.max(axis=1)
            worst = int(moved.argmax())
            return Outcome(
                OutcomeKind.DIVERGED, f"At {n * dt:.4g} s a node had moved {moved[worst]:.3g} m.", n, worst
            )
        force, torque = self._knife_wrench(x, n)
        mean_force = 0.5 * (force + self._force[-1]) if self._force else force
        mean_torque = 0.5 * (torque + self._torque[-1]) if self._torque else torque
        way = self._poses[n] - self._poses[n - 1]
        self._work -= float(mean_force @ way[:3] + mean_torque[0] * way[3])
        self._add_drag()
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
        return stopped(self._model, x, self._poses[n], float(np.linalg.norm(force)), n)

    def _knife_wrench(self, x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return force [N] and torque about its origin [N m] on the knife: the reaction to the forces on the body."""
        s, m = self._system, self._model
        normal, friction = host(s.normal_force), host(s.friction_force)
        place = self._poses[n, :3]
        a, b = x[m.contact_parents[:, 0]] - place, x[m.contact_parents[:, 1]] - place
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
        """Return energies [J] at the x of the last `system.gradient`, and the knife's work so far."""
        system, edge = self._system, self._system.edge
        motion = system.motion_energies(x, velocity)
        fracture = 0.0 if edge is None else edge.energy(self.passed[-1])
        return _named(system.energies(), *motion, fracture=fracture, drag=self._drag, knife_work=self._work)

    def _add_drag(self) -> None:
        """Add the energy the edge's drag dissipated in the step, by the trapezoidal rule, like the knife's work."""
        if self._system.load is None:
            return
        power = self._system.load.drag_power_w
        before = power if self._drag_power_w is None else self._drag_power_w
        self._drag += 0.5 * self._system.dt * (before + power)
        self._drag_power_w = power
