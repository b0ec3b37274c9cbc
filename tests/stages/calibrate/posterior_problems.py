"""Posteriors that are known: a normal one in closed form, and a curved one of two unknowns by a fine grid."""

from dataclasses import dataclass, replace

import numpy as np

from stages.calibrate.samplers.sampling import Sampling

DEPTH = np.linspace(0.1, 1.0, 8)
NOISE = 0.15


@dataclass(frozen=True)
class NormalTarget:
    """y = A t + noise of 1, prior standard normal: the posterior is normal."""

    operator: np.ndarray
    data: np.ndarray

    @property
    def names(self):
        return [f"t{i}" for i in range(self.operator.shape[1])]

    @property
    def covariance(self):
        return np.linalg.inv(self.operator.T @ self.operator + np.eye(self.operator.shape[1]))

    @property
    def mean(self):
        return self.covariance @ self.operator.T @ self.data

    def log_probability(self, t):
        residual = self.operator @ t - self.data
        return -0.5 * float(residual @ residual + t @ t), -(self.operator.T @ residual + t)

    def log_probabilities(self, ts, workers):
        return np.array([self.log_probability(t)[0] for t in ts])

    def summaries(self, ts, workers):
        return ts @ self.operator.T

    def noisy(self, summaries, random):
        return summaries + random.standard_normal(summaries.shape)

    @property
    def observed(self):
        return self.data


def normal_target() -> NormalTarget:
    random = np.random.default_rng(3)
    operator = random.standard_normal((6, 2)) @ np.array([[1.5, 0.9], [0.0, 0.8]])
    return NormalTarget(operator, operator @ np.array([0.8, -0.5]) + random.standard_normal(6))


@dataclass(frozen=True)
class CurvedTarget:
    """A force that grows with depth as exp(t0 / 2) x^(1 + t1 / 2), in noise: a bent posterior of two unknowns."""

    data: np.ndarray

    names = ("size", "power")

    def force(self, ts):
        ts = np.asarray(ts)
        return np.exp(0.5 * ts[..., :1]) * DEPTH ** (1.0 + 0.5 * ts[..., 1:])

    def log_probability(self, t):
        force = self.force(t)
        residual = (force - self.data) / NOISE
        slopes = np.stack([0.5 * force, 0.5 * np.log(DEPTH) * force]) / NOISE
        return -0.5 * float(residual @ residual + t @ t), -(slopes @ residual) - t

    def log_probabilities(self, ts, workers=None):
        return -0.5 * (((self.force(ts) - self.data) / NOISE) ** 2).sum(axis=-1) - 0.5 * (ts**2).sum(axis=-1)

    def summaries(self, ts, workers):
        return self.force(ts)

    def noisy(self, summaries, random):
        return summaries + NOISE * random.standard_normal(summaries.shape)

    @property
    def observed(self):
        return self.data

    def laplace(self):
        """Most probable point and covariance by Gauss-Newton steps."""
        t = np.zeros(2)
        for _ in range(50):
            force = self.force(t)
            j = np.stack([0.5 * force, 0.5 * np.log(DEPTH) * force], axis=1) / NOISE
            curvature = j.T @ j + np.eye(2)
            t = t + 0.5 * np.linalg.solve(curvature, self.log_probability(t)[1])
        return t, np.linalg.inv(curvature)

    def by_fine_grid(self):
        """Mean and covariance by brute force, far finer than any sample: 400 x 400 points."""
        axis = np.linspace(-5.0, 5.0, 400)
        points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        logs = self.log_probabilities(points)
        weight = np.exp(logs - logs.max())
        weight /= weight.sum()
        mean = weight @ points
        return mean, (points - mean).T @ ((points - mean) * weight[:, None])


def curved_target(truth=(0.6, 0.8), seed=1) -> CurvedTarget:
    clean = CurvedTarget(np.zeros_like(DEPTH)).force(np.array(truth))
    return CurvedTarget(clean + NOISE * np.random.default_rng(seed).standard_normal(len(DEPTH)))


def sampling_of(target, /, **settings) -> Sampling:
    """Around the target's Laplace approximation."""
    centre, covariance = (
        (target.mean, target.covariance) if isinstance(target, NormalTarget) else target.laplace()
    )
    return replace(Sampling(target, centre, covariance), **settings)
