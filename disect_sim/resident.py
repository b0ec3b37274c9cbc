"""Runs that stay on the device: one graph per time step, including all decisions; the host only launches it.

A run may be a batch: several copies of a body, each with its own knife and parameters. Every copy converges, fails and
ends independently of the others.

The graph is captured once. On CUDA its loops are conditional nodes (driver 12.4 or newer); Warp's CPU device replays
the same graph. The host reads one number every READ_EVERY steps, to show progress and to stop early; everything else
is read at the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import warp as wp

from disect_sim.conjugate_gradients import ConjugateGradients
from disect_sim.device_arrays import Stopwatch, host, upload, zeros
from disect_sim.edge_cut import LAW_ARRAYS, PAID_AFTER, EdgeCut
from disect_sim.kernels import edge, resident_newton, resident_step
from disect_sim.kernels.conjugate_gradients import LANES
from disect_sim.kernels.resident_newton import PARTS
from disect_sim.newton import NewtonOptions
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.result import Observed, Record, tets_that_matter
from disect_sim.step_system import StepSystem

# Edge law on the device: the counterpart of EdgeCut


class _ResidentEdge:
    """Launches of the edge law, in the order of a step, on the current Warp device."""

    def __init__(
        self,
        system: StepSystem,
        cut: EdgeCut,
        body: resident_step.Body,
        state: resident_step.State,
        steps: int,
    ) -> None:
        self._system, self._cut, self._body, self._state = system, cut, body, state
        samples, count = cut.samples, len(cut.samples)
        self._count, self._copies = count, system.model.copies
        self._per_copy = (self._copies, count // self._copies)
        self._middles, self._to_springs = _rows(samples.middles), _rows(samples.to_springs)
        self._to_nodes, self._from_samples = _rows(samples.middles.T), _rows(samples.to_springs.T)
        self._mean = _rows(cut.spring_mean)
        self._area = wp.array(samples.area, dtype=wp.float64)
        self._law = {name: wp.array(getattr(cut.at_samples, name), dtype=wp.float64) for name in LAW_ARRAYS}
        self._on_springs = zeros(system.model.spring_count, wp.vec3d)
        self._on_nodes = zeros(system.model.node_count, wp.vec3d)
        self._point, self._end_point, self._velocity, self._force = (zeros(count, wp.vec3d) for _ in range(4))
        self._paying, self._passed, self._passed_next, self._severed = (
            zeros(count, wp.float64) for _ in range(4)
        )
        self._energy, self._drag_power = (zeros(count, wp.float64) for _ in range(2))
        self._left = zeros(system.model.spring_count, wp.float64)
        self._history = zeros((steps + 1, count), wp.float64)

    def record_load(self) -> None:
        """Enqueue the force of the step, added to the predicted positions.

        The start of the step must be on the device.
        """
        s, count = self._system, self._count
        self._record_positions(s.x_ahead, self._point)
        paying = [wp.float64(PAID_AFTER), self._area, self._law["rise"], self._point, self._passed]
        knife = [s.pose, s.pose_previous, s.swing, s.turn, s.spin]
        inputs = [self._per_copy[1], wp.float64(s.dt), *paying, *knife, self._paying, self._velocity]
        self._launch(resident_step.prepare_load, self._per_copy, inputs)
        inputs = [self._paying, self._point, self._velocity, self._passed, *self._law.values()]
        inputs += [self._force, self._drag_power]
        self._launch(edge.edge_force, count, [self._cut.shape, *inputs])
        self._multiply(self._from_samples, self._force, self._on_springs)
        self._multiply(self._to_nodes, self._on_springs, self._on_nodes)
        inputs = [self._body, s.turn, self._on_nodes, s.predicted]
        self._launch(resident_step.add_load, (self._copies, s.model.one.node_count), inputs)

    def record_passes(self) -> wp.array:
        """Enqueue the edge's depth at the end of the step; return the array with the remaining stiffness."""
        s, count = self._system, self._count
        self._record_positions(s.x, self._end_point)
        inputs = [self._cut.shape, self._end_point, self._passed]
        self._launch(edge.edge_passes, count, [*inputs, self._passed_next, self._severed])
        inputs = [self._mean, self._body.initial, self._severed]
        self._launch(resident_step.left_of_springs, len(self._left), [*inputs, self._left])
        return self._left

    def record_observed(self, lanes: wp.array) -> None:
        """Enqueue the edge's force on the knife, work of fracture and drag power, added to the lanes of `observe`."""
        inputs = [self._area, self._passed_next, *self._law.values()]
        self._launch(edge.edge_energy, self._count, [*inputs, self._energy])
        inputs = [self._per_copy[1], self._system.turn, self._point, self._force]
        inputs += [self._energy, self._drag_power, lanes]
        self._launch(resident_step.observe_edge, (self._copies, LANES), inputs)

    def record_keep(self) -> None:
        """Enqueue taking the end of the step as the start of the next, if the step is accepted."""
        inputs = [self._per_copy[1], self._state, self._passed_next, self._passed, self._history]
        self._launch(resident_step.keep_passed, self._per_copy, inputs)

    def passed(self, copy: int, steps: int) -> list[np.ndarray]:
        """Return the largest depth of every sample of a copy [m] at the start and after each of `steps` steps."""
        first, count = copy * self._per_copy[1], self._per_copy[1]
        return [row.copy() for row in host(self._history)[: steps + 1, first : first + count]]

    def _record_positions(self, x: wp.array, point: wp.array) -> None:
        """Enqueue the sample positions in the knife's frame at the end of the step [m]."""
        self._multiply(self._middles, x, self._on_springs)
        self._multiply(self._to_springs, self._on_springs, point)
        inputs = [self._per_copy[1], self._system.pose, self._system.turn, point]
        self._launch(resident_step.relative_to_knife, self._per_copy, inputs)

    def _multiply(self, matrix: resident_step.SparseRows, vectors: wp.array, product: wp.array) -> None:
        self._launch(resident_step.multiply_vectors, len(product), [matrix, vectors, product])

    def _launch(self, kernel: wp.Kernel, count: int | tuple[int, int], inputs: list[Any]) -> None:
        wp.launch(kernel, dim=count, inputs=inputs, device=self._system.device)


