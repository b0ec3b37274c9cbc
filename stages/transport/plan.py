"""Optimal transport between two sets of springs: plan, transported values, and comparison with averages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from disect_sim.cut_mesh import CutMesh
from disect_sim.parameters import SPRING_NAMES, Material
from disect_sim.result import Result
from disect_sim.simulation import simulate
from stages.runtime.errors import InputError
from stages.shared.cut import CutOutcome, cutting_model, outcome_of, straight_cut
from stages.shared.fitting import Bound
from stages.transport.description import TransportParams

# Spring sets as distributions: points in a box, with masses


Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_MIN_AREA_FRACTION = 1.0e-3
"""Minimum mass as a fraction of the mean area, so that every target's share of the plan is above rounding."""


@dataclass(frozen=True)
class SpringSet:
    """Springs of one cut surface."""

    position_m: Floats
    """2D position on the cut surface [m], shape [spring_count, 2]."""
    area_m2: Floats
    """Tributary area [m²], shape [spring_count]."""
    skin: Flags
    """True for springs in the skin, shape [spring_count]."""

    def check(self, name: str) -> None:
        """Reject an empty set and invalid numbers; `name` identifies the springs in messages."""
        if len(self.area_m2) == 0:
            raise InputError(f"{name} has no springs. A cut needs at least one. Run the stage again.")
        if not (np.isfinite(self.position_m).all() and np.isfinite(self.area_m2).all()):
            raise InputError(
                f"{name} has positions or areas that are NaN or infinite. All must be finite. Run the stage again."
            )
        if not (self.area_m2 >= 0.0).all() or not (self.area_m2 > 0.0).any():
            raise InputError(
                f"{name} has areas from {self.area_m2.min():g} to {self.area_m2.max():g} m2. None may be negative, and "
                "not all may be 0. Run the stage again."
            )

    @property
    def in_unit_box(self) -> Floats:
        """Return positions scaled to the unit box, each axis separately [-], shape [spring_count, 2].

        The knife moves from the top of a cut surface to its bottom, and the blade extends from one end to the other,
        whatever the surface's size. So top maps to top and end to end, also on a half that is half as high as the
        fruit. An axis along which all springs coincide has the coordinate 1/2.
        """
        low, high = self.position_m.min(axis=0), self.position_m.max(axis=0)
        flat = high - low <= 1e-9 * np.abs(high - low).max()
        scaled = (self.position_m - low) / np.where(flat, 1.0, high - low)
        return np.where(flat, 0.5, scaled)

    def masses(self, weight: Floats | None = None) -> Floats:
        """Return areas times a weight, normalised to sum to one [-], shape [spring_count].

        Areas, because the transported quantity is a field on a surface: a spot that the mesher filled with many
        springs must not count for more than its area.
        """
        mass = np.maximum(self.area_m2, _MIN_AREA_FRACTION * self.area_m2.mean())
        if weight is not None:
            mass = mass * weight
        return mass / mass.sum()


def bare_flesh(positions_m: Floats, point_m: Floats, normal: Floats, within_m: float) -> Flags:
    """Return True for points [m], shape [n, 3], within `within_m` of a plane: where the first cut removed the skin."""
    return np.abs((positions_m - point_m) @ normal) <= within_m


def touch_weights(touched: Flags, untouched_weight: float) -> Floats:
    """Return 1 for springs that the knife touched, less for others, whose values come only from the fit's smoothing.

    If none was touched (a scan without a log) all have the same weight. Shape [spring_count].
    """
    if not touched.any():
        return np.ones(len(touched))
    return np.where(touched, 1.0, untouched_weight)


# Values of the target springs: barycentric combinations in the fit's unbounded coordinates


Bounds = Mapping[tuple[str, bool], Bound]
"""(parameter, is skin) → its range."""
Values = dict[str, Floats]
"""Parameter → one value per spring, shape [spring_count]."""


