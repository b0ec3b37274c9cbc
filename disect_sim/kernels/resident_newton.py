"""Newton's method with line search on the device, independently for every copy of the body.

A loop continues while any copy needs it; copies that have converged keep their positions.
"""

import warp as wp

from disect_sim.kernels.conjugate_gradients import LANE_COUNT, Solve
from disect_sim.kernels.laws import HALF, ONE, ZERO

wp.set_module_options({"enable_backward": False})

_vec3 = wp.vec3d

_ARMIJO = wp.constant(wp.float64(1.0e-4))  # Armijo constant: required fraction of the predicted decrease
_ROUNDING = wp.constant(wp.float64(1.0e-12))  # relative accuracy of the summed energy
_MAX_HALVINGS = wp.constant(12)
PARTS = 12
_PART_COUNT = wp.constant(PARTS)


@wp.struct
class Newton:
    """State of one step; arrays [copy_count] unless stated otherwise."""

    tolerance: wp.float64  # a step has converged when no node moves farther [m]
    max_iterations: int
    running: wp.array(dtype=wp.int32)  # 1 while any copy iterates, [1]
    searching: wp.array(dtype=wp.int32)  # 1 while any copy searches along its direction, [1]
    open: wp.array(dtype=wp.int32)  # 1 while directions are computed
    seeking: wp.array(dtype=wp.int32)  # 1 while a step length is searched
    solved: wp.array(dtype=wp.int32)  # 1: the last direction is below the tolerance
    failed: wp.array(dtype=wp.int32)  # 1: no step length lowers the energy, or too many directions
    iteration: wp.array(dtype=wp.int32)  # number of directions in this step
    halvings: wp.array(dtype=wp.int32)  # number of halvings of this direction
    worst: wp.array(dtype=wp.int32)  # free node with the largest movement, index within its copy
    energy: wp.array(dtype=wp.float64)  # energy at the current point [J]
    slope: wp.array(dtype=wp.float64)  # slope of the energy along the direction [J]
    length: wp.array(dtype=wp.float64)  # step length being tried
    directions: wp.array(dtype=wp.int32)  # number of directions in the whole run
    cuts: wp.array(dtype=wp.int32)  # number of halvings in the whole run
    indefinite: wp.array(dtype=wp.int32)  # number of solves that met non-positive curvature


@wp.struct
class EnergyArrays:
    """Energies computed by the gradient's kernels [J], copy after copy."""

    inertia: wp.array(dtype=wp.float64)
    tets: wp.array(dtype=_vec3)  # the third is det F
    springs: wp.array(dtype=_vec3)
    contacts: wp.array(dtype=_vec3)
    board: wp.array(dtype=_vec3)
    hold: wp.array(dtype=wp.float64)


@wp.kernel
def energy_lanes(copies: int, energies_in: EnergyArrays, lanes_out: wp.array3d(dtype=wp.float64)):
    """Compute lanes of the energy parts in the order of `Energies`, [copy_count, PARTS, LANES]."""
    copy, lane = wp.tid()
    inertia = ZERO
    count = energies_in.inertia.shape[0] // copies
    for i in range(copy * count + lane, (copy + 1) * count, LANE_COUNT):
        inertia += energies_in.inertia[i]
    tets = _vec3()
    count = energies_in.tets.shape[0] // copies
    for i in range(copy * count + lane, (copy + 1) * count, LANE_COUNT):
        tets += energies_in.tets[i]
    springs = _vec3()
    count = energies_in.springs.shape[0] // copies
    for i in range(copy * count + lane, (copy + 1) * count, LANE_COUNT):
        springs += energies_in.springs[i]
    contacts = _vec3()
    count = energies_in.contacts.shape[0] // copies
    for i in range(copy * count + lane, (copy + 1) * count, LANE_COUNT):
        contacts += energies_in.contacts[i]
    board = _vec3()
    count = energies_in.board.shape[0] // copies
    for i in range(copy * count + lane, (copy + 1) * count, LANE_COUNT):
        board += energies_in.board[i]
    lanes_out[copy, 0, lane] = inertia
    lanes_out[copy, 1, lane] = tets[0]
    lanes_out[copy, 2, lane] = tets[1]
    for a in range(3):
        lanes_out[copy, 3 + a, lane] = springs[a]
        lanes_out[copy, 6 + a, lane] = contacts[a]
    lanes_out[copy, 9, lane] = board[0]
    lanes_out[copy, 10, lane] = board[1] + board[2]
    hold = ZERO
    count = energies_in.hold.shape[0] // copies
    for i in range(copy * count + lane, (copy + 1) * count, LANE_COUNT):
        hold += energies_in.hold[i]
    lanes_out[copy, 11, lane] = hold


@wp.kernel
def sum_lanes(lanes_in: wp.array3d(dtype=wp.float64), total_out: wp.array2d(dtype=wp.float64)):
    copy, i = wp.tid()
    total = ZERO
    for lane in range(LANE_COUNT):
        total += lanes_in[copy, i, lane]
    total_out[copy, i] = total


@wp.func
def total_energy(parts: wp.array2d(dtype=wp.float64), copy: int):
    total = ZERO
    for i in range(_PART_COUNT):
        total += parts[copy, i]
    return total


