"""How far a simulated profile is from the log, in units of what both are known to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.result import Result
from stages.calibrate.problem import Problem

BIN_M = 3.0e-3
"""Forces are compared as means over so much depth [m]: finer detail is noise or fibres no model knows."""
CORRELATION_M = 6.0e-3
"""Over which the model's own error keeps its sign [m]."""
MODEL_ERROR = 0.08
"""The model's own error, as a share of the mean force [-]: what five numbers leave of a real cut."""
NOISE_N = 0.3
"""Of a bin's mean, at least [N]: repeatability and tare of a good log."""
TINY_N = 1.0e-9

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DepthLikelihood:
    """The log as mean forces over slices of depth, with their covariance."""

    problem: Problem
    slices: Array
    """Means of the samples over every slice, shape [slice_count, sample_count]."""
    measured: Array
    """[N], shape [slice_count]."""
    factor: Array
    """Cholesky factor of the covariance [N], shape [slice_count, slice_count]."""

    def __len__(self) -> int:
        return len(self.measured)

    def residual(self, profile: Array) -> Array:
        """Differences of a profile [N] in standard deviations, independent of one another, shape [slice_count]."""
        return np.asarray(np.linalg.solve(self.factor, self.slices @ profile - self.measured), float)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Samples that count, shape [sample_count]."""
        return np.asarray((self.slices > 0.0).any(axis=0), bool)

    def force_bars(self, result: Result) -> Array:
        """Derivative of every residual in the simulated force, shape [slice_count, sample_count, 3]."""
        low_pass = self.problem.filter_matrix.numpy()
        smooth = low_pass @ result.force
        direction = smooth / np.maximum(np.linalg.norm(smooth, axis=1, keepdims=True), TINY_N)
        weight = np.linalg.solve(self.factor, self.slices)
        bars = weight[:, :, None] * direction
        back: Array = np.einsum("ts,btc->bsc", low_pass, bars)
        return back


def depth_likelihood(problem: Problem, use: NDArray[np.bool_], uncertainty_n: float) -> DepthLikelihood:
    """The likelihood over the samples in use; uncertainty_n: of the log's force [N]."""
    depth = problem.height.max() - problem.height
    number = np.floor((depth - depth[use].min()) / BIN_M).astype(int)
    rows = []
    for each in np.unique(number[use]):
        chosen = use & (number == each)
        rows.append(chosen / chosen.sum())
    slices = np.array(rows)
    measured = slices @ problem.measured
    middle = slices @ depth
    apart = (middle[:, None] - middle) / CORRELATION_M
    model = (MODEL_ERROR * measured.mean()) ** 2 * np.exp(-0.5 * apart**2)
    noise = max(uncertainty_n, NOISE_N) ** 2 * np.eye(len(measured))
    return DepthLikelihood(problem, slices, measured, np.linalg.cholesky(model + noise))
