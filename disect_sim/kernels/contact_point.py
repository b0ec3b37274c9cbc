"""Signed distance to the knife, and contact point and depth of a cut edge.

The contact point is at the coordinate u = c s on the edge (parent 0 = material end, 1 = ghost end), where s
in (0, 1) minimises the regularised distance

    D = min_s  d(q(s)) - beta log(4 s (1 - s)) - offset

s is smooth in the positions (no clamping at the ends of the edge) and the envelope theorem gives dD/dx at constant s.
`offset` is the value of the regulariser for the edge at rest beside a vertical flank, so that it does not shift the
surface. Depth = radius - D.
"""

import warp as wp

# Signed distance to the knife: a smooth shape, seen from one side.
#
# Knife frame: origin at the tip of the edge in the middle of the blade, x across, y up, z along the blade [m]. It turns
# about x only: `into_knife` and `out_of_knife` take vectors from the cut's directions to the knife's and back.
# The one-sided distance sees the knife from one half of the fruit only (side = +1 or -1), so it has no medial axis:
#
#   m = (a + b + sqrt((a - b)^2 + tip^2)) / 2     a: flank plane, b: horizontal plane under the edge
#   d = max3(max3(m, top), end)                   max3: cubic smooth maximum of width `blend`, C2, exact outside
#
# All pieces are affine or convex and 1-Lipschitz, so d is convex and 1-Lipschitz. A curved edge shears a and b: they
# see y - h(z), with the convex height h of the edge. d stays convex, with the Lipschitz constant sqrt(1 + h'^2).


_vec2 = wp.vec2d
_vec3 = wp.vec3d
_mat33 = wp.mat33d
_curve = wp.types.vector(length=5, dtype=wp.float64)

_HALF = wp.constant(wp.float64(0.5))
_ONE = wp.constant(wp.float64(1.0))
_ZERO = wp.constant(wp.float64(0.0))


@wp.struct
class KnifeShape:
    flank_x: wp.float64  # outward unit normal of the right flank, x component [-]
    flank_y: wp.float64  # y component [-]
    flank_offset: wp.float64  # n . (edge/2, tip) [m]
    height: wp.float64  # [m]
    half_length: wp.float64  # [m]
    blend: wp.float64  # width of the rounding towards spine and ends [m]
    curve: _curve  # height of the edge over z: coefficients of z^2 to z^6 [m^-1 to m^-5], zero for a straight edge


@wp.func
def into_knife(v: _vec3, turn: _vec2):
    """Return a vector in the knife's directions; turn: cosine and sine of its pitch."""
    return _vec3(v[0], v[1] * turn[0] + v[2] * turn[1], v[2] * turn[0] - v[1] * turn[1])


@wp.func
def out_of_knife(v: _vec3, turn: _vec2):
    """Return a vector given in the knife's directions in those of the cut: the inverse of into_knife."""
    return _vec3(v[0], v[1] * turn[0] - v[2] * turn[1], v[2] * turn[0] + v[1] * turn[1])


@wp.func
def _turned_hessian(h: _mat33, turn: _vec2):
    """Return a symmetric matrix given in the knife's directions in those of the cut."""
    turned = _mat33(_ONE, _ZERO, _ZERO, _ZERO, turn[0], -turn[1], _ZERO, turn[1], turn[0])
    return turned * h * wp.transpose(turned)


@wp.func
def edge_curve(z: wp.float64, shape: KnifeShape):
    """Return height [m], slope [-] and curvature [1/m] of the edge at z; straight on beyond the blade's ends."""
    t = wp.clamp(z, -shape.half_length, shape.half_length)
    c = shape.curve
    height = t * t * (c[0] + t * (c[1] + t * (c[2] + t * (c[3] + t * c[4]))))
    slope = t * (
        wp.float64(2.0) * c[0]
        + t
        * (
            wp.float64(3.0) * c[1]
            + t * (wp.float64(4.0) * c[2] + t * (wp.float64(5.0) * c[3] + t * wp.float64(6.0) * c[4]))
        )
    )
    bend = wp.float64(2.0) * c[0] + t * (
        wp.float64(6.0) * c[1]
        + t * (wp.float64(12.0) * c[2] + t * (wp.float64(20.0) * c[3] + t * wp.float64(30.0) * c[4]))
    )
    return height + slope * (z - t), slope, wp.where(t == z, bend, _ZERO)


@wp.func
def _smooth_max_weight(a: wp.float64, b: wp.float64, width: wp.float64):
    """Return d(smooth maximum)/da: 1 where a exceeds b by more than width, 0 in the opposite case."""
    z = (a - b) / width
    h = wp.max(_ZERO, _ONE - wp.abs(z))
    low = _HALF * h * h
    return wp.where(z > _ZERO, _ONE - low, low)


@wp.func
def _smooth_max_curvature(a: wp.float64, b: wp.float64, width: wp.float64):
    """Return d2(smooth maximum)/da2 [1/m]."""
    return wp.max(_ZERO, _ONE - wp.abs(a - b) / width) / width


