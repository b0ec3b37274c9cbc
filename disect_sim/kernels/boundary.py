"""Forces outside the cut: inertia, contact with the board y = 0, and nodes held along the blade.

Board contact of surface nodes has a penalty, approach damping and lagged friction.
"""

import warp as wp

from disect_sim.kernels.laws import (
    friction_coefficient,
    friction_integral,
    friction_slope,
    ramp,
    ramp_integral,
    ramp_slope,
    rounded_speed,
    smooth_step,
)

# Inertia of the backward Euler step, and mirroring of the block-sparse Hessian


_vec3 = wp.vec3d
_mat33 = wp.mat33d


@wp.kernel
def inertia_gradient(
    mass: wp.array(dtype=wp.float64),
    dt: wp.float64,
    x_in: wp.array(dtype=_vec3),
    predicted_in: wp.array(dtype=_vec3),
    energy_out: wp.array(dtype=wp.float64),
    gradient_out: wp.array(dtype=_vec3),
):
    """Overwrite gradient_out with the inertia term; every other force adds to it."""
    i = wp.tid()
    away = x_in[i] - predicted_in[i]
    k = mass[i] / (dt * dt)
    energy_out[i] = wp.float64(0.5) * k * wp.dot(away, away)
    gradient_out[i] = away * k


@wp.kernel
def inertia_hessian(
    mass: wp.array(dtype=wp.float64),
    dt: wp.float64,
    slots: wp.array(dtype=wp.int32),
    hessian_out: wp.array(dtype=_mat33),
):
    i = wp.tid()
    wp.atomic_add(hessian_out, slots[i], wp.identity(n=3, dtype=wp.float64) * (mass[i] / (dt * dt)))


@wp.kernel
def mirror_lower(
    upper: wp.array(dtype=wp.int32),
    lower: wp.array(dtype=wp.int32),
    hessian_out: wp.array(dtype=_mat33),
):
    """Copy every upper off-diagonal block, transposed, below the diagonal."""
    i = wp.tid()
    hessian_out[lower[i]] = wp.transpose(hessian_out[upper[i]])


# Nodes held along the blade by springs to their rest positions; they can still rise and move apart

_ALONG = wp.constant(2)


@wp.struct
class Held:
    nodes: wp.array(dtype=wp.int32)
    rest: wp.array(dtype=wp.float64)  # along the blade [m]
    stiffness: wp.array(dtype=wp.float64)  # [N/m]


@wp.kernel
def hold_gradient(
    held: Held,
    x_in: wp.array(dtype=_vec3),
    energy_out: wp.array(dtype=wp.float64),
    gradient_out: wp.array(dtype=_vec3),
):
    i = wp.tid()
    n = held.nodes[i]
    away = x_in[n][_ALONG] - held.rest[i]
    pull = held.stiffness[i] * away
    energy_out[i] = wp.float64(0.5) * pull * away
    wp.atomic_add(gradient_out, n, _vec3(wp.float64(0.0), wp.float64(0.0), pull))


@wp.kernel
def hold_hessian(held: Held, slots: wp.array(dtype=wp.int32), hessian_out: wp.array(dtype=_mat33)):
    i = wp.tid()
    block = _mat33()
    block[_ALONG, _ALONG] = held.stiffness[i]
    wp.atomic_add(hessian_out, slots[i], block)


_ZERO = wp.constant(wp.float64(0.0))


@wp.struct
class Board:
    stiffness: wp.float64  # [N/m] per reference area
    damping: wp.float64  # [N s/m] per reference area
    friction_speed: wp.float64  # [m/s]
    mu: wp.float64  # [-]
    radius: wp.float64  # contact starts at this height [m]
    onset: wp.float64  # [m]
    onset_speed: wp.float64  # [m/s]


@wp.func
def _board_normal_force(
    y: wp.float64, y_previous: wp.float64, area_ratio: wp.float64, board: Board, dt: wp.float64
):
    """Return the upward force of the board [N]."""
    depth = board.radius - y
    depth_previous = board.radius - y_previous
    damping = board.damping * smooth_step(depth_previous / board.onset)
    press = board.stiffness * ramp(depth, board.onset)
    return area_ratio * (press + damping * ramp((depth - depth_previous) / dt, board.onset_speed))


@wp.func
def _board_lagged_force(y_previous: wp.float64, area_ratio: wp.float64, board: Board):
    return area_ratio * board.stiffness * ramp(board.radius - y_previous, board.onset)


