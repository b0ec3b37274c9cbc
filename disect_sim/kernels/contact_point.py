"""Where the material part of a cut edge touches the knife, and how deep: the only file that knows the contact laws.

The contact point sits at the coordinate u = c s on the edge (parent 0 = material end, 1 = ghost end), where s
in (0, 1) minimises the regularised distance

    D = min_s  d(q(s)) - beta log(4 s (1 - s)) - offset

s is smooth in the positions (no clamping at the ends of the edge) and the envelope theorem gives dD/dx at constant s.
`offset` is the value of the regulariser for the edge as it lies at rest beside a vertical flank, so that it does not
shift the surface. Depth = radius - D. The exact law has neither regulariser nor derivatives of s.
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
from disect_sim.laws.contact import CONTACT_LAWS

vec3 = wp.vec3d
mat33 = wp.mat33d

ONE_SIDED = wp.constant(CONTACT_LAWS["one_sided"].code)
EXACT = wp.constant(CONTACT_LAWS["exact"].code)

# Columns of the parameter table
KE = wp.constant(0)  # stiffness [N/m]
KD = wp.constant(1)  # damping [N s/m]
KF = wp.constant(2)  # friction speed [m/s]
MU = wp.constant(3)  # friction coefficient [-]
STRIBECK = wp.constant(4)  # what static friction has more [-]
RADIUS = wp.constant(5)  # rounding [m]
TIP = wp.constant(6)  # tip width [m]

ZERO = wp.constant(wp.float64(0.0))
HALF = wp.constant(wp.float64(0.5))
ONE = wp.constant(wp.float64(1.0))


@wp.struct
class ContactSetting:
    """What all contacts share."""

    shape: KnifeShape
    law: int  # ONE_SIDED or EXACT
    exponent: int  # of the depth in the normal force: 1 or 2
    exponent_scale: wp.float64  # depth at which both exponents agree [m]
    onset: wp.float64  # length of the quadratic start of the penalty [m]
    onset_speed: wp.float64  # same for the approach damping [m/s]
    regulariser: wp.float64  # beta [m]
    dt: wp.float64  # [s]


@wp.struct
class ContactEdges:
    """The cut edges, [contact_count]."""

    parents: wp.array(dtype=wp.vec2i)
    coordinate: wp.array(dtype=wp.float64)  # material part of the edge is u in [0, coordinate]
    side: wp.array(dtype=wp.float64)  # +1 or -1
    offset: wp.array(dtype=wp.float64)  # [m]
    copy: wp.array(dtype=wp.int32)  # of the body, and so of the knife


@wp.struct
class Edge:
    """One cut edge and its parameters."""

    c: wp.float64
    side: wp.float64
    offset: wp.float64
    ke: wp.float64
    kd: wp.float64
    kf: wp.float64
    mu: wp.float64
    stribeck: wp.float64
    radius: wp.float64
    tip: wp.float64


@wp.func
def edge_of(edges: ContactEdges, parameters: wp.array(dtype=wp.float64, ndim=2), i: int):
    edge = Edge()
    edge.c = edges.coordinate[i]
    edge.side = edges.side[i]
    edge.offset = edges.offset[i]
    edge.ke = parameters[i, KE]
    edge.kd = parameters[i, KD]
    edge.kf = parameters[i, KF]
    edge.mu = parameters[i, MU]
    edge.stribeck = parameters[i, STRIBECK]
    edge.radius = parameters[i, RADIUS]
    edge.tip = parameters[i, TIP]
    return edge


@wp.func
def barrier_slope(s: wp.float64, beta: wp.float64):
    return beta * (ONE / (ONE - s) - ONE / s)


@wp.func
def slope_along(q: vec3, e: vec3, s: wp.float64, edge: Edge, setting: ContactSetting):
    """Derivative of the regularised distance in s [m]; increasing in s."""
    gradient = one_sided_gradient(q, edge.side, edge.tip, setting.shape)
    return wp.dot(gradient, e) + barrier_slope(s, setting.regulariser)


@wp.func
def curvature_along(q: vec3, e: vec3, s: wp.float64, edge: Edge, setting: ContactSetting):
    h = one_sided_hessian(q, edge.side, edge.tip, setting.shape)
    return wp.dot(e, h * e) + setting.regulariser * (ONE / ((ONE - s) * (ONE - s)) + ONE / (s * s))


@wp.func
def barrier_root(slope: wp.float64, beta: wp.float64):
    """The s at which a constant slope balances the barrier."""
    two_beta = wp.float64(2.0) * beta
    root = wp.sqrt(slope * slope + two_beta * two_beta)
    return two_beta / (slope + two_beta + root)


@wp.func
def smooth_search(a: vec3, e: vec3, edge: Edge, setting: ContactSetting):
    """Safeguarded Newton for the increasing function slope_along(s) = 0 on (0, 1)."""
    low = ZERO
    high = ONE
    start = one_sided_gradient(a + e, edge.side, edge.tip, setting.shape)
    s = barrier_root(wp.dot(start, e), setting.regulariser)
    for _ in range(60):
        q = a + e * s
        g = slope_along(q, e, s, edge, setting)
        if g > ZERO:
            high = s
        else:
            low = s
        step = g / curvature_along(q, e, s, edge, setting)
        trial = s - step
        if trial < low or trial > high:
            trial = HALF * (low + high)
        moved = wp.abs(trial - s)
        s = trial
        if moved < wp.float64(1.0e-14):
            break
    return s


@wp.func
def out_of_reach(a: vec3, e: vec3, edge: Edge, setting: ContactSetting):
    """Whether no point of the edge can touch: the distance is convex, so nowhere below its tangent at the middle."""
    middle = a + e * HALF
    slope = wp.dot(one_sided_gradient(middle, edge.side, edge.tip, setting.shape), e)
    lowest = one_sided_distance(middle, edge.side, edge.tip, setting.shape) - HALF * wp.abs(slope)
    return lowest > edge.radius + edge.offset


@wp.func
def exact_search(a: vec3, e: vec3, shape: KnifeShape):
    """Closest point of the edge to the convex knife by bisection of the slope.

    The paper takes 20 Frank-Wolfe iterations; those move in steps, so that the energy of a step is not continuous and
    no implicit solver converges.
    """
    low = ZERO
    high = ONE
    for _ in range(50):
        s = HALF * (low + high)
        if wp.dot(exact_gradient(a + e * s, shape), e) > ZERO:
            high = s
        else:
            low = s
    return HALF * (low + high)


@wp.func
def contact_coordinate(a: vec3, e: vec3, edge: Edge, setting: ContactSetting):
    """Contact coordinate s, and the curvature that gives its derivative."""
    if setting.law == EXACT:
        return exact_search(a, e, setting.shape), ONE
    if out_of_reach(a, e, edge, setting):
        return HALF, ONE
    s = smooth_search(a, e, edge, setting)
    return s, curvature_along(a + e * s, e, s, edge, setting)


@wp.func
def depth_and_normal(a: vec3, e: vec3, s: wp.float64, edge: Edge, setting: ContactSetting):
    """Depth [m] and the gradient of the distance at the contact point."""
    q = a + e * s
    if setting.law == EXACT:
        return edge.radius - exact_distance(q, setting.shape), exact_gradient(q, setting.shape)
    barrier = setting.regulariser * wp.log(wp.float64(4.0) * s * (ONE - s))
    distance = one_sided_distance(q, edge.side, edge.tip, setting.shape)
    gradient = one_sided_gradient(q, edge.side, edge.tip, setting.shape)
    return edge.radius + edge.offset - distance + barrier, gradient


@wp.func
def distance_hessian(q: vec3, edge: Edge, setting: ContactSetting):
    """Hessian of the distance at the contact point [1/m], and 1 if s follows the positions, else 0."""
    if setting.law == EXACT:
        return mat33(), ZERO
    return one_sided_hessian(q, edge.side, edge.tip, setting.shape), ONE


@wp.func
def moving_coordinate(
    a: vec3, e: vec3, s: wp.float64, curvature: wp.float64, edge: Edge, setting: ContactSetting
):
    """s after one more Newton step: the same value, but with the derivative of the implicit function."""
    return s - slope_along(a + e * s, e, s, edge, setting) / curvature
