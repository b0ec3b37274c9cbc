"""Knife contact of the material part of every cut edge: penalty, approach damping, lagged friction.

The contact point sits at the coordinate u = c s on the edge (parent 0 = material end, 1 = ghost end), where s
in (0, 1) minimises the regularised distance

    D = min_s  d(q(s)) - beta log(4 s (1 - s)) - offset

s is smooth in the positions (no clamping at the ends of the edge) and the envelope theorem gives dD/dx at constant s.
`offset` is the value of the regulariser for the edge as it lies at rest beside a vertical flank, so that it does not
shift the surface. Depth = radius - D. Normal force, normal and coordinate used by friction are those at the start of
the step, so every force is the gradient of one incremental energy and its Hessian is symmetric.

Parameter columns, per contact: stiffness [N/m], damping [N s/m], friction speed [m/s], mu [-], Stribeck peak [-],
radius [m], tip width [m].
"""

import warp as wp

from disect_sim.kernels.knife_distance import (
    KnifeShape,
    exact_distance,
    exact_gradient,
    one_sided_distance,
    one_sided_gradient,
    one_sided_hessian,
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

vec2 = wp.vec2d
vec3 = wp.vec3d
mat33 = wp.mat33d

KE = wp.constant(0)
KD = wp.constant(1)
KF = wp.constant(2)
MU = wp.constant(3)
STRIBECK = wp.constant(4)
RADIUS = wp.constant(5)
TIP = wp.constant(6)
PARAMETER_COLUMNS = 7

ONE_SIDED = wp.constant(0)
EXACT = wp.constant(1)

ZERO = wp.constant(wp.float64(0.0))
ONE = wp.constant(wp.float64(1.0))


@wp.struct
class ContactLaw:
    """Choices shared by all contacts."""

    kind: int  # ONE_SIDED or EXACT
    exponent: int  # of the depth in the normal force: 1 or 2
    exponent_scale: wp.float64  # depth at which both exponents agree [m]
    onset: wp.float64  # length of the quadratic start of the penalty [m]
    onset_speed: wp.float64  # same for the approach damping [m/s]
    regulariser: wp.float64  # beta [m]


@wp.struct
class ContactEdges:
    """The cut edges, [contact_count]."""

    parents: wp.array(dtype=wp.vec2i)
    coordinate: wp.array(dtype=wp.float64)  # material part of the edge is u in [0, coordinate]
    side: wp.array(dtype=wp.float64)  # +1 or -1
    offset: wp.array(dtype=wp.float64)  # [m]


@wp.func
def barrier_slope(s: wp.float64, beta: wp.float64):
    return beta * (ONE / (ONE - s) - ONE / s)


@wp.func
def slope_along(
    q: vec3, e: vec3, s: wp.float64, side: wp.float64, tip: wp.float64, beta: wp.float64, shape: KnifeShape
):
    """Derivative of the regularised distance in s [m]; increasing in s."""
    return wp.dot(one_sided_gradient(q, side, tip, shape), e) + barrier_slope(s, beta)


@wp.func
def curvature_along(
    q: vec3, e: vec3, s: wp.float64, side: wp.float64, tip: wp.float64, beta: wp.float64, shape: KnifeShape
):
    h = one_sided_hessian(q, side, tip, shape)
    return wp.dot(e, h * e) + beta * (ONE / ((ONE - s) * (ONE - s)) + ONE / (s * s))


@wp.func
def barrier_root(slope: wp.float64, beta: wp.float64):
    """The s at which a constant slope balances the barrier."""
    two_beta = wp.float64(2.0) * beta
    root = wp.sqrt(slope * slope + two_beta * two_beta)
    return two_beta / (slope + two_beta + root)


@wp.func
def smooth_search(a: vec3, e: vec3, side: wp.float64, tip: wp.float64, beta: wp.float64, shape: KnifeShape):
    """Safeguarded Newton for the increasing function slope_along(s) = 0 on (0, 1)."""
    low = ZERO
    high = ONE
    s = barrier_root(wp.dot(one_sided_gradient(a + e, side, tip, shape), e), beta)
    for _ in range(60):
        q = a + e * s
        g = slope_along(q, e, s, side, tip, beta, shape)
        if g > ZERO:
            high = s
        else:
            low = s
        step = g / curvature_along(q, e, s, side, tip, beta, shape)
        trial = s - step
        if trial < low or trial > high:
            trial = wp.float64(0.5) * (low + high)
        moved = wp.abs(trial - s)
        s = trial
        if moved < wp.float64(1.0e-14):
            break
    return s


@wp.func
def exact_search(a: vec3, e: vec3, shape: KnifeShape):
    """Closest point of the edge to the convex knife by bisection of the slope.

    The paper takes 20 Frank-Wolfe iterations; those move in steps, so that the energy of a step is not continuous and
    no implicit solver converges.
    """
    low = ZERO
    high = ONE
    for _ in range(50):
        s = wp.float64(0.5) * (low + high)
        if wp.dot(exact_gradient(a + e * s, shape), e) > ZERO:
            high = s
        else:
            low = s
    return wp.float64(0.5) * (low + high)


@wp.kernel
def closest_point(
    edges: ContactEdges,
    law: ContactLaw,
    shape: KnifeShape,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    x_in: wp.array(dtype=vec3),
    pose_in: wp.array(dtype=vec3),
    coordinate_out: wp.array(dtype=wp.float64),
    curvature_out: wp.array(dtype=wp.float64),
):
    """Contact coordinate s of every edge, and the curvature that gives its derivative."""
    i = wp.tid()
    n = edges.parents[i]
    a = x_in[n[0]] - pose_in[0]
    e = (x_in[n[1]] - x_in[n[0]]) * edges.coordinate[i]
    if law.kind == EXACT:
        coordinate_out[i] = exact_search(a, e, shape)
        curvature_out[i] = ONE
    else:
        side = edges.side[i]
        tip = parameters[i, TIP]
        s = smooth_search(a, e, side, tip, law.regulariser, shape)
        coordinate_out[i] = s
        curvature_out[i] = curvature_along(a + e * s, e, s, side, tip, law.regulariser, shape)


@wp.func
def depth_and_normal(
    a: vec3,
    e: vec3,
    s: wp.float64,
    side: wp.float64,
    offset: wp.float64,
    radius: wp.float64,
    tip: wp.float64,
    law: ContactLaw,
    shape: KnifeShape,
):
    """Depth [m] and the gradient of the distance at the contact point."""
    q = a + e * s
    if law.kind == EXACT:
        return radius - exact_distance(q, shape), exact_gradient(q, shape)
    barrier = law.regulariser * wp.log(wp.float64(4.0) * s * (ONE - s))
    return radius + offset - one_sided_distance(q, side, tip, shape) + barrier, one_sided_gradient(
        q, side, tip, shape
    )


@wp.func
def normal_response(
    depth: wp.float64,
    depth_lag: wp.float64,
    ke: wp.float64,
    kd: wp.float64,
    law: ContactLaw,
    dt: wp.float64,
):
    """Normal force per unit gradient of the distance [N], and its derivative in depth [N/m]."""
    damping = kd * smooth_step(depth_lag / law.onset)
    approach = (depth - depth_lag) / dt
    press = ke * penalty(depth, law.onset, law.exponent, law.exponent_scale) + damping * ramp(
        approach, law.onset_speed
    )
    slope = (
        ke * penalty_slope(depth, law.onset, law.exponent, law.exponent_scale)
        + damping * ramp_slope(approach, law.onset_speed) / dt
    )
    return press, slope


@wp.func
def damping_increment(
    depth: wp.float64, depth_lag: wp.float64, kd: wp.float64, law: ContactLaw, dt: wp.float64
):
    """Dissipation potential of the approach damping over one step [J]."""
    rate = ramp_integral((depth - depth_lag) / dt, law.onset_speed)
    return kd * smooth_step(depth_lag / law.onset) * dt * rate


@wp.func
def lagged_slip(x0: vec3, x1: vec3, y0: vec3, y1: vec3, u: wp.float64, normal: vec3, dt: wp.float64):
    """Slip velocity of the point u of the edge along the knife [m/s], and its (rounded) speed.

    x0, x1 (y0, y1): ends of the edge relative to the knife at the end (start) of the step.
    """
    slip = (x0 + (x1 - x0) * u) - (y0 + (y1 - y0) * u)
    velocity = (slip - normal * wp.dot(normal, slip)) / dt
    return velocity, rounded_speed(velocity)


@wp.kernel
def lag(
    edges: ContactEdges,
    law: ContactLaw,
    shape: KnifeShape,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    x_in: wp.array(dtype=vec3),
    pose_in: wp.array(dtype=vec3),
    coordinate_in: wp.array(dtype=wp.float64),
    depth_out: wp.array(dtype=wp.float64),
    normal_out: wp.array(dtype=vec3),
    force_out: wp.array(dtype=wp.float64),
):
    """What friction and damping take from the start of the step: depth [m], unit normal, normal force [N]."""
    i = wp.tid()
    n = edges.parents[i]
    a = x_in[n[0]] - pose_in[0]
    e = (x_in[n[1]] - x_in[n[0]]) * edges.coordinate[i]
    depth, grad = depth_and_normal(
        a,
        e,
        coordinate_in[i],
        edges.side[i],
        edges.offset[i],
        parameters[i, RADIUS],
        parameters[i, TIP],
        law,
        shape,
    )
    depth_out[i] = depth
    normal_out[i] = wp.normalize(grad)
    press = penalty(depth, law.onset, law.exponent, law.exponent_scale)
    force_out[i] = parameters[i, KE] * press * wp.length(grad)


@wp.kernel
def contact_gradient(
    edges: ContactEdges,
    law: ContactLaw,
    shape: KnifeShape,
    dt: wp.float64,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    order: wp.array(dtype=wp.int32),
    first: int,
    x_in: wp.array(dtype=vec3),
    x_previous_in: wp.array(dtype=vec3),
    pose_in: wp.array(dtype=vec3),
    pose_previous_in: wp.array(dtype=vec3),
    coordinate_in: wp.array(dtype=wp.float64),
    lag_coordinate_in: wp.array(dtype=wp.float64),
    lag_depth_in: wp.array(dtype=wp.float64),
    lag_normal_in: wp.array(dtype=vec3),
    lag_force_in: wp.array(dtype=wp.float64),
    energy_out: wp.array(dtype=vec3),
    normal_force_out: wp.array(dtype=vec3),
    friction_force_out: wp.array(dtype=vec3),
    touch_out: wp.array(dtype=wp.float64),
    gradient_out: wp.array(dtype=vec3),
):
    """Energy (penalty, damping, friction), forces on the body [N] and the gradient added to gradient_out."""
    i = order[first + wp.tid()]
    n = edges.parents[i]
    c = edges.coordinate[i]
    x0 = x_in[n[0]] - pose_in[0]
    x1 = x_in[n[1]] - pose_in[0]
    s = coordinate_in[i]
    side = edges.side[i]
    tip = parameters[i, TIP]
    depth, grad = depth_and_normal(
        x0, (x1 - x0) * c, s, side, edges.offset[i], parameters[i, RADIUS], tip, law, shape
    )
    ke = parameters[i, KE]
    kd = parameters[i, KD]
    press, _slope = normal_response(depth, lag_depth_in[i], ke, kd, law, dt)
    normal_force = grad * press

    u_lag = c * lag_coordinate_in[i]
    y0 = x_previous_in[n[0]] - pose_previous_in[0]
    y1 = x_previous_in[n[1]] - pose_previous_in[0]
    velocity, speed = lagged_slip(x0, x1, y0, y1, u_lag, lag_normal_in[i], dt)
    mu = parameters[i, MU]
    stribeck = parameters[i, STRIBECK]
    kf = parameters[i, KF]
    friction_force = velocity * (-lag_force_in[i] * friction_coefficient(speed, mu, stribeck, kf) / speed)

    energy_out[i] = vec3(
        ke * penalty_integral(depth, law.onset, law.exponent, law.exponent_scale),
        damping_increment(depth, lag_depth_in[i], kd, law, dt),
        lag_force_in[i] * dt * friction_integral(speed, mu, stribeck, kf),
    )
    normal_force_out[i] = normal_force
    friction_force_out[i] = friction_force
    touch_out[i] = smooth_step(depth / law.onset)
    u = c * s
    wp.atomic_add(gradient_out, n[0], -(normal_force * (ONE - u) + friction_force * (ONE - u_lag)))
    wp.atomic_add(gradient_out, n[1], -(normal_force * u + friction_force * u_lag))


@wp.kernel
def contact_hessian(
    edges: ContactEdges,
    law: ContactLaw,
    shape: KnifeShape,
    dt: wp.float64,
    parameters: wp.array(dtype=wp.float64, ndim=2),
    order: wp.array(dtype=wp.int32),
    first: int,
    slots: wp.array(dtype=wp.int32, ndim=2),
    x_in: wp.array(dtype=vec3),
    x_previous_in: wp.array(dtype=vec3),
    pose_in: wp.array(dtype=vec3),
    pose_previous_in: wp.array(dtype=vec3),
    coordinate_in: wp.array(dtype=wp.float64),
    curvature_in: wp.array(dtype=wp.float64),
    lag_coordinate_in: wp.array(dtype=wp.float64),
    lag_depth_in: wp.array(dtype=wp.float64),
    lag_normal_in: wp.array(dtype=vec3),
    lag_force_in: wp.array(dtype=wp.float64),
    hessian_out: wp.array(dtype=mat33),
):
    """Hessian added to hessian_out; slots [contact_count, 4]: (0,0), (1,1), (0,1), 1 if (0,1) is transposed."""
    i = order[first + wp.tid()]
    n = edges.parents[i]
    c = edges.coordinate[i]
    x0 = x_in[n[0]] - pose_in[0]
    x1 = x_in[n[1]] - pose_in[0]
    e = (x1 - x0) * c
    s = coordinate_in[i]
    side = edges.side[i]
    tip = parameters[i, TIP]
    depth, grad = depth_and_normal(x0, e, s, side, edges.offset[i], parameters[i, RADIUS], tip, law, shape)
    lag_force = lag_force_in[i]
    if depth <= ZERO and lag_force <= ZERO:
        return
    press, slope = normal_response(depth, lag_depth_in[i], parameters[i, KE], parameters[i, KD], law, dt)
    u = c * s
    w0 = ONE - u
    w1 = u
    nn = wp.outer(grad, grad) * slope
    k00 = nn * (w0 * w0)
    k11 = nn * (w1 * w1)
    k01 = nn * (w0 * w1)
    if law.kind == ONE_SIDED:
        shape_hessian = one_sided_hessian(x0 + e * s, side, tip, shape)
        bend = shape_hessian * e
        q0 = bend * w0 - grad * c
        q1 = bend * w1 + grad * c
        inverse = press / curvature_in[i]
        k00 += wp.outer(q0, q0) * inverse - shape_hessian * (press * w0 * w0)
        k11 += wp.outer(q1, q1) * inverse - shape_hessian * (press * w1 * w1)
        k01 += wp.outer(q0, q1) * inverse - shape_hessian * (press * w0 * w1)

    u_lag = c * lag_coordinate_in[i]
    y0 = x_previous_in[n[0]] - pose_previous_in[0]
    y1 = x_previous_in[n[1]] - pose_previous_in[0]
    normal = lag_normal_in[i]
    velocity, speed = lagged_slip(x0, x1, y0, y1, u_lag, normal, dt)
    kf = parameters[i, KF]
    secant = friction_coefficient(speed, parameters[i, MU], parameters[i, STRIBECK], kf) / speed
    tangent = friction_slope(speed, parameters[i, MU], parameters[i, STRIBECK], kf)
    plane = wp.identity(n=3, dtype=wp.float64) - wp.outer(normal, normal)
    t = velocity / speed
    kt = (plane * secant + wp.outer(t, t) * (tangent - secant)) * (lag_force / dt)
    l0 = ONE - u_lag
    l1 = u_lag
    k00 += kt * (l0 * l0)
    k11 += kt * (l1 * l1)
    k01 += kt * (l0 * l1)

    wp.atomic_add(hessian_out, slots[i, 0], k00)
    wp.atomic_add(hessian_out, slots[i, 1], k11)
    if slots[i, 3] == 1:
        k01 = wp.transpose(k01)
    wp.atomic_add(hessian_out, slots[i, 2], k01)


@wp.func
def moving_coordinate(
    a: vec3,
    e: vec3,
    s: wp.float64,
    curvature: wp.float64,
    side: wp.float64,
    tip: wp.float64,
    beta: wp.float64,
    shape: KnifeShape,
):
    """s after one more Newton step: the same value, but with the derivative of the implicit function."""
    return s - slope_along(a + e * s, e, s, side, tip, beta, shape) / curvature


@wp.kernel
def contact_force(
    law: ContactLaw,
    shape: KnifeShape,
    dt: wp.float64,
    coordinate: wp.array(dtype=wp.float64),
    side: wp.array(dtype=wp.float64),
    offset: wp.array(dtype=wp.float64),
    found_in: wp.array(dtype=vec2),
    lag_found_in: wp.array(dtype=vec2),
    parameters_in: wp.array(dtype=wp.float64, ndim=2),
    x0_in: wp.array(dtype=vec3),
    x1_in: wp.array(dtype=vec3),
    y0_in: wp.array(dtype=vec3),
    y1_in: wp.array(dtype=vec3),
    normal_force_out: wp.array(dtype=vec3),
    friction_force_out: wp.array(dtype=vec3),
    u_out: wp.array(dtype=vec2),
    touch_out: wp.array(dtype=wp.float64),
):
    """The contact forces of one step as a differentiable function of everything they depend on.

    Run forward it repeats `contact_gradient`; Warp's adjoint of it is the vector-Jacobian product of the step.
    x0, x1 (y0, y1): ends of the edges relative to the knife at the end (start) of the step [m].
    found, lag_found: contact coordinate s and curvature from `closest_point` at the end and at the start.
    u_out: where the normal and where the friction force act.
    """
    i = wp.tid()
    c = coordinate[i]
    a = x0_in[i]
    e = (x1_in[i] - a) * c
    b = y0_in[i]
    f = (y1_in[i] - b) * c
    radius = parameters_in[i, RADIUS]
    tip = parameters_in[i, TIP]
    ke = parameters_in[i, KE]
    found = found_in[i]
    lag_found = lag_found_in[i]

    s_lag = moving_coordinate(b, f, lag_found[0], lag_found[1], side[i], tip, law.regulariser, shape)
    depth_lag, grad_lag = depth_and_normal(b, f, s_lag, side[i], offset[i], radius, tip, law, shape)
    lag_force = ke * penalty(depth_lag, law.onset, law.exponent, law.exponent_scale) * wp.length(grad_lag)

    s = moving_coordinate(a, e, found[0], found[1], side[i], tip, law.regulariser, shape)
    depth, grad = depth_and_normal(a, e, s, side[i], offset[i], radius, tip, law, shape)
    press, _slope = normal_response(depth, depth_lag, ke, parameters_in[i, KD], law, dt)
    velocity, speed = lagged_slip(a, x1_in[i], b, y1_in[i], c * s_lag, wp.normalize(grad_lag), dt)
    coefficient = friction_coefficient(
        speed, parameters_in[i, MU], parameters_in[i, STRIBECK], parameters_in[i, KF]
    )

    normal_force_out[i] = grad * press
    friction_force_out[i] = velocity * (-lag_force * coefficient / speed)
    u_out[i] = vec2(c * s, c * s_lag)
    touch_out[i] = smooth_step(depth / law.onset)
