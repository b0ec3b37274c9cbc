"""Forces of kernels/knife_contact.py as a differentiable function, for Warp's adjoint."""

import warp as wp

from disect_sim.kernels.contact_point import (
    ContactEdges,
    ContactSetting,
    depth_and_normal,
    edge_of,
    into_knife,
    moving_coordinate,
    out_of_knife,
)
from disect_sim.kernels.knife_contact import (
    Ends,
    friction_force_limit,
    knife_friction,
    normal_response,
    slip_of,
)
from disect_sim.kernels.laws import smooth_step

_vec2 = wp.vec2d
_vec3 = wp.vec3d


@wp.struct
class Found:
    """Contact coordinate s and curvature found by the search, [contact_count]."""

    now: wp.array(dtype=_vec2)  # at the end of the step
    before: wp.array(dtype=_vec2)  # at its start
    ahead: wp.array(dtype=_vec2)  # at its predicted end


@wp.kernel
def contact_force(
    setting: ContactSetting,
    edges: ContactEdges,
    found: Found,
    parameters_in: wp.array(dtype=wp.float64, ndim=2),
    x0_in: wp.array(dtype=_vec3),
    x1_in: wp.array(dtype=_vec3),
    y0_in: wp.array(dtype=_vec3),
    y1_in: wp.array(dtype=_vec3),
    z0_in: wp.array(dtype=_vec3),
    z1_in: wp.array(dtype=_vec3),
    swing_in: wp.array(dtype=_vec3),
    pitch_in: wp.array(dtype=wp.float64),
    pitch_before_in: wp.array(dtype=wp.float64),
    spin_in: wp.array(dtype=wp.float64),
    normal_force_out: wp.array(dtype=_vec3),
    friction_force_out: wp.array(dtype=_vec3),
    u_out: wp.array(dtype=_vec2),
    touch_out: wp.array(dtype=wp.float64),
):
    """Compute the contact forces of one step as a function of all their inputs.

    x, y, z: ends of the edges relative to the knife at the end, the start and the predicted end of the step [m].
    swing: half second difference of the knife's positions [m], one per contact.
    pitch, pitch_before: angle of the knife at the end and the start [rad]; spin: its rate at the end times the step.
    u_out: coordinates at which the normal and the friction force act.
    """
    i = wp.tid()
    edge = edge_of(edges, parameters_in, i)
    ends = Ends()
    ends.x0 = x0_in[i]
    ends.x1 = x1_in[i]
    ends.y0 = y0_in[i]
    ends.y1 = y1_in[i]
    ends.z0 = z0_in[i]
    ends.z1 = z1_in[i]

    turn_before = _vec2(wp.cos(pitch_before_in[i]), wp.sin(pitch_before_in[i]))
    a = into_knife(ends.y0, turn_before)
    e = into_knife((ends.y1 - ends.y0) * edge.c, turn_before)
    before = found.before[i]
    s_before = moving_coordinate(a, e, before[0], before[1], edge, setting)
    depth_before, _grad = depth_and_normal(a, e, s_before, edge, setting)

    turn = _vec2(wp.cos(pitch_in[i]), wp.sin(pitch_in[i]))
    b = into_knife(ends.z0, turn)
    f = into_knife((ends.z1 - ends.z0) * edge.c, turn)
    ahead = found.ahead[i]
    s_ahead = moving_coordinate(b, f, ahead[0], ahead[1], edge, setting)
    depth_ahead, grad_ahead = depth_and_normal(b, f, s_ahead, edge, setting)
    limit = friction_force_limit(depth_ahead, grad_ahead, edge, setting)
    normal = wp.normalize(out_of_knife(grad_ahead, turn))

    c = into_knife(ends.x0, turn)
    g = into_knife((ends.x1 - ends.x0) * edge.c, turn)
    now = found.now[i]
    s = moving_coordinate(c, g, now[0], now[1], edge, setting)
    depth, grad = depth_and_normal(c, g, s, edge, setting)
    press, _slope = normal_response(depth, depth_before, edge, setting)
    velocity, speed = slip_of(ends, edge.c * s_ahead, normal, swing_in[i], spin_in[i], setting.dt)
    coefficient = knife_friction(speed, edge)

    normal_force_out[i] = out_of_knife(grad, turn) * press
    friction_force_out[i] = velocity * (-limit * coefficient / speed)
    u_out[i] = _vec2(edge.c * s, edge.c * s_ahead)
    touch_out[i] = smooth_step(depth / setting.onset)
