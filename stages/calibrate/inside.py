"""Find a core or stone from force logs of one to three vertical cuts, and plan the next cut around it.

The force of the flesh comes from one simulation per cut; a core (a ball that is tougher than the flesh) adds

    dF(h) = (ratio - 1) x toughness x integral over y of chord(y) S'(y - h),   S as in disect_sim/kernels/edge.py,

the edge law of a rigid body, so that thousands of cores are tried in a second. A stone stops the edge at the top of its
section instead. Unknown: centre, radius, ratio of toughness, height offset of each cut; the scale of each cut is
integrated out. The posterior is sampled by tempered sequential Monte Carlo; its evidence against no core gives the
probability that there is one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.model import Model
from disect_sim.outcome import OutcomeKind
from disect_sim.parameters import Material
from disect_sim.regions import Anatomy
from disect_sim.result import Result
from disect_sim.simulation import simulate
from disect_sim.virtual_nodes.cutting import cut_by_plane
from stages.calibrate.material.likelihood import MODEL_ERROR
from stages.runtime.errors import InputError
from stages.shared.cut import cutting_model, straight_cut
from stages.shared.cut_description import BESIDE_M, CutParams
from stages.shared.library.library import AMPLITUDE_SPREAD, PRIORS, prior_of

_Array = NDArray[np.float64]

_BIN_M = 3.0e-3
"""Depth over which forces are averaged [m], as in the fit of the material."""
_OFFSET_M = 0.7e-3
"""Standard deviation of the height offset of a cut [m], as in the fit of the material."""
_STOP_M = 0.7e-3
"""Standard deviation of the height at which the edge stops above a stone's top [m]: dented flesh, step, sampling."""
_NEAR_EDGE_M = 3.0e-3
"""Distance from the edge within which flesh counts as under it [m]."""
_DRAWN_M = 5.0e-3
"""Largest motion along the blade of a vertical cut [m]."""
_NOT_TO_BOARD_M = 4.0e-3
"""Height above the board from which a cut that ended there counts as stopped by a stone [m]."""
_STRAY = -12.0
"""Log-likelihood of a stop without a stone below it: something else stopped the knife."""
_SURROGATE = 0.03
"""Error of the added force beside the simulator's, as a fraction of the mean force [-]; measured: 0.019 (test)."""
_PARTICLES, _MOVES, _KEEP = 1500, 6, 0.5
"""Particles, random-walk moves per temperature, and effective fraction of particles kept by each temperature."""
_CHORDS = 24
"""Points of the integral over a core's chords."""
_CLEAR = 0.95
"""Probability with which a planned blade stays BESIDE_M away."""


