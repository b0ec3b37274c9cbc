"""Knife contact of the material part of every cut edge: penalty, approach damping, friction.

Friction takes normal force, normal and coordinate not from the unknown end of the step but from its predicted end
z = 2 x_n - x_{n-1}, with the knife at its final position. So every force is the gradient of one incremental energy, its
Hessian is symmetric, and friction does not lag by a step. The slip velocity is that of the end of the step to second
order,

    v = (3 x_{n+1} - 4 x_n + x_{n-1}) / (2 dt) - (the same of the knife) = (3/2 X - Y - Z/2 - swing) / dt

with X, Y, Z the points x_{n+1}, x_n, z relative to the knife at t_{n+1}, t_n, t_{n+1}, and swing the half second
difference of the knife's positions. A knife that turns at the rate w has at the contact point r, relative to its origin
at the predicted end of the step, the additional velocity w x r. The distance is that in the knife's frame; points,
normals and forces are in the cut's directions.
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
    into_knife,
    out_of_knife,
)
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

wp.set_module_options({"enable_backward": False})

_vec2 = wp.vec2d
_vec3 = wp.vec3d
_mat33 = wp.mat33d

_ZERO = wp.constant(wp.float64(0.0))
_HALF = wp.constant(wp.float64(0.5))
_ONE = wp.constant(wp.float64(1.0))
_SLIP = wp.constant(wp.float64(1.5))  # dt times the derivative of the slip velocity in the positions


@wp.struct
class KnifeState:
    """Nodes and knife at one time, with the contact points."""

    x: wp.array(dtype=_vec3)  # nodes [m], [node_count]
    pose: wp.array(dtype=_vec3)  # knife [m], [copy_count]
    turn: wp.array(dtype=_vec2)  # cosine and sine of its pitch, [copy_count]
    found: wp.array(dtype=wp.float64)  # contact coordinate s, [contact_count]
    curvature: wp.array(dtype=wp.float64)  # curvature that gives the derivative of s [m], [contact_count]


@wp.struct
class Foreseen:
    """Values of the start of the step, for damping, and of its predicted end, for friction, [contact_count]."""

    depth: wp.array(dtype=wp.float64)  # depth at the start [m]
    normal: wp.array(dtype=_vec3)  # unit normal at the predicted end
    force: wp.array(dtype=wp.float64)  # normal force at the predicted end [N]
    swing: wp.array(dtype=_vec3)  # half second difference of the knife's positions [m], [copy_count]
    spin: wp.array(
        dtype=wp.float64
    )  # rate at which the knife turns at the end, times the step [rad], [copy_count]


@wp.struct
class ContactForces:
    """Results of a gradient, [contact_count]."""

    energy: wp.array(dtype=_vec3)  # penalty, damping, friction [J]
    normal_force: wp.array(dtype=_vec3)  # on the body [N]
    friction_force: wp.array(dtype=_vec3)  # on the body [N]
    touch: wp.array(dtype=wp.float64)  # 0: apart, 1: in touch


@wp.struct
class Ends:
    """Ends of one cut edge relative to the knife [m]: x at the end, y at the start, z at the predicted end."""

    x0: _vec3
    x1: _vec3
    y0: _vec3
    y1: _vec3
    z0: _vec3
    z1: _vec3


@wp.func
def _end_of(state: KnifeState, node: int, copy: int):
    return state.x[node] - state.pose[copy]


@wp.func
def _ends_of(n: wp.vec2i, copy: int, now: KnifeState, before: KnifeState, ahead: KnifeState):
    ends = Ends()
    ends.x0 = _end_of(now, n[0], copy)
    ends.x1 = _end_of(now, n[1], copy)
    ends.y0 = _end_of(before, n[0], copy)
    ends.y1 = _end_of(before, n[1], copy)
    ends.z0 = _end_of(ahead, n[0], copy)
    ends.z1 = _end_of(ahead, n[1], copy)
    return ends


@wp.func
def normal_response(depth: wp.float64, depth_lag: wp.float64, edge: Edge, setting: ContactSetting):
    """Return the normal force per unit gradient of the distance [N], and its derivative in depth [N/m]."""
    damping = edge.kd * smooth_step(depth_lag / setting.onset)
    approach = (depth - depth_lag) / setting.dt
    press = edge.ke * ramp(depth, setting.onset) + damping * ramp(approach, setting.onset_speed)
    slope = (
        edge.ke * ramp_slope(depth, setting.onset)
        + damping * ramp_slope(approach, setting.onset_speed) / setting.dt
    )
    return press, slope


@wp.func
def _damping_increment(depth: wp.float64, depth_lag: wp.float64, edge: Edge, setting: ContactSetting):
    """Return the dissipation potential of the approach damping over one step [J]."""
    rate = ramp_integral((depth - depth_lag) / setting.dt, setting.onset_speed)
    return edge.kd * smooth_step(depth_lag / setting.onset) * setting.dt * rate


@wp.func
def friction_force_limit(depth: wp.float64, gradient: _vec3, edge: Edge, setting: ContactSetting):
    """Return the normal force used by friction [N]."""
    return edge.ke * ramp(depth, setting.onset) * wp.length(gradient)


@wp.func
def slip_of(ends: Ends, u: wp.float64, normal: _vec3, swing: _vec3, spin: wp.float64, dt: wp.float64):
    """Return the slip velocity of the point u of the edge along the knife [m/s], and its (rounded) speed."""
    r = ends.z0 + (ends.z1 - ends.z0) * u
    p0 = ends.x0 * _SLIP - ends.y0 - ends.z0 * _HALF
    p1 = ends.x1 * _SLIP - ends.y1 - ends.z1 * _HALF
    slip = p0 + (p1 - p0) * u - swing - _vec3(_ZERO, -r[2], r[1]) * spin
    velocity = (slip - normal * wp.dot(normal, slip)) / dt
    return velocity, rounded_speed(velocity)


@wp.func
def knife_friction(speed: wp.float64, edge: Edge):
    """Return the friction coefficient of the knife at that slip speed [-]."""
    return friction_coefficient(speed, edge.mu, edge.stribeck, edge.kf)


@wp.kernel
def look_back(
    setting: ContactSetting,
    edges: ContactEdges,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    x_in: wp.array(dtype=_vec3),
    pose_in: wp.array(dtype=_vec3),
    turn_in: wp.array(dtype=_vec2),
    found_out: wp.array(dtype=wp.float64),
    curvature_out: wp.array(dtype=wp.float64),
    depth_out: wp.array(dtype=wp.float64),
):
    """Compute contact point and depth [m] at the start of the step."""
    i = wp.tid()
    n = edges.parents[i]
    edge = edge_of(edges, parameters, i)
    turn = turn_in[edges.copy[i]]
    a = into_knife(x_in[n[0]] - pose_in[edges.copy[i]], turn)
    e = into_knife((x_in[n[1]] - x_in[n[0]]) * edge.c, turn)
    s, curvature = contact_coordinate(a, e, edge, setting)
    depth, _grad = depth_and_normal(a, e, s, edge, setting)
    found_out[i] = s
    curvature_out[i] = curvature
    depth_out[i] = depth


@wp.kernel
def look_ahead(
    setting: ContactSetting,
    edges: ContactEdges,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    x_in: wp.array(dtype=_vec3),
    pose_in: wp.array(dtype=_vec3),
    turn_in: wp.array(dtype=_vec2),
    found_out: wp.array(dtype=wp.float64),
    curvature_out: wp.array(dtype=wp.float64),
    normal_out: wp.array(dtype=_vec3),
    force_out: wp.array(dtype=wp.float64),
):
    """Compute contact point, unit normal and normal force [N] at the predicted end of the step."""
    i = wp.tid()
    n = edges.parents[i]
    edge = edge_of(edges, parameters, i)
    turn = turn_in[edges.copy[i]]
    a = into_knife(x_in[n[0]] - pose_in[edges.copy[i]], turn)
    e = into_knife((x_in[n[1]] - x_in[n[0]]) * edge.c, turn)
    s, curvature = contact_coordinate(a, e, edge, setting)
    depth, grad = depth_and_normal(a, e, s, edge, setting)
    found_out[i] = s
    curvature_out[i] = curvature
    normal_out[i] = wp.normalize(out_of_knife(grad, turn))
    force_out[i] = friction_force_limit(depth, grad, edge, setting)


@wp.kernel
def contact_gradient(
    setting: ContactSetting,
    edges: ContactEdges,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    order: wp.array(dtype=wp.int32),
    first: int,
    state_in: KnifeState,
    before_in: KnifeState,
    ahead_in: KnifeState,
    foreseen_in: Foreseen,
    found_out: wp.array(dtype=wp.float64),
    curvature_out: wp.array(dtype=wp.float64),
    forces_out: ContactForces,
    gradient_out: wp.array(dtype=_vec3),
):
    """Compute contact points, energies and forces, and add the gradient to gradient_out."""
    i = order[first + wp.tid()]
    n = edges.parents[i]
    edge = edge_of(edges, parameters, i)
    copy = edges.copy[i]
    ends = _ends_of(n, copy, state_in, before_in, ahead_in)
    turn = state_in.turn[copy]
    a = into_knife(ends.x0, turn)
    e = into_knife((ends.x1 - ends.x0) * edge.c, turn)
    s, curvature = contact_coordinate(a, e, edge, setting)
    found_out[i] = s
    curvature_out[i] = curvature
    depth, local = depth_and_normal(a, e, s, edge, setting)
    grad = out_of_knife(local, turn)
    limit = foreseen_in.force[i]
    if depth <= _ZERO and limit <= _ZERO:
        forces_out.energy[i] = _vec3()
        forces_out.normal_force[i] = _vec3()
        forces_out.friction_force[i] = _vec3()
        forces_out.touch[i] = _ZERO
        return
    depth_before = foreseen_in.depth[i]
    press, _slope = normal_response(depth, depth_before, edge, setting)
    normal_force = grad * press

    u_ahead = edge.c * ahead_in.found[i]
    velocity, speed = slip_of(
        ends, u_ahead, foreseen_in.normal[i], foreseen_in.swing[copy], foreseen_in.spin[copy], setting.dt
    )
    coefficient = knife_friction(speed, edge)
    friction_force = velocity * (-limit * coefficient / speed)

    slip_energy = friction_integral(speed, edge.mu, edge.stribeck, edge.kf)
    forces_out.energy[i] = _vec3(
        edge.ke * ramp_integral(depth, setting.onset),
        _damping_increment(depth, depth_before, edge, setting),
        limit * (setting.dt / _SLIP) * slip_energy,
    )
    forces_out.normal_force[i] = normal_force
    forces_out.friction_force[i] = friction_force
    forces_out.touch[i] = smooth_step(depth / setting.onset)
    u = edge.c * s
    wp.atomic_add(gradient_out, n[0], -(normal_force * (_ONE - u) + friction_force * (_ONE - u_ahead)))
    wp.atomic_add(gradient_out, n[1], -(normal_force * u + friction_force * u_ahead))


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
    ahead_in: KnifeState,
    foreseen_in: Foreseen,
    hessian_out: wp.array(dtype=_mat33),
):
    """Add the Hessian to hessian_out; slots [contact_count, 4]: (0,0), (1,1), (0,1), 1 if (0,1) is transposed."""
    i = order[first + wp.tid()]
    n = edges.parents[i]
    edge = edge_of(edges, parameters, i)
    copy = edges.copy[i]
    ends = _ends_of(n, copy, state_in, before_in, ahead_in)
    turn = state_in.turn[copy]
    a = into_knife(ends.x0, turn)
    e = into_knife((ends.x1 - ends.x0) * edge.c, turn)
    s = state_in.found[i]
    depth, local = depth_and_normal(a, e, s, edge, setting)
    limit = foreseen_in.force[i]
    if depth <= _ZERO and limit <= _ZERO:
        return
    press, slope = normal_response(depth, foreseen_in.depth[i], edge, setting)
    u = edge.c * s
    w0 = _ONE - u
    w1 = u
    grad = out_of_knife(local, turn)
    shape_hessian = distance_hessian(a + e * s, turn, edge, setting)
    bend = shape_hessian * ((ends.x1 - ends.x0) * edge.c)
    q0 = bend * w0 - grad * edge.c
    q1 = bend * w1 + grad * edge.c
    inverse = press / state_in.curvature[i]
    nn = wp.outer(grad, grad) * slope - shape_hessian * press
    k00 = nn * (w0 * w0) + wp.outer(q0, q0) * inverse
    k11 = nn * (w1 * w1) + wp.outer(q1, q1) * inverse
    k01 = nn * (w0 * w1) + wp.outer(q0, q1) * inverse

    u_ahead = edge.c * ahead_in.found[i]
    normal = foreseen_in.normal[i]
    velocity, speed = slip_of(
        ends, u_ahead, normal, foreseen_in.swing[copy], foreseen_in.spin[copy], setting.dt
    )
    secant = knife_friction(speed, edge) / speed
    tangent = friction_slope(speed, edge.mu, edge.stribeck, edge.kf)
    plane = wp.identity(n=3, dtype=wp.float64) - wp.outer(normal, normal)
    t = velocity / speed
    kt = (plane * secant + wp.outer(t, t) * (tangent - secant)) * (limit * _SLIP / setting.dt)
    l0 = _ONE - u_ahead
    l1 = u_ahead
    wp.atomic_add(hessian_out, slots[i, 0], k00 + kt * (l0 * l0))
    wp.atomic_add(hessian_out, slots[i, 1], k11 + kt * (l1 * l1))
    k01 += kt * (l0 * l1)
    if slots[i, 3] == 1:
        k01 = wp.transpose(k01)
    wp.atomic_add(hessian_out, slots[i, 2], k01)
