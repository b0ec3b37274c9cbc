"""The model: everything that stays constant during a run, built once from a cut mesh."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from disect_sim.cut_mesh import CutMesh
from disect_sim.knife import Knife
from disect_sim.laws import DAMAGE_LAWS, DEFAULT_DAMAGE_LAW
from disect_sim.outcome import InputError
from disect_sim.parameters import REFERENCE_AREA_M2, Material
from disect_sim.regions import (
    Anatomy,
    SampleFields,
    check_regions,
    lame_ratios,
    sample_fields,
    tet_shares,
)
from disect_sim.virtual_nodes.springs import triangle_areas

REGULARISER_M = 5.0e-5
"""Weight of the barrier that keeps the contact point inside its edge [m]: small compared with the knife's rounding."""

ONSET_M = 1.0e-4
"""Length of the quadratic start of every penalty [m]."""

OVERLAP_ONSET_M = 2.0e-5
"""Quadratic start of the contact between the halves [m]: far below an edge length, so that it acts as rigid."""

BOUNDARIES = ("held", "guided", "glued", "free")

_FIRM_BOARD_N_M = 1.0e4
"""Stiffness of the board per reference area under a body that is not fixed [N/m]: it sinks 0.1 mm in a cut of 40 N.

The paper's 100 N/m are for bodies that are held: a loose one would sink by a millimetre, away from the knife.
"""
HAND_N_M = 5.0e4
"""Total stiffness with which a hand holds the body along the blade [N/m]: a pull of 10 N moves it by 0.2 mm."""

_GRAVITY_M_S2 = (0.0, -9.81, 0.0)


# The cut surface: triangles between the springs, normals, and the samples of the edge law


_SPACING_M = 1.25e-3
"""Distance between samples [m], shorter than the edge rise length so that the force is smooth."""


@dataclass(frozen=True)
class EdgeSamples:
    """Samples of a cut surface."""

    area: np.ndarray
    """Sample areas [m^2], sum to the area of the cut, shape [sample_count]."""
    to_springs: sp.csr_matrix
    """Barycentric weights of the springs at the corners of each sample's triangle, shape [sample_count, spring_count].
    """
    middles: sp.csr_matrix
    """Midpoints of the springs: middles @ x, shape [spring_count, node_count]."""
    skin_distance: np.ndarray
    """Distance from the skin at rest, along the cut [m], shape [sample_count]; infinite without skin."""
    skin_above: np.ndarray
    """Upward component of the direction to the nearest skin [-], shape [sample_count]: 1 below level skin, at least
    0.
    """

    def __len__(self) -> int:
        return len(self.area)

    def repeated(self, copies: int) -> "EdgeSamples":
        """Return the samples of `copies` copies of the body."""
        return EdgeSamples(
            np.tile(self.area, copies),
            sp.block_diag([self.to_springs] * copies, format="csr"),
            sp.block_diag([self.middles] * copies, format="csr"),
            np.tile(self.skin_distance, copies),
            np.tile(self.skin_above, copies),
        )

    def places(self, x: np.ndarray) -> np.ndarray:
        """Return sample positions [m], midway between the sides of the cut, for node positions x [m].

        Further axes are kept.
        """
        flat = self.to_springs @ (self.middles @ x.reshape(len(x), -1))
        return flat.reshape(len(self), *x.shape[1:])


def edge_samples(mesh: CutMesh, triangles: np.ndarray, spring_operator: sp.csr_matrix) -> EdgeSamples:
    """Sample the cut surface; each sample is at most half of a square with side SPACING_M.

    triangles: from `cut_triangles`. spring_operator: the model's; its weights on either side of the cut are those of
    the springs' ends.
    """
    positions = mesh.virtual_positions()[mesh.spring_virtual[:, 0]]
    area, matrix = _divided(positions, triangles, _SPACING_M)
    return EdgeSamples(
        area,
        matrix,
        0.5 * abs(spring_operator),
        *_skin(matrix @ positions, positions, triangles, mesh.spring_surface),
    )


_RIGID_SPACING_M = 4.0e-4
"""Distance between the points at which the edge may meet a rigid region [m]: the stop is found this exactly."""