@dataclass(frozen=True)
class InsidePrior:
    """What is known of the ball before any log; logarithms and positions are normal."""

    rigid: bool
    """True for a stone, which stops the knife; False for a core, which is tougher."""
    centre_m: _Array
    """Mean of the centre in the cutting frame [m], shape [3]."""
    centre_spread_m: _Array
    radius_m: float
    radius_spread: float
    ratio: float
    """Median of the toughness over the flesh's [-]."""
    ratio_spread: float

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the unknowns."""
        ball = ("centre_x_m", "centre_y_m", "centre_z_m", "radius_m")
        return ball if self.rigid else (*ball, "toughness_ratio")

    def ball(self, u: _Array) -> _Array:
        """Return the unknowns, in the order of names, from standard normal numbers; shape [count, len(names)]."""
        size = self.radius_m * np.exp(self.radius_spread * u[:, 3:4])
        parts = [self.centre_m + self.centre_spread_m * u[:, :3], size]
        if not self.rigid:
            parts.append(self.ratio * np.exp(self.ratio_spread * u[:, 4:5]))
        return np.concatenate(parts, axis=1)


def inside_prior(
    material: str, kind: str | None, centre_m: _Array, extent_m: _Array, volume_m3: float
) -> InsidePrior:
    """Return the prior of the material's core or stone (`inside` in priors.json), scaled to the fruit.

    kind: "core" or "stone"; None: the material's. centre_m: centre of mass; extent_m: of the bounding box, shape [3].
    """
    known = PRIORS["inside"]
    entry = known.get(material, known["any"])
    if kind is not None and (entry["kind"] != kind):
        entry = known["avocado" if kind == "stone" else "apple"]
    spread = entry["across_spread"] * extent_m
    spread[np.argmax(extent_m)] *= entry["along_spread"] / entry["across_spread"]
    size = float((3.0 * volume_m3 / (4.0 * np.pi)) ** (1.0 / 3.0))
    return InsidePrior(
        entry["kind"] == "stone",
        centre_m,
        spread,
        entry["radius"] * size,
        entry["radius_spread"],
        entry.get("ratio", 1.0),
        entry.get("ratio_spread", 0.0),
    )


@dataclass(frozen=True)
class CutPlane:
    """A vertical plane: where the knife went in the frame of the scan's own cut."""

    point_m: _Array
    """Point of the plane [m], shape [3]."""
    normal: _Array
    """Horizontal unit normal [-], shape [3]."""

    @classmethod
    def turned(cls, centre_m: _Array, offset_m: float, turn_deg: float) -> "CutPlane":
        """Return the plane of a cut of the fruit turned about the vertical, at an offset from its centre of mass."""
        angle = np.deg2rad(turn_deg)
        normal = np.array([np.cos(angle), 0.0, np.sin(angle)])
        return cls(centre_m + offset_m * normal, normal)

    def placed(self, points: _Array) -> _Array:
        """Return points [m] in the frame of this cut: plane x = 0, y up, blade along z."""
        along = np.array([-self.normal[2], 0.0, self.normal[0]])
        away = points - np.array([self.point_m[0], 0.0, self.point_m[2]])
        return np.stack([away @ self.normal, away[:, 1], away @ along], axis=1)

    def tops(self, balls: _Array) -> tuple[_Array, _Array]:
        """Return the radius of every ball's section [m], 0 where the plane misses it, and the height of its centre."""
        distance = (balls[:, :3] - self.point_m) @ self.normal
        return np.sqrt(np.maximum(0.0, balls[:, 3] ** 2 - distance**2)), balls[:, 1]


@dataclass(frozen=True)
class Look:
    """One cut as data: mean vertical forces over slices of depth, and the simulated force of flesh alone."""

    plane: CutPlane
    height_m: _Array
    """Heights of the edge above the board, descending, shape [slice_count]."""
    force_n: _Array
    flesh_n: _Array
    """Simulated force without a core on a fine grid, for offsets of the height, shape [grid]."""
    grid_m: _Array
    """Heights of flesh_n, ascending [m]."""
    bases_n: _Array
    """Change of flesh_n per unit of the logarithm of rise length, skin toughness and friction, shape [3, grid]."""
    dent_m: _Array
    """Depth by which the flesh under the edge has been pushed down in that simulation [m], shape [grid]."""
    toughness: float
    """Fracture toughness of that simulation [J/m^2]."""
    rise_m: float
    lowest_m: float
    """Lowest height of the edge [m]."""
    noise_n: float

    @cached_property
    def scale(self) -> float:
        """Measured over simulated mean force [-]; 1 for a cut that a stone stopped before the first slice was full."""
        if not len(self.force_n):
            return 1.0
        return float(self.force_n.mean() / np.interp(self.height_m, self.grid_m, self.flesh_n).mean())

    def met(self, height: _Array) -> _Array:
        """Return the height at rest [m] of the flesh that the edge meets: the force has pushed it down."""
        return np.asarray(height + self.scale * np.interp(height, self.grid_m, self.dent_m))

    @property
    def stopped(self) -> bool:
        """True if the knife ended well above the board."""
        return self.lowest_m > _NOT_TO_BOARD_M

    def model(self, balls: _Array, offset_m: _Array) -> _Array:
        """Return the force for every core and height offset [m], shape [count, slice_count]."""
        height = self.height_m + offset_m[:, None]
        return np.interp(height, self.grid_m, self.flesh_n) + self.added(balls, height)

    def added(self, balls: _Array, height: _Array) -> _Array:
        """Return the force that cores add at heights of the edge [m], shape [count, slice_count]."""
        radius, middle = self.plane.tops(balls)
        # Midpoint rule in the angle of the section's circle: chord = 2 r sin(angle), dy = r sin(angle) d(angle).
        angle = np.pi * (np.arange(_CHORDS) + 0.5) / _CHORDS
        y = middle[:, None] + radius[:, None] * np.cos(angle)
        area = 2.0 * (radius[:, None] * np.sin(angle)) ** 2 * (np.pi / _CHORDS)
        z = np.maximum(0.0, y[:, None, :] - self.met(height)[:, :, None]) / self.rise_m
        rate = z * np.exp(-z) / self.rise_m
        return self.toughness * (balls[:, 4:5] - 1.0) * np.einsum("pc,phc->ph", area, rate)


