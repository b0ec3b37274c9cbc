"""Clusters of nodes that move together: the coarse space of the device's linear solver."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular

from disect_sim.model import Model
from disect_sim.sparsity import BlockPattern

CLUSTERS = 40
"""Each adds twelve unknowns; on 1,800 to 4,000 tets 40 need 12 to 15 iterations where 16 need 14 to 20."""
NODES_PER_CLUSTER = 8
"""At least: an affine map of fewer nodes is hardly coarser than the nodes."""
NEGLIGIBLE = 1.0e-10
"""Stiffness, beside ones on the diagonal, below which a coarse motion counts as none: flat clusters have some."""


@dataclass(frozen=True)
class Clusters:
    """The free nodes in clusters."""

    cluster: np.ndarray
    """Of every free node, shape [free_count], int32."""
    functions: np.ndarray
    """1 and the coordinates in the cluster at rest, -1 to 1, shape [free_count, 4]."""

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.cluster.max()) + 1

    @property
    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each cluster starts, shape [count + 1], and the free nodes cluster after cluster, both int32."""
        order = np.argsort(self.cluster, kind="stable").astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.cluster))])
        return starts.astype(np.int32), order

    def prolongation(self) -> sp.csr_matrix:
        """From amplitudes [12 count] to displacements [3 free_count]."""
        free = len(self.cluster)
        place = sp.csr_matrix(
            (
                self.functions.ravel(),
                (np.repeat(np.arange(free), 4), (4 * self.cluster[:, None] + np.arange(4)).ravel()),
            ),
            shape=(free, 4 * self.count),
        )
        return sp.kron(place, sp.identity(3), format="csr")


def node_clusters(model: Model) -> Clusters:
    """Halve the largest cluster along its longest side, beginning with the two sides of the cut, which part."""
    mesh = model.mesh
    side = np.zeros(model.node_count, np.int64)
    side[mesh.tets.ravel()] = np.repeat(mesh.tet_side, 4)
    free = ~model.fixed
    x, side = mesh.nodes[free], side[free]
    groups = [np.flatnonzero(side == s) for s in np.unique(side)]
    wanted = max(len(groups), min(CLUSTERS, len(x) // NODES_PER_CLUSTER))
    while len(groups) < wanted:
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
    return Clusters(cluster, functions)


def coarse_inverse(clusters: Clusters, pattern: BlockPattern, blocks: np.ndarray) -> np.ndarray:
    """Inverse of the Hessian on the coarse space [m/N], shape [4 count, 4 count, 3, 3].

    Motions without positive stiffness are left out, so that the answer is never indefinite.
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
    """Inverse of a symmetric matrix with ones on its diagonal, on the part where it is positive.

    Eigenvalues cost ten times as much, so they are asked only where a Cholesky factor says that they are needed.
    """
    try:
        lower = np.linalg.cholesky(matrix - NEGLIGIBLE * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        kept = values > NEGLIGIBLE * values.max()
        return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    half = solve_triangular(lower, np.eye(len(matrix)), lower=True)
    return half.T @ half
