"""How far a simulated profile is from the log, in units of what both are known to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.problem import Problem
from stages.shared.fitting import rough_correlation

_BIN_M = 3.0e-3
"""Forces are compared as means over so much depth [m]: finer detail is noise or fibres no model knows."""
CORRELATION_M = 6.0e-3
"""Over which the model's own error keeps its sign [m]."""
MODEL_ERROR = 0.08
"""The model's own error, as a share of the mean force [-]: what five numbers leave of a real cut."""
NOISE_N = 0.3
"""Of a bin's mean, at least [N]: repeatability and tare of a good log."""
_DRAWN_M = 5.0e-3
"""The force along the blade counts where the blade was drawn further than this [m]; else it is the fruit's lean."""
UP, _ALONG = 1, 2

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class DepthLikelihood:
    """One log as mean forces over slices of depth, with their covariance."""

    problem: Problem
    slices: _Array
    """Means of the samples over every slice, shape [slice_count, sample_count]."""
    components: tuple[int, ...]
    """Of the force that are compared: upward, and along the blade where it was drawn."""
    factor: _Array
    """Cholesky factor of the covariance of one component [N], shape [slice_count, slice_count]."""
    noise_n: float
    """Of a slice's mean, beside the model's error [N]."""

    def residual(self, force: _Array) -> _Array:
        """Differences of a filtered force [N], shape [sample_count, 3], in standard deviations, shape [row_count]."""
        return self._whitened(force - self.problem.measured_force)

    def along(self, force: _Array) -> _Array:
        """Derivative of the residual along a change of the filtered force [N], shape [row_count]."""
        return self._whitened(force)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Samples that count, shape [sample_count]."""
        return np.asarray((self.slices > 0.0).any(axis=0), bool)

    def log_likelihood(self, force: _Array) -> tuple[float, _Array]:
        """Up to a constant, and its derivative in the filtered force, shape [sample_count, 3]."""
        residual = self.residual(force)
        bar = np.zeros_like(force)
        weight = np.linalg.solve(self.factor, self.slices)
        for part, component in zip(np.split(residual, len(self.components)), self.components, strict=True):
            bar[:, component] = -part @ weight
        return -0.5 * float(residual @ residual), bar

    def force_bars(self) -> _Array:
        """Derivative of every residual in the simulated force, shape [row_count, sample_count, 3]."""
        weight = np.linalg.solve(self.factor, self.slices) @ self.problem.filter_matrix.numpy()
        count = len(weight)
        bars = np.zeros((count * len(self.components), weight.shape[1], 3))
        for i, component in enumerate(self.components):
            bars[i * count : (i + 1) * count, :, component] = weight
        return bars

    def _whitened(self, force: _Array) -> _Array:
        means = self.slices @ force[:, list(self.components)]
        return np.asarray(np.linalg.solve(self.factor, means), float).T.ravel()


def depth_likelihood(problem: Problem, use: NDArray[np.bool_], uncertainty_n: float) -> DepthLikelihood:
    """The likelihood over the samples in use; uncertainty_n: of the log's force [N]."""
    depth = problem.height.max() - problem.height
    below = depth - depth[use].min()
    # Whole slices only: what is left at the end goes to the last one, if it is less than half of one.
    last = max(0, int(np.floor(below[use].max() / _BIN_M + 0.5)) - 1)
    number = np.minimum(np.floor(below / _BIN_M).astype(int), last)
    rows = []
    for each in np.unique(number[use]):
        chosen = use & (number == each)
        rows.append(chosen / chosen.sum())
    slices = np.array(rows)
    components = (UP, _ALONG) if problem.drawn_m > _DRAWN_M else (UP,)
    factor = noise_factor(problem, slices, uncertainty_n)
    return DepthLikelihood(problem, slices, components, factor, _noise_of(uncertainty_n))


def _noise_of(uncertainty_n: float) -> float:
    """Of a slice's mean, where the log's force is known to this [N]."""
    return max(uncertainty_n, NOISE_N)


def noise_factor(problem: Problem, means: _Array, uncertainty_n: float) -> _Array:
    """Cholesky factor of the covariance of means over samples, by the log's and the model's error [N].

    Args:
        problem: The cut.
        means: Weights of the samples in every mean, shape [mean_count, sample_count].
        uncertainty_n: Of the log's force [N].
    """
    depth = problem.height.max() - problem.height
    middle = means @ depth
    alike = rough_correlation(middle, middle, CORRELATION_M)
    model = (MODEL_ERROR * (means @ problem.measured).mean()) ** 2 * alike
    noise = _noise_of(uncertainty_n) ** 2 * np.eye(len(means))
    return np.asarray(np.linalg.cholesky(model + noise), float)