@dataclass(frozen=True)
class SimulatedCut:
    """Vertical force of a simulated vertical cut over the height of the edge."""

    height_m: _Array
    """Descending [m], shape [step_count]."""
    force_n: _Array
    bases_n: _Array
    """Change per unit of the logarithm of rise length, skin toughness and friction, shape [3, step_count]."""
    dent_m: _Array
    """Depth by which the flesh under the edge has been pushed down [m], shape [step_count]."""
    lowest_m: float
    """Height at which the motion, or the stop at a rigid region, ended [m]."""


def simulate_cut(
    nodes: _Array,
    tets: NDArray[np.int32],
    plane: CutPlane,
    material: Material,
    cut: CutParams,
    values: Mapping[str, Any],
    anatomy: Anatomy | None = None,
) -> SimulatedCut:
    """Simulate a vertical cut through a plane of the body (nodes [m] in the cutting frame), with what is inside it."""
    mesh = cut_by_plane(plane.placed(nodes), tets)
    if anatomy is not None:
        frame = np.eye(4)
        frame[:3, :3] = plane.placed(np.eye(3)) - plane.placed(np.zeros((1, 3)))
        frame[:3, :3] = frame[:3, :3].T
        frame[:3, 3] = plane.placed(np.zeros((1, 3)))[0]
        mesh = replace(mesh, anatomy=anatomy.moved(frame))
    model = cutting_model(mesh, material, cut)
    motion, duration = straight_cut(mesh, cut)
    result = simulate(
        model,
        motion,
        values,
        duration=duration,
        dt=cut.dt_s,
        sample_rate_hz=1.0 / cut.dt_s,
        keep_times=[duration * share for share in np.linspace(0.05, 0.95, 19)],
        force_limit_n=cut.force_limit_n,
    )
    if not result.outcome.ok and result.outcome.kind is not OutcomeKind.KNIFE_STOPPED:
        raise InputError(
            f"The simulated cut of flesh alone stopped before its end. {result.outcome} It must come to its end to be "
            "compared with a log. Check --material and cut.parameters."
        )
    height = result.pose[1 : len(result.step_time), 1]
    force = result.force[: len(height), 1]
    return SimulatedCut(
        height, force, _bases(model, values, height, force), _dent(model, result, height), float(height[-1])
    )


def _dent(model: Model, result: Result, height: _Array) -> _Array:
    """Return the mean downward displacement of the samples near the edge [m], over the heights of the edge."""
    rest = model.edge_samples.places(model.mesh.nodes)[:, 1]
    heights, dents = [], []
    for time, x in sorted(result.positions.items()):
        edge = float(np.interp(time, result.step_time, result.pose[: len(result.step_time), 1]))
        now = model.edge_samples.places(x)[:, 1]
        near = np.abs(now - edge) < _NEAR_EDGE_M
        if near.any():
            heights.append(edge)
            dents.append(float((rest - now)[near].mean()))
    if not heights:
        return np.zeros(len(height))
    order = np.argsort(heights)
    return np.interp(height, np.array(heights)[order], np.array(dents)[order])


def _bases(model: Model, values: Mapping[str, Any], height: _Array, force: _Array) -> _Array:
    """Return the derivatives of the force in the logarithms of rise length, skin toughness and friction.

    By the edge law of a rigid body on the cut's samples; what it leaves of the simulated force counts as friction.
    """
    s = model.edge_samples
    y = s.places(model.mesh.nodes)[:, 1]
    rise, toughness, skin = (float(values[n]) for n in ("edge_rise", "edge_toughness", "skin_toughness"))
    rind = skin * s.skin_above * np.exp(-s.skin_distance / float(values["skin_depth"]))

    def edge(weight: _Array, length: float) -> _Array:
        z = np.maximum(0.0, y[None] - height[:, None]) / length
        return (z * np.exp(-z) / length) @ (weight * s.area)

    whole = toughness + rind
    by_rise = (edge(whole, 1.05 * rise) - edge(whole, rise / 1.05)) / (2.0 * np.log(1.05))
    return np.stack([by_rise, edge(rind, rise), force - edge(whole, rise)])


