"""Linear solver that runs on the device: conjugate gradients with a two-level preconditioner."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import warp as wp
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import splu

from disect_sim.device_arrays import host, upload, zeros
from disect_sim.kernels import conjugate_gradients as kernels
from disect_sim.linear_solver import IndefiniteHessianError, SolverStatistics
from disect_sim.model import Model
from disect_sim.sparsity import BlockPattern
from disect_sim.step_system import StepSystem

# Coarse space: clusters of nodes, each moving by an affine map


_CLUSTERS = 40
"""Number of clusters, with 12 unknowns each.

On 1,800 to 4,000 tets, 40 clusters need 12 to 15 iterations where 16 need 14 to 20.
"""
_NODES_PER_CLUSTER = 8
"""Minimum cluster size: an affine map of fewer nodes is hardly coarser than the nodes themselves."""
_NEGLIGIBLE = 1.0e-10
"""Eigenvalue of the unit-diagonal coarse matrix below which a motion is dropped: flat clusters have such motions."""


@dataclass(frozen=True)
class _Clusters:
    """Assignment of the free nodes to clusters."""

    cluster: np.ndarray
    """Cluster of every free node, shape [free_count], int32."""
    functions: np.ndarray
    """1 and the cluster-local rest coordinates, -1 to 1, shape [free_count, 4]."""

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.cluster.max()) + 1

    @property
    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the start of each cluster, shape [count + 1], and the free nodes sorted by cluster, both int32."""
        order = np.argsort(self.cluster, kind="stable").astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.cluster))])
        return starts.astype(np.int32), order

    def prolongation(self) -> sp.csr_matrix:
        """Return the map from amplitudes [12 count] to displacements [3 free_count]."""
        free = len(self.cluster)
        shape_matrix = sp.csr_matrix(
            (
                self.functions.ravel(),
                (np.repeat(np.arange(free), 4), (4 * self.cluster[:, None] + np.arange(4)).ravel()),
            ),
            shape=(free, 4 * self.count),
        )
        return sp.kron(shape_matrix, sp.identity(3), format="csr")


def _node_clusters(model: Model) -> _Clusters:
    """Cluster the free nodes: starting with the two sides of the cut, halve the largest cluster along its longest
    side.
    """
    mesh = model.mesh
    side = np.zeros(model.node_count, np.int64)
    side[mesh.tets.ravel()] = np.repeat(mesh.tet_side, 4)
    free = ~model.fixed
    x, side = mesh.nodes[free], side[free]
    groups = [np.flatnonzero(side == s) for s in np.unique(side)]
    target = max(len(groups), min(_CLUSTERS, len(x) // _NODES_PER_CLUSTER))
    while len(groups) < target:
        groups.sort(key=len)
        largest = groups.pop()
        along = np.ptp(x[largest], axis=0).argmax()
        ordered = largest[np.argsort(x[largest, along], kind="stable")]
        groups += [ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]]
    cluster = np.empty(len(x), np.int32)
    functions = np.ones((len(x), 4))
    for number, group in enumerate(groups):
        cluster[group] = number
        away = x[group] - x[group].mean(axis=0)
        functions[group, 1:] = away / np.maximum(np.abs(away).max(axis=0), 1e-12)
    return _Clusters(cluster, functions)


def _coarse_inverse(clusters: _Clusters, pattern: BlockPattern, blocks: np.ndarray) -> np.ndarray:
    """Return the inverse of the Hessian on the coarse space [m/N], shape [4 count, 4 count, 3, 3].

    Motions without positive stiffness are dropped, so that the result is never indefinite.
    """
    size = 3 * pattern.free_count
    hessian = sp.bsr_matrix((blocks, pattern.indices, pattern.indptr), shape=(size, size))
    to_nodes = clusters.prolongation()
    coarse = (to_nodes.T @ (hessian @ to_nodes)).toarray()
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diagonal(coarse)), 1e-300))
    inverse = scale[:, None] * _positive_inverse(scale[:, None] * coarse * scale) * scale
    unknowns = 4 * clusters.count
    return inverse.reshape(unknowns, 3, unknowns, 3).transpose(0, 2, 1, 3).copy()