def _rows(matrix: sp.spmatrix) -> resident_step.SparseRows:
    csr, rows = sp.csr_matrix(matrix), resident_step.SparseRows()
    rows.starts, rows.columns = wp.array(csr.indptr.astype(np.int32)), wp.array(csr.indices.astype(np.int32))
    rows.values = wp.array(csr.data, dtype=wp.float64)
    return rows


_READ_EVERY = 50
"""Steps between two checks whether the run continues."""
_SUMS = 12
"""Number of sums computed by `observe`."""
_OUTCOMES = {1: OutcomeKind.NEWTON_STALLED, 2: OutcomeKind.DIVERGED, 3: OutcomeKind.KNIFE_JAMMED}


@dataclass(frozen=True)
class _ResidentResult:
    """Result of a run on the device for one body."""

    states: list[np.ndarray]
    """Positions [m] at the steps -1, 0, 1, ...; empty unless stored for gradients."""
    last: np.ndarray
    """Last good positions [m], shape [node_count, 3]."""
    outcome: Outcome | None
    """Outcome if the run had to stop early."""


def run_resident(
    system: StepSystem,
    poses: np.ndarray,
    x: np.ndarray,
    velocity: np.ndarray,
    records: Sequence[Record],
    options: NewtonOptions,
    progress: Callable[[float], None],
    *,
    keep_states: bool,
    force_limits_n: Sequence[float],
) -> list[_ResidentResult]:
    """Step through the motions on the system's device; every record holds its start and is completed at the end.

    poses: positions [m] and pitch [rad] of the knife, shape [copy_count, step_count + 1, 4]. x [m], velocity [m/s]:
    nodes of all copies. There is one record and one force limit per copy. The records must keep the same times.
    """
    watch = Stopwatch()
    run = _ResidentRun(system, poses, x, velocity, records, options, keep_states, force_limits_n)
    with watch("device"):
        run.step_through(progress)
    results = [run.collect(copy, record) for copy, record in enumerate(records)]
    seconds = watch.split()
    for record in records:
        record.statistics.seconds = {name: share / len(records) for name, share in seconds.items()}
    return results


