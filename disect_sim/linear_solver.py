"""Conjugate gradients on the block-sparse Hessian, preconditioned by an older Cholesky factor."""

import time
from dataclasses import dataclass
from typing import Protocol

import cholespy
import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dgetrf, dgetrs
from scipy.sparse.linalg import splu

from disect_sim.processes import STDOUT, native_output_silenced
from disect_sim.sparsity import BlockPattern
from disect_sim.step_system import StepSystem

# Low-rank update of a factor
#
# Where the halves touch each other or the board, a stiffness switches on and off along one direction. Each such change
# is of rank one, H = F + sum_i change_i u_i u_i^T, and Woodbury's formula turns a solve with F into one with H:
#
#   H^-1 b = z - W C^-1 U^T z,    z = F^-1 b,    W = F^-1 U,    C = diag(1 / change) + U^T W


_NOTABLE = 0.1
"""Relative change of stiffness along a direction above which it gets a column."""
_MAX_COLUMNS = 256
"""Maximum number of directions per factor for which F^-1 u is stored."""


class _Factor(Protocol):
    """Interface of a cholespy factor."""

    def solve(self, b: np.ndarray, x: np.ndarray) -> None:
        """Solve into x, for one or many columns."""


class FactorUpdate:
    """Solver with a factor and its low-rank update. `directions`: the u_i as rows, shape [switch_count, size]."""

    def __init__(self, directions: sp.csr_matrix) -> None:
        self._directions = directions
        self._squared = directions.multiply(directions).tocsr()
        most = min(_MAX_COLUMNS, directions.shape[0])
        self._columns = np.empty((most, directions.shape[1]))
        """W transposed: one row per direction with a notable change since the factorisation, `_known` rows in use."""
        self._coupling = np.empty((most, directions.shape[0]))
        """W^T U for all directions."""
        self._known = 0
        self._changed = np.zeros(0, np.int64)

    def restart(self, factor: _Factor, stiffness: np.ndarray, diagonal: np.ndarray) -> None:
        """Reset to a new factor of a matrix with this stiffness along the directions [N/m] and this diagonal."""
        self._factor, self._start = factor, stiffness.copy()
        self._compliance = self._squared @ (1.0 / diagonal)
        self._place = np.full(len(stiffness), -1)
        self._known, self._changed = 0, self._changed[:0]

    def use(self, stiffness: np.ndarray) -> None:
        """Set the current stiffnesses [N/m], shape [switch_count]."""
        change = stiffness - self._start
        weight = np.abs(change) * self._compliance
        notable = np.flatnonzero(weight > _NOTABLE)
        self._add(notable[self._place[notable] < 0])
        changed = self._changed = notable[self._place[notable] >= 0]
        if len(changed) == 0:
            return
        rows = self._place[changed]
        self._solved = self._columns[rows]
        matrix = self._coupling[rows[:, None], changed]
        matrix[np.diag_indices(len(changed))] += 1.0 / change[changed]
        self._lu = dgetrf(matrix)[:2]

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return H^-1 b up to changes that have no column; b of shape [size] or [size, columns]."""
        z = np.empty_like(b)
        self._factor.solve(b, z)
        if len(self._changed):
            along = (self._directions @ z)[self._changed]
            z -= self._solved.T @ dgetrs(*self._lu, along)[0].reshape(along.shape)
        return z

    def _add(self, directions: np.ndarray) -> None:
        """Add columns for these directions, up to the capacity."""
        directions = directions[: len(self._columns) - self._known]
        if len(directions) == 0:
            return
        right = np.ascontiguousarray(self._directions[directions].T.toarray())
        solved = np.empty_like(right)
        self._factor.solve(right, solved)
        rows = slice(self._known, self._known + len(directions))
        self._place[directions] = np.arange(rows.start, rows.stop)
        self._columns[rows] = solved.T
        self._coupling[rows] = (self._directions @ solved).T
        self._known = rows.stop


_MAX_ITERATIONS = 400
_FACTORISATION_COST = 90
"""CG iterations that cost about as much as one factorisation at 1,400 to 7,200 unknowns (lab/notes/performance.md)."""
_FEW_ITERATIONS = 30
"""CG iterations after which an inexact Newton direction is accepted; the next gradient corrects it."""
_WARY_FOR = 20
"""Number of factorisations after an indefinite matrix for which definiteness is tested first.