@wp.kernel
def begin_newton(alive: wp.array(dtype=wp.int32), parts_in: wp.array2d(dtype=wp.float64), newton_out: Newton):
    copy = wp.tid()
    newton_out.energy[copy] = total_energy(parts_in, copy)
    newton_out.open[copy] = alive[copy]
    newton_out.solved[copy] = 0
    newton_out.failed[copy] = 0
    newton_out.iteration[copy] = 0
    if alive[copy] == 1:
        newton_out.running[0] = 1


@wp.kernel
def take_right_side(
    free: wp.array(dtype=wp.int32),
    nodes: int,
    newton: Newton,
    gradient_in: wp.array(dtype=_vec3),
    right_out: wp.array2d(dtype=_vec3),
):
    """Set the right-hand side.

    Zero for a copy that has converged, so that its direction is zero. nodes: of one copy.
    """
    copy, i = wp.tid()
    right = _vec3()
    if newton.open[copy] == 1:
        right = -gradient_in[copy * nodes + free[i]]
    right_out[copy, i] = right


@wp.kernel
def direction_lanes(
    count: int,
    right_in: wp.array2d(dtype=_vec3),
    direction_in: wp.array2d(dtype=_vec3),
    slope_out: wp.array2d(dtype=wp.float64),
    moved_out: wp.array2d(dtype=wp.float64),
    who_out: wp.array2d(dtype=wp.int32),
):
    """Compute lanes of the slope, of the largest movement [m] and of its node."""
    copy, lane = wp.tid()
    slope = ZERO
    moved = ZERO
    node = wp.int32(0)
    for i in range(lane, count, LANE_COUNT):
        d = direction_in[copy, i]
        slope -= wp.dot(right_in[copy, i], d)
        far = wp.max(wp.abs(d[0]), wp.max(wp.abs(d[1]), wp.abs(d[2])))
        # also true for NaN
        if not far <= moved:
            moved = far
            node = i
    slope_out[copy, lane] = slope
    moved_out[copy, lane] = moved
    who_out[copy, lane] = node


@wp.kernel
def begin_search(
    slope_in: wp.array2d(dtype=wp.float64),
    moved_in: wp.array2d(dtype=wp.float64),
    who_in: wp.array2d(dtype=wp.int32),
    solve: Solve,
    newton_out: Newton,
):
    copy = wp.tid()
    if copy == 0:
        newton_out.running[0] = 0
    if newton_out.open[copy] == 0:
        return
    slope = ZERO
    moved = ZERO
    for lane in range(LANE_COUNT):
        slope += slope_in[copy, lane]
        if not moved_in[copy, lane] <= moved:
            moved = moved_in[copy, lane]
            newton_out.worst[copy] = who_in[copy, lane]
    newton_out.slope[copy] = slope
    newton_out.solved[copy] = 0
    if solve.solved[copy] == 1 and moved < newton_out.tolerance:
        newton_out.solved[copy] = 1
    newton_out.indefinite[copy] += solve.indefinite[copy]
    newton_out.length[copy] = ONE
    newton_out.halvings[copy] = 0
    newton_out.seeking[copy] = 1
    newton_out.searching[0] = 1


@wp.kernel
def try_length(
    free: wp.array(dtype=wp.int32),
    nodes: int,
    newton_out: Newton,
    reached_in: wp.array(dtype=_vec3),
    direction_in: wp.array2d(dtype=_vec3),
    x_out: wp.array(dtype=_vec3),
):
    copy, i = wp.tid()
    if copy == 0 and i == 0:
        newton_out.searching[0] = 0
    if newton_out.seeking[copy] == 1:
        n = copy * nodes + free[i]
        x_out[n] = reached_in[n] + direction_in[copy, i] * newton_out.length[copy]


@wp.kernel
def judge_length(parts_in: wp.array2d(dtype=wp.float64), newton_out: Newton):
    """Accept the step length if the energy falls enough, or if the step is so small that differences are rounding."""
    copy = wp.tid()
    if newton_out.seeking[copy] == 0:
        return
    energy = total_energy(parts_in, copy)
    before = newton_out.energy[copy]
    promised = _ARMIJO * newton_out.length[copy] * newton_out.slope[copy]
    rounding = _ROUNDING * (wp.abs(before) + wp.abs(energy))
    if newton_out.solved[copy] == 1 or energy <= before + promised + rounding:
        newton_out.energy[copy] = energy
        newton_out.seeking[copy] = 0
    else:
        newton_out.length[copy] = newton_out.length[copy] * HALF
        newton_out.halvings[copy] += 1
        newton_out.cuts[copy] += 1
        if newton_out.halvings[copy] >= _MAX_HALVINGS:
            newton_out.seeking[copy] = 0
            newton_out.failed[copy] = 1
        else:
            newton_out.searching[0] = 1


@wp.kernel
def reach(x_in: wp.array(dtype=_vec3), reached_out: wp.array(dtype=_vec3)):
    i = wp.tid()
    reached_out[i] = x_in[i]


@wp.kernel
def end_direction(newton_out: Newton):
    copy = wp.tid()
    if newton_out.open[copy] == 0:
        return
    newton_out.iteration[copy] += 1
    newton_out.directions[copy] += 1
    if newton_out.solved[copy] == 1 or newton_out.failed[copy] == 1:
        newton_out.open[copy] = 0
    elif newton_out.iteration[copy] >= newton_out.max_iterations:
        newton_out.open[copy] = 0
        newton_out.failed[copy] = 1
    else:
        newton_out.running[0] = 1
