"""Scalar laws shared by knife and board contact: penalty onset, approach damping, friction."""

import warp as wp

ZERO = wp.constant(wp.float64(0.0))
ONE = wp.constant(wp.float64(1.0))
HALF = wp.constant(wp.float64(0.5))
_TINY_SPEED = wp.constant(wp.float64(1.0e-8))  # keeps |v| differentiable at rest [m/s]
_LN2 = wp.constant(wp.float64(0.6931471805599453))


@wp.func
def ramp(z: wp.float64, onset: wp.float64):
    """Return max(0, z) with a quadratic start of length `onset`: C1, slope 1 beyond it. The law of every penalty."""
    c = wp.clamp(z, ZERO, onset)
    return c * c / (wp.float64(2.0) * onset) + wp.max(ZERO, z - onset)


@wp.func
def ramp_slope(z: wp.float64, onset: wp.float64):
    return wp.clamp(z / onset, ZERO, ONE)


@wp.func
def ramp_integral(z: wp.float64, onset: wp.float64):
    c = wp.clamp(z, ZERO, onset)
    e = wp.max(ZERO, z - onset)
    return c * c * c / (wp.float64(6.0) * onset) + e * (HALF * onset + HALF * e)


@wp.func
def smooth_step(z: wp.float64):
    """Return 0 below 0, 1 above 1, C1 between."""
    c = wp.clamp(z, ZERO, ONE)
    return c * c * (wp.float64(3.0) - wp.float64(2.0) * c)


@wp.func
def rounded_speed(velocity: wp.vec3d):
    """Return |v|, differentiable at rest [m/s]."""
    return wp.sqrt(wp.dot(velocity, velocity) + _TINY_SPEED * _TINY_SPEED)


@wp.func
def friction_coefficient(speed: wp.float64, mu: wp.float64, stribeck: wp.float64, speed_scale: wp.float64):
    """Return Brown's friction curve: mu tanh(4 s) + stribeck s / (s^2/4 + 3/4)^2, s = speed / speed_scale."""
    s = speed / speed_scale
    q = wp.float64(0.25) * s * s + wp.float64(0.75)
    return mu * wp.tanh(wp.float64(4.0) * s) + stribeck * s / (q * q)


@wp.func
def friction_slope(speed: wp.float64, mu: wp.float64, stribeck: wp.float64, speed_scale: wp.float64):
    """Return d(friction_coefficient)/d(speed) [s/m]."""
    s = speed / speed_scale
    th = wp.tanh(wp.float64(4.0) * s)
    q = wp.float64(0.25) * s * s + wp.float64(0.75)
    peak = stribeck * (ONE / (q * q) - s * s / (q * q * q))
    return (mu * wp.float64(4.0) * (ONE - th * th) + peak) / speed_scale


@wp.func
def friction_integral(speed: wp.float64, mu: wp.float64, stribeck: wp.float64, speed_scale: wp.float64):
    """Return the integral of friction_coefficient from 0 to speed [m/s]."""
    s = speed / speed_scale
    a = wp.float64(4.0) * s
    log_cosh = a + wp.log(ONE + wp.exp(-wp.float64(2.0) * a)) - _LN2
    q = wp.float64(0.25) * s * s + wp.float64(0.75)
    bump = wp.float64(2.0) / wp.float64(0.75) - wp.float64(2.0) / q
    return speed_scale * (mu * log_cosh / wp.float64(4.0) + stribeck * bump)
