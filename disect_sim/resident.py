"""A run that stays on the device: one graph per time step, decisions included; the host only launches it.

The graph is captured once. On CUDA its loops are conditional nodes (driver 12.4 or newer); Warp's CPU device replays
the same graph. The host reads one number every READ_EVERY steps, to show progress and to stop early; all else is read
at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp

from disect_sim.conjugate_gradients import ConjugateGradients
from disect_sim.device_arrays import host, upload, zeros
from disect_sim.kernels import resident_newton, resident_step
from disect_sim.kernels.conjugate_gradients import LANES
from disect_sim.kernels.resident_newton import PARTS
from disect_sim.newton import NewtonOptions
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.recorder import Observed, Recorder
from disect_sim.resident_edge import ResidentEdge
from disect_sim.result import Statistics
from disect_sim.step_system import StepSystem
from disect_sim.timing import Stopwatch

READ_EVERY = 50
"""Steps between two looks at whether the run goes on."""
SUMS = 11
"""Numbers that `observe` adds up."""
OUTCOMES = {1: OutcomeKind.NEWTON_STALLED, 2: OutcomeKind.DIVERGED, 3: OutcomeKind.KNIFE_JAMMED}


@dataclass(frozen=True)
class ResidentResult:
    """What a run on the device leaves."""

    states: list[np.ndarray]
    """Positions [m] at the steps -1, 0, 1, ...; empty if they were not asked for."""
    last: np.ndarray
    """Last good positions [m], shape [node_count, 3]."""
    outcome: Outcome | None
    """Why the run had to stop, if it did."""


def run_resident(
    system: StepSystem,
    poses: np.ndarray,
    x: np.ndarray,
    velocity: np.ndarray,
    recorder: Recorder,
    options: NewtonOptions,
    progress: Callable[[float], None],
    *,
    keep_states: bool,
    force_limit_n: float,
) -> ResidentResult:
    """Step through the motion on the system's device; the recorder has the start, and gets the rest at the end."""
    watch = Stopwatch()
    run = _ResidentRun(system, poses, x, velocity, recorder, options, keep_states, force_limit_n)
    with watch("device"):
        run.step_through(progress)
    result = run.collect(recorder)
    recorder.statistics.seconds = watch.split()
    return result


