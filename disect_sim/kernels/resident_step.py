"""Start and end of a time step on the device: what the host does between the steps of the other solver."""

import warp as wp

from disect_sim.kernels.conjugate_gradients import LANE_COUNT
from disect_sim.kernels.laws import HALF, ZERO
from disect_sim.kernels.resident_newton import Newton
from disect_sim.kernels.springs import SpringGeometry, stretch_vector

wp.set_module_options({"enable_backward": False})

vec3 = wp.vec3d

STALLED = wp.constant(1)
DIVERGED = wp.constant(2)
JAMMED = wp.constant(3)
FAR_SIZES = wp.constant(wp.float64(10.0))  # a node this many body sizes from where it was has run away


@wp.struct
class Body:
    """What no step changes."""

    rest: wp.array(dtype=vec3)  # nodes [m], [node_count]
    mass: wp.array(dtype=wp.float64)  # [kg], [node_count]
    held: wp.array(dtype=wp.int32)  # 1: fixed, [node_count]
    gravity: vec3  # [m/s^2]
    size: wp.float64  # longest side [m]
    dt: wp.float64  # [s]
    initial: wp.array(dtype=wp.float64)  # stiffness per reference area before the cut [N/m], [spring_count]
    damping: wp.array(dtype=wp.float64)  # damping per reference area [N s/m], [spring_count]
    area_ratio: wp.array(dtype=wp.float64)  # tributary over reference area, [spring_count]
    spring_area: wp.array(dtype=wp.float64)  # [m^2], [spring_count]
    matters: wp.array(dtype=wp.int32)  # 1: enough material to count as inside out, [tet_count]
    parents: wp.array(dtype=wp.vec2i)  # ends of the cut edges, [contact_count]
    coordinate: wp.array(dtype=wp.float64)  # material part of the cut edges, [contact_count]
    poses: wp.array(dtype=vec3)  # knife [m], [step_count + 1]


@wp.struct
class State:
    """What a step leaves to the next."""

    step: wp.array(dtype=wp.int32)  # steps done, [1]
    alive: wp.array(dtype=wp.int32)  # 1 until the run must stop, [1]
    outcome: wp.array(dtype=wp.int32)  # 0 or why it stopped, [1]
    good: wp.array(dtype=wp.int32)  # 1: this step counts, [1]
    x: wp.array(dtype=vec3)  # nodes [m], [node_count]
    x_before: wp.array(dtype=vec3)  # one step earlier
    stiffness: wp.array(dtype=wp.float64)  # per reference area [N/m], [spring_count]
    stiffness_before: wp.array(dtype=wp.float64)  # one step earlier


@wp.struct
class History:
    """What is kept of every step; row n belongs to the end of step n (rows 0: the start)."""

    observed: wp.array2d(
        dtype=wp.float64
    )  # sums of `observe`, then the parts of the energy, [step_count, 23]
    stiffness: wp.array2d(dtype=wp.float64)  # [step_count + 1, spring_count]
    states: wp.array2d(dtype=vec3)  # rows for steps -1, 0, 1, ... or none, [step_count + 2, node_count]
    kept_row: wp.array(dtype=wp.int32)  # row of `kept` for the end of each step, or -1, [step_count + 1]
    kept: wp.array2d(dtype=vec3)  # nodes at chosen times [m]


@wp.kernel
def start_knife(
    body: Body,
    state: State,
    pose_out: wp.array(dtype=vec3),
    pose_previous_out: wp.array(dtype=vec3),
    swing_out: wp.array(dtype=vec3),
):
    n = state.step[0]
    pose_out[0] = body.poses[n + 1]
    pose_previous_out[0] = body.poses[n]
    swing = vec3()
    if n > 0:
        swing = (body.poses[n + 1] - body.poses[n] * wp.float64(2.0) + body.poses[n - 1]) * HALF
    swing_out[0] = swing


@wp.kernel
def start_nodes(
    body: Body,
    state: State,
    predicted_out: wp.array(dtype=vec3),
    ahead_out: wp.array(dtype=vec3),
    previous_out: wp.array(dtype=vec3),
    x_out: wp.array(dtype=vec3),
    reached_out: wp.array(dtype=vec3),
):
    i = wp.tid()
    x = state.x[i]
    ahead = x * wp.float64(2.0) - state.x_before[i]
    predicted_out[i] = ahead + body.gravity * (body.dt * body.dt)
    if body.held[i] == 1:
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
    """Stiffness [N/m] and damping [N s/m] that the step feels: half a step ahead of what is known."""
    i = wp.tid()
    used = wp.max(ZERO, wp.float64(1.5) * state.stiffness[i] - HALF * state.stiffness_before[i])
    stiffness_out[i] = used * body.area_ratio[i]
    damping_out[i] = body.damping[i] * body.area_ratio[i] * (used / body.initial[i])


@wp.kernel
def damage_forces(
    count: int,
    normal_in: wp.array(dtype=vec3),
    friction_in: wp.array(dtype=vec3),
    positive_out: wp.array(dtype=vec3),
    negative_out: wp.array(dtype=vec3),
):
    i = wp.tid()
    positive_out[i] = normal_in[i] + friction_in[i]
    negative_out[i] = normal_in[count + i] + friction_in[count + i]


@wp.kernel
def damage_touch(
    count: int,
    touch_in: wp.array(dtype=wp.float64),
    positive_out: wp.array(dtype=wp.float64),
    negative_out: wp.array(dtype=wp.float64),
):
    i = wp.tid()
    positive_out[i] = touch_in[i]
    negative_out[i] = touch_in[count + i]