@dataclass(frozen=True)
class RigidPoints:
    """Points of the cut surface inside rigid regions."""

    to_nodes: sp.csr_matrix
    """Positions = to_nodes @ x, shape [point_count, node_count]."""
    region: np.ndarray
    """Number of the region of each point, shape [point_count]."""


def rigid_points(mesh: CutMesh, triangles: np.ndarray, spring_operator: sp.csr_matrix) -> RigidPoints | None:
    """Return the points of the cut surface inside rigid regions; None if there are none."""
    regions = () if mesh.anatomy is None else mesh.anatomy.regions
    rigid = np.array([one.rigid for one in regions], bool)
    if mesh.anatomy is None or not rigid.any():
        return None
    positions = mesh.virtual_positions()[mesh.spring_virtual[:, 0]]
    _, matrix = _divided(positions, triangles, _RIGID_SPACING_M)
    inside = mesh.anatomy.contained(matrix @ positions) * rigid
    which = np.flatnonzero(inside.any(axis=1))
    if not len(which):
        return None
    return RigidPoints((matrix[which] @ (0.5 * abs(spring_operator))).tocsr(), inside[which].argmax(axis=1))


def _divided(
    positions: np.ndarray, triangles: np.ndarray, spacing_m: float
) -> tuple[np.ndarray, sp.csr_matrix]:
    """Divide triangles between springs at positions [m] into equal parts of at most half a square of that side.

    Return their areas [m^2], shape [part_count], and the weights of the springs, shape [part_count, spring_count].
    """
    area = triangle_areas(*np.moveaxis(positions[triangles], 1, 0))
    parts = np.maximum(1, np.ceil(np.sqrt(2.0 * area) / spacing_m)).astype(int)
    rows, weights, areas = [], [], []
    for count in np.unique(parts):
        chosen = np.flatnonzero(parts == count)
        inside = _centroids(int(count))
        rows.append(np.repeat(triangles[chosen], len(inside), axis=0))
        weights.append(np.tile(inside, (len(chosen), 1)))
        areas.append(np.repeat(area[chosen] / len(inside), len(inside)))
    corner, weight = np.concatenate(rows), np.concatenate(weights)
    size = len(corner)
    matrix = sp.csr_matrix(
        (weight.ravel(), (np.repeat(np.arange(size), 3), corner.ravel())), shape=(size, len(positions))
    )
    return np.concatenate(areas), matrix


def _centroids(count: int) -> np.ndarray:
    """Return barycentric coordinates of the centroids of count^2 equal parts of a triangle, shape [count^2, 3]."""
    i, j = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    up, down = i + j < count, i + j < count - 1
    first = np.concatenate([i[up] + 1.0 / 3.0, i[down] + 2.0 / 3.0]) / count
    second = np.concatenate([j[up] + 1.0 / 3.0, j[down] + 2.0 / 3.0]) / count
    return np.stack([first, second, 1.0 - first - second], axis=1)


