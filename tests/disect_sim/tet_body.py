"""An uncut elastic body under the simulator's tet kernels, as plain functions of node positions."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import warp as wp
from scipy.sparse.linalg import spsolve

from disect_sim.kernels import elasticity
from disect_sim.parameters import Material
from disect_sim.sparsity import block_pattern, element_slots


@dataclass(frozen=True)
class Evaluation:
    """What the kernels say about one configuration."""

    elastic: float
    """[J]"""
    viscous: float
    """Increment of the dissipation potential [J]."""
    gradient: np.ndarray
    """[N], shape [node_count, 3]."""


class TetBody:
    """Tets with a material; `x` [m] has shape [node_count, 3]; without x_previous there is no damping."""

    def __init__(self, nodes, tets, material: Material):
        self.nodes = np.asarray(nodes, float)
        self.tets = np.sort(tets, axis=1).astype(np.int32)
        edges = np.stack(
            [self.nodes[self.tets[:, a]] - self.nodes[self.tets[:, 0]] for a in (1, 2, 3)], axis=2
        )
        volume = np.abs(np.linalg.det(edges)) / 6.0
        self.lumped_volume = np.bincount(
            self.tets.ravel(), np.repeat(volume / 4.0, 4), minlength=len(self.nodes)
        )
        g = self._geometry = elasticity.TetGeometry()
        g.nodes = wp.array(self.tets, dtype=wp.vec4i, device="cpu")
        g.shape_gradients = wp.array(np.linalg.inv(edges), dtype=wp.mat33d, device="cpu")
        g.volume = wp.array(volume, dtype=wp.float64, device="cpu")
        g.number = wp.array(np.arange(len(self.tets), dtype=np.int32), device="cpu")
        g.per_copy = len(self.tets)
        e = elasticity.Elastic()
        e.lame_mu, e.lame_lambda = material.lame_mu_pa, material.lame_lambda_pa
        e.retardation = material.retardation_s
        self._elastic = wp.array([e], dtype=elasticity.Elastic, device="cpu")
        self._pattern = block_pattern([self.tets], np.zeros(len(self.nodes), bool))
        self._slots = wp.array(element_slots(self._pattern, self.tets), device="cpu")

    def evaluate(self, x, x_previous=None, dt=1e-3) -> Evaluation:
        energy = wp.zeros(len(self.tets), dtype=wp.vec3d, device="cpu")
        gradient = wp.zeros(len(self.nodes), dtype=wp.vec3d, device="cpu")
        inputs = [self._geometry, self._elastic, wp.float64(dt), 0, *self._states(x, x_previous)]
        wp.launch(
            elasticity.tet_gradient,
            dim=len(self.tets),
            inputs=inputs,
            outputs=[energy, gradient],
            device="cpu",
        )
        elastic, viscous, _ = energy.numpy().sum(axis=0)
        return Evaluation(elastic, viscous, gradient.numpy())

    def hessian(self, x, x_previous=None, dt=1e-3) -> sp.csc_matrix:
        """Hessian of elastic and viscous energy together [N/m], shape [3 n, 3 n]."""
        p = self._pattern
        blocks = wp.zeros(p.trash + 1, dtype=wp.mat33d, device="cpu")
        inputs = [self._geometry, self._elastic, wp.float64(dt), self._slots, 0]
        inputs += self._states(x, x_previous)
        wp.launch(elasticity.tet_hessian, dim=len(self.tets), inputs=inputs, outputs=[blocks], device="cpu")
        data = blocks.numpy()[:-1].copy()
        data[p.lower] = data[p.upper].transpose(0, 2, 1)
        size = 3 * p.free_count
        return sp.bsr_matrix((data, p.indices, p.indptr), shape=(size, size)).tocsc()

    def pullback(self, x, x_previous, v, dt=1e-3):
        """-v . d(gradient)/d(lame_mu, lame_lambda, retardation), shape [3], and /d(x_previous), shape [n, 3]."""
        moduli = wp.zeros((1, len(self.tets)), dtype=wp.vec3d, device="cpu")
        x_bar = wp.zeros((1, len(self.nodes)), dtype=wp.vec3d, device="cpu")
        inputs = [self._geometry, self._elastic, wp.float64(dt), 0, 1, *self._states(x, x_previous)]
        inputs.append(wp.array(v[None], dtype=wp.vec3d, device="cpu"))
        wp.launch(
            elasticity.tet_pullback,
            dim=len(self.tets),
            inputs=inputs,
            outputs=[moduli, x_bar],
            device="cpu",
        )
        return moduli.numpy()[0].sum(axis=0), x_bar.numpy()[0]

    def static_solution(self, held, x_start, load=0.0, iterations=12):
        """Positions [m] with no net force where `held` (shape [n, 3], bool) is False, by plain Newton."""
        x = np.array(x_start, float)
        free = np.flatnonzero(~held.ravel())
        for _ in range(iterations):
            residual = (self.evaluate(x).gradient - load).ravel()[free]
            step = spsolve(self.hessian(x)[free][:, free], residual)
            x.ravel()[free] -= step
            if np.abs(step).max() < 1e-14:
                break
        return x

    def _states(self, x, x_previous):
        previous = x if x_previous is None else x_previous
        return [wp.array(np.ascontiguousarray(a), dtype=wp.vec3d, device="cpu") for a in (x, previous)]
