"""Reduced (strip) model of a sawing knife in food: the edge law behind two springs, and its fit to a force log.

The measured knife x and the cutting edge c are points of the plane of the blade, in the frame of the edge: t along it,
n into the food. Springs between them carry the force on the food, F = K (x - c), relaxing in part (standard linear
solid). With the direction v of the edge's motion at angle theta to n (slice-push ratio xi = tan theta) the law is

    F = A(d) [ e n + (m + a cos theta) v ],

which is Fn = A (e + a/(1+xi^2) + m/sqrt(1+xi^2)), Ft = A xi (a/(1+xi^2) + m/sqrt(1+xi^2)). It is a yield surface: below
it the edge rests (stick at reversals, a descent that stops) and the springs hold the force; at it the edge moves along
F - A e n. Below Fn = A e the edge slides without penetrating, at |Ft| = A m. One implicit step per sample, in closed
form up to a fixed-point iteration for springs of different stiffness; many parameter sets are integrated at once. d is
how deep the edge has been along its normal; log A is a Gaussian process over d.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP_S = 0.05
"""Sampling of a run for the model [s]."""
CORRELATION_S = 0.3
"""Correlation time of the model's errors [s]: a sample counts for STEP_S / (2 CORRELATION_S) of an independent one."""
ERROR_FRACTION, ERROR_N = 0.12, 0.2
"""Standard deviation of the model's error: fraction of the run's root mean square force, and a floor [N]."""
KNOT_M, CURVE_M, CURVE_SD = 0.0025, 0.010, 0.5
"""Knots of log A over depth [m], correlation length [m] and standard deviation of its prior around the mean curve."""
_ROUNDS = 4
"""Fixed-point rounds of the return to the yield surface; 3 change forces by less than 0.01 N."""
LAWS = ("a", "a+m", "a+m+e", "ratio")
"""Slice only; slice and drag; all three; the baseline: Fn = A, |Ft| = r A behind the same springs."""
NAMES = (
    "tilt_deg",
    "log_a_e",
    "log_m_e",
    "log_kt",
    "log_kn",
    "relaxing",
    "log_tau",
    "tare_y",
    "tare_z",
    "log_r",
)
"""Parameters beside log A; stiffness [N/m], relaxing share (logit), relaxation time [s], tare [N]."""
PRIOR_MEAN = np.array([9.0, 0.54, 0.25, np.log(2000.0), np.log(1000.0), -0.5, np.log(1.3), 0.0, 0.0, 0.0])
PRIOR_SD = np.array([3.0, 0.8, 0.45, 0.4, 0.5, 1.0, 0.4, 0.2, 0.2, 0.5])
LEVEL_MEAN, LEVEL_SD = np.log(5.0), 1.0
"""Of log A [N], the same at all depths."""


@dataclass(frozen=True)
class SawingRun:
    """One cut, sampled every STEP_S."""

    name: str
    food: str
    time_s: Array
    """Shape [n]."""
    knife_m: Array
    """Measured knife: y along the stroke, depth below the start; shape [n, 2]."""
    force_n: Array
    """Force on the food along y and downwards, shape [n, 2]."""
    stroke: NDArray[np.int64]
    """Number of the stroke that a sample belongs to, shape [n]."""

    @property
    def forward(self) -> NDArray[np.bool_]:
        """True in strokes towards +y, by stroke; shape [stroke_count]."""
        ends = [self.knife_m[self.stroke == k, 0] for k in range(int(self.stroke.max()) + 1)]
        return np.array([y[-1] > y[0] for y in ends])


@dataclass(frozen=True)
class Prior:
    """Normal prior of a run's parameters."""

    mean: Array
    """Of NAMES, shape [10]."""
    sd: Array
    curve: Callable[[Array], Array]
    """Mean of log A over depth [m]."""
    level_sd: float
    curve_sd: float


FIRST_PRIOR = Prior(PRIOR_MEAN, PRIOR_SD, lambda depth: np.full(depth.shape, LEVEL_MEAN), LEVEL_SD, CURVE_SD)