def slices(height_m: _Array, force_n: _Array, lowest_m: float, top_m: float) -> tuple[_Array, _Array]:
    """Return mean heights [m] and forces [N] over slices of depth, from the body's top to just above the end."""
    use = (height_m < top_m) & (height_m > lowest_m + 0.5e-3)
    number = np.floor((top_m - height_m[use]) / _BIN_M).astype(int)
    rows = [number == each for each in np.unique(number)]
    return (
        np.array([height_m[use][row].mean() for row in rows]),
        np.array([force_n[use][row].mean() for row in rows]),
    )


_ONSET_N = 2.0
"""Force at which the heights of log and simulation are aligned [N], as in the fit of the material."""


def look_from_log(
    table: pl.DataFrame,
    plane: CutPlane,
    flesh: SimulatedCut,
    values: Mapping[str, Any],
    *,
    top_m: float,
    noise_n: float,
    align: bool,
) -> Look:
    """Return a cut as data from an ingested log (columns of ingest/force).

    flesh: the simulated cut of flesh alone through the plane, with `values`. top_m: height of the body. align: shift
    the log's heights so that it passes _ONSET_N where the simulation, scaled to it, does.
    """
    position, force = table["position_m"].to_numpy(), table["force_n"].to_numpy()[:, 1]
    drawn = float(np.ptp(position[:, 2]))
    if drawn > _DRAWN_M:
        raise InputError(
            f"The log's blade is drawn by {1e3 * drawn:.0f} mm. A core is found from vertical cuts, at most "
            f"{1e3 * _DRAWN_M:.0f} mm along the blade. Use the log of a vertical cut."
        )
    last = int(position[:, 1].argmin())
    height, force = position[: last + 1, 1], force[: last + 1]
    if not (force > _ONSET_N).any():
        raise InputError(
            f"The log's force stays below {_ONSET_N:g} N. A core is found from the force of a cut. Check the tare and "
            "ingest.force_is."
        )
    if align:
        first = int(np.argmax(force > _ONSET_N))
        # Medians: the force of a knife that a stone has stopped rises without limit.
        scale = np.median(force[first:]) / max(float(np.median(flesh.force_n[flesh.force_n > 0.0])), 1e-9)
        meets = int(np.argmax(scale * flesh.force_n > _ONSET_N))
        height = height + (flesh.height_m[meets] - height[first])
    lowest = float(height[-1])
    middle, mean = slices(height, force, lowest, top_m)
    return Look(
        plane,
        middle,
        mean,
        flesh.force_n[::-1],
        flesh.height_m[::-1],
        flesh.bases_n[:, ::-1],
        flesh.dent_m[::-1],
        float(values["edge_toughness"]),
        float(values["edge_rise"]),
        lowest,
        noise_n,
    )


# Posterior


@dataclass(frozen=True)
class Inside:
    """Posterior of the core or stone."""

    prior: InsidePrior
    balls: _Array
    """Samples, columns as prior.names, shape [count, 4 or 5]."""
    present: float
    """Probability that there is one, from even odds."""
    fitted: tuple[_Array, ...]
    """Force over the slices of every look at the mean of the posterior, best scale [N]; empty for a stone."""

    def figures(self) -> dict[str, Any]:
        """Return mean and 90 % interval of every unknown, by name."""
        low, high = np.quantile(self.balls, [0.05, 0.95], axis=0)
        mean = self.balls.mean(axis=0)
        return {
            "kind": "stone" if self.prior.rigid else "core",
            "probability_present": self.present,
            **{
                name: {"mean": float(mean[k]), "low": float(low[k]), "high": float(high[k])}
                for k, name in enumerate(self.prior.names)
            },
        }


