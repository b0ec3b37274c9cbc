"""Start and end of a time step on the device, and the edge law there.

Arrays hold one copy of the body after another; kernels run over copies and the elements of one copy.
"""

import warp as wp

from disect_sim.kernels.conjugate_gradients import LANE_COUNT
from disect_sim.kernels.contact_point import into_knife, out_of_knife
from disect_sim.kernels.laws import HALF, ONE, ZERO
from disect_sim.kernels.resident_newton import Newton
from disect_sim.kernels.springs import SpringGeometry, stretch_vector

wp.set_module_options({"enable_backward": False})

_vec2 = wp.vec2d
_vec3 = wp.vec3d
_vec4 = wp.vec4d

_STALLED = wp.constant(1)
_DIVERGED = wp.constant(2)
_JAMMED = wp.constant(3)
_FAR_SIZES = wp.constant(wp.float64(10.0))  # displacement in body sizes beyond which a node has diverged


@wp.struct
class Body:
    """Constants of a run."""

    node_count: int  # nodes of one copy, like the other counts
    spring_count: int
    rest: wp.array(dtype=_vec3)  # nodes of one copy [m], [node_count]
    held: wp.array(dtype=wp.int32)  # 1: fixed, [node_count]
    mass: wp.array(dtype=wp.float64)  # [kg], [copy_count node_count]
    gravity: _vec3  # [m/s^2]
    size: wp.float64  # longest side [m]
    dt: wp.float64  # [s]
    initial: wp.array(
        dtype=wp.float64
    )  # stiffness per reference area before the cut [N/m], [copy_count spring_count]
    damping: wp.array(dtype=wp.float64)  # damping per reference area [N s/m], [copy_count spring_count]
    area_ratio: wp.array(dtype=wp.float64)  # tributary / reference area, [copy_count spring_count]
    spring_area: wp.array(dtype=wp.float64)  # [m^2], [spring_count]
    matters: wp.array(dtype=wp.int32)  # 1: enough material to count when inverted, [tet_count]
    parents: wp.array(dtype=wp.vec2i)  # ends of the cut edges, [copy_count contact_count]
    coordinate: wp.array(dtype=wp.float64)  # material part of the cut edges, [copy_count contact_count]
    poses: wp.array2d(dtype=_vec4)  # knife [m] and its pitch [rad], [copy_count, step_count + 1]
    force_limit: wp.array(dtype=wp.float64)  # force limit on the knife [N], [copy_count]


@wp.struct
class State:
    """State passed from step to step."""

    going: wp.array(dtype=wp.int32)  # 1 while any copy runs, [1]
    alive: wp.array(dtype=wp.int32)  # 1 while the copy runs, [copy_count]
    step: wp.array(dtype=wp.int32)  # steps done, [copy_count]
    outcome: wp.array(dtype=wp.int32)  # 0 or the reason to stop, [copy_count]
    good: wp.array(dtype=wp.int32)  # 1: this step is accepted, [copy_count]
    x: wp.array(dtype=_vec3)  # nodes [m], [copy_count node_count]
    x_before: wp.array(dtype=_vec3)  # one step earlier
    stiffness: wp.array(dtype=wp.float64)  # per reference area [N/m], [copy_count spring_count]
    stiffness_before: wp.array(dtype=wp.float64)  # one step earlier


@wp.struct
class History:
    """Stored values of every step; row n belongs to the end of step n (rows 0: the start)."""

    observed: wp.array3d(
        dtype=wp.float64
    )  # sums of `observe`, then the parts of the energy, [copy_count, step_count, 24]
    stiffness: wp.array2d(dtype=wp.float64)  # [step_count + 1, copy_count spring_count]
    states: wp.array2d(dtype=_vec3)  # steps -1, 0, 1, ... or none, [step_count + 2, copy_count node_count]
    kept_row: wp.array(dtype=wp.int32)  # row of `kept` for the end of each step, or -1, [step_count + 1]
    kept: wp.array2d(dtype=_vec3)  # nodes at chosen times [m]


