"""Confirmation of the saving: both motions simulated again with a finer step, a finer mesh and other parameters.

The credible interval of the saving comes from thousands of possible shares of the edge toughness and a few possible
materials. The force of a fixed motion is linear in the shares, up to the body's deformation, so three simulations
represent all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from disect_sim import Model
from disect_sim.cut_mesh import CutMesh, tet_volumes
from disect_sim.many import Answer, Cut
from disect_sim.simulation import forward_solver
from disect_sim.virtual_nodes.cutting import cut_by_plane
from stages.optimize.constraints import Passage
from stages.optimize.description import OptimizeParams
from stages.optimize.slicing_cut import Array, SlicingCut, Values
from stages.shared.cut import Factors, cutting_model, of_material
from stages.shared.library.library import CUT_SPREAD

# Finer mesh: the same body with every edge halved


_NEIGHBOURS = 4
"""Number of coarse springs from which a fine spring is interpolated."""
_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
"""Edges of a tet; the midpoint of an edge is corner 4 + its number."""
_CORNERS = ((0, 4, 5, 6), (1, 4, 7, 8), (2, 5, 7, 9), (3, 6, 8, 9))
"""The four small tets at the corners."""
_DIAGONALS = (
    ((4, 9), (5, 6, 8, 7)),
    ((5, 8), (4, 6, 9, 7)),
    ((6, 7), (4, 5, 9, 8)),
)
"""Octahedron in the middle: its three diagonals, each with the ring of corners around it."""


def _halve_edges(nodes: Array, tets: NDArray[np.int32]) -> tuple[Array, NDArray[np.int32]]:
    """Split every tet into eight: four at its corners, and the octahedron between them along its shortest diagonal.

    nodes [m], shape [n, 3]; tets, shape [m, 4] -> the same of the finer mesh.
    """
    pairs = np.sort(tets[:, _PAIRS].reshape(-1, 2), axis=1)
    edges, which = np.unique(pairs, axis=0, return_inverse=True)
    middles = len(nodes) + which.reshape(-1, 6)
    fine = np.concatenate([nodes, nodes[edges].mean(axis=1)])
    ten = np.concatenate([tets, middles], axis=1)
    corners = ten[:, _CORNERS].reshape(-1, 4)
    lengths = [np.linalg.norm(fine[ten[:, a]] - fine[ten[:, b]], axis=1) for (a, b), _ in _DIAGONALS]
    shortest = np.argmin(lengths, axis=0)
    inner = []
    for number, ((a, b), ring) in enumerate(_DIAGONALS):
        chosen = ten[shortest == number]
        for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
            inner.append(chosen[:, (a, b, one, other)])
    small = np.concatenate([corners, *inner]).astype(np.int32)
    flipped = tet_volumes(fine, small) < 0.0
    small[flipped] = small[flipped][:, [0, 1, 3, 2]]
    return fine, small


def finer_cut(nodes: Array, tets: NDArray[np.int32]) -> CutMesh:
    """Return the finer mesh of an uncut body, cut by the knife's plane x = 0."""
    return cut_by_plane(*_halve_edges(nodes, tets))


def values_on(fine: CutMesh, coarse: CutMesh, values: Values) -> dict[str, Array]:
    """Interpolate the parameters of the coarse springs to the fine ones, skin from skin, flesh from flesh.

    Weights fall with the inverse distance on the cut surface. Values that are not per spring (shape []) stay.
    """
    weights = np.zeros((len(fine.spring_area), len(coarse.spring_area)))
    for skin in (True, False):
        to, source = (np.flatnonzero(mesh.spring_surface == skin) for mesh in (fine, coarse))
        if len(source) == 0:
            source = np.arange(len(coarse.spring_area))
        if len(to) == 0:
            continue
        count = min(_NEIGHBOURS, len(source))
        distance, near = cKDTree(coarse.spring_position[source]).query(fine.spring_position[to], k=count)
        share = 1.0 / (distance.reshape(len(to), count) + 1e-6)
        share /= share.sum(axis=1, keepdims=True)
        weights[to[:, None], source[near.reshape(len(to), count)]] = share
    return {name: value if np.ndim(value) == 0 else weights @ value for name, value in values.items()}


_PERTURBATION = 0.1
"""Relative change of the parameters if there is no posterior."""
POSSIBLE = "possible material"
"""Prefix of the rows of posterior draws."""
MATERIALS = 8
"""Number of possible materials that are tried, each with its own shares."""
SHARES = ("edge_press", "edge_drag")
_BAND_DRAWS = 40_000
"""Number of draws of shares, material and cut-to-cut factors behind the interval of the saving."""


@dataclass(frozen=True)
class Check:
    """One variant in which the two motions are simulated again."""

    name: str
    model: Model
    values: Values
    passage: Passage
    params: OptimizeParams
    vertical: Array
    slicing: Array
    """Variables of the two motions."""

    def cuts(self) -> list[Cut]:
        """Return the cuts of both motions."""
        cut, solver = self._cut(), forward_solver(self.model.tet_count)
        cuts = [*cut.cuts(self.vertical), *cut.cuts(self.slicing)]
        return [replace(one, options={**one.options, "solver": solver}) for one in cuts]

    def confirmed(self, answers: Sequence[Answer[Array]]) -> "Confirmed":
        """Return the means from the forces of both."""
        cut = self._cut()
        forces = [answer.value for answer in answers]
        pairs = zip((self.vertical, self.slicing), forces, strict=True)
        before, after = (
            float("nan") if force is None else cut.mean_of([force], motion) for motion, force in pairs
        )
        sliced = forces[1]
        peak = float("nan") if sliced is None else float(np.linalg.norm(sliced, axis=1).max())
        return Confirmed(self.name, before, after, peak)

    def _cut(self) -> SlicingCut:
        return SlicingCut(self.model, (self.values,), self.passage, self.params)