def find_inside(
    looks: Sequence[Look], prior: InsidePrior, material: str, *, model_error: float = 1.0, seed: int = 0
) -> Inside:
    """Sample the posterior of the core or stone, given one or more cuts.

    model_error: scale of the model error learnt from real logs; less for logs that the simulator describes better.
    """
    likelihood: _StopLikelihood | _ForceLikelihood = (
        _StopLikelihood(looks, prior)
        if prior.rigid
        else _ForceLikelihood(looks, prior, material, model_error)
    )
    generator = np.random.default_rng(seed)
    u = generator.standard_normal((_PARTICLES, len(prior.names) + len(looks)))
    value = likelihood(u)
    power, evidence = 0.0, 0.0
    while power < 1.0:
        step = _next_step(value, 1.0 - power)
        weight = step * (value - value.max())
        evidence += step * float(value.max()) + float(np.log(np.exp(weight).mean()))
        power += step
        share = np.exp(weight) / np.exp(weight).sum()
        chosen = generator.choice(_PARTICLES, _PARTICLES, p=share)
        u, value = u[chosen], value[chosen]
        spread = np.linalg.cholesky(np.cov(u.T) + 1e-9 * np.eye(u.shape[1])) * (2.0 / np.sqrt(u.shape[1]))
        for move in range(_MOVES):
            # Every other move is short: the scale that suits a narrow, curved posterior is not known.
            scale = 1.0 if move % 2 else 0.3
            trial = u + scale * generator.standard_normal(u.shape) @ spread.T
            found = likelihood(trial)
            gain = power * (found - value) - 0.5 * ((trial**2).sum(axis=1) - (u**2).sum(axis=1))
            taken = np.log(generator.uniform(size=_PARTICLES)) < gain
            u[taken], value[taken] = trial[taken], found[taken]
    odds = np.clip(evidence - likelihood.without(), -50.0, 50.0)
    return Inside(prior, prior.ball(u), float(1.0 / (1.0 + np.exp(-odds))), likelihood.fitted(u))


def _next_step(value: _Array, most: float) -> float:
    """Return the increase of the power at which the weights keep the fraction _KEEP of the particles effective."""
    low, high = 0.0, most

    def effective(step: float) -> float:
        weight = np.exp(step * (value - value.max()))
        return float(weight.sum() ** 2 / (weight**2).sum() / len(value))

    if effective(most) >= _KEEP:
        return most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) > _KEEP else (low, middle)
    return max(high, 1e-6)


class _StopLikelihood:
    """Heights at which the edge stopped, or that it did not."""

    def __init__(self, looks: Sequence[Look], prior: InsidePrior) -> None:
        self._looks, self._prior = looks, prior

    def __call__(self, u: _Array) -> _Array:
        balls, total = self._prior.ball(u), np.zeros(len(u))
        for number, look in enumerate(self._looks):
            radius, middle = look.plane.tops(balls)
            top = np.where(radius > 0.0, middle + radius, -np.inf)
            end = look.met(look.lowest_m + _OFFSET_M * u[:, len(self._prior.names) + number])
            if look.stopped:
                off = np.where(np.isfinite(top), end - top, np.inf) / _STOP_M
                total += np.logaddexp(-0.5 * off**2, _STRAY)
            else:
                total += np.maximum(-0.5 * (np.maximum(0.0, top - end) / _STOP_M) ** 2, _STRAY)
        return total

    def without(self) -> float:
        return float(sum(_STRAY for look in self._looks if look.stopped))

    def fitted(self, _u: _Array) -> tuple[_Array, ...]:
        return ()


