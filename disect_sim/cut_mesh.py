"""The cut mesh: output of the virtual node algorithm, input of the simulator; and box meshes for tests and examples."""

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from disect_sim.outcome import InputError

if TYPE_CHECKING:
    from disect_sim.regions import Anatomy

_Corner = tuple[float, float, float]


def box_mesh(low_m: _Corner, high_m: _Corner, cells: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes [m], shape [n, 3], and tets, shape [6 * cells, 4], int32, of a box between two corners [m].

    Every cell is split into the six tets along its main diagonal, so that the faces of neighbours match.
    """
    axes = [np.linspace(a, b, k + 1) for a, b, k in zip(low_m, high_m, cells, strict=True)]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    nx, ny, nz = cells
    index = np.arange(len(nodes)).reshape(nx + 1, ny + 1, nz + 1)
    first = index[:-1, :-1, :-1].ravel()
    steps = np.array([(ny + 1) * (nz + 1), nz + 1, 1])
    tets = []
    for order in permutations(range(3)):
        path = np.concatenate([[0], np.cumsum(steps[list(order)])])
        odd = order in ((0, 2, 1), (1, 0, 2), (2, 1, 0))
        tets.append(first[:, None] + (path[[0, 2, 1, 3]] if odd else path))
    return nodes, np.concatenate(tets).astype(np.int32)


_FRACTION_SUM_TOLERANCE = 1e-12
"""The fractions of all copies of a tet sum to 1 within this rounding [-]."""


@dataclass(frozen=True)
class CutMesh:
    """Tetrahedra duplicated along a cutting surface, with the springs that join the two sides.

    Every tet belongs to one side of the surface. A tet crossed by the surface exists twice, once per side, and each
    copy owns only the fraction of its volume that lies on its side. Its vertices on the other side are its ghost
    nodes. A virtual node is the end of the material part of a crossed edge: it has no degrees of freedom, only a
    coordinate between its two parents.
    """

    nodes: np.ndarray
    """Node positions at rest [m], shape [n, 3], float64."""
    node_original: np.ndarray
    """Index of the input vertex each node is a copy of, shape [n], int32."""
    node_ghost: np.ndarray
    """True where the node's vertex lies on the other side, without material of the node's side, shape [n], bool."""
    tets: np.ndarray
    """Node indices of the tets, positively oriented, shape [m, 4], int32."""
    tet_fraction: np.ndarray
    """Material fraction of each tet's volume [-], in (0, 1], shape [m], float64."""
    tet_side: np.ndarray
    """+1 on the positive side of the surface (x > 0 for the plane x = 0), else -1, shape [m], int8."""
    tet_original: np.ndarray
    """Index of the input tet each tet is a copy of, shape [m], int32."""
    virtual_parents: np.ndarray
    """Node indices (real end, ghost end) of the crossed edge of each virtual node, shape [v, 2], int32."""
    virtual_coordinate: np.ndarray
    """Position c between the parents [-], in (0, 1): (1 - c) x[p0] + c x[p1]; [0, c] is material; shape [v]."""
    virtual_side: np.ndarray
    """Side the virtual node belongs to, +1 or -1, shape [v], int8."""
    spring_virtual: np.ndarray
    """Virtual nodes (on side +1, on side -1) each spring joins, shape [s, 2], int32."""
    spring_position: np.ndarray
    """Spring positions on the cut surface [m], (z, y) for the plane x = 0, shape [s, 2], float64."""
    spring_area: np.ndarray
    """Tributary area of each spring [m²], sums to the area of the cut, shape [s], float64."""
    spring_surface: np.ndarray
    """True where the crossed edge lies on the outer surface of the input mesh (skin), shape [s], bool."""
    snapped_vertices: int = 0
    """Number of input vertices so close to the surface that the crossings next to them were moved away [-]."""
    anatomy: "Anatomy | None" = None
    """Regions and grain in the frame of the nodes; None: flesh throughout."""

    def __repr__(self) -> str:
        springs, area = len(self.spring_virtual), 1e4 * float(self.spring_area.sum())
        return f"CutMesh({len(self.nodes)} nodes, {len(self.tets)} tets, {springs} springs on {area:.3g} cm²)"

    def tet_volumes(self) -> np.ndarray:
        """Return the full (geometric) volume of each tet [m³], shape [m].

        Its material volume is this times tet_fraction.
        """
        return tet_volumes(self.nodes, self.tets)

    def material_volume(self, side: int | None = None) -> float:
        """Return the material volume of one side (+1 or -1) or, by default, of both [m³]."""
        volume = self.tet_fraction * self.tet_volumes()
        return float(volume.sum() if side is None else volume[self.tet_side == side].sum())

    def node_masses(self, density_kg_m3: float) -> np.ndarray:
        """Return lumped node masses [kg], shape [n]: each node gets a quarter of the material mass of its tets."""
        quarter = 0.25 * density_kg_m3 * self.tet_fraction * self.tet_volumes()
        return np.bincount(self.tets.ravel(), np.repeat(quarter, 4), minlength=len(self.nodes))

    def virtual_positions(self, nodes: np.ndarray | None = None) -> np.ndarray:
        """Return virtual node positions [m], shape [v, 3], at rest or for given node positions [m], shape [n, 3]."""
        x = self.nodes if nodes is None else nodes
        c = self.virtual_coordinate[:, None]
        return (1.0 - c) * x[self.virtual_parents[:, 0]] + c * x[self.virtual_parents[:, 1]]

    def check(self) -> None:
        """Raise an InputError if the cut mesh violates one of the rules stated at its fields."""
        for rule in _RULES:
            rule(self)


def tet_volumes(nodes: np.ndarray, tets: np.ndarray) -> np.ndarray:
    """Return signed volumes [m³], shape [m], of tets (shape [m, 4]) on nodes [m] (shape [n, 3])."""
    a, b, c, d = (nodes[tets[:, i]] for i in range(4))
    return np.einsum("ij,ij->i", b - a, np.cross(c - a, d - a)) / 6.0


def _reject_if(bad: np.ndarray, what: str, rule: str) -> None:
    if bad.any():
        ids = np.flatnonzero(bad)
        listed = ", ".join(map(str, ids[:5])) + (", …" if len(ids) > 5 else "")
        raise InputError(f"precut: {len(ids)} of {len(bad)} {what} (ids {listed}). {rule} Run precut again.")


def _check_shapes(cut: CutMesh) -> None:
    n, m, v, s = len(cut.nodes), len(cut.tets), len(cut.virtual_parents), len(cut.spring_virtual)
    shapes = {
        "nodes": (n, 3), "node_original": (n,), "node_ghost": (n,),
        "tets": (m, 4), "tet_fraction": (m,), "tet_side": (m,), "tet_original": (m,),
        "virtual_parents": (v, 2), "virtual_coordinate": (v,), "virtual_side": (v,),
        "spring_virtual": (s, 2), "spring_position": (s, 2), "spring_area": (s,), "spring_surface": (s,),
    }  # fmt: skip
    for name, shape in shapes.items():
        actual = getattr(cut, name).shape
        if actual != shape or 0 in shape:
            raise InputError(
                f"precut: {name} has shape {actual}. It must be {shape}, not empty. Run precut again."
            )


def _check_finite(cut: CutMesh) -> None:
    for name in ("nodes", "tet_fraction", "virtual_coordinate", "spring_position", "spring_area"):
        values = getattr(cut, name).reshape(len(getattr(cut, name)), -1)
        _reject_if(
            ~np.isfinite(values).all(axis=1), f"rows of {name} are not finite", "All values must be finite."
        )


def _check_indices(cut: CutMesh) -> None:
    for name, count in (
        ("tets", len(cut.nodes)),
        ("virtual_parents", len(cut.nodes)),
        ("spring_virtual", len(cut.virtual_parents)),
    ):
        index = getattr(cut, name)
        bad = ((index < 0) | (index >= count)).any(axis=1)
        _reject_if(bad, f"rows of {name} point outside the table", f"Indices must be in 0 … {count - 1}.")
    used = np.bincount(cut.tets.ravel(), minlength=len(cut.nodes)) > 0
    _reject_if(~used, "nodes belong to no tet", "Every node needs a tet, or it has no mass.")


def _check_tets(cut: CutMesh) -> None:
    _reject_if(cut.tet_volumes() <= 0.0, "tets are flat or inverted", "Volume must be > 0.")
    _reject_if(~np.isin(cut.tet_side, (-1, 1)), "tet sides are not -1 or +1", "Every tet is on one side.")
    outside = (cut.tet_fraction <= 0.0) | (cut.tet_fraction > 1.0)
    _reject_if(outside, "material fractions are outside (0, 1]", "A copy owns part of its tet.")
    total = np.bincount(cut.tet_original, cut.tet_fraction)
    present = np.bincount(cut.tet_original) > 0
    wrong = present & (np.abs(total - 1.0) > _FRACTION_SUM_TOLERANCE)
    _reject_if(wrong, "input tets lost or gained material", "The fractions of all copies must add up to 1.")
    side_sum = np.bincount(
        cut.tets.ravel(), np.repeat(cut.tet_side, 4).astype(float), minlength=len(cut.nodes)
    )
    tet_count = np.bincount(cut.tets.ravel(), minlength=len(cut.nodes))
    _reject_if(np.abs(side_sum) != tet_count, "nodes are used on both sides", "The sides share no node.")
    missing = cut.node_ghost[cut.tets].any(axis=1) != (cut.tet_fraction < 1.0)
    _reject_if(
        missing,
        "tets have ghost nodes that contradict their fraction",
        "A tet has ghost nodes exactly if its fraction is < 1.",
    )


def _check_virtual_nodes(cut: CutMesh) -> None:
    inside = (cut.virtual_coordinate > 0.0) & (cut.virtual_coordinate < 1.0)
    _reject_if(~inside, "virtual coordinates are outside (0, 1)", "A virtual node is inside its edge.")
    ghost = cut.node_ghost[cut.virtual_parents]
    _reject_if(
        ghost[:, 0] | ~ghost[:, 1], "virtual nodes have the wrong parents", "Parents are (real, ghost)."
    )
    side_of_node = np.zeros(len(cut.nodes), np.int8)
    side_of_node[cut.tets] = cut.tet_side[:, None]
    wrong = (side_of_node[cut.virtual_parents] != cut.virtual_side[:, None]).any(axis=1)
    _reject_if(wrong, "virtual nodes have parents on the other side", "Both parents are on the node's side.")


def _check_springs(cut: CutMesh) -> None:
    sides = cut.virtual_side[cut.spring_virtual]
    _reject_if((sides != (1, -1)).any(axis=1), "springs do not join +1 to -1", "Columns are (+1, -1).")
    _reject_if(cut.spring_area <= 0.0, "springs have no area", "Tributary area must be > 0.")
    ends = cut.virtual_positions()[cut.spring_virtual]
    size = np.ptp(cut.nodes, axis=0).max()
    apart = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1) > 1e-12 * size
    _reject_if(apart, "springs are stretched at rest", "Both ends start at the same point of the cut.")


_RULES = (_check_shapes, _check_finite, _check_indices, _check_tets, _check_virtual_nodes, _check_springs)
