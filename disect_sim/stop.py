"""The stop at a rigid region: where the edge meets it, with which force, and how fast the force grows beyond it."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

from disect_sim.knife import turned
from disect_sim.model import HAND_N_M, Model
from disect_sim.outcome import Outcome, OutcomeKind

_TOUCHED_M = 1.0e-3
"""Height below the highest point of a rigid region over which the edge bears on it [m]."""
_JOINT = 1.0e3
"""Stiffness of the joint of the uncut part over the one-sided stiffness between the halves [-]."""


def stopped(model: Model, x: np.ndarray, pose: np.ndarray, force_n: float, step: int) -> Outcome | None:
    """Return the outcome of a step at whose end the edge at `pose` [m, rad] has met a rigid region; None if it has not.

    x: node positions [m] of one body, shape [node_count, 3]. force_n: size of the force on the knife [N].
    """
    rigid = model.rigid_points
    if rigid is None:
        return None
    place = rigid.to_nodes @ x
    point = turned(place - pose[:3], -float(pose[3]))
    above = point[:, 1] >= model.knife.edge_height_m(point[:, 2])
    met = np.flatnonzero(above & (np.abs(point[:, 2]) <= 0.5 * model.knife.length_m))
    if not len(met):
        return None
    anatomy = model.mesh.anatomy
    name = "" if anatomy is None else anatomy.regions[rigid.region[met[0]]].name
    along = point[met[:1], 2]
    edge = np.stack([0.0 * along, model.knife.edge_height_m(along), along], axis=1)
    height = pose[1] + turned(edge, float(pose[3]))[0, 1]
    detail = f"Region {name!r}: the edge stops {1e3 * height:.1f} mm above the board, with {force_n:.4g} N."
    return Outcome(OutcomeKind.KNIFE_STOPPED, detail, step)


@dataclass(frozen=True)
class RigidObstacle:
    """The rigid region that the cut plane crosses highest, at rest."""

    name: str
    top_m: float
    """Height of its highest point in the cut [m]."""
    stiffness_n_m: float
    """Force that the edge gains per length it is driven on after the stop [N/m]: the body's compliance on the board."""


def obstacle(model: Model) -> RigidObstacle | None:
    """Return the rigid region that the cut meets first; None if the cut meets none.

    The stiffness is that of the whole body at rest, linear elastic, on the board, and whole below the region's
    top. A rigid region is as stiff as its young_ratio says.
    """
    rigid = model.rigid_points
    if rigid is None or model.mesh.anatomy is None:
        return None
    height = (rigid.to_nodes @ model.one.mesh.nodes)[:, 1]
    top = int(height.argmax())
    loaded = np.flatnonzero(height >= height[top] - _TOUCHED_M)
    weights = np.asarray(rigid.to_nodes[loaded].mean(axis=0)).ravel()
    stiffness = _stiffness(model.one, float(height[top]))
    force = np.zeros((model.one.node_count, 3))
    force[:, 1] = -weights
    free = np.flatnonzero(np.repeat(~model.one.fixed, 3))
    moved = np.zeros(force.size)
    moved[free] = spsolve(stiffness[free][:, free].tocsc(), force.ravel()[free])
    name = model.mesh.anatomy.regions[rigid.region[top]].name
    return RigidObstacle(name, float(height[top]), float(1.0 / (moved @ force.ravel())))


def _stiffness(model: Model, cut_above_m: float) -> sp.csr_matrix:
    """Return the stiffness matrix at rest [N/m], shape [3 node_count, 3 node_count]: tets, board, hand, springs."""
    gradients = np.concatenate(
        [-model.tet_shape_gradients.sum(axis=1, keepdims=True), model.tet_shape_gradients], axis=1
    )
    mu, lam = model.material.lame_mu_pa, model.material.lame_lambda_pa
    mus, lams = (ratio[:, None, None, None, None] for ratio in model.tet_lame)
    outer = np.einsum("tai,tbj->taibj", gradients, gradients)
    inner = np.einsum("tak,tbk->tab", gradients, gradients)
    shear = np.einsum("taibj->tajbi", outer) + np.einsum("tab,ij->taibj", inner, np.eye(3))
    blocks = (lam * lams * outer + mu * mus * shear) * model.tet_volume[:, None, None, None, None]
    degrees = (3 * model.tet_nodes[:, :, None] + np.arange(3)).reshape(-1, 12)
    rows, columns = np.repeat(degrees, 12, axis=1).ravel(), np.tile(degrees, (1, 12)).ravel()
    size = 3 * model.node_count
    matrix = sp.csr_matrix((blocks.ravel(), (rows, columns)), shape=(size, size))
    diagonal = np.zeros((model.node_count, 3))
    low = model.mesh.nodes[model.board_nodes, 1] < model.board.radius_m
    # A body that rests on the board sticks to it: the same stiffness along it.
    diagonal[model.board_nodes[low]] += (model.board.ke * model.board_area_ratio[low])[:, None]
    if len(model.guided):
        volume = model.node_volume[model.guided]
        diagonal[model.guided, 2] += HAND_N_M * volume / volume.sum()
    height = model.mesh.virtual_positions()[model.mesh.spring_virtual[:, 0], 1]
    # Below the edge the body is still whole: a joint far stiffer than the tets beside it.
    whole = np.repeat((height <= cut_above_m) * _JOINT * model.overlap_stiffness, 3)
    across = sp.kron(model.spring_operator, sp.eye(3), format="csr")
    return (matrix + sp.diags(diagonal.ravel()) + across.T @ sp.diags(whole) @ across).tocsr()