class _ForceLikelihood:
    """Forces over depth with the model error that real logs have; the scale of every cut is integrated out.

    F = scale x model + error. For given scales the error is normal; the scales' logarithms are normal with the spreads
    of the material (shared by the cuts) and of a cut. Around its best value the scale's logarithm is taken as normal.
    """

    def __init__(self, looks: Sequence[Look], prior: InsidePrior, material: str, model_error: float) -> None:
        self._looks, self._prior = looks, prior
        sizes = [len(look.force_n) for look in looks]
        owner = np.repeat(np.arange(len(looks)), sizes)
        height = np.concatenate([look.height_m for look in looks])
        mean = np.repeat([look.force_n.mean() for look in looks], sizes)
        noise = np.repeat([look.noise_n for look in looks], sizes)
        same = owner[:, None] == owner
        error = model_error**2 * np.outer(mean, mean) * MODEL_ERROR.covariance(height, height, same)
        error += np.diag((_SURROGATE * mean) ** 2)
        # Rise length, skin and friction of this fruit differ from the library's, in the same way in all its cuts.
        for basis, name in enumerate(("edge_rise", "skin_toughness", "sdf_mu")):
            parts = [k.scale * np.interp(k.height_m, k.grid_m, k.bases_n[basis]) for k in looks]
            error += prior_of(material)[name][1] ** 2 * np.outer(*[np.concatenate(parts)] * 2)
        self._root = np.linalg.inv(np.linalg.cholesky(error + np.diag(noise**2)))
        self._force = self._root @ np.concatenate([look.force_n for look in looks])
        self._of_cut = (owner[:, None] == np.arange(len(looks))).astype(float)
        spread = prior_of(material)["edge_toughness"][1]
        self._scales = spread**2 * np.ones((len(looks),) * 2) + AMPLITUDE_SPREAD**2 * np.eye(len(looks))

    def _models(self, balls: _Array, offsets: _Array) -> _Array:
        parts = [look.model(balls, _OFFSET_M * offsets[:, k]) for k, look in enumerate(self._looks)]
        return np.concatenate(parts, axis=1)

    def _scaled(self, models: _Array) -> tuple[_Array, _Array, _Array]:
        """Return best scales [count, cuts], their information matrices, and the log-likelihood there."""
        design = self._root @ (models[:, :, None] * self._of_cut)
        information = np.einsum("pic,pid->pcd", design, design)
        right = np.einsum("pic,i->pc", design, self._force)
        best = np.linalg.solve(information, right[..., None])[..., 0]
        left = self._force - np.einsum("pic,pc->pi", design, best)
        return best, information, -0.5 * (left**2).sum(axis=1)

    def __call__(self, u: _Array) -> _Array:
        count = len(self._prior.names)
        return self._value(self._models(self._prior.ball(u), u[:, count:]))

    def _value(self, models: _Array) -> _Array:
        best, information, value = self._scaled(models)
        positive = (best > 0.0).all(axis=1)
        scale = np.where(best > 0.0, best, 1.0)
        variance = np.linalg.inv(information) / (scale[:, :, None] * scale[:, None, :])
        total = self._scales + variance
        logs = np.log(scale)
        away = np.einsum("pc,pcd,pd->p", logs, np.linalg.inv(total), logs)
        value += 0.5 * (np.linalg.slogdet(variance)[1] - np.linalg.slogdet(total)[1]) - 0.5 * away
        return np.where(positive, value, -1e6)

    def without(self) -> float:
        """Return the log-evidence without a core: no extra force, the offsets averaged over their prior."""
        offsets = np.random.default_rng(1).standard_normal((400, len(self._looks)))
        nothing = np.tile([0.0, 0.0, 0.0, 1e-9, 1.0], (len(offsets), 1))
        value = self._value(self._models(nothing, offsets))
        return float(value.max() + np.log(np.exp(value - value.max()).mean()))

    def fitted(self, u: _Array) -> tuple[_Array, ...]:
        count = len(self._prior.names)
        models = self._models(self._prior.ball(u).mean(axis=0)[None], u[:, count:].mean(axis=0)[None])
        best = self._scaled(models)[0]
        return tuple(
            np.split(
                (self._of_cut @ best[0]) * models[0], np.cumsum(self._of_cut.sum(axis=0))[:-1].astype(int)
            )
        )


# The next cut


def plan_next(inside: Inside, centre_m: _Array, extent_m: _Array) -> dict[str, Any]:
    """Return offsets of a cut (turn 0) that passes beside the ball, and heights at which it stops above it.

    Each keeps BESIDE_M with the probability _CLEAR. Offsets are from the centre of mass [m]; one that leaves the fruit
    is None. `next_look_m` is that of the most informative parallel cut.
    """
    x, radius = inside.balls[:, 0] - centre_m[0], inside.balls[:, 3]
    low = float(np.quantile(x - radius, 1.0 - _CLEAR)) - BESIDE_M
    high = float(np.quantile(x + radius, _CLEAR)) + BESIDE_M
    top = float(np.quantile(inside.balls[:, 1] + radius, _CLEAR)) + BESIDE_M
    reach = 0.5 * float(extent_m[0])
    return {
        "probability": _CLEAR,
        "distance_m": BESIDE_M,
        "beside_negative_m": low if low > -reach else None,
        "beside_positive_m": high if high < reach else None,
        "stop_above_m": top,
        "next_look_m": _next_look(inside, centre_m, extent_m),
    }


_TOLERATED_M, _TOLERATED_RADIUS = 3.0e-3, 0.15
"""Errors of the centre [m] and, relative, of the radius that count the same when the next cut is chosen."""