@wp.func
def _board_force_on(x: _vec3, x_previous: _vec3, area_ratio: wp.float64, board: Board, dt: wp.float64):
    """Return the force on a node [N]."""
    velocity = _vec3((x[0] - x_previous[0]) / dt, _ZERO, (x[2] - x_previous[2]) / dt)
    speed = rounded_speed(velocity)
    coefficient = friction_coefficient(speed, board.mu, _ZERO, board.friction_speed)
    up = _board_normal_force(x[1], x_previous[1], area_ratio, board, dt)
    friction = velocity * (-_board_lagged_force(x_previous[1], area_ratio, board) * coefficient / speed)
    return _vec3(friction[0], up, friction[2])


@wp.kernel
def board_gradient(
    board: Board,
    dt: wp.float64,
    nodes: wp.array(dtype=wp.int32),
    area_ratio: wp.array(dtype=wp.float64),
    x_in: wp.array(dtype=_vec3),
    x_previous_in: wp.array(dtype=_vec3),
    energy_out: wp.array(dtype=_vec3),
    gradient_out: wp.array(dtype=_vec3),
):
    """Compute the energy (penalty, damping, friction) and add its gradient to gradient_out."""
    i = wp.tid()
    n = nodes[i]
    x = x_in[n]
    y = x_previous_in[n]
    a = area_ratio[i]
    depth = board.radius - x[1]
    depth_previous = board.radius - y[1]
    velocity = _vec3((x[0] - y[0]) / dt, _ZERO, (x[2] - y[2]) / dt)
    speed = rounded_speed(velocity)
    damping = board.damping * smooth_step(depth_previous / board.onset)
    approach = (depth - depth_previous) / dt
    energy_out[i] = _vec3(
        a * board.stiffness * ramp_integral(depth, board.onset),
        a * damping * dt * ramp_integral(approach, board.onset_speed),
        _board_lagged_force(y[1], a, board)
        * dt
        * friction_integral(speed, board.mu, _ZERO, board.friction_speed),
    )
    wp.atomic_add(gradient_out, n, -_board_force_on(x, y, a, board, dt))


@wp.kernel
def board_hessian(
    board: Board,
    dt: wp.float64,
    nodes: wp.array(dtype=wp.int32),
    area_ratio: wp.array(dtype=wp.float64),
    slots: wp.array(dtype=wp.int32),
    x_in: wp.array(dtype=_vec3),
    x_previous_in: wp.array(dtype=_vec3),
    hessian_out: wp.array(dtype=_mat33),
):
    i = wp.tid()
    n = nodes[i]
    x = x_in[n]
    y = x_previous_in[n]
    a = area_ratio[i]
    depth = board.radius - x[1]
    depth_previous = board.radius - y[1]
    damping = board.damping * smooth_step(depth_previous / board.onset)
    approach = (depth - depth_previous) / dt
    kn = a * (
        board.stiffness * ramp_slope(depth, board.onset)
        + damping * ramp_slope(approach, board.onset_speed) / dt
    )
    velocity = _vec3((x[0] - y[0]) / dt, _ZERO, (x[2] - y[2]) / dt)
    speed = rounded_speed(velocity)
    secant = friction_coefficient(speed, board.mu, _ZERO, board.friction_speed) / speed
    tangent = friction_slope(speed, board.mu, _ZERO, board.friction_speed)
    t = velocity / speed
    scale = _board_lagged_force(y[1], a, board) / dt
    kt = wp.outer(t, t) * ((tangent - secant) * scale)
    k = _mat33(secant * scale, _ZERO, _ZERO, _ZERO, kn, _ZERO, _ZERO, _ZERO, secant * scale) + kt
    wp.atomic_add(hessian_out, slots[i], k)


@wp.kernel
def board_force(
    board: Board,
    dt: wp.float64,
    area_ratio_in: wp.array(dtype=wp.float64),
    x_in: wp.array(dtype=_vec3),
    x_previous_in: wp.array(dtype=_vec3),
    force_out: wp.array(dtype=_vec3),
):
    """Compute the force on the nodes as a differentiable function; Warp's adjoint gives the vector-Jacobian product."""
    i = wp.tid()
    force_out[i] = _board_force_on(x_in[i], x_previous_in[i], area_ratio_in[i], board, dt)
