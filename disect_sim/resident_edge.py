"""The edge law of a run that stays on the device: what EdgeCut does on the host, as launches."""

from typing import Any

import numpy as np
import scipy.sparse as sp
import warp as wp

from disect_sim.device_arrays import host, zeros
from disect_sim.edge_cut import PAID_AFTER, EdgeCut
from disect_sim.kernels import edge, resident_edge, resident_step
from disect_sim.kernels.conjugate_gradients import LANES
from disect_sim.step_system import StepSystem


class ResidentEdge:
    """Launches of the edge law, in the order in which a step asks for them, on the present Warp device."""

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
        self._toughness = wp.array(cut.at_samples.toughness, dtype=wp.float64)
        self._rise = wp.array(cut.at_samples.rise, dtype=wp.float64)
        self._on_springs = zeros(system.model.spring_count, wp.vec3d)
        self._on_nodes = zeros(system.model.node_count, wp.vec3d)
        self._point, self._end_point, self._velocity, self._force = (zeros(count, wp.vec3d) for _ in range(4))
        self._paying, self._passed, self._passed_next, self._severed, self._energy = (
            zeros(count, wp.float64) for _ in range(5)
        )
        self._left = zeros(system.model.spring_count, wp.float64)
        self._history = zeros((steps + 1, count), wp.float64)

    def record_load(self) -> None:
        """Force of the step, added to the predicted positions; the start of the step must be on the device."""
        s, count = self._system, self._count
        self._record_places(s.x_ahead, self._point)
        paying = [wp.float64(PAID_AFTER), self._area, self._rise, self._point, self._passed]
        knife = [s.pose, s.pose_previous, s.swing]
        inputs = [self._per_copy[1], wp.float64(s.dt), *paying, *knife, self._paying, self._velocity]
        self._launch(resident_edge.prepare_load, self._per_copy, inputs)
        inputs = [self._paying, self._point, self._velocity, self._passed, self._toughness, self._rise]
        self._launch(edge.edge_force, count, [self._cut.half_length, *inputs, self._force])
        self._multiply(self._from_samples, self._force, self._on_springs)
        self._multiply(self._to_nodes, self._on_springs, self._on_nodes)
        inputs = [self._body, self._on_nodes, s.predicted]
        self._launch(resident_edge.add_load, (self._copies, s.model.one.node_count), inputs)

    def record_passes(self) -> wp.array:
        """What the edge has passed at the end of the step; the array with the stiffness that is left."""
        s, count = self._system, self._count
        self._record_places(s.x, self._end_point)
        inputs = [self._cut.half_length, self._end_point, self._passed]
        self._launch(edge.edge_passes, count, [*inputs, self._passed_next, self._severed])
        inputs = [self._mean, self._body.initial, self._severed]
        self._launch(resident_edge.left_of_springs, len(self._left), [*inputs, self._left])
        return self._left

    def record_observed(self, lanes: wp.array) -> None:
        """Add the edge's force on the knife, and what it has paid, to the lanes of `observe`."""
        inputs = [self._area, self._passed_next, self._toughness, self._rise]
        self._launch(edge.edge_energy, self._count, [*inputs, self._energy])
        inputs = [self._per_copy[1], self._point, self._force, self._energy, lanes]
        self._launch(resident_edge.observe_edge, (self._copies, LANES), inputs)

    def record_keep(self) -> None:
        """Take the end of the step as the start of the next, if it counts."""
        inputs = [self._per_copy[1], self._state, self._passed_next, self._passed, self._history]
        self._launch(resident_edge.keep_passed, self._per_copy, inputs)

    def passed(self, copy: int, steps: int) -> list[np.ndarray]:
        """Largest depth of every sample of a copy [m] at the start and after each of so many steps."""
        first, count = copy * self._per_copy[1], self._per_copy[1]
        return [row.copy() for row in host(self._history)[: steps + 1, first : first + count]]

    def _record_places(self, x: wp.array, point: wp.array) -> None:
        """Where the samples are, relative to the knife at the end of the step [m]."""
        self._multiply(self._middles, x, self._on_springs)
        self._multiply(self._to_springs, self._on_springs, point)
        inputs = [self._per_copy[1], self._system.pose, point]
        self._launch(resident_edge.relative_to_knife, self._per_copy, inputs)

    def _multiply(self, matrix: resident_edge.SparseRows, vectors: wp.array, product: wp.array) -> None:
        self._launch(resident_edge.multiply_vectors, len(product), [matrix, vectors, product])

    def _launch(self, kernel: wp.Kernel, count: int | tuple[int, int], inputs: list[Any]) -> None:
        wp.launch(kernel, dim=count, inputs=inputs, device=self._system.device)


def _rows(matrix: sp.spmatrix) -> resident_edge.SparseRows:
    csr, rows = sp.csr_matrix(matrix), resident_edge.SparseRows()
    rows.starts, rows.columns = wp.array(csr.indptr.astype(np.int32)), wp.array(csr.indices.astype(np.int32))
    rows.values = wp.array(csr.data, dtype=wp.float64)
    return rows