def _next_look(inside: Inside, centre_m: _Array, extent_m: _Array) -> float:
    """Return the offset [m] of the parallel cut that promises to tell most about the ball across the blade.

    By linear regression of centre (across, up) and radius on what the cut would show: the top of a stone's section, or
    the area and the middle of a core's. The position along the blade does not change the force of a vertical cut.
    """
    balls = inside.balls
    unknown = np.column_stack([balls[:, :2] / _TOLERATED_M, np.log(balls[:, 3]) / _TOLERATED_RADIUS])
    unknown = unknown - unknown.mean(axis=0)
    noise = float(np.hypot(_STOP_M, _OFFSET_M))
    best, most = 0.0, -1.0
    for offset in np.linspace(-0.35, 0.35, 15) * extent_m[0]:
        radius, middle = CutPlane.turned(centre_m, float(offset), 0.0).tops(balls)
        hit = radius > 0.0
        if hit.sum() < _LEAST_HITS * len(balls):
            continue
        seen = (middle + radius)[:, None]
        if not inside.prior.rigid:
            added = (balls[:, 4] - 1.0) * radius**2
            seen = np.column_stack([added / added.std() * 5.0 * noise, middle])
        seen = seen[hit] - seen[hit].mean(axis=0)
        shared = unknown[hit].T @ seen / hit.sum()
        variance = seen.T @ seen / hit.sum() + noise**2 * np.eye(seen.shape[1])
        told = hit.mean() * float(np.trace(shared @ np.linalg.solve(variance, shared.T)))
        if told > most:
            best, most = float(offset), told
    return best


_LEAST_HITS = 0.3
"""Least probability that a cut to learn from meets the ball."""


def region_setting(inside: Inside, frame_of_scan: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the ball as an entry of body.regions, in the axes of the scan file; frame_of_scan: 4x4 matrix."""
    mean, frame = inside.balls.mean(axis=0), np.array(frame_of_scan)
    rotation, translation = frame[:3, :3], frame[:3, 3]
    centre = rotation.T @ (mean[:3] - translation)
    entry = {
        "name": "stone" if inside.prior.rigid else "core",
        "shape": "sphere",
        "centre_m": [round(float(x), 5) for x in centre],
        "radius_m": round(float(mean[3]), 5),
    }
    return entry | ({"rigid": True} if inside.prior.rigid else {"toughness_ratio": round(float(mean[4]), 3)})


def inside_picture(
    inside: Inside, looks: Sequence[Look], plan: Mapping[str, Any], centre_m: _Array
) -> NDArray[np.uint8]:
    """Draw the forces of the cuts, and the ball seen along the blade with the planned cuts; pixels [h, w, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    figure = Figure(figsize=(11.0, 4.5), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for number, look in enumerate(looks):
        offset = 1e3 * float((look.plane.point_m - centre_m) @ look.plane.normal)
        (line,) = left.plot(
            1e3 * look.height_m, look.force_n, "o", ms=4, label=f"log {number + 1}, offset {offset:.0f} mm"
        )
        flesh = look.scale * np.interp(look.height_m, look.grid_m, look.flesh_n)
        left.plot(1e3 * look.height_m, flesh, "--", color=line.get_color(), lw=1.0)
        if inside.fitted:
            left.plot(1e3 * look.height_m, inside.fitted[number], "-", color=line.get_color())
        right.axvline(offset, color=line.get_color(), lw=1.0)
    left.set(
        xlabel="height of the edge [mm]",
        ylabel="vertical force [N]",
        title="dashed: flesh alone; line: with the ball",
    )
    left.invert_xaxis()
    left.legend(fontsize=8)
    for ball in inside.balls[:: max(1, len(inside.balls) // 60)]:
        across, up, radius = 1e3 * (ball[0] - centre_m[0]), 1e3 * ball[1], 1e3 * ball[3]
        right.add_patch(Circle((across, up), radius, fill=False, alpha=0.15, color="tab:red"))
    for key in ("beside_negative_m", "beside_positive_m"):
        if plan[key] is not None:
            right.axvline(1e3 * plan[key], color="tab:green", ls=":")
    right.axhline(1e3 * plan["stop_above_m"], color="tab:green", ls=":")
    right.set(xlabel="offset across the blade [mm]", ylabel="height [mm]", aspect="equal")
    right.set_title(f"possible balls ({100 * inside.present:.0f} % that there is one); green: clear")
    right.autoscale_view()
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