def combine(
    weights: sp.csr_array,
    values: Mapping[str, Floats],
    bounds: Bounds,
    source_skin: Flags,
    target_skin: Flags,
) -> Values:
    """Combine every target's values from those of its sources.

    Averages are taken in the fit's unbounded coordinates, where any combination is inside the bounds. The result is
    clipped to the range of a target's sources, which only affects rounding and values on a bound (or, if they are
    constants, beyond one): equal sources give exactly that value.

    Args:
        weights: shares of the sources [-], shape [target_count, source_count]; each row sums to one.
        values: parameter → value of each source, shape [source_count].
        bounds: ranges of the parameters.
        source_skin: True for sources in the skin, shape [source_count].
        target_skin: True for targets in the skin, shape [target_count].
    """
    combined = {}
    for name in SPRING_NAMES:
        value = values[name]
        if not np.isfinite(value).all():
            raise InputError(
                f"calibrate/parameters: {name} has values that are NaN or infinite. All must be finite. Run the stage "
                "calibrate again."
            )
        mixed = np.empty(len(target_skin))
        free = np.empty(len(source_skin))
        for skin in (True, False):
            free[source_skin == skin] = (
                bounds[name, skin].free(torch.as_tensor(value[source_skin == skin])).numpy()
            )
        average = torch.as_tensor(weights @ free)
        for skin in (True, False):
            mixed[target_skin == skin] = bounds[name, skin].value(average[target_skin == skin]).numpy()
        combined[name] = np.clip(mixed, *_range_of_sources(weights, value))
    return combined


def average_weights(mass: Floats, source_skin: Flags, target_skin: Flags) -> sp.csr_array:
    """Return weights that give every target the average of all sources of its kind: the baseline of the comparison.

    Each row has the sources' masses [-] (shape [source_count]) of the same kind, or of all if there are none.
    """
    rows = []
    for skin in target_skin:
        same = source_skin == skin
        row = np.where(same, mass, 0.0) if same.any() else mass
        rows.append(row / row.sum())
    return sp.csr_array(np.array(rows))