@wp.func
def _smooth_max(a: wp.float64, b: wp.float64, width: wp.float64):
    h = wp.max(_ZERO, _ONE - wp.abs(a - b) / width)
    return wp.max(a, b) + width * h * h * h / wp.float64(6.0)


@wp.func
def _edge_section(q: _vec3, height: wp.float64, side: wp.float64, tip: wp.float64, shape: KnifeShape):
    """Return the smooth maximum of flank plane and plane under the edge [m], the flank's weight, and its root [m].

    height: of the edge at this place along the blade [m].
    """
    above = q[1] - height
    flank = shape.flank_x * side * q[0] + shape.flank_y * above - shape.flank_offset
    bottom = -above
    gap = flank - bottom
    root = wp.sqrt(gap * gap + tip * tip)
    return _HALF * (flank + bottom + root), _HALF * (_ONE + gap / root), root


@wp.func
def one_sided_distance(q: _vec3, side: wp.float64, tip: wp.float64, shape: KnifeShape):
    height, _slope, _bend = edge_curve(q[2], shape)
    m, _flank_weight, _root = _edge_section(q, height, side, tip, shape)
    d = _smooth_max(m, q[1] - shape.height, shape.blend)
    return _smooth_max(d, wp.abs(q[2]) - shape.half_length, shape.blend)


@wp.func
def one_sided_gradient(q: _vec3, side: wp.float64, tip: wp.float64, shape: KnifeShape):
    height, slope, _bend = edge_curve(q[2], shape)
    m, flank_weight, _root = _edge_section(q, height, side, tip, shape)
    top = q[1] - shape.height
    end = wp.abs(q[2]) - shape.half_length
    d = _smooth_max(m, top, shape.blend)
    top_weight = _ONE - _smooth_max_weight(m, top, shape.blend)
    end_weight = _ONE - _smooth_max_weight(d, end, shape.blend)
    section = (_ONE - end_weight) * (_ONE - top_weight)
    gx = section * flank_weight * shape.flank_x * side
    up = section * (flank_weight * (shape.flank_y + _ONE) - _ONE)
    gy = up + (_ONE - end_weight) * top_weight
    gz = end_weight * wp.sign(q[2]) - slope * up
    return _vec3(gx, gy, gz)


@wp.func
def one_sided_hessian(q: _vec3, side: wp.float64, tip: wp.float64, shape: KnifeShape):
    height, slope, bend = edge_curve(q[2], shape)
    m, flank_weight, root = _edge_section(q, height, side, tip, shape)
    top = q[1] - shape.height
    end = wp.abs(q[2]) - shape.half_length
    d = _smooth_max(m, top, shape.blend)
    keep_top = _smooth_max_weight(m, top, shape.blend)
    keep_end = _smooth_max_weight(d, end, shape.blend)
    apart = shape.flank_y + _ONE
    flank_minus_bottom = _vec3(shape.flank_x * side, apart, -slope * apart)
    up = flank_weight * apart - _ONE
    grad_m = _vec3(shape.flank_x * side * flank_weight, up, -slope * up)
    grad_top = _vec3(_ZERO, _ONE, _ZERO)
    grad_d = grad_m * keep_top + grad_top * (_ONE - keep_top)
    grad_end = _vec3(_ZERO, _ZERO, wp.sign(q[2]))
    hess_m = wp.outer(flank_minus_bottom, flank_minus_bottom) * (_HALF * tip * tip / (root * root * root))
    along = _vec3(_ZERO, _ZERO, _ONE)
    hess_m = hess_m - wp.outer(along, along) * (bend * up)
    m_top = grad_m - grad_top
    hess_d = hess_m * keep_top + wp.outer(m_top, m_top) * _smooth_max_curvature(m, top, shape.blend)
    d_end = grad_d - grad_end
    return hess_d * keep_end + wp.outer(d_end, d_end) * _smooth_max_curvature(d, end, shape.blend)


# Columns of the parameter table
_KE = wp.constant(0)  # stiffness [N/m]
_KD = wp.constant(1)  # damping [N s/m]
_KF = wp.constant(2)  # friction speed [m/s]
_MU = wp.constant(3)  # friction coefficient [-]
_STRIBECK = wp.constant(4)  # static minus dynamic friction coefficient [-]
_RADIUS = wp.constant(5)  # rounding [m]
_TIP = wp.constant(6)  # tip width [m]


@wp.struct
class ContactSetting:
    """Settings common to all contacts."""

    shape: KnifeShape
    onset: wp.float64  # length of the quadratic start of the penalty [m]
    onset_speed: wp.float64  # same for the approach damping [m/s]
    regulariser: wp.float64  # beta [m]
    dt: wp.float64  # [s]