def _positive_inverse(matrix: np.ndarray) -> np.ndarray:
    """Invert a symmetric matrix with unit diagonal on the subspace where it is positive definite.

    Eigenvalues cost ten times as much as a Cholesky factor, so they are computed only if the factorisation fails.
    """
    try:
        lower = np.linalg.cholesky(matrix - _NEGLIGIBLE * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        kept = values > _NEGLIGIBLE * values.max()
        return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    half = solve_triangular(lower, np.eye(len(matrix)), lower=True)
    return half.T @ half


_MAX_ITERATIONS = 1000


class ConjugateGradients:
    """Solves H x = b with the system's Hessian, for all columns at once.

    A system of several copies of a body has one Hessian per copy; the columns are then the copies. `record` enqueues
    all launches, so that they can be captured into a graph; the stopping test runs on the device. The coarse space is
    built from the Hessian at one time, the start of a run. It separates along the cut, and later states of the body
    cost one to three more iterations.
    """

    def __init__(self, system: StepSystem, columns: int) -> None:
        self._system, self._columns = system, columns
        self._matrices = system.model.copies
        assert self._matrices in (1, columns)
        self._clusters = _node_clusters(system.model.one)
        self._pattern = system.pattern.first_of(self._matrices)
        self.rows = self._pattern.free_count
        unknowns = 4 * self._clusters.count
        shape = (columns, self.rows)
        with wp.ScopedDevice(system.device):
            self.right, self.x = zeros(shape, wp.vec3d), zeros(shape, wp.vec3d)
            self._residual, self._z = zeros(shape, wp.vec3d), zeros(shape, wp.vec3d)
            self._direction, self._product = zeros(shape, wp.vec3d), zeros(shape, wp.vec3d)
            self._restricted = zeros((columns, unknowns), wp.vec3d)
            self._amplitude = zeros((columns, unknowns), wp.vec3d)
            lanes = (columns, kernels.LANES)
            self._squared, self._rz, self._bend = (zeros(lanes, wp.float64) for _ in range(3))
            self._inverse_diagonal = zeros((self._matrices, self.rows), wp.mat33d)
            self._matrix = self._block_matrix()
            self._coarse = self._coarse_space()
            self.solve = self._solve_state()

    def _block_matrix(self) -> kernels.BlockMatrix:
        pattern, m = self._pattern, kernels.BlockMatrix()
        row_of_block = np.repeat(np.arange(self.rows), np.diff(pattern.indptr))
        m.starts, m.columns = wp.array(pattern.indptr), wp.array(pattern.indices)
        m.diagonal = wp.array(np.flatnonzero(row_of_block == pattern.indices).astype(np.int32))
        m.blocks, m.block_count = self._system.blocks, pattern.trash
        m.own = int(self._matrices > 1)
        return m

    def _coarse_space(self) -> kernels.CoarseSpace:
        c, clusters = kernels.CoarseSpace(), self._clusters
        starts, members = clusters.members
        c.cluster, c.functions = wp.array(clusters.cluster), wp.array(clusters.functions, dtype=wp.vec4d)
        c.starts, c.members = wp.array(starts), wp.array(members)
        c.inverse = zeros((self._matrices, 4 * clusters.count, 4 * clusters.count), wp.mat33d)
        c.own = int(self._matrices > 1)
        return c

    def _solve_state(self) -> kernels.Solve:
        s = kernels.Solve()
        s.max_iterations = _MAX_ITERATIONS
        s.tolerance, s.running = zeros(1, wp.float64), zeros(1, wp.int32)
        s.open, s.solved, s.indefinite, s.iterations, s.this_solve = (
            zeros(self._columns, wp.int32) for _ in range(5)
        )
        s.reference, s.rz, s.alpha, s.beta = (zeros(self._columns, wp.float64) for _ in range(4))
        return s

    def set_coarse_space(self) -> None:
        """Build the coarse space from the current Hessian. This is the only part computed on the host, once per run."""
        blocks = host(self._system.blocks)[:-1].reshape(self._matrices, -1, 3, 3)
        inverses: list[np.ndarray] = []
        for number, matrix in enumerate(blocks):
            same = number and np.array_equal(matrix, blocks[number - 1])
            inverses.append(inverses[-1] if same else _coarse_inverse(self._clusters, self._pattern, matrix))
        upload(self._coarse.inverse, np.stack(inverses))

    def record(self, *, relative_to_right: bool) -> None:
        """Enqueue a solve of `right` into `x`.

        relative_to_right: the tolerance refers to |right|; otherwise to `solve.reference`.
        """
        self._launch(
            kernels.invert_diagonal, (self._matrices, self.rows), [self._matrix, self._inverse_diagonal]
        )
        vectors = [self.right, self.x, self._residual, self._direction, self._squared]
        self._launch(kernels.begin, kernels.LANES, [self.rows, *vectors], by_column=True)
        if relative_to_right:
            self._launch(kernels.refer_to_right_side, self._columns, [self._squared, self.solve.reference])
        self._precondition()
        self._launch(kernels.open_columns, self._columns, [self._squared, self._rz, self.solve])
        self._launch(kernels.turn, self.rows, [self.solve, self._z, self._direction], by_column=True)
        wp.capture_while(self.solve.running, self._iteration)

    def _iteration(self) -> None:
        solve, p, hp = self.solve, self._direction, self._product
        self._launch(kernels.multiply, self.rows, [self._matrix, p, hp], by_column=True)
        self._launch(kernels.curvature, kernels.LANES, [self.rows, p, hp, self._bend], by_column=True)
        self._launch(kernels.step_length, self._columns, [self._bend, solve])
        inputs = [self.rows, solve, p, hp, self.x, self._residual, self._squared]
        self._launch(kernels.advance, kernels.LANES, inputs, by_column=True)
        self._precondition()
        self._launch(kernels.next_direction, self._columns, [self._squared, self._rz, solve])
        self._launch(kernels.turn, self.rows, [solve, self._z, p], by_column=True)

    def _precondition(self) -> None:
        unknowns, c = self._restricted.shape[1], self._coarse
        self._launch(
            kernels.restrict_to_clusters, unknowns, [c, self._residual, self._restricted], by_column=True
        )
        self._launch(kernels.solve_clusters, unknowns, [c, self._restricted, self._amplitude], by_column=True)
        inputs = [self.rows, self._inverse_diagonal, c, self._amplitude, self._residual, self._z, self._rz]
        self._launch(kernels.precondition, kernels.LANES, inputs, by_column=True)

    def times(self, vector: np.ndarray) -> np.ndarray:
        """Multiply H with vectors of shape [columns, rows, 3]."""
        upload(self._direction, vector)
        self._launch(
            kernels.multiply, self.rows, [self._matrix, self._direction, self._product], by_column=True
        )
        return host(self._product).copy()

    def _launch(
        self, kernel: wp.Kernel, count: int | tuple[int, int], inputs: list, *, by_column: bool = False
    ) -> None:
        dim = (self._columns, count) if by_column else count
        wp.launch(kernel, dim=dim, inputs=inputs, device=self._system.device)


class ConjugateGradientSolver:
    """ConjugateGradients for NumPy right-hand sides, as used by the adjoint at every step."""

    def __init__(self, system: StepSystem, columns: int) -> None:
        self.statistics = SolverStatistics()
        self._system, self._columns = system, columns
        self._cg = ConjugateGradients(system, columns)
        self._coarse_known = False
        self._graph: wp.Graph | None = None

    def use_hessian(self, system: StepSystem) -> None:
        """Assemble the Hessian at the positions of the system's last `gradient`; it stays on the device."""
        system.assemble()
        if not self._coarse_known:
            self._cg.set_coarse_space()
            self._coarse_known = True

    def forget(self) -> None:
        """Rebuild the coarse space from the next Hessian."""
        self._coarse_known = False

    def solve(self, b: np.ndarray, *, tolerance: float, guess: np.ndarray | None = None) -> np.ndarray:
        """Return x with |H x - b| <= tolerance |b|; b of shape [size] or, for many at once, [size, columns].

        guess: initial value; ignored where it is worse than zero. Raises IndefiniteHessianError.
        """
        cg, solve = self._cg, self._cg.solve
        self.statistics.solves += 1
        upload(solve.tolerance, np.array([tolerance]))
        right = b.T.reshape(self._columns, cg.rows, 3)
        start = np.zeros_like(right)
        squared = (right**2).sum(axis=(1, 2))
        upload(solve.reference, squared)
        if guess is not None:
            guessed = guess.T.reshape(right.shape)
            rest = right - cg.times(guessed)
            better = ((rest**2).sum(axis=(1, 2)) < squared)[:, None, None]
            start, right = np.where(better, guessed, 0.0), np.where(better, rest, right)
        upload(cg.right, right)
        if self._graph is None:
            with wp.ScopedCapture(device=self._system.device) as capture:
                cg.record(relative_to_right=False)
            self._graph = capture.graph
        wp.capture_launch(self._graph)
        self.statistics.iterations = int(host(solve.iterations).sum())
        if not host(solve.solved).all():
            self.statistics.indefinite += 1
            raise IndefiniteHessianError
        return (start + host(cg.x)).reshape(self._columns, -1).T.reshape(b.shape)

    def solve_indefinite(self, b: np.ndarray) -> np.ndarray:
        """Return x with H x = b for a symmetric, possibly indefinite H, by sparse LU on the host."""
        pattern = self._system.pattern
        size = 3 * pattern.free_count
        blocks = host(self._system.blocks)[:-1]
        return splu(
            sp.bsr_matrix((blocks, pattern.indices, pattern.indptr), shape=(size, size)).tocsc()
        ).solve(b)