def _skin(
    points: np.ndarray, positions: np.ndarray, triangles: np.ndarray, skin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance of points from the skin part of the cut's rim [m], and its upward component."""
    sides = np.sort(
        np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1
    )
    unique, counts = np.unique(sides, axis=0, return_counts=True)
    rim = unique[counts == 1]
    rim = rim[skin[rim].all(axis=1)]
    distance, above = np.full(len(points), np.inf), np.zeros(len(points))
    for a, b in rim:
        way = positions[b] - positions[a]
        share = np.clip((points - positions[a]) @ way / (way @ way), 0.0, 1.0)
        to_skin = positions[a] + share[:, None] * way - points
        length = np.linalg.norm(to_skin, axis=1)
        nearer = length < distance
        distance[nearer] = length[nearer]
        above[nearer] = np.maximum(0.0, to_skin[nearer, 1]) / np.maximum(length[nearer], 1e-12)
    return distance, above


_TET_EDGES = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


def cut_triangles(mesh: CutMesh) -> np.ndarray:
    """Return the cut surface as triangles between springs, shape [triangle_count, 3]."""
    crossed = mesh.tets[(mesh.tet_fraction < 1.0) & (mesh.tet_side == 1)]
    stride = len(mesh.nodes)
    ends = np.sort(mesh.virtual_parents[mesh.spring_virtual[:, 0]], axis=1).astype(np.int64)
    key = ends[:, 0] * stride + ends[:, 1]
    order = np.argsort(key)
    pairs = np.sort(crossed[:, _TET_EDGES], axis=2).astype(np.int64)
    pair_key = pairs[..., 0] * stride + pairs[..., 1]
    at = np.minimum(np.searchsorted(key, pair_key, sorter=order), len(key) - 1)
    spring = np.where(key[order[at]] == pair_key, order[at], -1)
    positions = mesh.virtual_positions()[mesh.spring_virtual[:, 0]]
    triangles = []
    for row in spring:
        corners = row[row >= 0]
        if len(corners) == 4:
            corners = _around(corners, positions)
            triangles.append(corners[[0, 2, 3]])
        if len(corners) >= 3:
            triangles.append(corners[:3])
    return np.array(triangles)


def _around(corners: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Sort four corners in cyclic order."""
    away = positions[corners] - positions[corners].mean(axis=0)
    across, along = np.linalg.svd(away)[2][:2]
    return corners[np.argsort(np.arctan2(away @ along, away @ across))]


def cut_normals(mesh: CutMesh, triangles: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Return unit normals of the cut surface at the springs, towards side +1, shape [spring_count, 3].

    Each is the area-weighted mean over the triangles around a spring; where many springs crowd around a node next to
    the surface, their own positions span no plane. triangles: from `cut_triangles`; across: from side -1 to side +1 at
    each spring, shape [spring_count, 3].
    """
    a, b, c = np.moveaxis(mesh.virtual_positions()[mesh.spring_virtual[:, 0]][triangles], 1, 0)
    twice = np.cross(b - a, c - a)
    ahead = np.einsum("ij,ij->i", twice, across[triangles].sum(axis=1)) >= 0.0
    normal = np.zeros_like(across)
    for corner in triangles.T:
        np.add.at(normal, corner, np.where(ahead[:, None], twice, -twice))
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    none = length[:, 0] == 0.0
    normal[none], length[none] = across[none], np.linalg.norm(across[none], axis=1, keepdims=True)
    unit_normal: np.ndarray = normal / length
    return unit_normal


# The model


@dataclass(frozen=True)
class BoardProperties:
    """Penalty contact of the board, per reference area (values of the paper)."""

    ke: float = 100.0
    """Stiffness [N/m]."""
    kd: float = 0.1
    """Damping [N s/m]."""
    kf: float = 0.2
    """Slip speed of full friction [m/s]."""
    mu: float = 0.6
    """Friction coefficient [-]."""
    radius_m: float = 1.0e-3
    """Height at which contact starts [m]."""


@dataclass(frozen=True)
class Model:
    """A cut body, a knife and the laws of their interaction. Read-only; created by `build_model`."""

    mesh: CutMesh
    material: Material
    knife: Knife
    board: BoardProperties
    damage_law: str
    """Name in DAMAGE_LAWS."""
    gravity: np.ndarray
    """Gravitational acceleration [m/s^2], shape [3]."""
    fixed: np.ndarray
    """Nodes held in place, shape [node_count], bool."""
    guided: np.ndarray
    """Nodes held along the blade only, shape [guided_count], int32."""
    tet_nodes: np.ndarray
    """Node indices in ascending order per tet, shape [tet_count, 4], int32."""
    tet_shape_gradients: np.ndarray
    """Inverse rest edge matrices [1/m], shape [tet_count, 3, 3]."""
    tet_volume: np.ndarray
    """Rest volume times material fraction [m^3], shape [tet_count]."""
    node_volume: np.ndarray
    """Lumped material volume [m^3], shape [node_count]."""
    tet_shares: np.ndarray
    """Volume fractions of the regions, shape [tet_count, region_count]."""
    region_lame: np.ndarray
    """mu and lambda of the regions over the flesh's [-], shape [2, region_count]."""
    tet_lame: np.ndarray
    """mu and lambda over the flesh's [-], shape [2, tet_count]."""
    node_flesh_volume: np.ndarray
    """Lumped volume of flesh with the node's mass [m^3], shape [node_count]."""
    spring_nodes: np.ndarray
    """Parents on side +1 (real, ghost), then on side -1, shape [spring_count, 4], int32."""
    spring_weights: np.ndarray
    """Spring vector d = sum_a weights[a] x[nodes[a]], shape [spring_count, 4]."""
    cut_triangles: np.ndarray
    """Triangles of the cut surface between springs, shape [triangle_count, 3]."""
    spring_normal: np.ndarray
    """Normal of the cut surface, towards side +1, shape [spring_count, 3]."""
    spring_area_ratio: np.ndarray
    """Tributary area over REFERENCE_AREA_M2, shape [spring_count]."""
    overlap_stiffness: np.ndarray
    """One-sided stiffness between the halves [N/m], shape [spring_count]."""
    contact_parents: np.ndarray
    """Cut edges (real end, ghost end): first all on side +1 in spring order, then all on side -1, shape [2 s, 2]."""
    contact_coordinate: np.ndarray
    """Material part of the edge [-], shape [2 s]."""
    contact_side: np.ndarray
    """Side, +1 or -1, shape [2 s], float64."""
    contact_offset: np.ndarray
    """Barrier value at rest, subtracted from the distance [m], shape [2 s]."""
    board_nodes: np.ndarray
    """Surface nodes that can touch the board, shape [board_count], int32."""
    board_area_ratio: np.ndarray
    """Their tributary surface area over REFERENCE_AREA_M2, shape [board_count]."""
    spring_operator: sp.csr_matrix = field(repr=False)
    """d = spring_operator @ x, shape [spring_count, node_count]."""
    original: "Model | None" = field(default=None, repr=False)
    """Single body of which this model is several copies, if any (see `many.repeated`)."""

    def __repr__(self) -> str:
        return f"Model({self.mesh!r}, {self.material}, damage_law={self.damage_law!r})"

    @property
    def one(self) -> "Model":
        """A single body: this one, or the one of which it is several copies."""
        return self if self.original is None else self.original

    @property
    def copies(self) -> int:
        """Number of bodies."""
        return self.node_count // self.one.node_count

    @property
    def node_count(self) -> int:
        """Number of nodes, ghosts included."""
        return len(self.mesh.nodes)

    @property
    def tet_count(self) -> int:
        """Number of tets; cut tets count twice."""
        return len(self.tet_nodes)

    @property
    def spring_count(self) -> int:
        """Number of cutting springs."""
        return len(self.spring_nodes)

    @property
    def surface(self) -> np.ndarray:
        """Springs on the skin, shape [spring_count], bool."""
        return self.mesh.spring_surface

    @cached_property
    def edge_samples(self) -> EdgeSamples:
        """Samples of the cut surface for the edge law; built once per model."""
        if self.original is not None:
            return self.original.edge_samples.repeated(self.copies)
        return edge_samples(self.mesh, self.cut_triangles, self.spring_operator)

    @cached_property
    def sample_fields(self) -> SampleFields | None:
        """Regions and grain at the edge samples; None without."""
        if self.original is not None:
            fields = self.original.sample_fields
            return None if fields is None else fields.repeated(self.copies)
        if not self.mesh.anatomy:
            return None
        return sample_fields(self.mesh.anatomy, self.edge_samples.places(self.mesh.nodes))

    @cached_property
    def rigid_points(self) -> RigidPoints | None:
        """Points of the cut surface inside rigid regions, of the first copy; None if there are none."""
        return rigid_points(self.one.mesh, self.one.cut_triangles, self.one.spring_operator)


_HOLD_BELOW_M = 1.0e-3
"""Height up to which nodes count as touching the board [m]."""
_HOLD_BEYOND_M = 1.0e-2
"""Distance from the cut plane beyond which "held" fixes nodes [m]."""


def build_model(
    mesh: CutMesh,
    material: Material,
    knife: Knife | None = None,
    *,
    boundary: str = "held",
    damage_law: str = DEFAULT_DAMAGE_LAW,
    board: BoardProperties | None = None,
    gravity: tuple[float, float, float] = _GRAVITY_M_S2,
) -> Model:
    """Build the model of a cut.

    **Main arguments**

    - `mesh`: the cut mesh, standing on the board y = 0 with the cut plane at x = 0.
    - `material`, `knife`: material of the body and knife (by default the 150 mm kitchen knife).

    **Other arguments**

    - `boundary`: "held" fixes nodes that touch the board (below 1 mm) at least 10 mm away from the cut plane; "guided"
      models a hand on both sides: nothing is fixed, but the outer parts are not drawn along with the blade; "glued"
      fixes all nodes below 1 mm; "free" fixes none.
    - `damage_law`: a name in DAMAGE_LAWS.
    - `board`: contact properties of the board, by default the paper's. Under a body that is not fixed the default
      board is firm, and its contact height is chosen so that the weight rests on it from the start. `gravity` [m/s^2].
    """
    _check_choice("boundary", boundary, BOUNDARIES)
    _check_choice("damage_law", damage_law, tuple(DAMAGE_LAWS))
    mesh.check()
    x = mesh.nodes
    tet_nodes = np.sort(mesh.tets, axis=1).astype(np.int32)
    tet_nodes, fraction = _in_cache_order(tet_nodes, mesh.tet_fraction)
    anatomy = mesh.anatomy or Anatomy()
    check_regions(anatomy.regions)
    shares = tet_shares(anatomy, x[tet_nodes])
    region_lame = lame_ratios(anatomy, material.poisson)
    heavy = 1.0 + shares @ (anatomy.ratios("density_ratio") - 1.0)
    edges = np.stack([x[tet_nodes[:, a]] - x[tet_nodes[:, 0]] for a in (1, 2, 3)], axis=2)
    volume = np.abs(np.linalg.det(edges)) / 6.0 * fraction
    node_volume, flesh_volume = (
        np.bincount(tet_nodes.ravel(), np.repeat(values / 4.0, 4), minlength=len(x))
        for values in (volume, volume * heavy)
    )

    positive, negative = mesh.spring_virtual.T
    parents = mesh.virtual_parents
    c = mesh.virtual_coordinate
    spring_nodes = np.concatenate([parents[positive], parents[negative]], axis=1).astype(np.int32)
    spring_weights = np.stack([1.0 - c[positive], c[positive], c[negative] - 1.0, -c[negative]], axis=1)
    count = len(spring_nodes)
    operator = sp.csr_matrix(
        (spring_weights.ravel(), (np.repeat(np.arange(count), 4), spring_nodes.ravel())),
        shape=(count, len(x)),
    )
    across = x[parents[positive, 0]] - x[parents[negative, 0]]
    triangles = cut_triangles(mesh)
    contacts = np.concatenate([positive, negative])
    board_nodes, board_area = _surface_nodes(mesh)
    if board is None:
        board = BoardProperties()
        if boundary in ("guided", "free"):
            board = replace(board, ke=_FIRM_BOARD_N_M)
            weight = float(-gravity[1] * material.density_kg_m3 * flesh_volume.sum())
            board = _at_rest(board, x[board_nodes, 1], board_area / REFERENCE_AREA_M2, weight)
    touching = x[:, 1] < x[:, 1].min() + _HOLD_BELOW_M
    if boundary != "glued":
        touching &= np.abs(x[:, 0]) >= _HOLD_BEYOND_M
    return Model(
        mesh=mesh,
        material=material,
        knife=Knife() if knife is None else knife,
        board=board,
        damage_law=damage_law,
        gravity=np.asarray(gravity, float),
        fixed=touching if boundary in ("held", "glued") else np.zeros(len(x), bool),
        guided=_outer_nodes(x) if boundary == "guided" else np.zeros(0, np.int32),
        tet_nodes=tet_nodes,
        tet_shape_gradients=np.linalg.inv(edges),
        tet_volume=volume,
        node_volume=node_volume,
        tet_shares=shares,
        region_lame=region_lame,
        tet_lame=1.0 + (region_lame - 1.0) @ shares.T,
        node_flesh_volume=flesh_volume,
        spring_nodes=spring_nodes,
        spring_weights=spring_weights,
        cut_triangles=triangles,
        spring_normal=cut_normals(mesh, triangles, across),
        spring_area_ratio=mesh.spring_area / REFERENCE_AREA_M2,
        overlap_stiffness=material.young_pa * np.sqrt(mesh.spring_area),
        contact_parents=parents[contacts].astype(np.int32),
        contact_coordinate=c[contacts],
        contact_side=mesh.virtual_side[contacts].astype(float),
        contact_offset=_barrier_offset(x, parents[contacts], c[contacts]),
        board_nodes=board_nodes,
        board_area_ratio=board_area / REFERENCE_AREA_M2,
        spring_operator=operator,
    )


def _check_choice(name: str, value: object, allowed: tuple) -> None:
    if value not in allowed:
        raise InputError(
            f"model: {name} is {value!r}. It must be one of {', '.join(map(repr, allowed))}. Choose one."
        )


def _in_cache_order(tets: np.ndarray, fraction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort tets by their lowest node, so that neighbours in memory are neighbours in space."""
    order = np.lexsort(tets.T[::-1])
    return np.ascontiguousarray(tets[order]), fraction[order]


def _outer_nodes(x: np.ndarray) -> np.ndarray:
    """Return the nodes farther from the cut plane than half the extent of their side, int32."""
    reach = np.where(x[:, 0] > 0.0, x[:, 0].max(), x[:, 0].min())
    return np.flatnonzero(x[:, 0] / reach >= 0.5).astype(np.int32)


def _at_rest(
    board: BoardProperties, height: np.ndarray, area_ratio: np.ndarray, weight: float
) -> BoardProperties:
    """Return the board with the contact height at which it bears the weight [N] of nodes at these heights [m]."""

    def bears(radius: float) -> float:
        depth = radius - height
        start = np.clip(depth, 0.0, ONSET_M)
        return float(board.ke * area_ratio @ (start**2 / (2.0 * ONSET_M) + np.maximum(0.0, depth - ONSET_M)))

    low, high = float(height.min()), float(height.min()) + board.radius_m
    if weight <= 0.0 or bears(high) <= weight:
        return board
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if bears(middle) > weight else (middle, high)
    return replace(board, radius_m=high)


def _barrier_offset(x: np.ndarray, parents: np.ndarray, coordinate: np.ndarray) -> np.ndarray:
    """Return the barrier's contribution to the distance of an edge at rest from a vertical flank at x = 0 [m]."""
    reach = coordinate * np.abs(x[parents[:, 1], 0] - x[parents[:, 0], 0])
    two_beta = 2.0 * REGULARISER_M
    root = np.hypot(reach, two_beta)
    s = two_beta / (-reach + two_beta + root)
    return reach * (1.0 - s) - REGULARISER_M * np.log(4.0 * s * (1.0 - s))


def _surface_nodes(mesh: CutMesh) -> tuple[np.ndarray, np.ndarray]:
    """Return real nodes on the outer surface and their share of its area [m^2]."""
    _, first = np.unique(mesh.tet_original, return_index=True)
    tets = mesh.node_original[mesh.tets[first]]
    faces = np.concatenate([tets[:, [1, 2, 3]], tets[:, [0, 2, 3]], tets[:, [0, 1, 3]], tets[:, [0, 1, 2]]])
    unique, counts = np.unique(np.sort(faces, axis=1), axis=0, return_counts=True)
    outer = unique[counts == 1]
    originals = int(mesh.node_original.max()) + 1
    position = np.zeros((originals, 3))
    position[mesh.node_original] = mesh.nodes
    a, b, c = (position[outer[:, i]] for i in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2.0
    node_area = np.bincount(outer.ravel(), np.repeat(area / 3.0, 3), minlength=originals)[mesh.node_original]
    nodes = np.flatnonzero(~mesh.node_ghost & (node_area > 0.0))
    return nodes.astype(np.int32), node_area[nodes]


# Samples of the edge law, finer than the springs
