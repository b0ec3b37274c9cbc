"""Likelihood of a log: distance of a simulated profile in units of measurement and model error."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.problem import Problem
from stages.shared.fitting import rough_correlation
from stages.shared.library.library import VARIATION

_BIN_M = 3.0e-3
"""Depth over which forces are averaged [m]: finer detail is noise or fibres no model resolves."""
NOISE_N = 0.3
"""Minimum noise of a bin's mean [N]: repeatability and tare of a good log."""
_DRAWN_M = 5.0e-3
"""Distance the blade must be drawn for the force along it to count [m]; otherwise it comes from the fruit's tilt."""
UP, _ALONG = 1, 2

_Array = NDArray[np.float64]
_Flag = bool | NDArray[np.bool_]


@dataclass(frozen=True)
class ModelError:
    """Model error of a cut as a fraction of its mean force: a slow and a fast normal field over the height of the edge.

    Both are Matérn 3/2 fields. Another cut of the same fruit has a part of them; another body has none.
    """

    slow: float
    """Standard deviation [-]."""
    slow_length_m: float
    """Correlation length [m]."""
    slow_again: float
    """Correlation between two cuts of one fruit at the same height [-]."""
    fast: float
    fast_length_m: float
    fast_again: float

    def covariance(self, a: _Array, b: _Array, same_cut: _Flag = True) -> _Array:
        """Return the covariance between heights a and b [m], shape [len(a), len(b)].

        same_cut: whether they are of one cut or of two of one fruit, one value or shape [len(a), len(b)].
        """
        slow = self.slow**2 * rough_correlation(a, b, self.slow_length_m)
        fast = self.fast**2 * rough_correlation(a, b, self.fast_length_m)
        out: _Array = np.where(same_cut, slow + fast, self.slow_again * slow + self.fast_again * fast)
        return out

    @property
    def deviation(self) -> float:
        """Standard deviation of both together [-]."""
        return float(np.hypot(self.slow, self.fast))


MODEL_ERROR = ModelError(**VARIATION["model_error"]["values"])
"""As learnt from real logs by their marginal likelihood."""


@dataclass(frozen=True)
class DepthLikelihood:
    """One log as mean forces over slices of depth, with their covariance."""

    problem: Problem
    slices: _Array
    """Averaging matrix of the slices, shape [slice_count, sample_count]."""
    components: tuple[int, ...]
    """Components of the force that are compared: upward, and along the blade if it was drawn."""
    factor: _Array
    """Cholesky factor of the covariance of one component [N], shape [slice_count, slice_count]."""
    noise_n: float
    """Noise of a slice's mean, without the model error [N]."""

    def residual(self, force: _Array) -> _Array:
        """Return the residual of a filtered force [N], shape [sample_count, 3], in standard deviations [row_count]."""
        return self._whitened(force - self.problem.measured_force)

    def along(self, force: _Array) -> _Array:
        """Return the derivative of the residual along a change of the filtered force [N], shape [row_count]."""
        return self._whitened(force)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Training samples, shape [sample_count]."""
        return np.asarray((self.slices > 0.0).any(axis=0), bool)

    def log_likelihood(self, force: _Array) -> tuple[float, _Array]:
        """Return the log-likelihood up to a constant, and its derivative in the filtered force [sample_count, 3]."""
        residual = self.residual(force)
        bar = np.zeros_like(force)
        weight = np.linalg.solve(self.factor, self.slices)
        for part, component in zip(np.split(residual, len(self.components)), self.components, strict=True):
            bar[:, component] = -part @ weight
        return -0.5 * float(residual @ residual), bar

    def force_bars(self) -> _Array:
        """Return the derivative of every residual in the simulated force, shape [row_count, sample_count, 3]."""
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
    """Return the likelihood over the samples in use; uncertainty_n: of the log's force [N]."""
    depth = problem.height.max() - problem.height
    below = depth - depth[use].min()
    # Whole slices only: a remainder of less than half a slice is added to the last one.
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
    """Return the noise of a slice's mean, given the uncertainty of the log's force [N]."""
    return max(uncertainty_n, NOISE_N)


def noise_factor(problem: Problem, means: _Array, uncertainty_n: float) -> _Array:
    """Return the Cholesky factor of the covariance of means over samples, by the log's and the model's error [N].

    Args:
        problem: The cut.
        means: Weights of the samples in every mean, shape [mean_count, sample_count].
        uncertainty_n: Of the log's force [N].
    """
    depth = problem.height.max() - problem.height
    middle = means @ depth
    model = (means @ problem.measured).mean() ** 2 * MODEL_ERROR.covariance(middle, middle)
    noise = _noise_of(uncertainty_n) ** 2 * np.eye(len(means))
    return np.asarray(np.linalg.cholesky(model + noise), float)
