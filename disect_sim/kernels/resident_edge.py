"""The edge law during a run on the device: from nodes to samples of the cut surface and back. See kernels/edge.py."""

import warp as wp

from disect_sim.kernels.conjugate_gradients import LANE_COUNT
from disect_sim.kernels.laws import ONE, ZERO
from disect_sim.kernels.resident_step import Body, State

wp.set_module_options({"enable_backward": False})

vec3 = wp.vec3d


@wp.struct
class SparseRows:
    """A sparse matrix, row after row."""

    starts: wp.array(dtype=wp.int32)  # [row_count + 1]
    columns: wp.array(dtype=wp.int32)
    values: wp.array(dtype=wp.float64)


@wp.kernel
def multiply_vectors(matrix: SparseRows, vectors_in: wp.array(dtype=vec3), product_out: wp.array(dtype=vec3)):
    row = wp.tid()
    total = vec3()
    for k in range(matrix.starts[row], matrix.starts[row + 1]):
        total += vectors_in[matrix.columns[k]] * matrix.values[k]
    product_out[row] = total


@wp.kernel
def relative_to_knife(count: int, pose_in: wp.array(dtype=vec3), point_out: wp.array(dtype=vec3)):
    """count: samples of one copy."""
    copy, k = wp.tid()
    i = copy * count + k
    point_out[i] = point_out[i] - pose_in[copy]


@wp.kernel
def prepare_load(
    count: int,
    dt: wp.float64,
    paid_after: wp.float64,
    area: wp.array(dtype=wp.float64),
    rise: wp.array(dtype=wp.float64),
    point_in: wp.array(dtype=vec3),
    passed_in: wp.array(dtype=wp.float64),
    pose_in: wp.array(dtype=vec3),
    pose_previous_in: wp.array(dtype=vec3),
    swing_in: wp.array(dtype=vec3),
    paying_area_out: wp.array(dtype=wp.float64),
    velocity_out: wp.array(dtype=vec3),
):
    """The knife's velocity at the end of the step [m/s], and the area [m^2] of the samples that can have a force."""
    copy, k = wp.tid()
    i = copy * count + k
    velocity_out[i] = (pose_in[copy] - pose_previous_in[copy] + swing_in[copy]) / dt
    paying_area_out[i] = ZERO
    if point_in[i][1] > ZERO and passed_in[i] < paid_after * rise[i]:
        paying_area_out[i] = area[i]


@wp.kernel
def add_load(body: Body, force_in: wp.array(dtype=vec3), predicted_out: wp.array(dtype=vec3)):
    """The edge's force on the nodes that can move [N] as part of where inertia takes them."""
    copy, k = wp.tid()
    i = copy * body.node_count + k
    if body.held[k] == 0:
        predicted_out[i] = predicted_out[i] + force_in[i] * (body.dt * body.dt / body.mass[i])


@wp.kernel
def left_of_springs(
    mean: SparseRows,
    initial: wp.array(dtype=wp.float64),
    severed_in: wp.array(dtype=wp.float64),
    stiffness_out: wp.array(dtype=wp.float64),
):
    """Stiffness per reference area [N/m] of springs of whose samples a share is gone."""
    row = wp.tid()
    gone = ZERO
    for k in range(mean.starts[row], mean.starts[row + 1]):
        gone += mean.values[k] * severed_in[mean.columns[k]]
    stiffness_out[row] = initial[row] * wp.max(ZERO, ONE - gone)


@wp.kernel
def observe_edge(
    count: int,
    point_in: wp.array(dtype=vec3),
    force_in: wp.array(dtype=vec3),
    energy_in: wp.array(dtype=wp.float64),
    lanes_out: wp.array3d(dtype=wp.float64),
):
    """Adds force [N] and torque [N m] on the knife to the lanes of `observe`, and fills those of the energy [J]."""
    copy, lane = wp.tid()
    force = vec3()
    torque = vec3()
    energy = ZERO
    for i in range(copy * count + lane, (copy + 1) * count, LANE_COUNT):
        force -= force_in[i]
        torque -= wp.cross(point_in[i], force_in[i])
        energy += energy_in[i]
    for k in range(3):
        lanes_out[copy, k, lane] += force[k]
        lanes_out[copy, 3 + k, lane] += torque[k]
    lanes_out[copy, 10, lane] = energy


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