class _ResidentRun:
    """Arrays and graph of one run."""

    def __init__(
        self,
        system: StepSystem,
        poses: np.ndarray,
        x: np.ndarray,
        velocity: np.ndarray,
        records: Sequence[Record],
        options: NewtonOptions,
        keep_states: bool,
        force_limits_n: Sequence[float],
    ) -> None:
        self._system, self._steps = system, poses.shape[1] - 1
        self._copies, self._one = system.model.copies, system.model.one
        self._limits = force_limits_n
        self._free = np.flatnonzero(~self._one.fixed).astype(np.int32)
        self._kept_steps = records[0].kept_steps(self._steps)
        stiffness = np.concatenate([record.stiffness[0] for record in records])
        copies = self._copies
        with wp.ScopedDevice(system.device):
            self._free_on_device = wp.array(self._free)
            self._body = _body(system, poses, force_limits_n)
            self._state = _state(x, x - system.dt * velocity, stiffness, copies)
            self._edge = (
                None
                if system.edge is None
                else _ResidentEdge(system, system.edge, self._body, self._state, self._steps)
            )
            self._history = self._new_history(stiffness, keep_states)
            self._newton = _newton(options, copies)
            self._cg = ConjugateGradients(system, copies)
            upload(self._cg.solve.tolerance, np.array([options.cg_tolerance]))
            self._energies = _energy_arrays(system)
            self._reached = zeros(system.model.node_count, wp.vec3d)
            self._parts, self._sums = zeros((copies, PARTS), wp.float64), zeros((copies, _SUMS), wp.float64)
            self._energy_lanes = zeros((copies, PARTS, LANES), wp.float64)
            self._sum_lanes = zeros((copies, _SUMS, LANES), wp.float64)
            self._slope_lanes, self._moved_lanes = (zeros((copies, LANES), wp.float64) for _ in range(2))
            self._who_lanes = zeros((copies, LANES), wp.int32)
            if keep_states:
                upload(self._history.states, np.stack([x - system.dt * velocity, x]))
            system.assemble()
            self._cg.set_coarse_space()
            with wp.ScopedCapture(device=system.device) as capture:
                wp.capture_if(self._state.going, self._record_step)
            self._graph = capture.graph

    def _new_history(self, stiffness: np.ndarray, keep_states: bool) -> resident_step.History:
        m, history = self._system.model, resident_step.History()
        rows = np.full(self._steps + 1, -1, np.int32)
        distinct = sorted(set(self._kept_steps.values()))
        rows[distinct] = np.arange(len(distinct))
        history.observed = zeros((self._copies, self._steps, _SUMS + PARTS), wp.float64)
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
        knife = [s.pose, s.pose_previous, s.swing, s.turn, s.turn_previous, s.spin]
        self._launch(resident_step.start_knife, self._copies, [*at, *knife])
        nodes = [s.predicted, s.x_ahead, s.x_previous, s.x, self._reached]
        self._launch(resident_step.start_nodes, (self._copies, self._one.node_count), [*at, *nodes])
        self._launch(resident_step.start_springs, m.spring_count, [*at, s.stiffness, s.damping])
        if self._edge is not None:
            self._edge.record_load()
        s.enqueue_start()
        s.enqueue_gradient()

    def _record_newton(self) -> None:
        self._record_energy()
        inputs = [self._state.alive, self._parts, self._newton]
        self._launch(resident_newton.begin_newton, self._copies, inputs)
        wp.capture_while(self._newton.running, self._record_direction)

    def _record_direction(self) -> None:
        s, cg, newton, count = self._system, self._cg, self._newton, len(self._free)
        copies, nodes = self._copies, self._one.node_count
        s.enqueue_hessian()
        inputs = [self._free_on_device, nodes, newton, s.grad, cg.right]
        self._launch(resident_newton.take_right_side, (copies, count), inputs)
        cg.record(relative_to_right=True)
        lanes = [self._slope_lanes, self._moved_lanes, self._who_lanes]
        self._launch(resident_newton.direction_lanes, (copies, LANES), [count, cg.right, cg.x, *lanes])
        self._launch(resident_newton.begin_search, copies, [*lanes, cg.solve, newton])
        wp.capture_while(newton.searching, self._record_length)
        self._launch(resident_newton.reach, s.model.node_count, [s.x, self._reached])
        self._launch(resident_newton.end_direction, copies, [newton])

    def _record_length(self) -> None:
        s, newton = self._system, self._newton
        inputs = [self._free_on_device, self._one.node_count, newton, self._reached, self._cg.x, s.x]
        self._launch(resident_newton.try_length, (self._copies, len(self._free)), inputs)
        s.enqueue_gradient()
        self._record_energy()
        self._launch(resident_newton.judge_length, self._copies, [self._parts, newton])

    def _record_energy(self) -> None:
        copies = self._copies
        self._launch(
            resident_newton.energy_lanes, (copies, LANES), [copies, self._energies, self._energy_lanes]
        )
        self._launch(resident_newton.sum_lanes, (copies, PARTS), [self._energy_lanes, self._parts])

    def _record_end(self) -> None:
        s, m, body, state = self._system, self._one, self._body, self._state
        copies = self._copies
        damaged = self._record_damage()
        forces = [s.normal_force, s.friction_force, s.touch, s.found, s.ahead_found]
        moved = [self._moved_lanes, self._who_lanes]
        inputs = [body, state, s.x, s.energy_tets, *forces, self._sum_lanes, *moved]
        self._launch(resident_step.observe, (copies, LANES), inputs)
        if self._edge is not None:
            self._edge.record_observed(self._sum_lanes)
        self._launch(resident_newton.sum_lanes, (copies, _SUMS), [self._sum_lanes, self._sums])
        self._launch(resident_step.accept_step, copies, [body, self._newton, *moved, state])
        inputs = [body, damaged, state, self._history]
        self._launch(resident_step.keep_springs, (copies, m.spring_count), inputs)
        inputs = [body, s.x, state, self._history]
        self._launch(resident_step.keep_nodes, (copies, m.node_count), inputs)
        if self._edge is not None:
            self._edge.record_keep()
        inputs = [body, self._sums, self._parts, state, self._history]
        self._launch(resident_step.end_step, copies, inputs)

    def _record_damage(self) -> wp.array:
        """Enqueue the damage law under the forces of the last gradient.

        Return the array with the remaining stiffness.
        """
        s, count = self._system, self._system.model.spring_count
        if self._edge is not None:
            return self._edge.record_passes()
        arrays = s.damage_arrays
        self._launch(resident_step.copy_numbers, count, [self._state.stiffness, arrays["stiffness"]])
        spring_count = self._one.spring_count
        if "force_positive" in arrays:
            inputs = [
                spring_count,
                s.normal_force,
                s.friction_force,
                arrays["force_positive"],
                arrays["force_negative"],
            ]
            self._launch(resident_step.damage_forces, (self._copies, spring_count), inputs)
        if "touch_positive" in arrays:
            inputs = [spring_count, s.touch, arrays["touch_positive"], arrays["touch_negative"]]
            self._launch(resident_step.damage_touch, (self._copies, spring_count), inputs)
        if "d" in arrays:
            self._launch(resident_step.damage_stretch, count, [s.on_device.springs, s.x, arrays["d"]])
        return s.enqueue_damage()

    def _launch(self, kernel: wp.Kernel, count: int | tuple[int, int], inputs: list[Any]) -> None:
        wp.launch(kernel, dim=count, inputs=inputs, device=self._system.device)

    def step_through(self, progress: Callable[[float], None]) -> None:
        """Launch the steps; check every READ_EVERY of them whether the run continues."""
        for n in range(self._steps):
            wp.capture_launch(self._graph)
            if (n + 1) % _READ_EVERY == 0 or n + 1 == self._steps:
                if not host(self._state.going)[0]:
                    return
                progress((n + 1) / self._steps)

    def collect(self, copy: int, record: Record) -> _ResidentResult:
        """Copy the results of one copy to the host: fill its record and return the rest."""
        done, history = int(host(self._state.step)[copy]), self._history
        kept = self._nodes_of(copy, history.kept)
        distinct = sorted(set(self._kept_steps.values()))
        positions = {
            time: kept[distinct.index(step)].copy() for time, step in self._kept_steps.items() if step <= done
        }
        observed, count = host(history.observed)[copy, :done], self._one.spring_count
        record.take(
            Observed(
                observed[:, :_SUMS].copy(),
                observed[:, _SUMS:].copy(),
                host(history.stiffness)[: done + 1, copy * count : (copy + 1) * count].copy(),
                [] if self._edge is None else self._edge.passed(copy, done),
                positions,
            )
        )
        statistics, newton = record.statistics, self._newton
        statistics.newton_iterations = int(host(newton.directions)[copy])
        statistics.line_search_cuts = int(host(newton.cuts)[copy])
        statistics.indefinite_hessians = int(host(newton.indefinite)[copy])
        statistics.cg_iterations = int(host(self._cg.solve.iterations)[copy])
        states = [row.copy() for row in self._nodes_of(copy, history.states)[: done + 2]]
        count = self._one.node_count
        last = host(self._state.x)[copy * count : (copy + 1) * count].copy()
        return _ResidentResult(states, last, self._outcome(copy, done))

    def _nodes_of(self, copy: int, rows: wp.array) -> np.ndarray:
        """Return the rows of one copy from rows over all nodes."""
        count = self._one.node_count
        return host(rows)[:, copy * count : (copy + 1) * count]

    def _outcome(self, copy: int, done: int) -> Outcome | None:
        code = int(host(self._state.outcome)[copy])
        if code == 0:
            return None
        kind, dt = _OUTCOMES[code], self._system.dt
        worst = int(host(self._newton.worst)[copy])
        if kind is OutcomeKind.NEWTON_STALLED:
            detail = f"At {(done + 1) * dt:.4g} s; the given node has the largest error."
            return Outcome(kind, detail, done + 1, int(self._free[worst]))
        if kind is OutcomeKind.DIVERGED:
            away = float(host(self._newton.length)[copy])
            return Outcome(
                kind, f"At {(done + 1) * dt:.4g} s a node had moved {away:.3g} m.", done + 1, worst
            )
        force = float(np.linalg.norm(host(self._history.observed)[copy, done - 1, :3]))
        return Outcome(kind, f"It reached {force:.4g} N, the limit is {self._limits[copy]:g} N.", done)


