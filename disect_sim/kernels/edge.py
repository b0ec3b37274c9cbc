"""Edge law: the edge severs the samples it passes, with a fracture toughness, and meets drag along the blade.

Every sample is a small piece of the cut surface. `depth` is the distance by which the edge has passed it, positive
beyond it, measured across the edge. Points, velocities and forces are in the knife's frame, and the velocity is that of
the edge at the sample, so that a blade may be tilted, curved, and turn about x. The fraction of the fracture energy
spent at depth q is S(q) = 1 - (1 + q / rise) exp(-q / rise), so that the force of a blade that moves straight down is
toughness x width, reached over a few rise lengths.

The toughness G has three shares, a + e + m = 1. With the slice-push ratio xi, and A = G x width, a steady cut takes

    force across the blade  F_n = A (e + a / (1 + xi^2) + m / sqrt(1 + xi^2))
    force along the blade   F_t = A xi (a / (1 + xi^2) + m / sqrt(1 + xi^2))

- slice a: work of fracture along the blade's path: the longer the path, the smaller the force;
- press e: work of fracture done by the descent alone: drawing the blade does not lower its force;
- drag m: a force of constant size against the blade's velocity, friction of the edge: no fracture, and its work grows
  with the path.

The default shares come from 44 public sawing cuts (see SPRING_PARAMETERS); shares (1, 0, 0) give pure slicing.
"""

import warp as wp

from disect_sim.kernels.contact_point import KnifeShape, edge_curve
from disect_sim.kernels.laws import ONE, ZERO, ramp, ramp_slope, rounded_speed, smooth_step

_vec3 = wp.vec3d

_END_ONSET = wp.constant(wp.float64(1.0e-3))  # onset length at the blade's ends [m]
_END_SLOPE = wp.constant(wp.float64(4.0))  # slope of the edge beyond the blade's ends [-]
SEVER_LENGTH = wp.constant(wp.float64(1.0e-3))  # depth over which the springs of a passed sample release [m]
_RELOAD_LENGTH = wp.constant(
    wp.float64(4.0e-3)
)  # distance over which the force vanishes where the edge has drawn back [m]
REST_SPEED = wp.constant(wp.float64(1.0e-3))  # speed below which a knife counts as resting [m/s]


@wp.func
def _depth_below(point: _vec3, shape: KnifeShape):
    """Return the distance by which the edge has passed the point [m]; point: relative to the middle of the edge [m]."""
    height, slope, _bend = edge_curve(point[2], shape)
    end = _END_SLOPE * ramp(wp.abs(point[2]) - shape.half_length, _END_ONSET)
    return (point[1] - height) / wp.sqrt(ONE + slope * slope) - end


@wp.func
def _depth_gradient(point: _vec3, shape: KnifeShape):
    """Return d(_depth_below)/d(point) [-]: across the edge, except beyond the blade's ends."""
    height, slope, bend = edge_curve(point[2], shape)
    across = ONE / wp.sqrt(ONE + slope * slope)
    end = _END_SLOPE * ramp_slope(wp.abs(point[2]) - shape.half_length, _END_ONSET)
    leaning = slope * across * (ONE + (point[1] - height) * bend * across * across)
    return _vec3(ZERO, across, -end * wp.sign(point[2]) - leaning)


@wp.func
def _paid_share(depth: wp.float64, rise: wp.float64):
    """Return the fraction of the fracture energy spent at that depth [-]."""
    z = wp.max(ZERO, depth) / rise
    return ONE - (ONE + z) * wp.exp(-z)


@wp.func
def _paying_rate(depth: wp.float64, rise: wp.float64):
    """Return d(_paid_share)/d(depth) [1/m]."""
    z = wp.max(ZERO, depth) / rise
    return z * wp.exp(-z) / rise


