"""Stiffnesses that switch on and off during a cut: where the halves press on each other, and nodes on the board."""

import numpy as np
import scipy.sparse as sp

from disect_sim.model import ONSET_M, OVERLAP_ONSET_M, Model
from disect_sim.sparsity import BlockPattern


class Switches:
    """One switch per spring, along the normal of the cut, then one per node that can touch the board, upwards."""

    def __init__(self, model: Model, pattern: BlockPattern) -> None:
        m = self._model = model
        springs, board = m.spring_count, len(m.board_nodes)
        nodes = np.concatenate([np.repeat(m.spring_nodes.ravel(), 3), m.board_nodes])
        axis = np.concatenate([np.tile([0, 1, 2], 4 * springs), np.ones(board, int)])
        weights = (m.spring_weights[:, :, None] * m.spring_normal[:, None, :]).ravel()
        values = np.concatenate([weights, np.ones(board)])
        rows = np.concatenate([np.repeat(np.arange(springs), 12), springs + np.arange(board)])
        free = pattern.free_index[nodes] >= 0
        columns = 3 * pattern.free_index[nodes] + axis
        self.directions = sp.csr_matrix(
            (values[free], (rows[free], columns[free])), shape=(springs + board, 3 * pattern.free_count)
        )
        """Rows over the unknowns of the Hessian, shape [switch_count, 3 free_count]."""

    def stiffness(self, x: np.ndarray, spring_stiffness: np.ndarray) -> np.ndarray:
        """At the positions x, with these springs: stiffness along the directions [N/m], shape [switch_count]."""
        m = self._model
        apart = ((m.spring_operator @ x) * m.spring_normal).sum(axis=1)
        closed = m.overlap_stiffness * np.clip(-apart / OVERLAP_ONSET_M, 0.0, 1.0)
        depth = m.board.radius_m - x[m.board_nodes, 1]
        pressed = m.board.ke * m.board_area_ratio * np.clip(depth / ONSET_M, 0.0, 1.0)
        return np.concatenate([spring_stiffness + closed, pressed])
