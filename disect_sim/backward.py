"""Vector-Jacobian products of one implicit step, for one or many gradients at once.

All gradients ("bars") have one column per gradient as their last axis: [node_count, 3, columns] in positions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sp
import warp as wp

from disect_sim.conjugate_gradients import ConjugateGradientSolver
from disect_sim.device_arrays import Launches, clear, host, upload, zeros
from disect_sim.device_model import input_names, series_stiffness
from disect_sim.edge_cut import LAW_ARRAYS, EdgeCut, EdgeLoad
from disect_sim.kernels import boundary, contact_force, contact_point, damage, edge, elasticity, springs
from disect_sim.knife import across_x, turned
from disect_sim.linear_solver import CachedCholeskySolver, IndefiniteHessianError
from disect_sim.model import OVERLAP_ONSET_M
from disect_sim.parameters import CONTACT_NAMES, CONTACT_PER_AREA, SPRING_NAMES
from disect_sim.step_system import StepStart, StepSystem

# Adjoint of a single kernel


class _AdjointKernel:
    """A kernel with its constants, differentiable inputs and outputs, and the adjoints of inputs and outputs.

    Names are those of the kernel's arguments without `_in` and `_out`. Every element is stored once per column, so
    that each gradient has its own adjoints: [all elements of column 0, all of column 1, ...]. Values have the shape
    [count, ...], adjoints [count, ..., columns]; count may be smaller than the capacity.
    """

    def __init__(
        self,
        kernel: wp.Kernel,
        capacity: int,
        columns: int,
        *,
        constants: Mapping[str, Any],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> None:
        """Allocate the arrays.

        constants: name → value. inputs, outputs: name → Warp type (or a pair of type and row length).
        """
        self._columns = columns
        size = capacity * columns
        self._inputs = {name: _zeros(size, kind) for name, kind in inputs.items()}
        self._outputs = {name: _zeros(size, kind) for name, kind in outputs.items()}
        self._input_bars = {name: _zeros(size, kind) for name, kind in inputs.items()}
        self._output_bars = {name: _zeros(size, kind) for name, kind in outputs.items()}
        named = [*constants, *(f"{n}_in" for n in inputs), *(f"{n}_out" for n in outputs)]
        expected = list(signature(kernel.func).parameters)
        if named != expected:
            raise TypeError(f"{kernel.key} takes {expected} in this order, not {named}")
        self._launch: wp.Launch | None = None
        if size:
            # Structs are passed as their own adjoints; no gradient is taken in their fields.
            no_adjoints = [None if isinstance(c, wp.array) else c for c in constants.values()]
            self._launch = wp.launch(
                kernel,
                dim=size,
                inputs=[*constants.values(), *self._inputs.values()],
                outputs=list(self._outputs.values()),
                adj_inputs=[*no_adjoints, *self._input_bars.values()],
                adj_outputs=list(self._output_bars.values()),
                adjoint=True,
                record_cmd=True,
            )

    def fill(self, **values: np.ndarray) -> None:
        """Set inputs by name."""
        for name, value in values.items():
            upload(self._inputs[name], _repeated(value, self._columns))

    def run(self, count: int, **seeds: np.ndarray) -> dict[str, np.ndarray]:
        """Return gradients in the inputs of `count` elements, given those in the outputs.

        Missing outputs count as zero.
        """
        size = count * self._columns
        for name in (*self._output_bars, *seeds):
            bar = self._output_bars[name]
            if name in seeds:
                upload(bar, _one_block_per_column(seeds[name]))
            else:
                clear(bar)
        for bar in self._input_bars.values():
            clear(bar)
        if self._launch is not None and size:
            self._launch.set_dim(size)
            self._launch.launch()
        return {name: self._by_column(host(bar)[:size], count) for name, bar in self._input_bars.items()}

    def _by_column(self, values: np.ndarray, count: int) -> np.ndarray:
        """Return a copy of the shape [count, ..., columns]."""
        if self._columns == 1:
            return values[..., None].copy()
        split = values.reshape(self._columns, count, *values.shape[1:])
        return np.ascontiguousarray(np.moveaxis(split, 0, -1))


def _one_block_per_column(values: np.ndarray) -> np.ndarray:
    """Reshape [count, ..., columns] to [columns count, ...]."""
    if values.shape[-1] == 1:
        return values[..., 0]
    return np.moveaxis(values, -1, 0).reshape(-1, *values.shape[1:-1])


def _repeated(values: np.ndarray, columns: int) -> np.ndarray:
    """Tile the values once per column."""
    return values if columns == 1 else np.concatenate([values] * columns)


def _zeros(size: int, kind: Any) -> wp.array:
    if isinstance(kind, tuple):
        return zeros((size, kind[1]), dtype=kind[0])
    return zeros(size, dtype=kind)


# Edge law


_SEVERED_AFTER_M = float(edge.SEVER_LENGTH)
"""Depth at which a sample's springs are fully released [m]."""


