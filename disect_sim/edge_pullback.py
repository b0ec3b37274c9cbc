"""The vector-Jacobian products of the edge law, for one or many gradients at once (last axis: columns)."""

from dataclasses import dataclass

import numpy as np
import warp as wp

from disect_sim.adjoint_kernel import AdjointKernel, repeated
from disect_sim.device_arrays import upload, zeros
from disect_sim.edge_cut import EdgeCut, EdgeLoad
from disect_sim.kernels import edge

SEVERED_AFTER_M = float(edge.SEVER_LENGTH)
"""Depth at which a sample's springs are gone [m]."""


@dataclass
class EdgeBars:
    """Gradients in what the edge's force or its way through the body depends on."""

    x: np.ndarray
    """In the positions it was asked at [1/m], shape [node_count, 3, columns]."""
    pose: np.ndarray
    """In the knife's position [1/m], shape [3, columns]."""
    passed: np.ndarray
    """In the largest depths at the start of the step [1/m], shape [sample_count, columns]."""


class EdgePullback:
    """Runs the edge law backwards, and adds up the gradients in its parameters on the way."""

    def __init__(self, cut: EdgeCut, columns: int) -> None:
        self._cut, self._columns = cut, columns
        self._mean_transposed = cut.spring_mean.T.tocsr()
        count = len(cut.samples)
        self._toughness, self._rise = np.zeros((2, count, columns))
        self._area = zeros(count * columns, wp.float64)
        numbers = dict.fromkeys(("passed", "toughness", "rise"), wp.float64)
        self._force = AdjointKernel(
            edge.edge_force,
            count,
            columns,
            constants={"half_length": cut.half_length, "area": self._area},
            inputs={"point": wp.vec3d, "velocity": wp.vec3d} | numbers,
            outputs={"force": wp.vec3d},
        )
        self._passes = AdjointKernel(
            edge.edge_passes,
            count,
            columns,
            constants={"half_length": cut.half_length},
            inputs={"point": wp.vec3d, "passed": wp.float64},
            outputs={"passed": wp.float64, "severed": wp.float64},
        )

    def load(
        self, load: EdgeLoad, passed: np.ndarray, v: np.ndarray, force_bar: np.ndarray
    ) -> tuple[EdgeBars, np.ndarray]:
        """Through the edge's force on the body and on the knife; also the gradient in the knife's velocity.

        v: what the force on the nodes is worth, shape [node_count, 3, columns]; force_bar: the same for the knife.
        """
        paying, at = load.paying, self._cut.at_samples
        count = len(paying)
        upload(self._area, repeated(self._cut.samples.area[paying], self._columns))
        self._force.fill(
            point=load.point[paying],
            velocity=np.tile(load.velocity, (count, 1)),
            passed=passed[paying],
            toughness=at.toughness[paying],
            rise=at.rise[paying],
        )
        bar = self._force.run(count, force=self._cut.samples.places(v)[paying] - force_bar)
        self._toughness[paying] += bar["toughness"]
        self._rise[paying] += bar["rise"]
        passed_bar = np.zeros((len(passed), self._columns))
        passed_bar[paying] = bar["passed"]
        return self._bars(bar["point"], paying, passed_bar), bar["velocity"].sum(axis=0)

    def passes(
        self,
        x: np.ndarray,
        pose: np.ndarray,
        passed: np.ndarray,
        passed_bar: np.ndarray,
        stiffness_bar: np.ndarray,
    ) -> EdgeBars:
        """Through the state at the end of a step: largest depths and stiffness [spring_count, columns]."""
        cut = self._cut
        point = cut.samples.places(x) - pose
        near = np.flatnonzero((point[:, 1] > passed) | ((passed > 0.0) & (passed < SEVERED_AFTER_M)))
        self._passes.fill(point=point[near], passed=passed[near])
        severed_bar = -(self._mean_transposed @ (cut.initial[:, None] * stiffness_bar))
        bar = self._passes.run(len(near), passed=passed_bar[near], severed=severed_bar[near])
        before = passed_bar.copy()  # what the edge has not come nearer to stays as it was
        before[near] = bar["passed"]
        return self._bars(bar["point"], near, before)

    def spring_gradients(self) -> dict[str, np.ndarray]:
        """In the parameters of the law, each of shape [spring_count, columns]."""
        return self._cut.spring_gradients(self._toughness, self._rise)

    def _bars(self, point_bar: np.ndarray, which: np.ndarray, passed_bar: np.ndarray) -> EdgeBars:
        at_samples = np.zeros((len(self._cut.samples), 3, self._columns))
        at_samples[which] = point_bar
        return EdgeBars(self._cut.to_nodes(at_samples), -point_bar.sum(axis=0), passed_bar)