def _range_of_sources(
    weights: sp.csr_array, value: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and largest value among each target's sources, shapes [target_count]."""
    taken = value[weights.indices]
    return (
        np.minimum.reduceat(taken, weights.indptr[:-1]),
        np.maximum.reduceat(taken, weights.indptr[:-1]),
    )


# Comparison with averaged parameters: the force of a vertical second cut


@dataclass(frozen=True)
class Comparison:
    """Force profiles of the same vertical cut with two sets of parameters."""

    time_s: Floats
    """Time [s], shape [sample_count], up to the shorter of both runs."""
    transported_n: Floats
    """Norm of the force on the knife [N], shape [sample_count]."""
    averaged_n: Floats
    """Same with average parameters."""
    outcome: str
    """Outcomes of the runs."""
    cuts: tuple[CutOutcome, ...] = ()
    """Outcomes of the cut with transported and, if it differs, with average parameters."""

    @property
    def nmae(self) -> float | None:
        """Mean absolute difference over the mean transported force [-]; None if there was no force."""
        mean = float(self.transported_n.mean()) if len(self.time_s) else 0.0
        return float(np.abs(self.averaged_n - self.transported_n).mean()) / mean if mean > 0.0 else None


def compare(
    cut: CutMesh,
    material: Material,
    transported: Values,
    averaged: Values,
    params: TransportParams,
    *,
    body: dict[str, float],
    progress: Callable[[float], None] = lambda fraction: None,
) -> Comparison:
    """Simulate the vertical cut twice; a run that stops early is reported, not rejected.

    `body` has the material parameters that were fitted with the springs.
    """
    motion, duration = straight_cut(cut, params.cut)
    model = cutting_model(cut, material, params.cut)
    same = all(np.array_equal(transported[name], averaged[name]) for name in transported)

    def cut_with(values: Values, done: float) -> Result:
        return simulate(
            model,
            motion,
            {**body, **values},
            duration=duration,
            dt=params.cut.dt_s,
            sample_rate_hz=1.0 / params.cut.dt_s,
            force_limit_n=params.cut.force_limit_n,
            progress=lambda fraction: progress(done + 0.5 * fraction),
        )

    first = cut_with(transported, 0.0)
    last = first if same else cut_with(averaged, 0.5)
    count = min(len(first.time), len(last.time))
    outcome = str(last.outcome if first.outcome.ok else first.outcome)
    cuts = [outcome_of("second cut with transported parameters", first, cut)]
    if not same:
        cuts.append(outcome_of("second cut with average parameters", last, cut))
    return Comparison(
        first.time[:count], first.force_norm[:count], last.force_norm[:count], outcome, tuple(cuts)
    )


_MAX_PAIRS = 400_000_000
"""Maximum number of entries of the cost matrix: 3 GB."""
_MAX_PIVOTS = 20_000_000
"""Maximum number of pivots of the network simplex; 2,000 x 2,000 springs need some 100,000."""
_MAX_SINKHORN = 3_000
_SINKHORN_ERROR = 1.0e-5
"""Error of the marginals at which the entropic plan has converged."""
_NEGLIGIBLE = 1.0e-6
"""Weights below this fraction of their row's largest are dropped."""


@dataclass(frozen=True)
class Plan:
    """Sources of the values of each target spring."""

    weights: sp.csr_array
    """Shares of the sources [-], shape [target_count, source_count]; each row sums to one."""
    cost: float
    """Mean squared transport distance in the unit box [-]."""
    marginal_error: float
    """Total misplaced mass, the larger of both sides [-]."""
    method: str
    """exact, entropic, or both."""
    iterations: int
    """Iterations of the entropic method; 0 for the exact one."""
    mixed: bool
    """True if skin or flesh of the target had no counterpart in the source, so that all sources were used."""


def transport_plan(
    source: SpringSet,
    target: SpringSet,
    *,
    source_weight: Floats | None = None,
    max_exact: int,
    entropy: float,
) -> Plan:
    """Compute the plans for skin and flesh separately and combine them.

    Args:
        source: springs whose values are known.
        target: springs that need values.
        source_weight: factor on the sources' masses [-], shape [source_count].
        max_exact: sets with more springs than this on either side get the entropic plan.
        entropy: regularisation of the entropic plan, in squared widths of the unit box [-].
    """
    source.check("The first cut")
    target.check("The second cut")
    source_mass, target_mass = source.masses(source_weight), target.masses()
    parts, blocks, mixed = [], [], False
    for skin in (True, False):
        to = np.flatnonzero(target.skin == skin)
        if len(to) == 0:
            continue
        kind = np.flatnonzero(source.skin == skin)
        mixed |= len(kind) == 0
        start = kind if len(kind) else np.arange(len(source.area_m2))
        part = _solve(
            source.in_unit_box[start],
            target.in_unit_box[to],
            source_mass[start] / source_mass[start].sum(),
            target_mass[to] / target_mass[to].sum(),
            max_exact,
            entropy,
        )
        shares = sp.coo_array(_rows_of_one(part.plan.T))
        blocks.append((shares.data, to[shares.row], start[shares.col]))
        parts.append((part, target_mass[to].sum()))
    data, rows, columns = (np.concatenate(parts_of) for parts_of in zip(*blocks, strict=True))
    size = (len(target.area_m2), len(source.area_m2))
    return Plan(
        weights=sp.csr_array((data, (rows, columns)), shape=size),
        cost=float(sum(part.cost * share for part, share in parts)),
        marginal_error=float(sum(part.error * share for part, share in parts)),
        method=" and ".join(sorted({part.method for part, _ in parts})),
        iterations=max(part.iterations for part, _ in parts),
        mixed=mixed,
    )


@dataclass(frozen=True)
class _Part:
    plan: Floats
    """Mass from source to target, shape [source_count, target_count]."""
    cost: float
    error: float
    method: str
    iterations: int


def _solve(
    source: Floats, target: Floats, source_mass: Floats, target_mass: Floats, max_exact: int, entropy: float
) -> _Part:
    """Compute one plan; positions in the unit box, masses that sum to one."""
    import ot

    if len(source) * len(target) > _MAX_PAIRS:
        raise InputError(
            f"Transport from {len(source)} to {len(target)} springs needs {len(source) * len(target):,} pairs. At most "
            f"{_MAX_PAIRS:,} fit in memory. Raise tetrahedralize.cut_edge_m or tetrahedralize_half.cut_edge_m."
        )
    cost = cdist(source, target, "sqeuclidean")
    iterations, method = 0, "exact"
    if max(len(source), len(target)) <= max_exact:
        plan, log = ot.emd(source_mass, target_mass, cost, numItermax=_MAX_PIVOTS, log=True)
        if log["warning"] is not None:
            raise RuntimeError(f"The network simplex stopped: {log['warning']}")
    else:
        method = "entropic"
        plan, log = ot.sinkhorn(
            source_mass,
            target_mass,
            cost,
            reg=entropy,
            method="sinkhorn_stabilized",
            numItermax=_MAX_SINKHORN,
            stopThr=_SINKHORN_ERROR,
            warn=False,
            log=True,
        )
        iterations = int(log["n_iter"])
    error = max(
        float(np.abs(plan.sum(axis=1) - source_mass).sum()),
        float(np.abs(plan.sum(axis=0) - target_mass).sum()),
    )
    return _Part(plan, float((plan * cost).sum()), error, method, iterations)


def _rows_of_one(mass: Floats) -> Floats:
    """Drop negligible weights and normalise rows to sum to one; mass of shape [target_count, source_count]."""
    kept = np.where(mass >= _NEGLIGIBLE * mass.max(axis=1, keepdims=True), mass, 0.0)
    return kept / kept.sum(axis=1, keepdims=True)
