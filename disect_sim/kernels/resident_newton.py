"""Newton's method with line search, decided on the device: numbers of one step in arrays of length one."""

import warp as wp

from disect_sim.kernels.conjugate_gradients import LANE_COUNT, Solve
from disect_sim.kernels.laws import HALF, ONE, ZERO

wp.set_module_options({"enable_backward": False})

vec3 = wp.vec3d

ARMIJO = wp.constant(wp.float64(1.0e-4))  # share of the promised decrease that a step must bring
ROUNDING = wp.constant(wp.float64(1.0e-12))  # relative accuracy of the summed energy
MAX_HALVINGS = wp.constant(12)
PARTS = 12
PART_COUNT = wp.constant(PARTS)


@wp.struct
class Newton:
    """State of one step; arrays [1]."""

    tolerance: wp.float64  # a step is solved when no node moves further [m]
    max_iterations: int
    running: wp.array(dtype=wp.int32)  # 1 while directions are sought
    searching: wp.array(dtype=wp.int32)  # 1 while a length is sought
    solved: wp.array(dtype=wp.int32)  # 1: the last direction is below the tolerance
    failed: wp.array(dtype=wp.int32)  # 1: no length lowers the energy, or too many directions
    iteration: wp.array(dtype=wp.int32)  # directions of this step
    halvings: wp.array(dtype=wp.int32)  # of this direction
    worst: wp.array(dtype=wp.int32)  # free node that moves most
    energy: wp.array(dtype=wp.float64)  # at the point reached [J]
    slope: wp.array(dtype=wp.float64)  # of the energy along the direction [J]
    length: wp.array(dtype=wp.float64)  # share of the direction that is tried
    directions: wp.array(dtype=wp.int32)  # of the whole run
    cuts: wp.array(dtype=wp.int32)  # halvings of the whole run
    indefinite: wp.array(dtype=wp.int32)  # solves that met curvature that is not positive


@wp.struct
class EnergyArrays:
    """What the gradient's kernels leave behind [J]."""

    inertia: wp.array(dtype=wp.float64)
    tets: wp.array(dtype=vec3)  # the third is det F
    springs: wp.array(dtype=vec3)
    contacts: wp.array(dtype=vec3)
    board: wp.array(dtype=vec3)
    hold: wp.array(dtype=wp.float64)


@wp.kernel
def energy_lanes(energies_in: EnergyArrays, lanes_out: wp.array2d(dtype=wp.float64)):
    """The parts in the order of `Energies`, [PARTS, LANES]."""
    lane = wp.tid()
    inertia = ZERO
    for i in range(lane, energies_in.inertia.shape[0], LANE_COUNT):
        inertia += energies_in.inertia[i]
    tets = vec3()
    for i in range(lane, energies_in.tets.shape[0], LANE_COUNT):
        tets += energies_in.tets[i]
    springs = vec3()
    for i in range(lane, energies_in.springs.shape[0], LANE_COUNT):
        springs += energies_in.springs[i]
    contacts = vec3()
    for i in range(lane, energies_in.contacts.shape[0], LANE_COUNT):
        contacts += energies_in.contacts[i]
    board = vec3()
    for i in range(lane, energies_in.board.shape[0], LANE_COUNT):
        board += energies_in.board[i]
    lanes_out[0, lane] = inertia
    lanes_out[1, lane] = tets[0]
    lanes_out[2, lane] = tets[1]
    for a in range(3):
        lanes_out[3 + a, lane] = springs[a]
        lanes_out[6 + a, lane] = contacts[a]
    lanes_out[9, lane] = board[0]
    lanes_out[10, lane] = board[1] + board[2]
    hold = ZERO
    for i in range(lane, energies_in.hold.shape[0], LANE_COUNT):
        hold += energies_in.hold[i]
    lanes_out[11, lane] = hold


@wp.kernel
def sum_lanes(lanes_in: wp.array2d(dtype=wp.float64), total_out: wp.array(dtype=wp.float64)):
    i = wp.tid()
    total = ZERO
    for lane in range(LANE_COUNT):
        total += lanes_in[i, lane]
    total_out[i] = total


@wp.func
def total_energy(parts: wp.array(dtype=wp.float64)):
    total = ZERO
    for i in range(PART_COUNT):
        total += parts[i]
    return total


