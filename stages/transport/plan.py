"""The Earth Mover's plan between two sets of springs, as weights of sources for each target."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from disect_sim.errors import InputError
from stages.transport.spring_set import Floats, SpringSet

MAX_PAIRS = 400_000_000
"""Entries of the cost matrix: 3 GB. Larger sets are refused."""
MAX_PIVOTS = 20_000_000
"""Of the network simplex; 2,000 x 2,000 springs need some 100,000."""
MAX_SINKHORN = 3_000
SINKHORN_ERROR = 1.0e-5
"""Of the marginals, at which the entropic plan is done."""
DUST = 1.0e-6
"""Weights below this share of their row's largest are left out."""


@dataclass(frozen=True)
class Plan:
    """Where the values of each target spring come from."""

    weights: sp.csr_array
    """Shares of the sources [-], shape [target_count, source_count]; each row sums to one."""
    cost: float
    """Mean squared way in the unit box [-]."""
    marginal_error: float
    """Total mass that is not where it should be, the worse of both sides [-]."""
    method: str
    """exact, entropic, or both."""
    iterations: int
    """Of the entropic method; 0 for the exact one."""
    mixed: bool
    """True if skin or flesh of the target had no counterpart in the source, so that all sources were taken."""


def transport_plan(
    source: SpringSet,
    target: SpringSet,
    *,
    source_weight: Floats | None = None,
    max_exact: int,
    entropy: float,
) -> Plan:
    """Plans for skin and flesh apart, put together.

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
    """One plan; positions in the unit box, masses that sum to one."""
    import ot

    if len(source) * len(target) > MAX_PAIRS:
        raise InputError(
            f"Transport from {len(source)} to {len(target)} springs needs {len(source) * len(target):,} pairs. At most "
            f"{MAX_PAIRS:,} fit in memory. Raise tetrahedralize.cut_edge_m or tetrahedralize_half.cut_edge_m."
        )
    cost = cdist(source, target, "sqeuclidean")
    iterations, method = 0, "exact"
    if max(len(source), len(target)) <= max_exact:
        plan, log = ot.emd(source_mass, target_mass, cost, numItermax=MAX_PIVOTS, log=True)
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
            numItermax=MAX_SINKHORN,
            stopThr=SINKHORN_ERROR,
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
    """Rows without dust that sum to one; mass of shape [target_count, source_count]."""
    kept = np.where(mass >= DUST * mass.max(axis=1, keepdims=True), mass, 0.0)
    return kept / kept.sum(axis=1, keepdims=True)
