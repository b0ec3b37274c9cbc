"""The edge law: the edge severs what it passes and pays a toughness for the area it parts.

Every sample is a small piece of the cut surface. `depth` is how far the edge is beyond it: positive once it has passed.
The share of the toughness that is paid at depth q is S(q) = 1 - (1 + q / rise) exp(-q / rise), so that the force of a
blade that goes straight down is toughness x width, reached over a few rise lengths.
"""

import warp as wp

from disect_sim.kernels.laws import ONE, ZERO, ramp, ramp_slope, smooth_step

_vec3 = wp.vec3d

_END_ONSET = wp.constant(wp.float64(1.0e-3))  # over which the blade's end sets in [m]
_END_SLOPE = wp.constant(wp.float64(4.0))  # beyond the blade's end its edge rises this steeply [-]
SEVER_LENGTH = wp.constant(wp.float64(1.0e-3))  # over which the springs of a passed sample let go [m]
_RELOAD_LENGTH = wp.constant(
    wp.float64(4.0e-3)
)  # over which the force goes where the edge has drawn back [m]
_REST_SPEED = wp.constant(wp.float64(1.0e-3))  # below it a knife counts as resting [m/s]


@wp.func
def depth_below(point: _vec3, half_length: wp.float64):
    """How far the edge is beyond the point [m]; point: relative to the middle of the edge [m]."""
    return point[1] - _END_SLOPE * ramp(wp.abs(point[2]) - half_length, _END_ONSET)


@wp.func
def passing_rate(point: _vec3, velocity: _vec3, half_length: wp.float64):
    """How fast the knife's own motion carries its edge past the point [m/s]."""
    slope = _END_SLOPE * ramp_slope(wp.abs(point[2]) - half_length, _END_ONSET)
    return slope * wp.sign(point[2]) * velocity[2] - velocity[1]


@wp.func
def paid_share(depth: wp.float64, rise: wp.float64):
    """Share of the toughness paid at that depth [-]."""
    z = wp.max(ZERO, depth) / rise
    return ONE - (ONE + z) * wp.exp(-z)


@wp.func
def paying_rate(depth: wp.float64, rise: wp.float64):
    """d(paid_share)/d(depth) [1/m]."""
    z = wp.max(ZERO, depth) / rise
    return z * wp.exp(-z) / rise


@wp.kernel
def edge_force(
    half_length: wp.float64,
    area: wp.array(dtype=wp.float64),
    point_in: wp.array(dtype=_vec3),
    velocity_in: wp.array(dtype=_vec3),
    passed_in: wp.array(dtype=wp.float64),
    toughness_in: wp.array(dtype=wp.float64),
    rise_in: wp.array(dtype=wp.float64),
    force_out: wp.array(dtype=_vec3),
):
    """Force of the edge on each sample [N], along the knife's velocity.

    Its power is what parting costs at the rate at which the knife moves on: a drawn cut spreads the same work over a
    longer way. Where the edge has drawn back from its deepest point the force falls to zero over RELOAD_LENGTH. That is
    far longer than a body moves under the edge in one step: the force of a step is taken before its motion, and a
    shorter one lets a light, loose body bounce.

    point: relative to the knife, at the predicted end of the step [m]; velocity: the knife's, at the end [m/s]; passed:
    largest depth so far [m]; toughness [J/m^2]; rise [m].
    """
    i = wp.tid()
    depth = depth_below(point_in[i], half_length)
    deepest = wp.max(passed_in[i], depth)
    loaded = wp.clamp(ONE - (deepest - depth) / _RELOAD_LENGTH, ZERO, ONE)
    v = velocity_in[i]
    rate = ramp(passing_rate(point_in[i], v, half_length), _REST_SPEED)
    along = rate / (wp.dot(v, v) + _REST_SPEED * _REST_SPEED)
    size = toughness_in[i] * area[i] * paying_rate(deepest, rise_in[i]) * loaded
    force_out[i] = v * (size * along)


@wp.kernel
def edge_passes(
    half_length: wp.float64,
    point_in: wp.array(dtype=_vec3),
    passed_in: wp.array(dtype=wp.float64),
    passed_out: wp.array(dtype=wp.float64),
    severed_out: wp.array(dtype=wp.float64),
):
    """Largest depth after the step [m], and the share of the sample's springs that is gone [-]."""
    i = wp.tid()
    passed = wp.max(passed_in[i], depth_below(point_in[i], half_length))
    passed_out[i] = passed
    severed_out[i] = smooth_step(passed / SEVER_LENGTH)


@wp.kernel
def edge_energy(
    area: wp.array(dtype=wp.float64),
    passed: wp.array(dtype=wp.float64),
    toughness: wp.array(dtype=wp.float64),
    rise: wp.array(dtype=wp.float64),
    energy_out: wp.array(dtype=wp.float64),
):
    """What has been paid [J]."""
    i = wp.tid()
    energy_out[i] = toughness[i] * area[i] * paid_share(passed[i], rise[i])