class _ResidentRun:
    """Arrays and graph of one run."""

    def __init__(
        self,
        system: StepSystem,
        poses: np.ndarray,
        x: np.ndarray,
        velocity: np.ndarray,
        recorder: Recorder,
        options: NewtonOptions,
        keep_states: bool,
        force_limit_n: float,
    ) -> None:
        self._system, self._steps = system, len(poses) - 1
        self._limit = wp.float64(force_limit_n)
        self._free = np.flatnonzero(~system.model.fixed).astype(np.int32)
        self._kept_steps = recorder.kept_steps(self._steps)
        with wp.ScopedDevice(system.device):
            self._free_on_device = wp.array(self._free)
            self._body = _body(system, poses, recorder.matters)
            self._state = _state(x, x - system.dt * velocity, recorder.stiffness[0])
            self._edge = (
                None
                if system.edge is None
                else ResidentEdge(system, system.edge, self._body, self._state, self._steps)
            )
            self._history = self._new_history(recorder.stiffness[0], keep_states)
            self._newton = _newton(options)
            self._cg = ConjugateGradients(system, 1)
            upload(self._cg.solve.tolerance, np.array([options.cg_tolerance]))
            self._energies = _energy_arrays(system)
            self._reached = zeros(system.model.node_count, wp.vec3d)
            self._parts, self._sums = zeros(PARTS, wp.float64), zeros(SUMS, wp.float64)
            self._energy_lanes = zeros((PARTS, LANES), wp.float64)
            self._sum_lanes = zeros((SUMS, LANES), wp.float64)
            self._slope_lanes = zeros((1, LANES), wp.float64)
            self._moved_lanes, self._who_lanes = zeros(LANES, wp.float64), zeros(LANES, wp.int32)
            if keep_states:
                upload(self._history.states, np.stack([x - system.dt * velocity, x]))
            system.assemble()
            self._cg.set_coarse_space()
            with wp.ScopedCapture(device=system.device) as capture:
                wp.capture_if(self._state.alive, self._record_step)
            self._graph = capture.graph

    def _new_history(self, stiffness: np.ndarray, keep_states: bool) -> resident_step.History:
        m, history = self._system.model, resident_step.History()
        rows = np.full(self._steps + 1, -1, np.int32)
        distinct = sorted(set(self._kept_steps.values()))
        rows[distinct] = np.arange(len(distinct))
        history.observed = zeros((self._steps, SUMS + PARTS), wp.float64)
        history.stiffness = zeros((self._steps + 1, m.spring_count), wp.float64)
        upload(history.stiffness, stiffness[None])
        history.states = zeros((self._steps + 2 if keep_states else 0, m.node_count), wp.vec3d)
        history.kept_row, history.kept = wp.array(rows), zeros((len(distinct), m.node_count), wp.vec3d)
        return history

    def _record_step(self) -> None:
        self._record_start()
        self._record_newton()
        self._record_end()

    def _record_start(self) -> None:
        s, m = self._system, self._system.model
        at = [self._body, self._state]
        self._launch(resident_step.start_knife, 1, [*at, s.pose, s.pose_previous, s.swing])
        nodes = [s.predicted, s.x_ahead, s.x_previous, s.x, self._reached]
        self._launch(resident_step.start_nodes, m.node_count, [*at, *nodes])
        self._launch(resident_step.start_springs, m.spring_count, [*at, s.stiffness, s.damping])
        if self._edge is not None:
            self._edge.record_load()
        s.enqueue_start()
        s.enqueue_gradient()

    def _record_newton(self) -> None:
        self._record_energy()
        self._launch(resident_newton.begin_newton, 1, [self._parts, self._newton])
        wp.capture_while(self._newton.running, self._record_direction)

    def _record_direction(self) -> None:
        s, cg, newton, count = self._system, self._cg, self._newton, len(self._free)
        s.enqueue_hessian()
        self._launch(resident_newton.take_right_side, count, [self._free_on_device, s.grad, cg.right])
        cg.record(relative_to_right=True)
        lanes = [self._slope_lanes, self._moved_lanes, self._who_lanes]
        self._launch(resident_newton.direction_lanes, LANES, [count, cg.right, cg.x, *lanes])
        self._launch(resident_newton.begin_search, 1, [*lanes, cg.solve, newton])
        wp.capture_while(newton.searching, self._record_length)
        self._launch(resident_newton.reach, s.model.node_count, [s.x, self._reached])
        self._launch(resident_newton.end_direction, 1, [newton])

    def _record_length(self) -> None:
        s, newton = self._system, self._newton
        inputs = [self._free_on_device, newton, self._reached, self._cg.x, s.x]
        self._launch(resident_newton.try_length, len(self._free), inputs)
        s.enqueue_gradient()
        self._record_energy()
        self._launch(resident_newton.judge_length, 1, [self._parts, newton])

    def _record_energy(self) -> None:
        self._launch(resident_newton.energy_lanes, LANES, [self._energies, self._energy_lanes])
        self._launch(resident_newton.sum_lanes, PARTS, [self._energy_lanes, self._parts])

    def _record_end(self) -> None:
        s, m, body, state = self._system, self._system.model, self._body, self._state
        damaged = self._record_damage()
        forces = [s.normal_force, s.friction_force, s.touch, s.found, s.ahead_found]
        moved = [self._moved_lanes, self._who_lanes]
        inputs = [body, state, s.x, s.energy_tets, *forces, self._sum_lanes, *moved]
        self._launch(resident_step.observe, LANES, inputs)
        if self._edge is not None:
            self._edge.record_observed(self._sum_lanes)
        self._launch(resident_newton.sum_lanes, SUMS, [self._sum_lanes, self._sums])
        self._launch(resident_step.accept_step, 1, [body, self._newton, *moved, state])
        self._launch(resident_step.keep_springs, m.spring_count, [damaged, state, self._history])
        self._launch(resident_step.keep_nodes, m.node_count, [s.x, state, self._history])
        if self._edge is not None:
            self._edge.record_keep()
        inputs = [self._limit, self._sums, self._parts, state, self._history]
        self._launch(resident_step.end_step, 1, inputs)

    def _record_damage(self) -> wp.array:
        """The damage law under the forces of the last gradient; the array with the stiffness that is left."""
        s, count = self._system, self._system.model.spring_count
        if self._edge is not None:
            return self._edge.record_passes()
        arrays = s.damage_arrays
        self._launch(resident_step.copy_numbers, count, [self._state.stiffness, arrays["stiffness"]])
        if "force_positive" in arrays:
            both = [arrays["force_positive"], arrays["force_negative"]]
            self._launch(resident_step.damage_forces, count, [count, s.normal_force, s.friction_force, *both])
        if "touch_positive" in arrays:
            both = [arrays["touch_positive"], arrays["touch_negative"]]
            self._launch(resident_step.damage_touch, count, [count, s.touch, *both])
        if "d" in arrays:
            self._launch(resident_step.damage_stretch, count, [s.on_device.springs, s.x, arrays["d"]])
        return s.enqueue_damage()

    def _launch(self, kernel: wp.Kernel, count: int, inputs: list[Any]) -> None:
        wp.launch(kernel, dim=count, inputs=inputs, device=self._system.device)

    def step_through(self, progress: Callable[[float], None]) -> None:
        """Launch the steps; every READ_EVERY of them, see whether the run goes on."""
        for n in range(self._steps):
            wp.capture_launch(self._graph)
            if (n + 1) % READ_EVERY == 0 or n + 1 == self._steps:
                if not host(self._state.alive)[0]:
                    return
                progress((n + 1) / self._steps)

    def collect(self, recorder: Recorder) -> ResidentResult:
        """Bring everything to the host: into the recorder, and what else a run returns."""
        done, newton, history = int(host(self._state.step)[0]), self._newton, self._history
        kept = host(history.kept)
        distinct = sorted(set(self._kept_steps.values()))
        positions = {
            time: kept[distinct.index(step)].copy() for time, step in self._kept_steps.items() if step <= done
        }
        recorder.take(
            Observed(
                host(history.observed)[:done, :SUMS].copy(),
                host(history.observed)[:done, SUMS:].copy(),
                host(history.stiffness)[: done + 1].copy(),
                [] if self._edge is None else self._edge.passed(done),
                positions,
            )
        )
        _count(recorder.statistics, newton, self._cg)
        states = [row.copy() for row in host(history.states)[: done + 2]]
        return ResidentResult(states, host(self._state.x).copy(), self._outcome(done))

    def _outcome(self, done: int) -> Outcome | None:
        code = int(host(self._state.outcome)[0])
        if code == 0:
            return None
        kind, dt = OUTCOMES[code], self._system.dt
        worst = int(host(self._newton.worst)[0])
        if kind is OutcomeKind.NEWTON_STALLED:
            detail = f"At {(done + 1) * dt:.4g} s, worst at the named node."
            return Outcome(kind, detail, done + 1, int(self._free[worst]))
        if kind is OutcomeKind.DIVERGED:
            away = float(host(self._newton.length)[0])
            return Outcome(kind, f"At {(done + 1) * dt:.4g} s a node was {away:.3g} m away.", done + 1, worst)
        force = float(np.linalg.norm(host(self._history.observed)[done - 1, :3]))
        return Outcome(kind, f"It reached {force:.4g} N, the limit is {float(self._limit):g} N.", done)