cholespy 2.2 never frees the memory of a factor that fails: a difficult cut fails hundreds of times, and a fit of such
cuts reached 5 GB.
"""


@dataclass
class SolverStatistics:
    """Counters of the solver."""

    solves: int = 0
    iterations: int = 0
    factorisations: int = 0
    factor_seconds: float = 0.0
    """CPU time of the factorisations [s]."""
    indefinite: int = 0
    """Hessians found not positive definite, by a failed Cholesky or by negative curvature in CG."""


class IndefiniteHessianError(Exception):
    """The matrix has a direction of negative curvature."""


class CachedCholeskySolver:
    """Solves H x = b for a sequence of slowly changing H.

    The factor of an earlier H preconditions CG on the current one. It is renewed when the iterations spent in excess
    of those of a fresh factor have cost as much as a factorisation. The rule counts iterations, not seconds, so that
    results are reproducible.
    """

    def __init__(self, pattern: BlockPattern, directions: sp.csr_matrix | None = None) -> None:
        """Allocate the solver. directions: see FactorUpdate; by default none."""
        n = pattern.free_count
        self.size = 3 * n
        self.statistics = SolverStatistics()
        self._matrix = sp.bsr_matrix(
            (np.zeros((len(pattern.indices), 3, 3)), pattern.indices, pattern.indptr),
            shape=(self.size, self.size),
        )
        numbered = sp.bsr_matrix(
            (np.arange(1.0, 9 * len(pattern.indices) + 1).reshape(-1, 3, 3), pattern.indices, pattern.indptr),
            shape=(self.size, self.size),
        ).tocsc()
        numbered.sort_indices()
        self._csc_pointers = numbered.indptr.astype(np.int32)
        self._csc_rows = numbered.indices.astype(np.int32)
        self._csc_from_blocks = numbered.data.astype(np.int64) - 1
        self._diagonal = np.flatnonzero(
            self._csc_rows == np.repeat(np.arange(self.size), np.diff(self._csc_pointers))
        )
        self._factor: cholespy.CholeskySolverD | None = None
        self._update = FactorUpdate(sp.csr_matrix((0, self.size)) if directions is None else directions)
        self._stiffness = np.zeros(0)
        self._shifted = False
        self._wary = 0
        self._extra_iterations = 0

    def set_matrix(self, blocks: np.ndarray, stiffness: np.ndarray | None = None) -> None:
        """Set the matrix blocks (shape [block_count, 3, 3], in the pattern's order).

        stiffness: their part along the directions [N/m], shape [switch_count].
        """
        self._matrix.data = blocks
        self._stiffness = np.zeros(0) if stiffness is None else stiffness
        if not self.must_renew:
            self._update.use(self._stiffness)

    def use_hessian(self, system: StepSystem, *, fresh: bool = True) -> None:
        """Set the matrix to the Hessian at the positions of the system's last `gradient`; fresh: see its `hessian`."""
        self.set_matrix(system.hessian(fresh=fresh), system.switched_stiffness())

    def solve(
        self, b: np.ndarray, *, tolerance: float, shift: float = 0.0, guess: np.ndarray | None = None
    ) -> np.ndarray:
        """Return x with |H x - b| <= tolerance |b|; b of shape [size] or, for many at once, [size, columns].

        shift: multiple of the diagonal added to H, to make an indefinite H solvable.
        guess: initial value; ignored where it is worse than zero. Raises IndefiniteHessianError.
        """
        self.statistics.solves += 1
        if self.must_renew or shift > 0.0:
            self._factorise(shift)
        diagonal = self.diagonal() * shift if shift > 0.0 else None
        target = tolerance * tolerance * _dots(b, b)
        start, rest = _use(guess, self._matrix, b)
        x, iterations, converged = self._conjugate_gradients(rest, target, diagonal)
        self._extra_iterations += max(0, iterations - 2)
        if not converged:
            self._factorise(shift)
            x, _, converged = self._conjugate_gradients(rest, target, diagonal)
        return x if start is None else start + x

    def solve_within(self, b: np.ndarray, tolerance_x: float, bend: float = 0.0) -> np.ndarray:
        """Return x with H x = b, iterated until the old factor estimates an error below tolerance_x in every entry.

        A factor of a shifted H gives no such estimate and is renewed first.
        bend: the error may also be up to this times the square of the largest entry. Raises IndefiniteHessianError.
        """
        self.statistics.solves += 1
        if self.must_renew or self._shifted:
            self._factorise(0.0)
        p = self.approximate(b)
        if np.abs(p).max() < tolerance_x:
            return p
        x, r = np.zeros_like(b), b.copy()
        rz = r @ p
        for iteration in range(_FEW_ITERATIONS):
            self._extra_iterations += min(1, iteration)
            hp, curvature = self._times(p, None)
            alpha = rz / curvature
            x += alpha * p
            r -= alpha * hp
            self.statistics.iterations += 1
            z = self.approximate(r)
            if np.abs(z).max() < max(tolerance_x, bend * np.abs(x).max() ** 2):
                x += z
                break
            rz_new = r @ z
            p = z + (rz_new / rz) * p
            rz = rz_new
        return x

    def approximate(self, b: np.ndarray) -> np.ndarray:
        """Approximate H^-1 b by the old factor with its low-rank update."""
        return self._update.solve(b)

    @property
    def must_renew(self) -> bool:
        """True if the next solve will factorise."""
        return self._factor is None or self._extra_iterations > _FACTORISATION_COST

    def solve_indefinite(self, b: np.ndarray) -> np.ndarray:
        """Return x with H x = b for a symmetric, possibly indefinite H, by sparse LU."""
        return splu(self._matrix.tocsc()).solve(b)

    def diagonal(self) -> np.ndarray:
        """Return the diagonal of the current matrix [N/m], shape [size]."""
        return self._matrix.diagonal()

    def forget(self) -> None:
        """Drop the factor, because the next matrix is unrelated to the last."""
        self._factor = None

    def _factorise(self, shift: float) -> None:
        data = self._matrix.data.reshape(-1)[self._csc_from_blocks]
        if shift > 0.0:
            data[self._diagonal] *= 1.0 + shift
        self.statistics.factorisations += 1
        self._extra_iterations, self._shifted = 0, shift > 0.0
        started = time.perf_counter()
        self._factor = self._cholesky(data)
        self.statistics.factor_seconds += time.perf_counter() - started
        if self._factor is None:
            self._wary = _WARY_FOR
            self.statistics.indefinite += 1
            raise IndefiniteHessianError
        self._update.restart(self._factor, self._stiffness, data[self._diagonal])

    def _cholesky(self, data: np.ndarray) -> cholespy.CholeskySolverD | None:
        """Return the factor, or None if the matrix with these values is not positive definite."""
        if self._wary > 0:
            self._wary -= 1
            matrix = sp.csc_matrix((data, self._csc_rows, self._csc_pointers), shape=(self.size, self.size))
            if not _is_positive_definite(matrix):
                return None
        try:
            with native_output_silenced(STDOUT):  # CHOLMOD's reports
                return cholespy.CholeskySolverD(
                    self.size, self._csc_pointers, self._csc_rows, data, cholespy.MatrixType.CSC
                )
        except (ValueError, RuntimeError):
            return None

    def _times(self, p: np.ndarray, diagonal: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return H p and the curvatures along p; raise if one is not positive."""
        hp = self._matrix @ p
        if diagonal is not None:
            hp += diagonal.reshape(-1, *[1] * (p.ndim - 1)) * p
        curvature = _dots(p, hp)
        # A zero column is already solved.
        if not (curvature > 0.0).all() and not (curvature > 0.0)[np.abs(p).any(axis=0)].all():
            self.statistics.indefinite += 1
            raise IndefiniteHessianError
        return hp, curvature

    def _conjugate_gradients(
        self, b: np.ndarray, target: np.ndarray, diagonal: np.ndarray | None
    ) -> tuple[np.ndarray, int, bool]:
        """Return x with |H x - b|² <= target in every column, the number of iterations, and whether it converged."""
        if b.ndim == 1:
            return self._one_column(b, target, diagonal)
        x = np.zeros_like(b)
        open_columns = _dots(b, b) > target
        if not open_columns.any():
            return x, 0, True
        r = np.where(open_columns, b, 0.0)
        p = self.approximate(r)
        rz = _dots(r, p)
        for iteration in range(1, _MAX_ITERATIONS + 1):
            hp, curvature = self._times(p, diagonal)
            alpha = np.divide(rz, curvature, out=np.zeros_like(rz), where=open_columns)
            x += alpha * p
            r -= alpha * hp
            self.statistics.iterations += 1
            open_columns = open_columns & (_dots(r, r) > target)
            if not open_columns.any():
                return x, iteration, True
            z = self.approximate(r)
            rz_new = _dots(r, z)
            beta = np.divide(rz_new, rz, out=np.zeros_like(rz), where=open_columns)
            p = np.where(open_columns, z + beta * p, 0.0)
            rz = rz_new
        return x, _MAX_ITERATIONS, False

    def _one_column(
        self, b: np.ndarray, target: np.ndarray, diagonal: np.ndarray | None
    ) -> tuple[np.ndarray, int, bool]:
        """Same for a single right-hand side, without the bookkeeping for columns that converge at different times."""
        x, r = np.zeros_like(b), b.copy()
        if not r @ r > target:
            return x, 0, True
        p = self.approximate(r)
        rz = r @ p
        for iteration in range(1, _MAX_ITERATIONS + 1):
            hp, curvature = self._times(p, diagonal)
            alpha = rz / curvature
            x += alpha * p
            r -= alpha * hp
            self.statistics.iterations += 1
            if not r @ r > target:
                return x, iteration, True
            z = self.approximate(r)
            rz_new = r @ z
            p = z + (rz_new / rz) * p
            rz = rz_new
        return x, _MAX_ITERATIONS, False


def _dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the inner products of the columns."""
    if a.ndim == 1:
        return a @ b
    return np.einsum("i...,i...->...", a, b)


def _use(
    guess: np.ndarray | None, matrix: sp.bsr_matrix, b: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the guess, zero in columns where it is worse than zero, and its residual."""
    if guess is None:
        return None, b
    rest = b - matrix @ guess
    better = _dots(rest, rest) < _dots(b, b)
    if b.ndim == 1:
        return (guess, rest) if better else (None, b)
    return np.where(better, guess, 0.0), np.where(better, rest, b)


def _is_positive_definite(matrix: sp.csc_matrix) -> bool:
    """Return True if a symmetric matrix is positive definite.

    LU without exchange of rows is L D Lᵀ, and D has the signs of the eigenvalues (Sylvester's law of inertia).
    """
    try:
        factor = splu(
            matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:  # a pivot is exactly zero
        return False
    return bool((factor.perm_r == factor.perm_c).all() and (factor.U.diagonal() > 0.0).all())