@wp.struct
class ContactEdges:
    """Cut edges, [contact_count]."""

    parents: wp.array(dtype=wp.vec2i)
    coordinate: wp.array(dtype=wp.float64)  # material part of the edge is u in [0, coordinate]
    side: wp.array(dtype=wp.float64)  # +1 or -1
    offset: wp.array(dtype=wp.float64)  # [m]
    copy: wp.array(dtype=wp.int32)  # copy of the body, hence of the knife


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
    edge.ke = parameters[i, _KE]
    edge.kd = parameters[i, _KD]
    edge.kf = parameters[i, _KF]
    edge.mu = parameters[i, _MU]
    edge.stribeck = parameters[i, _STRIBECK]
    edge.radius = parameters[i, _RADIUS]
    edge.tip = parameters[i, _TIP]
    return edge


@wp.func
def _barrier_slope(s: wp.float64, beta: wp.float64):
    return beta * (_ONE / (_ONE - s) - _ONE / s)


@wp.func
def _slope_along(q: _vec3, e: _vec3, s: wp.float64, edge: Edge, setting: ContactSetting):
    """Return the derivative of the regularised distance in s [m], which increases with s."""
    gradient = one_sided_gradient(q, edge.side, edge.tip, setting.shape)
    return wp.dot(gradient, e) + _barrier_slope(s, setting.regulariser)


@wp.func
def _curvature_along(q: _vec3, e: _vec3, s: wp.float64, edge: Edge, setting: ContactSetting):
    h = one_sided_hessian(q, edge.side, edge.tip, setting.shape)
    return wp.dot(e, h * e) + setting.regulariser * (_ONE / ((_ONE - s) * (_ONE - s)) + _ONE / (s * s))


@wp.func
def _barrier_root(slope: wp.float64, beta: wp.float64):
    """Return the s at which a constant slope balances the barrier."""
    two_beta = wp.float64(2.0) * beta
    root = wp.sqrt(slope * slope + two_beta * two_beta)
    return two_beta / (slope + two_beta + root)


@wp.func
def _smooth_search(a: _vec3, e: _vec3, edge: Edge, setting: ContactSetting):
    """Solve _slope_along(s) = 0 on (0, 1) by a safeguarded Newton method; _slope_along increases with s."""
    low = _ZERO
    high = _ONE
    start = one_sided_gradient(a + e, edge.side, edge.tip, setting.shape)
    s = _barrier_root(wp.dot(start, e), setting.regulariser)
    for _ in range(60):
        q = a + e * s
        g = _slope_along(q, e, s, edge, setting)
        if g > _ZERO:
            high = s
        else:
            low = s
        step = g / _curvature_along(q, e, s, edge, setting)
        trial = s - step
        if trial < low or trial > high:
            trial = _HALF * (low + high)
        moved = wp.abs(trial - s)
        s = trial
        if moved < wp.float64(1.0e-14):
            break
    return s


@wp.func
def _out_of_reach(a: _vec3, e: _vec3, edge: Edge, setting: ContactSetting):
    """Return True if no point of the edge can touch: the convex distance lies above its tangent at the middle."""
    middle = a + e * _HALF
    slope = wp.dot(one_sided_gradient(middle, edge.side, edge.tip, setting.shape), e)
    lowest = one_sided_distance(middle, edge.side, edge.tip, setting.shape) - _HALF * wp.abs(slope)
    return lowest > edge.radius + edge.offset


@wp.func
def contact_coordinate(a: _vec3, e: _vec3, edge: Edge, setting: ContactSetting):
    """Return the contact coordinate s, and the curvature that gives its derivative."""
    if _out_of_reach(a, e, edge, setting):
        return _HALF, _ONE
    s = _smooth_search(a, e, edge, setting)
    return s, _curvature_along(a + e * s, e, s, edge, setting)


@wp.func
def depth_and_normal(a: _vec3, e: _vec3, s: wp.float64, edge: Edge, setting: ContactSetting):
    """Return depth [m] and the gradient of the distance at the contact point."""
    q = a + e * s
    barrier = setting.regulariser * wp.log(wp.float64(4.0) * s * (_ONE - s))
    distance = one_sided_distance(q, edge.side, edge.tip, setting.shape)
    gradient = one_sided_gradient(q, edge.side, edge.tip, setting.shape)
    return edge.radius + edge.offset - distance + barrier, gradient


@wp.func
def distance_hessian(q: _vec3, turn: _vec2, edge: Edge, setting: ContactSetting):
    """Return the Hessian of the distance at the contact point q of the knife's frame, in the cut's directions [1/m]."""
    return _turned_hessian(one_sided_hessian(q, edge.side, edge.tip, setting.shape), turn)


@wp.func
def moving_coordinate(
    a: _vec3, e: _vec3, s: wp.float64, curvature: wp.float64, edge: Edge, setting: ContactSetting
):
    """Return s after one more Newton step: the same value, with the derivative of the implicit function."""
    return s - _slope_along(a + e * s, e, s, edge, setting) / curvature