def _body(system: StepSystem, poses: np.ndarray, matters: np.ndarray) -> resident_step.Body:
    m, d, body = system.model, system.on_device, resident_step.Body()
    body.rest = wp.array(m.mesh.nodes, dtype=wp.vec3d)
    body.mass, body.area_ratio = d.mass, d.area_ratio
    body.held = wp.array(m.fixed.astype(np.int32))
    body.gravity = wp.vec3d(*m.gravity)
    body.size, body.dt = float(np.ptp(m.mesh.nodes, axis=0).max()), system.dt
    body.initial = wp.array(system.parameters.row("cut_spring_ke"), dtype=wp.float64)
    body.damping = wp.array(system.parameters.row("cut_spring_kd"), dtype=wp.float64)
    body.spring_area = wp.array(m.mesh.spring_area, dtype=wp.float64)
    body.matters = wp.array(matters[d.tet_order].astype(np.int32))
    body.parents, body.coordinate = d.edges.parents, d.edges.coordinate
    body.poses = wp.array(poses, dtype=wp.vec3d)
    return body


def _state(x: np.ndarray, x_before: np.ndarray, stiffness: np.ndarray) -> resident_step.State:
    state = resident_step.State()
    state.step, state.outcome, state.good = (zeros(1, wp.int32) for _ in range(3))
    state.alive = wp.array(np.ones(1, np.int32))
    state.x, state.x_before = wp.array(x, dtype=wp.vec3d), wp.array(x_before, dtype=wp.vec3d)
    state.stiffness = wp.array(stiffness, dtype=wp.float64)
    state.stiffness_before = wp.array(stiffness, dtype=wp.float64)
    return state


def _newton(options: NewtonOptions) -> resident_newton.Newton:
    newton = resident_newton.Newton()
    newton.tolerance, newton.max_iterations = options.tolerance_m, options.max_iterations
    flags = ("running", "searching", "solved", "failed", "iteration", "halvings", "worst")
    for name in (*flags, "directions", "cuts", "indefinite"):
        setattr(newton, name, zeros(1, wp.int32))
    for name in ("energy", "slope", "length"):
        setattr(newton, name, zeros(1, wp.float64))
    return newton


def _energy_arrays(system: StepSystem) -> resident_newton.EnergyArrays:
    arrays = resident_newton.EnergyArrays()
    arrays.inertia, arrays.tets = system.energy_inertia, system.energy_tets
    arrays.springs, arrays.contacts = system.energy_springs, system.energy_contacts
    arrays.board, arrays.hold = system.energy_board, system.energy_hold
    return arrays


def _count(statistics: Statistics, newton: resident_newton.Newton, cg: ConjugateGradients) -> None:
    statistics.newton_iterations = int(host(newton.directions)[0])
    statistics.line_search_cuts = int(host(newton.cuts)[0])
    statistics.indefinite_hessians = int(host(newton.indefinite)[0])
    statistics.cg_iterations = int(host(cg.solve.iterations)[0])