@wp.func
def _next_step(body: Body, state: State, copy: int):
    """Return the number of the step that begins; for a copy that has ended, that of its last step."""
    return wp.min(state.step[copy] + 1, body.poses.shape[1] - 1)


@wp.func
def _place(pose: _vec4):
    return _vec3(pose[0], pose[1], pose[2])


@wp.func
def _turn(pose: _vec4):
    return _vec2(wp.cos(pose[3]), wp.sin(pose[3]))


@wp.kernel
def start_knife(
    body: Body,
    state: State,
    pose_out: wp.array(dtype=_vec3),
    pose_previous_out: wp.array(dtype=_vec3),
    swing_out: wp.array(dtype=_vec3),
    turn_out: wp.array(dtype=_vec2),
    turn_previous_out: wp.array(dtype=_vec2),
    spin_out: wp.array(dtype=wp.float64),
):
    copy = wp.tid()
    n = _next_step(body, state, copy)
    now = body.poses[copy, n]
    before = body.poses[copy, n - 1]
    swing = _vec4()
    if n > 1:
        swing = (now - before * wp.float64(2.0) + body.poses[copy, n - 2]) * HALF
    pose_out[copy] = _place(now)
    pose_previous_out[copy] = _place(before)
    swing_out[copy] = _place(swing)
    turn_out[copy] = _turn(now)
    turn_previous_out[copy] = _turn(before)
    spin_out[copy] = now[3] - before[3] + swing[3]


@wp.kernel
def start_nodes(
    body: Body,
    state: State,
    predicted_out: wp.array(dtype=_vec3),
    ahead_out: wp.array(dtype=_vec3),
    previous_out: wp.array(dtype=_vec3),
    x_out: wp.array(dtype=_vec3),
    reached_out: wp.array(dtype=_vec3),
):
    copy, k = wp.tid()
    i = copy * body.node_count + k
    x = state.x[i]
    ahead = x * wp.float64(2.0) - state.x_before[i]
    predicted_out[i] = ahead + body.gravity * (body.dt * body.dt)
    if body.held[k] == 1:
        ahead = x
    ahead_out[i] = ahead
    previous_out[i] = x
    x_out[i] = ahead
    reached_out[i] = ahead


@wp.kernel
def start_springs(
    body: Body,
    state: State,
    stiffness_out: wp.array(dtype=wp.float64),
    damping_out: wp.array(dtype=wp.float64),
):
    """Compute stiffness [N/m] and damping [N s/m] for the step: extrapolated by half a step."""
    i = wp.tid()
    used = wp.max(ZERO, wp.float64(1.5) * state.stiffness[i] - HALF * state.stiffness_before[i])
    stiffness_out[i] = used * body.area_ratio[i]
    damping_out[i] = body.damping[i] * body.area_ratio[i] * (used / body.initial[i])


@wp.kernel
def damage_forces(
    count: int,
    normal_in: wp.array(dtype=_vec3),
    friction_in: wp.array(dtype=_vec3),
    positive_out: wp.array(dtype=_vec3),
    negative_out: wp.array(dtype=_vec3),
):
    """Compute forces on both sides; count: springs of one copy.

    Its contacts are all positive sides, then all negative sides.
    """
    copy, k = wp.tid()
    i = copy * count + k
    a = 2 * copy * count + k
    positive_out[i] = normal_in[a] + friction_in[a]
    negative_out[i] = normal_in[count + a] + friction_in[count + a]


@wp.kernel
def damage_touch(
    count: int,
    touch_in: wp.array(dtype=wp.float64),
    positive_out: wp.array(dtype=wp.float64),
    negative_out: wp.array(dtype=wp.float64),
):
    copy, k = wp.tid()
    i = copy * count + k
    a = 2 * copy * count + k
    positive_out[i] = touch_in[a]
    negative_out[i] = touch_in[count + a]


@wp.kernel
def damage_stretch(springs: SpringGeometry, x_in: wp.array(dtype=_vec3), d_out: wp.array(dtype=_vec3)):
    i = wp.tid()
    d_out[i] = stretch_vector(x_in, springs.nodes[i], springs.weights[i])


