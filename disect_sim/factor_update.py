"""A factor of an earlier matrix, corrected for the contacts that have opened or closed since.

Where the halves touch each other or the board, a stiffness switches on and off along one direction. Each such change
is of rank one, H = F + sum_i change_i u_i u_i^T, and Woodbury's formula turns a solve with F into one with H:

    H^-1 b = z - W C^-1 U^T z,    z = F^-1 b,    W = F^-1 U,    C = diag(1 / change) + U^T W
"""

from typing import Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dgetrf, dgetrs

NOTABLE = 0.1
"""Change of a stiffness, over that of the matrix along the same direction, beyond which it is worth a column."""
MAX_COLUMNS = 256
"""Directions of one factor for which F^-1 u is kept."""


class Factor(Protocol):
    """What cholespy offers."""

    def solve(self, b: np.ndarray, x: np.ndarray) -> None:
        """Solve into x, for one or many columns."""


class FactorUpdate:
    """Solves with a factor and the changes since. `directions`: the u_i as rows, shape [switch_count, size]."""

    def __init__(self, directions: sp.csr_matrix) -> None:
        self._directions = directions
        self._squared = directions.multiply(directions).tocsr()
        most = min(MAX_COLUMNS, directions.shape[0])
        self._columns = np.empty((most, directions.shape[1]))
        """W transposed: one row per direction that has changed notably since the factor was made, `_known` in all."""
        self._coupling = np.empty((most, directions.shape[0]))
        """W^T U for all directions."""
        self._known = 0
        self._changed = np.zeros(0, np.int64)

    def restart(self, factor: Factor, stiffness: np.ndarray, diagonal: np.ndarray) -> None:
        """From a new factor of a matrix with this stiffness along the directions [N/m] and this diagonal."""
        self._factor, self._start = factor, stiffness.copy()
        self._compliance = self._squared @ (1.0 / diagonal)
        self._place = np.full(len(stiffness), -1)
        self._known, self._changed = 0, self._changed[:0]

    def use(self, stiffness: np.ndarray) -> None:
        """Take these stiffnesses for the present ones [N/m], shape [switch_count]."""
        change = stiffness - self._start
        weight = np.abs(change) * self._compliance
        notable = np.flatnonzero(weight > NOTABLE)
        self._add(notable[self._place[notable] < 0])
        changed = self._changed = notable[self._place[notable] >= 0]
        if len(changed) == 0:
            return
        place = self._place[changed]
        self._solved = self._columns[place]
        matrix = self._coupling[place[:, None], changed]
        matrix[np.diag_indices(len(changed))] += 1.0 / change[changed]
        self._lu = dgetrf(matrix)[:2]

    def solve(self, b: np.ndarray) -> np.ndarray:
        """H^-1 b, as far as the changes say; b of shape [size] or [size, columns]."""
        z = np.empty_like(b)
        self._factor.solve(b, z)
        if len(self._changed):
            along = (self._directions @ z)[self._changed]
            z -= self._solved.T @ dgetrs(*self._lu, along)[0].reshape(along.shape)
        return z

    def _add(self, wanted: np.ndarray) -> None:
        """Columns for these directions, as many as there is room for."""
        wanted = wanted[: len(self._columns) - self._known]
        if len(wanted) == 0:
            return
        right = np.ascontiguousarray(self._directions[wanted].T.toarray())
        solved = np.empty_like(right)
        self._factor.solve(right, solved)
        rows = slice(self._known, self._known + len(wanted))
        self._place[wanted] = np.arange(rows.start, rows.stop)
        self._columns[rows] = solved.T
        self._coupling[rows] = (self._directions @ solved).T
        self._known = rows.stop