@dataclass(frozen=True)
class SawingFit:
    """What was fitted to a run, or to some of its strokes."""

    law: str
    values: Array
    """Of NAMES, shape [10]."""
    knots_m: Array
    log_a: Array
    """Log A at the knots, shape [knot_count]."""
    predicted_n: Array
    """Force of all samples, as SawingRun.force_n; also where nothing was fitted."""
    edge_m: Array
    """Motion of the cutting edge in the edge's frame (t, n), shape [n, 2]."""
    objective: float

    @property
    def shares(self) -> Array:
        """a, m, e."""
        return shares_of(self.law, self.values[None])[:, 0]


def shares_of(law: str, values: Array) -> Array:
    """Return a, m, e of every parameter set; shape [3, set_count]."""
    zero = np.zeros(len(values))
    logs = [values[:, 1], values[:, 2], zero]
    if law == "a":
        return np.stack([zero + 1.0, zero, zero])
    if law == "a+m":
        logs[2] = zero - np.inf
    weight = np.exp(np.stack(logs))
    return np.asarray(weight / weight.sum(axis=0))


def law_force(shares: Array, xi: Array) -> tuple[Array, Array]:
    """Return Ft / A and Fn / A at slice-push ratios xi."""
    a, m, e = shares
    drawn = a / (1.0 + xi**2) + m / np.sqrt(1.0 + xi**2)
    return xi * drawn, e + drawn


def edge_frame(tilt_deg: Array) -> Array:
    """Rotations from (y, down) to (t, n), shape [set_count, 2, 2]: forward strokes penetrate more where tilt > 0."""
    angle = np.radians(tilt_deg)
    c, s = np.cos(angle), np.sin(angle)
    return np.moveaxis(np.array([[c, -s], [s, c]]), -1, 0)


def integrate(law: str, run: SawingRun, values: Array, amplitude: Array) -> tuple[Array, Array]:
    """Return force on the food (y, down) and edge position (t, n), shape [n, set_count, 2] each.

    Args:
        law: One of LAWS.
        run: The measured motion; of its force only the first sample is used, as the springs' initial load.
        values: Parameter sets, shape [set_count, 10].
        amplitude: A at every sample [N], shape [n, set_count].
    """
    a, m, e = shares_of(law, values)
    frame = edge_frame(values[:, 0] if law != "ratio" else 0.0 * values[:, 0])
    knife = np.einsum("bij,nj->nbi", frame, run.knife_m)
    kt, kn = np.exp(values[:, 3]), np.exp(values[:, 4])
    share, tau = 1.0 / (1.0 + np.exp(-values[:, 5])), np.exp(values[:, 6])
    tare = values[:, 7:9]
    load = np.einsum("bij,bj->bi", frame, run.force_n[0] - tare)
    ct, cn = knife[0, :, 0] - load[:, 0] / kt, knife[0, :, 1] - load[:, 1] / kn
    st, sn = np.zeros_like(ct), np.zeros_like(ct)
    decay = 1.0 - np.exp(-STEP_S / tau)
    ratio = np.exp(values[:, 9])
    force, edge = np.empty_like(knife), np.empty_like(knife)
    for i, (xt, xn) in enumerate(zip(knife[:, :, 0], knife[:, :, 1], strict=True)):
        big = amplitude[i]
        ft, fn = kt * (xt - ct - share * st), kn * (xn - cn - share * sn)
        if law == "ratio":
            dt, dn = (ft - np.clip(ft, -ratio * big, ratio * big)) / kt, np.maximum(fn - big, 0.0) / kn
        else:
            dt, dn = _yield(ft, fn - big * e, big * a, big * m, kt, kn)
        ct, cn = ct + dt, cn + dn
        force[i, :, 0], force[i, :, 1] = ft - kt * dt, fn - kn * dn
        edge[i, :, 0], edge[i, :, 1] = ct, cn
        st, sn = st + decay * (xt - ct - st), sn + decay * (xn - cn - sn)
    return np.einsum("bji,nbj->nbi", frame, force) + tare, edge