@wp.kernel
def copy_numbers(from_in: wp.array(dtype=wp.float64), to_out: wp.array(dtype=wp.float64)):
    i = wp.tid()
    to_out[i] = from_in[i]


@wp.kernel
def observe(
    body: Body,
    state: State,
    x_in: wp.array(dtype=_vec3),
    tets_in: wp.array(dtype=_vec3),
    normal_in: wp.array(dtype=_vec3),
    friction_in: wp.array(dtype=_vec3),
    touch_in: wp.array(dtype=wp.float64),
    found_in: wp.array(dtype=wp.float64),
    ahead_found_in: wp.array(dtype=wp.float64),
    lanes_out: wp.array3d(dtype=wp.float64),
    moved_out: wp.array2d(dtype=wp.float64),
    who_out: wp.array2d(dtype=wp.int32),
):
    """Compute lanes of the observables, and of the largest displacement from rest [m] with its node.

    [copy_count, 12, LANES]: force [N] and torque [N m] on the knife, touching area [m^2], kinetic and gravitational
    energy [J], inverted tets, and of the edge law, not filled here, work of fracture [J] and drag power [W].
    """
    copy, lane = wp.tid()
    pose = _place(body.poses[copy, _next_step(body, state, copy)])
    force = _vec3()
    torque = _vec3()
    area = ZERO
    contacts = 2 * body.spring_count
    for k in range(lane, contacts, LANE_COUNT):
        i = copy * contacts + k
        n = body.parents[i]
        a = x_in[n[0]] - pose
        b = x_in[n[1]] - pose
        c = body.coordinate[i]
        normal = normal_in[i]
        friction = friction_in[i]
        force -= normal + friction
        torque -= wp.cross(a + (b - a) * (c * found_in[i]), normal)
        torque -= wp.cross(a + (b - a) * (c * ahead_found_in[i]), friction)
        area += touch_in[i] * body.spring_area[k % body.spring_count]
    kinetic = ZERO
    gravity = ZERO
    moved = ZERO
    node = wp.int32(0)
    for k in range(lane, body.node_count, LANE_COUNT):
        i = copy * body.node_count + k
        x = x_in[i]
        velocity = (x - state.x[i]) / body.dt
        kinetic += HALF * body.mass[i] * wp.dot(velocity, velocity)
        gravity -= body.mass[i] * wp.dot(x, body.gravity)
        way = x - body.rest[k]
        far = wp.max(wp.abs(way[0]), wp.max(wp.abs(way[1]), wp.abs(way[2])))
        # also true for NaN
        if not far <= moved:
            moved = far
            node = k
    inverted = ZERO
    tets = body.matters.shape[0]
    for k in range(lane, tets, LANE_COUNT):
        if tets_in[copy * tets + k][2] <= ZERO and body.matters[k] == 1:
            inverted += wp.float64(1.0)
    for k in range(3):
        lanes_out[copy, k, lane] = force[k]
        lanes_out[copy, 3 + k, lane] = torque[k]
    lanes_out[copy, 6, lane] = area
    lanes_out[copy, 7, lane] = kinetic
    lanes_out[copy, 8, lane] = gravity
    lanes_out[copy, 9, lane] = inverted
    moved_out[copy, lane] = moved
    who_out[copy, lane] = node


@wp.kernel
def accept_step(
    body: Body,
    newton_out: Newton,
    moved_in: wp.array2d(dtype=wp.float64),
    who_in: wp.array2d(dtype=wp.int32),
    state_out: State,
):
    """Accept the step if it has converged and no node has diverged; otherwise newton.worst is that node."""
    copy = wp.tid()
    if copy == 0:
        state_out.going[0] = 0
    state_out.good[copy] = state_out.alive[copy]
    if state_out.alive[copy] == 0:
        return
    if newton_out.failed[copy] == 1:
        state_out.good[copy] = 0
        state_out.outcome[copy] = _STALLED
        state_out.alive[copy] = 0
        return
    moved = ZERO
    node = wp.int32(0)
    for lane in range(LANE_COUNT):
        if not moved_in[copy, lane] <= moved:
            moved = moved_in[copy, lane]
            node = who_in[copy, lane]
    if not moved <= _FAR_SIZES * body.size:
        newton_out.worst[copy] = node
        newton_out.length[copy] = moved
        state_out.good[copy] = 0
        state_out.outcome[copy] = _DIVERGED
        state_out.alive[copy] = 0