@wp.kernel
def damage_stretch(springs: SpringGeometry, x_in: wp.array(dtype=vec3), d_out: wp.array(dtype=vec3)):
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
    x_in: wp.array(dtype=vec3),
    tets_in: wp.array(dtype=vec3),
    normal_in: wp.array(dtype=vec3),
    friction_in: wp.array(dtype=vec3),
    touch_in: wp.array(dtype=wp.float64),
    found_in: wp.array(dtype=wp.float64),
    ahead_found_in: wp.array(dtype=wp.float64),
    lanes_out: wp.array2d(dtype=wp.float64),
    moved_out: wp.array(dtype=wp.float64),
    who_out: wp.array(dtype=wp.int32),
):
    """Lanes of what the recorder wants to know, and of the largest way from rest [m] with its node.

    [11, LANES]: force [N] and torque [N m] on the knife, touching area [m^2], kinetic energy and gravity's [J], tets
    inside out, and the energy of the edge law [J], which is not filled here.
    """
    lane = wp.tid()
    pose = body.poses[state.step[0] + 1]
    force = vec3()
    torque = vec3()
    area = ZERO
    springs = body.spring_area.shape[0]
    for i in range(lane, body.parents.shape[0], LANE_COUNT):
        n = body.parents[i]
        a = x_in[n[0]] - pose
        b = x_in[n[1]] - pose
        c = body.coordinate[i]
        normal = normal_in[i]
        friction = friction_in[i]
        force -= normal + friction
        torque -= wp.cross(a + (b - a) * (c * found_in[i]), normal)
        torque -= wp.cross(a + (b - a) * (c * ahead_found_in[i]), friction)
        area += touch_in[i] * body.spring_area[i % springs]
    kinetic = ZERO
    gravity = ZERO
    moved = ZERO
    who = wp.int32(0)
    for i in range(lane, body.rest.shape[0], LANE_COUNT):
        x = x_in[i]
        velocity = (x - state.x[i]) / body.dt
        kinetic += HALF * body.mass[i] * wp.dot(velocity, velocity)
        gravity -= body.mass[i] * wp.dot(x, body.gravity)
        way = x - body.rest[i]
        far = wp.max(wp.abs(way[0]), wp.max(wp.abs(way[1]), wp.abs(way[2])))
        # also true for a position that is not a number
        if not far <= moved:
            moved = far
            who = i
    inverted = ZERO
    for i in range(lane, body.matters.shape[0], LANE_COUNT):
        if tets_in[i][2] <= ZERO and body.matters[i] == 1:
            inverted += wp.float64(1.0)
    for k in range(3):
        lanes_out[k, lane] = force[k]
        lanes_out[3 + k, lane] = torque[k]
    lanes_out[6, lane] = area
    lanes_out[7, lane] = kinetic
    lanes_out[8, lane] = gravity
    lanes_out[9, lane] = inverted
    moved_out[lane] = moved
    who_out[lane] = who


@wp.kernel
def accept_step(
    body: Body,
    newton_out: Newton,
    moved_in: wp.array(dtype=wp.float64),
    who_in: wp.array(dtype=wp.int32),
    state_out: State,
):
    """Whether the step counts: solved, and no node has run away. For a node that has, newton.worst is its number."""
    state_out.good[0] = 1
    if newton_out.failed[0] == 1:
        state_out.good[0] = 0
        state_out.outcome[0] = STALLED
        state_out.alive[0] = 0
        return
    moved = ZERO
    who = wp.int32(0)
    for lane in range(LANE_COUNT):
        if not moved_in[lane] <= moved:
            moved = moved_in[lane]
            who = who_in[lane]
    if not moved <= FAR_SIZES * body.size:
        newton_out.worst[0] = who
        newton_out.length[0] = moved
        state_out.good[0] = 0
        state_out.outcome[0] = DIVERGED
        state_out.alive[0] = 0


@wp.kernel
def keep_springs(damaged_in: wp.array(dtype=wp.float64), state_out: State, history_out: History):
    i = wp.tid()
    if state_out.good[0] == 0:
        return
    history_out.stiffness[state_out.step[0] + 1, i] = damaged_in[i]
    state_out.stiffness_before[i] = state_out.stiffness[i]
    state_out.stiffness[i] = damaged_in[i]


@wp.kernel
def keep_nodes(x_in: wp.array(dtype=vec3), state_out: State, history_out: History):
    i = wp.tid()
    if state_out.good[0] == 0:
        return
    n = state_out.step[0]
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
    force_limit: wp.float64,
    sums_in: wp.array(dtype=wp.float64),
    parts_in: wp.array(dtype=wp.float64),
    state_out: State,
    history_out: History,
):
    """Keep what was observed, and stop where the force on the knife is beyond its limit [N]."""
    if state_out.good[0] == 0:
        return
    n = state_out.step[0]
    for k in range(sums_in.shape[0]):
        history_out.observed[n, k] = sums_in[k]
    for k in range(parts_in.shape[0]):
        history_out.observed[n, sums_in.shape[0] + k] = parts_in[k]
    force = vec3(sums_in[0], sums_in[1], sums_in[2])
    if not wp.length(force) <= force_limit:
        state_out.outcome[0] = JAMMED
        state_out.alive[0] = 0
    state_out.step[0] = n + 1