def _yield(gt: Array, gn: Array, a: Array, m: Array, kt: Array, kn: Array) -> tuple[Array, Array]:
    """Return how far the edge moves along t and n so that |g - K d| = m + a cos theta, with d along that direction."""
    gn = np.maximum(gn, 1e-9)
    ut, un = gt, gn
    for _ in range(_ROUNDS):
        size = np.sqrt(ut * ut + un * un)
        s, c = ut / size, un / size
        radius = m + a * c
        moved = np.maximum(gt * s + gn * c - radius, 0.0) / (kt * s * s + kn * c * c)
        ut, un = gt / (kt * moved + radius + 1e-9), gn / (kn * moved + radius + 1e-9)
    # An edge that moves sideways only must not take gn's floor for penetration.
    return moved * s, np.where(gn > 1e-9, moved * c, 0.0)


def fit_run(
    run: SawingRun, law: str, prior: Prior = FIRST_PRIOR, held_out: Sequence[int] = (), iterations: int = 25
) -> SawingFit:
    """Fit one run by damped Gauss-Newton on both force components; strokes in `held_out` count for nothing."""
    knots, whiten, curve = _curve_prior(run, prior)
    used = ~np.isin(run.stroke, held_out)
    used[0] = False
    rms = float(np.sqrt((run.force_n[used] ** 2).sum(axis=1).mean()))
    weight = np.sqrt(STEP_S / (2.0 * CORRELATION_S)) / np.hypot(ERROR_FRACTION * rms, ERROR_N)
    count = len(NAMES)
    active = np.concatenate([_active(law), np.ones(len(knots), bool)])

    def unpack(t: Array) -> tuple[Array, Array]:
        values = prior.mean + prior.sd * t[:, :count]
        return values, curve + t[:, count:] @ whiten.T

    def residuals(t: Array) -> Array:
        values, log_a = unpack(t)
        force, _ = integrate(law, run, values, amplitude_of(penetration(run, values[:, 0]), knots, log_a))
        wrong = weight * (force[used] - run.force_n[used][:, None])
        return np.concatenate([np.moveaxis(wrong, 1, 0).reshape(len(t), -1), t[:, active]], axis=1)

    t, damping, step = np.zeros(count + len(knots)), 1.0, 1e-4
    moves = step * np.eye(len(t))[active]
    now = residuals(t[None])[0]
    for _ in range(iterations):
        jacobian = (residuals(t + moves) - now).T / step
        tries = damping * np.array([0.1, 1.0, 10.0, 100.0])
        normal, slope = jacobian.T @ jacobian, jacobian.T @ now
        candidates = np.repeat(t[None], len(tries), axis=0)
        for candidate, add in zip(candidates, tries, strict=True):
            candidate[active] -= np.linalg.solve(normal + add * np.eye(len(slope)), slope)
        found = residuals(candidates)
        costs = (found**2).sum(axis=1)
        best = int(np.argmin(costs))
        gain = float(now @ now - costs[best])
        if gain > 0.0:
            t, now, damping = candidates[best], found[best], float(np.clip(tries[best], 1e-3, 1e4))
        else:
            damping = 100.0 * damping
        if gain < 1e-3 and (gain > 0.0 or damping > 1e4):
            break
    values, log_a = unpack(t[None])
    force, edge = integrate(law, run, values, amplitude_of(penetration(run, values[:, 0]), knots, log_a))
    return SawingFit(law, values[0], knots, log_a[0], force[:, 0], edge[:, 0], 0.5 * float(now @ now))


def _active(law: str) -> NDArray[np.bool_]:
    """Parameters that the law has; the others stay at their prior."""
    without = {"a": (1, 2, 9), "a+m": (9,), "a+m+e": (9,), "ratio": (1, 2)}[law]
    return ~np.isin(np.arange(len(NAMES)), without)


