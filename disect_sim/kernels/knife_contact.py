"""Knife contact of the material part of every cut edge: penalty, approach damping, lagged friction.

Normal force, normal and coordinate used by friction are those at the start of the step, so every force is the gradient
of one incremental energy and its Hessian is symmetric.
"""

import warp as wp

from disect_sim.kernels.contact_point import (
    ContactEdges,
    ContactSetting,
    Edge,
    contact_coordinate,
    depth_and_normal,
    distance_hessian,
    edge_of,
)
from disect_sim.kernels.laws import (
    friction_coefficient,
    friction_integral,
    friction_slope,
    penalty,
    penalty_integral,
    penalty_slope,
    ramp,
    ramp_integral,
    ramp_slope,
    rounded_speed,
    smooth_step,
)

wp.set_module_options({"enable_backward": False})

vec3 = wp.vec3d
mat33 = wp.mat33d

ZERO = wp.constant(wp.float64(0.0))
ONE = wp.constant(wp.float64(1.0))


@wp.struct
class KnifeState:
    """Nodes and knife at one time, and the contact points there."""

    x: wp.array(dtype=vec3)  # nodes [m], [node_count]
    pose: wp.array(dtype=vec3)  # knife [m], [1]
    found: wp.array(dtype=wp.float64)  # contact coordinate s, [contact_count]
    curvature: wp.array(dtype=wp.float64)  # that gives its derivative [m], [contact_count]


@wp.struct
class Lagged:
    """What friction and damping take from the start of the step, [contact_count]."""

    depth: wp.array(dtype=wp.float64)  # [m]
    normal: wp.array(dtype=vec3)  # unit normal
    force: wp.array(dtype=wp.float64)  # normal force [N]


@wp.struct
class ContactForces:
    """What a gradient leaves behind, [contact_count]."""

    energy: wp.array(dtype=vec3)  # penalty, damping, friction [J]
    normal_force: wp.array(dtype=vec3)  # on the body [N]
    friction_force: wp.array(dtype=vec3)  # on the body [N]
    touch: wp.array(dtype=wp.float64)  # 0: apart, 1: in touch


@wp.struct
class Ends:
    """The ends of one cut edge relative to the knife [m]: x at the end, y at the start of the step."""

    x0: vec3
    x1: vec3
    y0: vec3
    y1: vec3


@wp.func
def ends_of(n: wp.vec2i, now: KnifeState, before: KnifeState):
    ends = Ends()
    ends.x0 = now.x[n[0]] - now.pose[0]
    ends.x1 = now.x[n[1]] - now.pose[0]
    ends.y0 = before.x[n[0]] - before.pose[0]
    ends.y1 = before.x[n[1]] - before.pose[0]
    return ends


@wp.func
def normal_response(depth: wp.float64, depth_lag: wp.float64, edge: Edge, setting: ContactSetting):
    """Normal force per unit gradient of the distance [N], and its derivative in depth [N/m]."""
    damping = edge.kd * smooth_step(depth_lag / setting.onset)
    approach = (depth - depth_lag) / setting.dt
    press = edge.ke * penalty(
        depth, setting.onset, setting.exponent, setting.exponent_scale
    ) + damping * ramp(approach, setting.onset_speed)
    slope = (
        edge.ke * penalty_slope(depth, setting.onset, setting.exponent, setting.exponent_scale)
        + damping * ramp_slope(approach, setting.onset_speed) / setting.dt
    )
    return press, slope


@wp.func
def damping_increment(depth: wp.float64, depth_lag: wp.float64, edge: Edge, setting: ContactSetting):
    """Dissipation potential of the approach damping over one step [J]."""
    rate = ramp_integral((depth - depth_lag) / setting.dt, setting.onset_speed)
    return edge.kd * smooth_step(depth_lag / setting.onset) * setting.dt * rate


@wp.func
def lagged_force(depth: wp.float64, gradient: vec3, edge: Edge, setting: ContactSetting):
    """Normal force that friction takes [N]."""
    press = penalty(depth, setting.onset, setting.exponent, setting.exponent_scale)
    return edge.ke * press * wp.length(gradient)


@wp.func
def lagged_slip(x0: vec3, x1: vec3, y0: vec3, y1: vec3, u: wp.float64, normal: vec3, dt: wp.float64):
    """Slip velocity of the point u of the edge along the knife [m/s], and its (rounded) speed."""
    slip = (x0 + (x1 - x0) * u) - (y0 + (y1 - y0) * u)
    velocity = (slip - normal * wp.dot(normal, slip)) / dt
    return velocity, rounded_speed(velocity)


@wp.kernel
def closest_point(
    setting: ContactSetting,
    edges: ContactEdges,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    x_in: wp.array(dtype=vec3),
    pose_in: wp.array(dtype=vec3),
    found_out: wp.array(dtype=wp.float64),
    curvature_out: wp.array(dtype=wp.float64),
):
    """Contact coordinate s of every edge, and the curvature that gives its derivative."""
    i = wp.tid()
    n = edges.parents[i]
    a = x_in[n[0]] - pose_in[0]
    e = (x_in[n[1]] - x_in[n[0]]) * edges.coordinate[i]
    s, curvature = contact_coordinate(a, e, edge_of(edges, parameters, i), setting)
    found_out[i] = s
    curvature_out[i] = curvature