def _body(system: StepSystem, poses: np.ndarray, force_limits_n: Sequence[float]) -> resident_step.Body:
    one, d, body = system.model.one, system.on_device, resident_step.Body()
    body.node_count, body.spring_count = one.node_count, one.spring_count
    body.rest = wp.array(one.mesh.nodes, dtype=wp.vec3d)
    body.mass, body.area_ratio = d.mass, d.area_ratio
    body.held = wp.array(one.fixed.astype(np.int32))
    body.gravity = wp.vec3d(*one.gravity)
    body.size, body.dt = float(np.ptp(one.mesh.nodes, axis=0).max()), system.dt
    body.initial = wp.array(system.parameters.row("cut_spring_ke"), dtype=wp.float64)
    body.damping = wp.array(system.parameters.row("cut_spring_kd"), dtype=wp.float64)
    body.spring_area = wp.array(one.mesh.spring_area, dtype=wp.float64)
    body.matters = wp.array(tets_that_matter(one).astype(np.int32))
    body.parents, body.coordinate = d.edges.parents, d.edges.coordinate
    body.poses = wp.array(poses, dtype=wp.vec4d)
    body.force_limit = wp.array(np.array(force_limits_n, float), dtype=wp.float64)
    return body


def _state(x: np.ndarray, x_before: np.ndarray, stiffness: np.ndarray, copies: int) -> resident_step.State:
    state = resident_step.State()
    state.step, state.outcome, state.good = (zeros(copies, wp.int32) for _ in range(3))
    state.alive, state.going = wp.array(np.ones(copies, np.int32)), wp.array(np.ones(1, np.int32))
    state.x, state.x_before = wp.array(x, dtype=wp.vec3d), wp.array(x_before, dtype=wp.vec3d)
    state.stiffness = wp.array(stiffness, dtype=wp.float64)
    state.stiffness_before = wp.array(stiffness, dtype=wp.float64)
    return state


def _newton(options: NewtonOptions, copies: int) -> resident_newton.Newton:
    newton = resident_newton.Newton()
    newton.tolerance, newton.max_iterations = options.tolerance_m, options.max_iterations
    newton.running, newton.searching = zeros(1, wp.int32), zeros(1, wp.int32)
    flags = ("open", "seeking", "solved", "failed", "iteration", "halvings", "worst")
    for name in (*flags, "directions", "cuts", "indefinite"):
        setattr(newton, name, zeros(copies, wp.int32))
    for name in ("energy", "slope", "length"):
        setattr(newton, name, zeros(copies, wp.float64))
    return newton


def _energy_arrays(system: StepSystem) -> resident_newton.EnergyArrays:
    arrays = resident_newton.EnergyArrays()
    arrays.inertia, arrays.tets = system.energy_inertia, system.energy_tets
    arrays.springs, arrays.contacts = system.energy_springs, system.energy_contacts
    arrays.board, arrays.hold = system.energy_board, system.energy_hold
    return arrays