@dataclass
class _EdgeBars:
    """Gradients in the inputs of the edge's force or of its passage through the body."""

    x: np.ndarray
    """Gradient in the positions at which the law was evaluated [1/m], shape [node_count, 3, columns]."""
    pose: np.ndarray
    """Gradient in the knife's position [1/m] and pitch [1/rad], shape [4, columns]."""
    passed: np.ndarray
    """Gradient in the largest depths at the start of the step [1/m], shape [sample_count, columns]."""


class _EdgePullback:
    """Vector-Jacobian products of the edge law; accumulates the gradients in its parameters."""

    def __init__(self, cut: EdgeCut, columns: int) -> None:
        self._cut, self._columns = cut, columns
        self._mean_transposed = cut.spring_mean.T.tocsr()
        count = len(cut.samples)
        self._at_samples = {name: np.zeros((count, columns)) for name in LAW_ARRAYS}
        self._area = zeros(count * columns, wp.float64)
        numbers = dict.fromkeys(("passed", *LAW_ARRAYS), wp.float64)
        self._force = _AdjointKernel(
            edge.edge_force,
            count,
            columns,
            constants={"shape": cut.shape, "area": self._area},
            inputs={"point": wp.vec3d, "velocity": wp.vec3d} | numbers,
            outputs={"force": wp.vec3d, "drag_power": wp.float64},
        )
        self._passes = _AdjointKernel(
            edge.edge_passes,
            count,
            columns,
            constants={"shape": cut.shape},
            inputs={"point": wp.vec3d, "passed": wp.float64},
            outputs={"passed": wp.float64, "severed": wp.float64},
        )

    def load(
        self, load: EdgeLoad, passed: np.ndarray, v: np.ndarray, force_bar: np.ndarray
    ) -> tuple[_EdgeBars, np.ndarray]:
        """Propagate through the edge's force on body and knife; also return the gradient in the knife's velocity [4].

        v: adjoint of the force on the nodes, shape [node_count, 3, columns]; force_bar: adjoint of the force on the
        knife.
        """
        paying, at = load.paying, self._cut.at_samples
        point, speed = load.local()
        upload(self._area, _repeated(self._cut.samples.area[paying], self._columns))
        self._force.fill(
            point=point,
            velocity=speed,
            passed=passed[paying],
            **{name: getattr(at, name)[paying] for name in LAW_ARRAYS},
        )
        seed = self._cut.samples.places(v)[paying] - force_bar
        bar = self._force.run(len(paying), force=turned(seed, -load.pitch))
        for name, total in self._at_samples.items():
            total[paying] += bar[name]
        passed_bar = np.zeros((len(passed), self._columns))
        passed_bar[paying] = bar["passed"]
        rate, by_velocity = load.velocity[3], bar["velocity"]
        at_point = bar["point"] - rate * across_x(by_velocity) if rate != 0.0 else bar["point"]
        bars = self._bars(at_point, point, load.pitch, paying, passed_bar)
        straight = speed - rate * across_x(point)
        bars.pose[3] += (across_x(load.force[paying])[..., None] * seed).sum(axis=(0, 1))
        bars.pose[3] -= (across_x(straight)[..., None] * by_velocity).sum(axis=(0, 1))
        turning = (across_x(point)[..., None] * by_velocity).sum(axis=(0, 1))
        return bars, np.concatenate([turned(by_velocity, load.pitch).sum(axis=0), turning[None]])

    def passes(
        self,
        x: np.ndarray,
        pose: np.ndarray,
        passed: np.ndarray,
        passed_bar: np.ndarray,
        stiffness_bar: np.ndarray,
    ) -> _EdgeBars:
        """Propagate through the state at the end of a step: largest depths and stiffness [spring_count, columns]."""
        cut = self._cut
        point = turned(cut.samples.places(x) - pose[:3], -float(pose[3]))
        near = np.flatnonzero((point[:, 1] > passed) | ((passed > 0.0) & (passed < _SEVERED_AFTER_M)))
        self._passes.fill(point=point[near], passed=passed[near])
        severed_bar = -(self._mean_transposed @ (cut.initial[:, None] * stiffness_bar))
        bar = self._passes.run(len(near), passed=passed_bar[near], severed=severed_bar[near])
        before = passed_bar.copy()  # samples the edge has not come closer to keep their depth
        before[near] = bar["passed"]
        return self._bars(bar["point"], point[near], float(pose[3]), near, before)

    def spring_gradients(self) -> dict[str, np.ndarray]:
        """Return the gradients in the parameters of the law, each of shape [spring_count, columns]."""
        return self._cut.spring_gradients(self._at_samples)

    def anatomy_gradients(self) -> dict[str, np.ndarray]:
        """Return the gradients in toughness and shares of the regions and in the grain (see EdgeCut)."""
        return self._cut.anatomy_gradients(self._at_samples)

    def _bars(
        self,
        point_bar: np.ndarray,
        point: np.ndarray,
        pitch: float,
        which: np.ndarray,
        passed_bar: np.ndarray,
    ) -> _EdgeBars:
        """Return the gradients from those in the points of the samples `which`, both in the knife's frame."""
        at_samples = np.zeros((len(self._cut.samples), 3, self._columns))
        at_samples[which] = turned(point_bar, pitch)
        turning = -(across_x(point)[..., None] * point_bar).sum(axis=(0, 1))
        pose = np.concatenate([-at_samples[which].sum(axis=0), turning[None]])
        return _EdgeBars(self._cut.to_nodes(at_samples), pose, passed_bar)