@dataclass(frozen=True)
class Confirmed:
    """Mean force of both motions under one check [N]; NaN if the cut did not finish."""

    name: str
    vertical_n: float
    slicing_n: float
    peak_n: float
    """Largest force of the optimised motion [N]."""

    @property
    def reduction(self) -> float:
        """Fraction of the vertical cut's mean force that is saved; NaN if a cut did not finish."""
        return 1.0 - self.slicing_n / self.vertical_n


NODES = ((1.0, 1.0), (0.4, 1.0), (1.0, 0.4))
"""Shares at which a motion is simulated, as factors on the mean press and drag share.

The slice share is the remainder.
"""


@dataclass(frozen=True)
class ShareSurrogate:
    """Force of one motion for any shares of the edge toughness: linear in them, through three simulations."""

    shares: Array
    """Press and drag share of the simulations, shape [3, 2]."""
    forces: Array
    """Force on the knife [N], shape [3, samples, 3]."""

    def mean_n(self, shares: Array, weights: Array) -> Array:
        """Return the mean norm of the force [N], shape [draws].

        shares: press and drag, shape [draws, 2]; weights: of the first samples, which sum to 1.
        """
        simulated = np.column_stack([np.ones(len(self.shares)), self.shares])
        drawn = np.column_stack([np.ones(len(shares)), shares])
        parts = np.linalg.solve(simulated.T, drawn.T).T
        forces = self.forces[:, : len(weights)]
        squares = np.zeros((len(shares), len(weights)))
        for component in range(forces.shape[2]):
            squares += (parts @ forces[:, :, component]) ** 2
        return np.asarray(np.sqrt(squares) @ weights, float)


@dataclass(frozen=True)
class SavingBand:
    """90 % interval of the saving over possible fruits."""

    low: float
    high: float
    mean: float
    """Mean over all draws."""
    two_cuts_low: float
    """Same for a saving measured on two cuts of the fruit, each with its own factor."""
    two_cuts_high: float
    material_spread: float
    """Standard deviation of the logarithm of the force ratio due to the material and the surrogate's error."""


def saving_band(ratios: Array, log_residuals: Array, seed: int) -> SavingBand:
    """Return the interval of 1 - ratio.

    Args:
        ratios: Slicing / vertical force for possible shares, shape [draws].
        log_residuals: Logarithm of that ratio as simulated with possible materials, minus that of the shares alone;
            at least two. Their Student distribution represents the material.
        seed: Seed of the random numbers.
    """
    generator, count = np.random.default_rng(seed), len(log_residuals)
    spread = float(log_residuals.std(ddof=1))
    by_material = log_residuals.mean() + spread * np.sqrt(1.0 + 1.0 / count) * generator.standard_t(
        count - 1, _BAND_DRAWS
    )
    drawn = ratios[generator.permutation(np.arange(_BAND_DRAWS) % len(ratios))] * np.exp(by_material)
    measured = drawn * np.exp(np.sqrt(2.0) * CUT_SPREAD * generator.standard_normal(_BAND_DRAWS))
    low, high = 1.0 - np.quantile(drawn, (0.95, 0.05))
    outer = 1.0 - np.quantile(measured, (0.95, 0.05))
    return SavingBand(
        float(low), float(high), float(1.0 - drawn.mean()), float(outer[0]), float(outer[1]), spread
    )


def shares_in(values: Values) -> Array:
    """Return the press and drag share of a set of parameters, means over the springs, shape [2]."""
    return np.array([float(np.mean(values[name])) for name in SHARES])


def with_shares(values: Values, shares: Array) -> dict[str, Array]:
    """Return the parameters with one press and drag share, shape [2], for all springs."""
    fixed = {
        name: np.full(np.shape(values[name]), float(share))
        for name, share in zip(SHARES, shares, strict=True)
    }
    return {**values, **fixed}


def checks_of(
    base: Check, finer: CutMesh, finer_values: Values, materials: Sequence[Factors] = ()
) -> list[Check]:
    """Return the checks: half the edge, half the step, and other parameters; the longest comes first.

    Other parameters are those of possible materials (factors by name) if calibrate has a posterior; otherwise 10 % up,
    down and at random.
    """
    params = base.params
    fine_model = cutting_model(finer, base.model.material, params.cut)
    finer_checks = [
        replace(base, name="half the edge", model=fine_model, values=finer_values),
        replace(base, name="half the step", params=params.changed(dt_s=0.5 * params.cut.dt_s)),
    ]
    if materials:
        return finer_checks + [
            replace(base, name=f"{POSSIBLE} {i + 1}", values=of_material(base.values, factors))
            for i, factors in enumerate(materials[:MATERIALS])
        ]
    generator = np.random.default_rng(params.seed)
    signs = generator.choice([-1.0, 1.0], len(base.values))
    mixed = {
        name: value * (1.0 + _PERTURBATION * sign)
        for (name, value), sign in zip(base.values.items(), signs, strict=True)
    }
    return [
        *finer_checks,
        replace(base, name="parameters + 10 %", values=_scaled(base.values, 1.0 + _PERTURBATION)),
        replace(base, name="parameters - 10 %", values=_scaled(base.values, 1.0 - _PERTURBATION)),
        replace(base, name="parameters ± 10 %, drawn", values=mixed),
    ]


def _scaled(values: Values, factor: float) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) * factor for name, value in values.items()}