@wp.kernel
def keep_springs(body: Body, damaged_in: wp.array(dtype=wp.float64), state_out: State, history_out: History):
    copy, k = wp.tid()
    if state_out.good[copy] == 0:
        return
    i = copy * body.spring_count + k
    history_out.stiffness[state_out.step[copy] + 1, i] = damaged_in[i]
    state_out.stiffness_before[i] = state_out.stiffness[i]
    state_out.stiffness[i] = damaged_in[i]


@wp.kernel
def keep_nodes(body: Body, x_in: wp.array(dtype=_vec3), state_out: State, history_out: History):
    copy, k = wp.tid()
    if state_out.good[copy] == 0:
        return
    i = copy * body.node_count + k
    n = state_out.step[copy]
    x = x_in[i]
    if history_out.states.shape[0] > 0:
        history_out.states[n + 2, i] = x
    row = history_out.kept_row[n + 1]
    if row >= 0:
        history_out.kept[row, i] = x
    state_out.x_before[i] = state_out.x[i]
    state_out.x[i] = x


@wp.kernel
def end_step(
    body: Body,
    sums_in: wp.array2d(dtype=wp.float64),
    parts_in: wp.array2d(dtype=wp.float64),
    state_out: State,
    history_out: History,
):
    """Store the observables, and stop where the force on the knife exceeds its limit."""
    copy = wp.tid()
    if state_out.good[copy] == 0:
        return
    n = state_out.step[copy]
    sums = sums_in.shape[1]
    for k in range(sums):
        history_out.observed[copy, n, k] = sums_in[copy, k]
    for k in range(parts_in.shape[1]):
        history_out.observed[copy, n, sums + k] = parts_in[copy, k]
    force = _vec3(sums_in[copy, 0], sums_in[copy, 1], sums_in[copy, 2])
    state_out.step[copy] = n + 1
    if not wp.length(force) <= body.force_limit[copy]:
        state_out.outcome[copy] = _JAMMED
        state_out.alive[copy] = 0
    else:
        state_out.going[0] = 1


# Edge law on the device: from nodes to samples of the cut surface and back; see kernels/edge.py


wp.set_module_options({"enable_backward": False})


@wp.struct
class SparseRows:
    """A sparse matrix in row order (CSR)."""

    starts: wp.array(dtype=wp.int32)  # [row_count + 1]
    columns: wp.array(dtype=wp.int32)
    values: wp.array(dtype=wp.float64)


@wp.kernel
def multiply_vectors(
    matrix: SparseRows, vectors_in: wp.array(dtype=_vec3), product_out: wp.array(dtype=_vec3)
):
    row = wp.tid()
    total = _vec3()
    for k in range(matrix.starts[row], matrix.starts[row + 1]):
        total += vectors_in[matrix.columns[k]] * matrix.values[k]
    product_out[row] = total


@wp.kernel
def relative_to_knife(
    count: int,
    pose_in: wp.array(dtype=_vec3),
    turn_in: wp.array(dtype=_vec2),
    point_out: wp.array(dtype=_vec3),
):
    """Take points into the knife's frame; count: samples of one copy."""
    copy, k = wp.tid()
    i = copy * count + k
    point_out[i] = into_knife(point_out[i] - pose_in[copy], turn_in[copy])