_ADJOINT_TOLERANCE = 1.0e-7
"""Relative accuracy of the adjoint's linear solves."""


@dataclass
class _StepBars:
    """Gradients in the inputs of a step."""

    x: np.ndarray
    """Gradient in x_{n+1} [1/m], shape [node_count, 3, columns]."""
    x_n: np.ndarray
    """Gradient in x_n as the start of the step."""
    ahead: np.ndarray
    """Gradient in the predicted end of the step, 2 x_n - x_{n-1}."""
    pose: np.ndarray
    """Gradient in the knife's position [1/m] and pitch [1/rad] at t_{n+1}, shape [4, columns]."""
    pose_n: np.ndarray
    """The same at t_n."""
    swing: np.ndarray
    """Gradient in half the second difference of the knife's poses."""


class StepPullback:
    """Vector-Jacobian products of steps; accumulates the gradients in the parameters."""

    def __init__(self, system: StepSystem, columns: int, solver: str) -> None:
        self.system, self.columns = system, columns
        m = self.model = system.model
        self.solver: CachedCholeskySolver | ConjugateGradientSolver = (
            ConjugateGradientSolver(system, columns)
            if solver == "conjugate_gradients"
            else CachedCholeskySolver(system.pattern, system.switches.directions)
        )
        self.spring = np.zeros((len(SPRING_NAMES), m.spring_count, columns))
        self.moduli = np.zeros((3, columns))
        """Gradient in Lamé's mu and lambda and the retardation time."""
        self._stiffness = np.zeros((m.tet_shares.shape[1], columns))
        self._young = np.array([one.young_ratio for one in m.mesh.anatomy.regions] if m.mesh.anatomy else [])
        self._table = np.zeros((len(m.contact_parents), len(CONTACT_NAMES), columns))
        ends = m.contact_parents.T.ravel()
        self._to_parents = sp.csr_matrix(
            (np.ones(len(ends)), (ends, np.arange(len(ends)))), shape=(m.node_count, len(ends))
        )
        self._spring_transposed = m.spring_operator.T.tocsr()
        self._given = host(system.on_device.contact_parameters).copy()
        self._solved: list[np.ndarray] = []
        with wp.ScopedDevice(system.device):
            self._contact = self._contact_kernel()
            self._spring = self._spring_kernel()
            self._damage = None if system.on_device.damage_kernel is None else self._damage_kernel()
            self._edge = None if system.edge is None else _EdgePullback(system.edge, columns)
            self._board = self._board_kernel()
            self._v = zeros((columns, m.node_count), wp.vec3d)
            self._tet_x_bar = zeros((columns, m.node_count), wp.vec3d)
            self._tet_moduli = zeros((columns, m.tet_count), wp.vec3d)
            self._tets = self._tet_launches()

    def _tet_launches(self) -> Launches:
        s, d = self.system, self.system.on_device
        launches = Launches(s.device)
        for first, count in d.tet_groups:
            given = [d.tets, d.elastic, d.dt, first, self.columns, s.x, s.x_previous, self._v]
            launches.add(elasticity.tet_pullback, count, [*given, self._tet_moduli, self._tet_x_bar])
        return launches

    def _contact_kernel(self) -> _AdjointKernel:
        capacity = len(self.model.contact_parents)
        size = capacity * self.columns
        search = self._found = contact_force.Found()
        search.now, search.before, search.ahead = (zeros(size, wp.vec2d) for _ in range(3))
        edges = self._edges = contact_point.ContactEdges()
        edges.coordinate, edges.side, edges.offset = (zeros(size, wp.float64) for _ in range(3))
        edges.parents = self.system.on_device.edges.parents
        vectors = ("x0", "x1", "y0", "y1", "z0", "z1", "swing")
        angles = ("pitch", "pitch_before", "spin")
        return _AdjointKernel(
            contact_force.contact_force,
            capacity,
            self.columns,
            constants={"setting": self.system.on_device.contact, "edges": edges, "found": search},
            inputs={"parameters": (wp.float64, len(CONTACT_NAMES))}
            | dict.fromkeys(vectors, wp.vec3d)
            | dict.fromkeys(angles, wp.float64),
            outputs={
                "normal_force": wp.vec3d,
                "friction_force": wp.vec3d,
                "u": wp.vec2d,
                "touch": wp.float64,
            },
        )

    def _spring_kernel(self) -> _AdjointKernel:
        m, row = self.model, self.system.parameters.row
        s = springs.SpringGeometry()
        s.nodes, s.weights = self.system.on_device.springs.nodes, self.system.on_device.springs.weights
        s.normal = self._repeat(m.spring_normal, wp.vec3d)
        s.overlap_stiffness = self._repeat(m.overlap_stiffness, wp.float64)
        s.overlap_onset = OVERLAP_ONSET_M
        area_ratio = self._repeat(m.spring_area_ratio, wp.float64)
        numbers = dict.fromkeys(("stiffness", "initial", "damping"), wp.float64)
        kernel = _AdjointKernel(
            springs.spring_force,
            m.spring_count,
            self.columns,
            constants={"springs": s, "dt": self.system.on_device.dt, "area_ratio": area_ratio},
            inputs=numbers | {"d": wp.vec3d, "d_previous": wp.vec3d},
            outputs={"tension": wp.vec3d},
        )
        kernel.fill(initial=row("cut_spring_ke"), damping=row("cut_spring_kd"))
        return kernel

    def _damage_kernel(self) -> _AdjointKernel:
        m, d = self.model, self.system.on_device
        setting = damage.DamageSetting()
        setting.dt = self.system.dt
        setting.area_ratio = self._repeat(m.spring_area_ratio, wp.float64)
        setting.normal = self._repeat(m.spring_normal, wp.vec3d)
        kinds = {name: array.dtype for name, array in self.system.damage_arrays.items()}
        kernel = _AdjointKernel(
            d.damage_kernel,
            m.spring_count,
            self.columns,
            constants={"setting": setting},
            inputs={name: kinds[name] for name in input_names(d.damage_kernel)},
            outputs={"stiffness": wp.float64},
        )
        row = self.system.parameters.row
        kernel.fill(**{name: row(name) for name in kinds if name in SPRING_NAMES})
        return kernel

    def _board_kernel(self) -> _AdjointKernel:
        d = self.system.on_device
        return _AdjointKernel(
            boundary.board_force,
            len(self.model.board_nodes),
            self.columns,
            constants={"board": d.board, "dt": d.dt},
            inputs={"area_ratio": wp.float64, "x": wp.vec3d, "x_previous": wp.vec3d},
            outputs={"force": wp.vec3d},
        )

    def _repeat(self, values: np.ndarray, kind: type) -> wp.array:
        return wp.array(_repeated(values, self.columns), dtype=kind)

    def begin(self, x: np.ndarray, start: StepStart, stiffness: np.ndarray) -> None:
        """Restore the system to the end of a step.

        stiffness: k_n; the springs act with start.stiffness.
        """
        s, m = self.system, self.model
        s.begin(*start)
        s.find_contacts(x)
        self._x, self._pose = x, start.pose
        self._damage_state = s.damage_state(stiffness, x)
        self._used = start.stiffness
        self._d, self._d_n = m.spring_operator @ x, m.spring_operator @ start.x_n
        self._fill_contacts(x, start)
        low = np.minimum(x[m.board_nodes, 1], start.x_n[m.board_nodes, 1]) < m.board.radius_m
        self._low = m.board_nodes[low]
        self._board.fill(area_ratio=m.board_area_ratio[low], x=x[self._low], x_previous=start.x_n[self._low])

    def _fill_contacts(self, x: np.ndarray, start: StepStart) -> None:
        """Upload the contacts that touch or have friction; the others have zero derivatives."""
        s, m, columns = self.system, self.model, self.columns
        active = np.flatnonzero((host(s.touch) > 0.0) | (host(s.friction_limit) > 0.0))
        self._active = active
        a, b = self._ends = m.contact_parents[active].T
        for array, value in (
            (self._edges.coordinate, m.contact_coordinate),
            (self._edges.side, m.contact_side),
            (self._edges.offset, m.contact_offset),
        ):
            upload(array, _repeated(value[active], columns))
        coordinates = [host(f)[active] for f in (s.found, s.before_found, s.ahead_found)]
        curvature = [host(c)[active] for c in (s.curvature, s.before_curvature, s.ahead_curvature)]
        arrays = (self._found.now, self._found.before, self._found.ahead)
        for array, f, c in zip(arrays, coordinates, curvature, strict=True):
            upload(array, _repeated(np.stack([f, c], axis=1), columns))
        z, y, pose, pose_n = start.expected, start.x_n, start.pose[:3], start.pose_n[:3]
        swing = np.zeros(4) if start.swing is None else start.swing
        pitch, pitch_n, count = start.pose[3], start.pose_n[3], len(active)
        self._contact.fill(
            parameters=self._given[active],
            x0=x[a] - pose,
            x1=x[b] - pose,
            y0=y[a] - pose_n,
            y1=y[b] - pose_n,
            z0=z[a] - pose,
            z1=z[b] - pose,
            swing=np.tile(swing[:3], (count, 1)),
            pitch=np.full(count, pitch),
            pitch_before=np.full(count, pitch_n),
            spin=np.full(count, pitch - pitch_n + swing[3]),
        )
        c = m.contact_coordinate[active]
        self._u = (c * coordinates[0])[:, None, None], (c * coordinates[2])[:, None, None]
        self._force = (
            host(s.normal_force)[active][..., None],
            host(s.friction_force)[active][..., None],
        )

    def outputs(
        self,
        force_bar: np.ndarray,
        k_bar: np.ndarray,
        k_after: np.ndarray,
        passed: np.ndarray,
        passed_bar: np.ndarray,
    ) -> tuple[_StepBars, np.ndarray, np.ndarray]:
        """Propagate through the knife's contact force (shape [3, columns]) and the damage law.

        k_after: stiffness at the end of the step; passed: depths of the edge at its start; passed_bar: gradient in the
        depths at its end. Also return the gradients in k_n and passed.
        """
        if self._edge is not None:
            step_bars = self._through_contact(**self._contact_seeds({}, force_bar))
            bars = self._edge.passes(self._x, self._pose, passed, passed_bar, k_bar)
            step_bars.x += bars.x
            step_bars.pose += bars.pose
            initial = self.system.parameters.row("cut_spring_ke")
            self._add("cut_spring_ke", (k_after / initial)[:, None] * k_bar)
            return step_bars, np.zeros_like(k_bar), bars.passed
        assert self._damage is not None
        self._damage.fill(**self._damage_state)
        bar = self._damage.run(self.model.spring_count, stiffness=k_bar)
        for name in bar:
            if name in SPRING_NAMES:
                self._add(name, bar[name])
        step_bars = self._through_contact(**self._contact_seeds(bar, force_bar))
        if "d" in bar:
            step_bars.x += self._spring_adjoint(bar["d"])
        return step_bars, bar["stiffness"], passed_bar

    def _contact_seeds(self, bar: dict[str, np.ndarray], force_bar: np.ndarray) -> dict[str, np.ndarray]:
        """Return the adjoints of the contact forces, from the damage law (bar) and from the force on the knife."""
        count = self.model.spring_count
        seed = self._on_active(bar, "force", np.zeros((count, 3, self.columns))) - force_bar
        touch = self._on_active(bar, "touch", np.zeros((count, self.columns)))
        return {"normal_force": seed, "friction_force": seed, "touch": touch}

    def edge_load(
        self, v: np.ndarray, force_bar: np.ndarray, passed: np.ndarray, out: _StepBars
    ) -> np.ndarray:
        """Propagate through the edge's force on body and knife: add to `out`, return the gradient in passed."""
        load = self.system.load
        if self._edge is None or load is None:
            return np.zeros((len(passed), self.columns))
        bars, velocity = self._edge.load(load, passed, v, force_bar)
        bars.x[self.model.fixed] = 0.0
        out.ahead += bars.x
        out.pose += bars.pose + velocity / self.system.dt
        out.pose_n -= velocity / self.system.dt
        out.swing += velocity / self.system.dt
        return bars.passed

    def solve(self, x_bar: np.ndarray) -> np.ndarray:
        """Return H^-1 x_bar, zero on fixed nodes, shape [node_count, 3, columns].

        The initial guess is extrapolated from the last two steps.
        """
        self.solver.use_hessian(self.system)
        free = ~self.model.fixed
        right = np.ascontiguousarray(x_bar[free].reshape(-1, self.columns))
        guess = None
        if self._solved:
            last, before = self._solved[-1], self._solved[0]
            guess = 2.0 * last - before
        if self.columns == 1:
            right, guess = right[:, 0], None if guess is None else guess[:, 0]
        try:
            solution = self.solver.solve(right, tolerance=_ADJOINT_TOLERANCE, guess=guess)
        except IndefiniteHessianError:
            self.solver.forget()
            solution = self.solver.solve_indefinite(right)
        solution = solution.reshape(-1, self.columns)
        self._solved = [*self._solved[-1:], solution]
        v = np.zeros_like(x_bar)
        v[free] = solution.reshape(-1, 3, self.columns)
        return v

    def residual(self, v: np.ndarray) -> tuple[_StepBars, np.ndarray]:
        """Return -v . dg/d(...) for everything but x, and for the stiffness the springs acted with."""
        m = self.model
        a, b = self._ends
        u, u_ahead = self._u
        along = v[b] - v[a]
        u_bar = np.stack([(along * force).sum(axis=1) for force in self._force], axis=1)
        step_bars = self._through_contact(
            normal_force=v[a] + along * u, friction_force=v[a] + along * u_ahead, u=u_bar
        )
        self._spring.fill(stiffness=self._used, d=self._d, d_previous=self._d_n)
        tension = (m.spring_operator @ v.reshape(m.node_count, -1)).reshape(m.spring_count, 3, -1)
        bar = self._spring.run(m.spring_count, tension=-tension)
        self._add("cut_spring_ke", bar["initial"])
        self._add("cut_spring_kd", bar["damping"])
        step_bars.x_n += self._spring_adjoint(bar["d_previous"])
        step_bars.x_n[self._low] += self._board.run(len(self._low), force=v[self._low])["x_previous"]
        step_bars.x_n += self._through_tets(v)
        return step_bars, bar["stiffness"]

    def spring_gradient(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradients in spring and contact parameters, shape [parameter kind, spring_count, columns].

        Also return the gradient in Young's modulus through the stiffness of the contacts, shape [columns].
        """
        table = self._table.copy()
        table[:, CONTACT_PER_AREA] *= np.tile(self.system.area_ratio, 2)[:, None, None]
        count = self.model.spring_count
        bars = {
            name: table[:count, column] + table[count:, column] for column, name in enumerate(CONTACT_NAMES)
        }
        series = series_stiffness(self.system.parameters).pullback(bars["sdf_ke"], bars["sdf_kd"])
        bars |= {"sdf_ke": series.given, "sdf_kd": series.damping_given}
        bars["sdf_radius"] = bars["sdf_radius"] + series.thickness
        bars["sdf_tip"] = bars["sdf_tip"] + series.thickness
        spring_bar = self.spring.copy()
        for name, gradient in bars.items():
            spring_bar[SPRING_NAMES.index(name)] += gradient
        for name, gradient in {} if self._edge is None else self._edge.spring_gradients().items():
            spring_bar[SPRING_NAMES.index(name)] += gradient
        return spring_bar, series.young.sum(axis=0)

    def anatomy_gradients(self) -> dict[str, np.ndarray]:
        """Return the gradients in ratios and shares of the regions and in the grain, but not in the density; by name.

        Shapes [region_count, columns] and, for the grain, [3, columns]; empty without anatomy.
        """
        if not self.model.mesh.anatomy:
            return {}
        edge = {} if self._edge is None else self._edge.anatomy_gradients()
        return {"young_ratio": self._stiffness, **edge}

    def _on_active(self, bar: dict[str, np.ndarray], name: str, nothing: np.ndarray) -> np.ndarray:
        """Return the gradients in a quantity given on both sides of the cut, on the active contacts."""
        sides = [bar.get(f"{name}_{side}", nothing) for side in ("positive", "negative")]
        return np.concatenate(sides)[self._active]

    def _through_contact(self, **seeds: np.ndarray) -> _StepBars:
        bar = self._contact.run(len(self._active), **seeds)
        self._table[self._active] += bar["parameters"]
        m, columns = self.model, self.columns
        contacts, width = len(m.contact_parents), 9 * columns
        ends = np.zeros((2 * contacts, width))
        for first, end in ((0, "0"), (contacts, "1")):
            parts = [bar[which + end].reshape(-1, 3 * columns) for which in "xyz"]
            ends[first + self._active] = np.concatenate(parts, axis=1)
        on_nodes = (self._to_parents @ ends).reshape(m.node_count, 3, 3, columns)
        x, y, z = on_nodes[:, 0], on_nodes[:, 1], on_nodes[:, 2]
        z[m.fixed] = 0.0
        spin = bar["spin"].sum(axis=0)
        place = -(bar["x0"] + bar["x1"] + bar["z0"] + bar["z1"]).sum(axis=0)
        pose = np.concatenate([place, [bar["pitch"].sum(axis=0) + spin]])
        place_n = -(bar["y0"] + bar["y1"]).sum(axis=0)
        pose_n = np.concatenate([place_n, [bar["pitch_before"].sum(axis=0) - spin]])
        return _StepBars(x, y, z, pose, pose_n, np.concatenate([bar["swing"].sum(axis=0), [spin]]))

    def _spring_adjoint(self, d_bar: np.ndarray) -> np.ndarray:
        """Map gradients in the spring vectors to the nodes."""
        m = self.model
        return (self._spring_transposed @ d_bar.reshape(m.spring_count, -1)).reshape(m.node_count, 3, -1)

    def _through_tets(self, v: np.ndarray) -> np.ndarray:
        upload(self._v, np.moveaxis(v, -1, 0))
        clear(self._tet_x_bar)
        self._tets.run()
        per_tet = host(self._tet_moduli)
        self.moduli += (np.ones(self.model.tet_count) @ per_tet).T  # faster than a column-wise sum
        if len(self._stiffness):
            order, material = self.system.on_device.tet_order, self.system.parameters.material
            for k, lame in enumerate((material.lame_mu_pa, material.lame_lambda_pa)):
                ratio = self.model.tet_shares[order] * (self.model.region_lame[k] / self._young)
                bar = lame * per_tet[..., k] / self.model.tet_lame[k, order]
                self._stiffness += ratio.T @ bar.T
        return np.moveaxis(host(self._tet_x_bar), 0, -1)

    def _add(self, name: str, gradient: np.ndarray) -> None:
        self.spring[SPRING_NAMES.index(name)] += gradient