@wp.kernel
def begin_newton(parts_in: wp.array(dtype=wp.float64), newton_out: Newton):
    newton_out.energy[0] = total_energy(parts_in)
    newton_out.running[0] = 1
    newton_out.solved[0] = 0
    newton_out.failed[0] = 0
    newton_out.iteration[0] = 0


@wp.kernel
def take_right_side(
    free: wp.array(dtype=wp.int32), gradient_in: wp.array(dtype=vec3), right_out: wp.array2d(dtype=vec3)
):
    i = wp.tid()
    right_out[0, i] = -gradient_in[free[i]]


@wp.kernel
def direction_lanes(
    count: int,
    right_in: wp.array2d(dtype=vec3),
    direction_in: wp.array2d(dtype=vec3),
    slope_out: wp.array2d(dtype=wp.float64),
    moved_out: wp.array(dtype=wp.float64),
    who_out: wp.array(dtype=wp.int32),
):
    """Lanes of the slope, of the largest movement [m] and of the node that makes it."""
    lane = wp.tid()
    slope = ZERO
    moved = ZERO
    who = wp.int32(0)
    for i in range(lane, count, LANE_COUNT):
        d = direction_in[0, i]
        slope -= wp.dot(right_in[0, i], d)
        far = wp.max(wp.abs(d[0]), wp.max(wp.abs(d[1]), wp.abs(d[2])))
        # also true for a direction that is not a number
        if not far <= moved:
            moved = far
            who = i
    slope_out[0, lane] = slope
    moved_out[lane] = moved
    who_out[lane] = who


@wp.kernel
def begin_search(
    slope_in: wp.array2d(dtype=wp.float64),
    moved_in: wp.array(dtype=wp.float64),
    who_in: wp.array(dtype=wp.int32),
    solve: Solve,
    newton_out: Newton,
):
    slope = ZERO
    moved = ZERO
    for lane in range(LANE_COUNT):
        slope += slope_in[0, lane]
        if not moved_in[lane] <= moved:
            moved = moved_in[lane]
            newton_out.worst[0] = who_in[lane]
    newton_out.slope[0] = slope
    newton_out.solved[0] = 0
    if solve.solved[0] == 1 and moved < newton_out.tolerance:
        newton_out.solved[0] = 1
    newton_out.indefinite[0] += solve.indefinite[0]
    newton_out.length[0] = ONE
    newton_out.halvings[0] = 0
    newton_out.searching[0] = 1


@wp.kernel
def try_length(
    free: wp.array(dtype=wp.int32),
    newton: Newton,
    reached_in: wp.array(dtype=vec3),
    direction_in: wp.array2d(dtype=vec3),
    x_out: wp.array(dtype=vec3),
):
    i = wp.tid()
    n = free[i]
    x_out[n] = reached_in[n] + direction_in[0, i] * newton.length[0]


@wp.kernel
def judge_length(parts_in: wp.array(dtype=wp.float64), newton_out: Newton):
    """Take the length if the energy falls enough, or if the step is so small that differences mean nothing."""
    energy = total_energy(parts_in)
    before = newton_out.energy[0]
    promised = ARMIJO * newton_out.length[0] * newton_out.slope[0]
    rounding = ROUNDING * (wp.abs(before) + wp.abs(energy))
    if newton_out.solved[0] == 1 or energy <= before + promised + rounding:
        newton_out.energy[0] = energy
        newton_out.searching[0] = 0
    else:
        newton_out.length[0] = newton_out.length[0] * HALF
        newton_out.halvings[0] += 1
        newton_out.cuts[0] += 1
        if newton_out.halvings[0] >= MAX_HALVINGS:
            newton_out.searching[0] = 0
            newton_out.failed[0] = 1


@wp.kernel
def reach(x_in: wp.array(dtype=vec3), reached_out: wp.array(dtype=vec3)):
    i = wp.tid()
    reached_out[i] = x_in[i]


@wp.kernel
def end_direction(newton_out: Newton):
    newton_out.iteration[0] += 1
    newton_out.directions[0] += 1
    if newton_out.solved[0] == 1 or newton_out.failed[0] == 1:
        newton_out.running[0] = 0
    elif newton_out.iteration[0] >= newton_out.max_iterations:
        newton_out.running[0] = 0
        newton_out.failed[0] = 1