@wp.kernel
def prepare_load(
    count: int,
    dt: wp.float64,
    paid_after: wp.float64,
    area: wp.array(dtype=wp.float64),
    rise: wp.array(dtype=wp.float64),
    point_in: wp.array(dtype=_vec3),
    passed_in: wp.array(dtype=wp.float64),
    pose_in: wp.array(dtype=_vec3),
    pose_previous_in: wp.array(dtype=_vec3),
    swing_in: wp.array(dtype=_vec3),
    turn_in: wp.array(dtype=_vec2),
    spin_in: wp.array(dtype=wp.float64),
    paying_area_out: wp.array(dtype=wp.float64),
    velocity_out: wp.array(dtype=_vec3),
):
    """Compute the edge's velocity at the samples, at the end of the step and in the knife's directions [m/s], and the
    area [m^2] of samples that can have a force. Points are in the knife's frame.
    """
    copy, k = wp.tid()
    i = copy * count + k
    point = point_in[i]
    moved = into_knife(pose_in[copy] - pose_previous_in[copy] + swing_in[copy], turn_in[copy])
    velocity_out[i] = (moved + _vec3(ZERO, -point[2], point[1]) * spin_in[copy]) / dt
    paying_area_out[i] = ZERO
    if point[1] > ZERO and passed_in[i] < paid_after * rise[i]:
        paying_area_out[i] = area[i]


@wp.kernel
def add_load(
    body: Body,
    turn_in: wp.array(dtype=_vec2),
    force_in: wp.array(dtype=_vec3),
    predicted_out: wp.array(dtype=_vec3),
):
    """Add the edge's force on the free nodes, given in the knife's directions [N], to the predicted positions."""
    copy, k = wp.tid()
    i = copy * body.node_count + k
    if body.held[k] == 0:
        force = out_of_knife(force_in[i], turn_in[copy])
        predicted_out[i] = predicted_out[i] + force * (body.dt * body.dt / body.mass[i])


@wp.kernel
def left_of_springs(
    mean: SparseRows,
    initial: wp.array(dtype=wp.float64),
    severed_in: wp.array(dtype=wp.float64),
    stiffness_out: wp.array(dtype=wp.float64),
):
    """Compute the stiffness per reference area [N/m] of springs from the severed fraction of their samples."""
    row = wp.tid()
    gone = ZERO
    for k in range(mean.starts[row], mean.starts[row + 1]):
        gone += mean.values[k] * severed_in[mean.columns[k]]
    stiffness_out[row] = initial[row] * wp.max(ZERO, ONE - gone)


@wp.kernel
def observe_edge(
    count: int,
    turn_in: wp.array(dtype=_vec2),
    point_in: wp.array(dtype=_vec3),
    force_in: wp.array(dtype=_vec3),
    energy_in: wp.array(dtype=wp.float64),
    drag_power_in: wp.array(dtype=wp.float64),
    lanes_out: wp.array3d(dtype=wp.float64),
):
    """Add force [N] and torque [N m] on the knife to the lanes of `observe`; fill those of energy [J] and drag [W].

    Points and forces are in the knife's frame, the lanes in the cut's directions.
    """
    copy, lane = wp.tid()
    force = _vec3()
    torque = _vec3()
    energy = ZERO
    drag_power = ZERO
    for i in range(copy * count + lane, (copy + 1) * count, LANE_COUNT):
        force -= force_in[i]
        torque -= wp.cross(point_in[i], force_in[i])
        energy += energy_in[i]
        drag_power += drag_power_in[i]
    force = out_of_knife(force, turn_in[copy])
    torque = out_of_knife(torque, turn_in[copy])
    for k in range(3):
        lanes_out[copy, k, lane] += force[k]
        lanes_out[copy, 3 + k, lane] += torque[k]
    lanes_out[copy, 10, lane] = energy
    lanes_out[copy, 11, lane] = drag_power


@wp.kernel
def keep_passed(
    count: int,
    state: State,
    passed_in: wp.array(dtype=wp.float64),
    passed_out: wp.array(dtype=wp.float64),
    history_out: wp.array2d(dtype=wp.float64),
):
    copy, k = wp.tid()
    if state.good[copy] == 0:
        return
    i = copy * count + k
    passed_out[i] = passed_in[i]
    history_out[state.step[copy] + 1, i] = passed_in[i]