@wp.kernel
def lag(
    setting: ContactSetting,
    edges: ContactEdges,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    state_in: KnifeState,
    lagged_out: Lagged,
):
    """What friction and damping take from the start of the step."""
    i = wp.tid()
    n = edges.parents[i]
    edge = edge_of(edges, parameters, i)
    a = state_in.x[n[0]] - state_in.pose[0]
    e = (state_in.x[n[1]] - state_in.x[n[0]]) * edge.c
    depth, grad = depth_and_normal(a, e, state_in.found[i], edge, setting)
    lagged_out.depth[i] = depth
    lagged_out.normal[i] = wp.normalize(grad)
    lagged_out.force[i] = lagged_force(depth, grad, edge, setting)


@wp.kernel
def contact_gradient(
    setting: ContactSetting,
    edges: ContactEdges,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    order: wp.array(dtype=wp.int32),
    first: int,
    state_in: KnifeState,
    before_in: KnifeState,
    lagged_in: Lagged,
    forces_out: ContactForces,
    gradient_out: wp.array(dtype=vec3),
):
    """Energies and forces, and the gradient added to gradient_out."""
    i = order[first + wp.tid()]
    n = edges.parents[i]
    edge = edge_of(edges, parameters, i)
    ends = ends_of(n, state_in, before_in)
    s = state_in.found[i]
    depth, grad = depth_and_normal(ends.x0, (ends.x1 - ends.x0) * edge.c, s, edge, setting)
    depth_lag = lagged_in.depth[i]
    press, _slope = normal_response(depth, depth_lag, edge, setting)
    normal_force = grad * press

    u_lag = edge.c * before_in.found[i]
    velocity, speed = lagged_slip(ends.x0, ends.x1, ends.y0, ends.y1, u_lag, lagged_in.normal[i], setting.dt)
    coefficient = friction_coefficient(speed, edge.mu, edge.stribeck, edge.kf)
    friction_force = velocity * (-lagged_in.force[i] * coefficient / speed)

    forces_out.energy[i] = vec3(
        edge.ke * penalty_integral(depth, setting.onset, setting.exponent, setting.exponent_scale),
        damping_increment(depth, depth_lag, edge, setting),
        lagged_in.force[i] * setting.dt * friction_integral(speed, edge.mu, edge.stribeck, edge.kf),
    )
    forces_out.normal_force[i] = normal_force
    forces_out.friction_force[i] = friction_force
    forces_out.touch[i] = smooth_step(depth / setting.onset)
    u = edge.c * s
    wp.atomic_add(gradient_out, n[0], -(normal_force * (ONE - u) + friction_force * (ONE - u_lag)))
    wp.atomic_add(gradient_out, n[1], -(normal_force * u + friction_force * u_lag))


@wp.kernel
def contact_hessian(
    setting: ContactSetting,
    edges: ContactEdges,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    order: wp.array(dtype=wp.int32),
    first: int,
    slots: wp.array(dtype=wp.int32, ndim=2),
    state_in: KnifeState,
    before_in: KnifeState,
    lagged_in: Lagged,
    hessian_out: wp.array(dtype=mat33),
):
    """Hessian added to hessian_out; slots [contact_count, 4]: (0,0), (1,1), (0,1), 1 if (0,1) is transposed."""
    i = order[first + wp.tid()]
    n = edges.parents[i]
    edge = edge_of(edges, parameters, i)
    ends = ends_of(n, state_in, before_in)
    e = (ends.x1 - ends.x0) * edge.c
    s = state_in.found[i]
    depth, grad = depth_and_normal(ends.x0, e, s, edge, setting)
    lag_force = lagged_in.force[i]
    if depth <= ZERO and lag_force <= ZERO:
        return
    press, slope = normal_response(depth, lagged_in.depth[i], edge, setting)
    u = edge.c * s
    w0 = ONE - u
    w1 = u
    shape_hessian, moves = distance_hessian(ends.x0 + e * s, edge, setting)
    bend = shape_hessian * e
    q0 = bend * w0 - grad * edge.c
    q1 = bend * w1 + grad * edge.c
    inverse = moves * press / state_in.curvature[i]
    nn = wp.outer(grad, grad) * slope - shape_hessian * press
    k00 = nn * (w0 * w0) + wp.outer(q0, q0) * inverse
    k11 = nn * (w1 * w1) + wp.outer(q1, q1) * inverse
    k01 = nn * (w0 * w1) + wp.outer(q0, q1) * inverse

    u_lag = edge.c * before_in.found[i]
    normal = lagged_in.normal[i]
    velocity, speed = lagged_slip(ends.x0, ends.x1, ends.y0, ends.y1, u_lag, normal, setting.dt)
    secant = friction_coefficient(speed, edge.mu, edge.stribeck, edge.kf) / speed
    tangent = friction_slope(speed, edge.mu, edge.stribeck, edge.kf)
    plane = wp.identity(n=3, dtype=wp.float64) - wp.outer(normal, normal)
    t = velocity / speed
    kt = (plane * secant + wp.outer(t, t) * (tangent - secant)) * (lag_force / setting.dt)
    l0 = ONE - u_lag
    l1 = u_lag
    wp.atomic_add(hessian_out, slots[i, 0], k00 + kt * (l0 * l0))
    wp.atomic_add(hessian_out, slots[i, 1], k11 + kt * (l1 * l1))
    k01 += kt * (l0 * l1)
    if slots[i, 3] == 1:
        k01 = wp.transpose(k01)
    wp.atomic_add(hessian_out, slots[i, 2], k01)