def penetration(run: SawingRun, tilt_deg: Array) -> Array:
    """Return how deep the edge has been [m], along its normal at each tilt; shape [n, set_count]."""
    normal = edge_frame(tilt_deg)[:, 1]
    return np.asarray(np.maximum.accumulate(run.knife_m @ normal.T, axis=0))


def amplitude_of(depth: Array, knots: Array, log_a: Array) -> Array:
    """Return A [N] at depths [m] of shape [n, set_count], log A linear between the knots; log_a: [set_count, k]."""
    place = np.clip(depth / (knots[1] - knots[0]), 0.0, len(knots) - 1.001)
    below = place.astype(np.int64)
    part, column = place - below, np.arange(depth.shape[1])
    return np.asarray(
        np.exp(np.clip((1.0 - part) * log_a[column, below] + part * log_a[column, below + 1], -5.0, 5.0))
    )


def _curve_prior(run: SawingRun, prior: Prior) -> tuple[Array, Array, Array]:
    """Return knots [m], square root of the prior's covariance [k, k] and mean of log A [k]."""
    deepest = penetration(run, np.array([prior.mean[0] + prior.sd[0]])).max()
    count = int(np.clip(np.ceil(deepest / KNOT_M), 4, 14)) + 1
    knots: Array = np.linspace(0.0, deepest, count)
    between = (knots[:, None] - knots) / CURVE_M
    covariance: Array = (
        prior.level_sd**2 + prior.curve_sd**2 * np.exp(-0.5 * between**2) + 1e-6 * np.eye(count)
    )
    return knots, np.asarray(np.linalg.cholesky(covariance), np.float64), prior.curve(knots)


def pooled_prior(fits: Sequence[SawingFit], same_food: Sequence[SawingFit]) -> Prior:
    """Return a run's prior from first fits of other runs: tilt and tare from all of them, the rest from its food.

    The spread between runs replaces the first prior's where there are enough of them, with a fifth of it as floor.
    """
    mean, sd = PRIOR_MEAN.copy(), PRIOR_SD.copy()
    for k, name in enumerate(NAMES):
        values = np.array([fit.values[k] for fit in (fits if name.startswith("t") else same_food)])
        # The first prior counts as one more run.
        mean[k] = (values.sum() + PRIOR_MEAN[k]) / (len(values) + 1)
        spread = ((values - mean[k]) ** 2).sum() + (0.5 * PRIOR_SD[k]) ** 2
        sd[k] = max(np.sqrt(spread / len(values)), 0.2 * PRIOR_SD[k])

    def curve(depth: Array) -> Array:
        """Mean over runs that reach the depth; deeper or shallower ones keep their last value."""
        return np.mean([np.interp(depth, fit.knots_m, fit.log_a) for fit in same_food], axis=0)

    grid = np.linspace(0.0, 0.02, 9)
    rest = np.array([np.interp(grid, fit.knots_m, fit.log_a) for fit in same_food]) - curve(grid)
    level = rest.mean(axis=1)
    level_sd = float(np.sqrt((level**2).sum() / max(len(level) - 1, 1)))
    curve_sd = float(np.sqrt(((rest - level[:, None]) ** 2).sum() / max(len(level) - 1, 1) / len(grid)))
    return Prior(mean, sd, curve, max(level_sd, 0.15), float(np.clip(curve_sd, 0.15, CURVE_SD)))


def synthetic_run(
    run: SawingRun, law: str, values: Array, log_a: Callable[[Array], Array], *, noise_n: float, seed: int
) -> SawingRun:
    """Return the run's motion with the force that a law and parameters give, with correlated noise [N]."""
    generator = np.random.default_rng(seed)
    amplitude = np.exp(log_a(penetration(run, values[None, 0])))
    force, _ = integrate(law, run, values[None], amplitude)
    noise = generator.standard_normal(run.force_n.shape)
    keep = np.exp(-STEP_S / CORRELATION_S)
    for i in range(1, len(noise)):
        noise[i] = keep * noise[i - 1] + np.sqrt(1.0 - keep**2) * noise[i]
    return replace(run, force_n=force[:, 0] + noise_n * noise)