@wp.kernel
def edge_force(
    shape: KnifeShape,
    area: wp.array(dtype=wp.float64),
    point_in: wp.array(dtype=_vec3),
    velocity_in: wp.array(dtype=_vec3),
    passed_in: wp.array(dtype=wp.float64),
    toughness_in: wp.array(dtype=wp.float64),
    rise_in: wp.array(dtype=wp.float64),
    press_in: wp.array(dtype=wp.float64),
    drag_in: wp.array(dtype=wp.float64),
    force_out: wp.array(dtype=_vec3),
    drag_power_out: wp.array(dtype=wp.float64),
):
    """Compute the force of the edge on each sample [N], and the power that its drag dissipates [W].

    With k = toughness x area x S'(q) x loaded, the edge's velocity v, the passing rate r = -v . grad(depth),
    v0 = REST_SPEED and R(w) = ramp(w, v0):

        f = k [ (a R(r) + m R(|v|)) v / (|v|^2 + v0^2)  -  e R(r) max(0, r) / (r^2 + v0^2) grad(depth) ]

    Its power tends to k [(a + e) r + m |v|] for speeds far above v0. Straight down (v along -y, between the blade's
    ends, the edge level) all shares give the same force.

    At rest and at reversal: every term goes to zero with the square of its speed below v0 = 1 mm/s, and changes sign
    smoothly where the stroke reverses. There the slice-push ratio is zero, so that a blade that descends while it
    reverses meets the whole vertical force. A knife that draws back (r < 0) still meets the drag, against its motion,
    until the edge is RELOAD_LENGTH above its deepest point. Not modelled: a static force. The edge exerts no force on a
    resting knife, although a real one sticks for a few millimetres of stroke, held by the compliance of arm and food.

    Where the edge has drawn back from its deepest point the force falls to zero over RELOAD_LENGTH. That is far longer
    than a body moves under the edge in one step: the force of a step is evaluated before its motion, and with a shorter
    length a light, loose body bounces.

    point: in the knife's frame, at the predicted end of the step [m]; velocity: the edge's there, in its directions, at
    the end [m/s]; passed: largest depth so far [m]; toughness [J/m^2]; rise [m]; press, drag: shares e and m of the
    toughness [-].
    """
    i = wp.tid()
    depth = _depth_below(point_in[i], shape)
    across = _depth_gradient(point_in[i], shape)
    deepest = wp.max(passed_in[i], depth)
    loaded = wp.clamp(ONE - (deepest - depth) / _RELOAD_LENGTH, ZERO, ONE)
    v = velocity_in[i]
    rest2 = REST_SPEED * REST_SPEED
    speed2 = wp.dot(v, v) + rest2
    rate = -wp.dot(v, across)
    passing = ramp(rate, REST_SPEED)
    press = press_in[i]
    drag = drag_in[i]
    sliced = (ONE - press - drag) * passing
    dragged = drag * ramp(rounded_speed(v), REST_SPEED)
    pressed = press * passing * wp.max(ZERO, rate) / (rate * rate + rest2)
    size = toughness_in[i] * area[i] * _paying_rate(deepest, rise_in[i]) * loaded
    force_out[i] = v * (size * ((sliced + dragged) / speed2)) - across * (size * pressed)
    drag_power_out[i] = size * dragged * wp.dot(v, v) / speed2


@wp.kernel
def edge_passes(
    shape: KnifeShape,
    point_in: wp.array(dtype=_vec3),
    passed_in: wp.array(dtype=wp.float64),
    passed_out: wp.array(dtype=wp.float64),
    severed_out: wp.array(dtype=wp.float64),
):
    """Compute the largest depth after the step [m], and the severed fraction of the sample's springs [-]."""
    i = wp.tid()
    passed = wp.max(passed_in[i], _depth_below(point_in[i], shape))
    passed_out[i] = passed
    severed_out[i] = smooth_step(passed / SEVER_LENGTH)


@wp.kernel
def edge_energy(
    area: wp.array(dtype=wp.float64),
    passed: wp.array(dtype=wp.float64),
    toughness: wp.array(dtype=wp.float64),
    rise: wp.array(dtype=wp.float64),
    _press: wp.array(dtype=wp.float64),
    drag: wp.array(dtype=wp.float64),
    energy_out: wp.array(dtype=wp.float64),
):
    """Compute the work of fracture so far [J]: slice and press share of the toughness, 1 - drag."""
    i = wp.tid()
    energy_out[i] = (ONE - drag[i]) * toughness[i] * area[i] * _paid_share(passed[i], rise[i])
