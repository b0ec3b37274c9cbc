"""The forces of kernels/knife_contact.py as a differentiable function: Warp's adjoint of it is what gradients use."""

import warp as wp

from disect_sim.kernels.contact_point import (
    ContactEdges,
    ContactSetting,
    depth_and_normal,
    edge_of,
    moving_coordinate,
)
from disect_sim.kernels.knife_contact import lagged_force, lagged_slip, normal_response
from disect_sim.kernels.laws import friction_coefficient, smooth_step

vec2 = wp.vec2d
vec3 = wp.vec3d


@wp.struct
class Found:
    """Contact coordinate s and curvature from `closest_point`, [contact_count]."""

    now: wp.array(dtype=vec2)  # at the end of the step
    lag: wp.array(dtype=vec2)  # at its start


@wp.kernel
def contact_force(
    setting: ContactSetting,
    edges: ContactEdges,
    found: Found,
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
    """The contact forces of one step as a function of everything they depend on.

    x0, x1 (y0, y1): ends of the edges relative to the knife at the end (start) of the step [m].
    u_out: where the normal and where the friction force act.
    """
    i = wp.tid()
    edge = edge_of(edges, parameters_in, i)
    a = x0_in[i]
    e = (x1_in[i] - a) * edge.c
    b = y0_in[i]
    f = (y1_in[i] - b) * edge.c
    now = found.now[i]
    before = found.lag[i]

    s_lag = moving_coordinate(b, f, before[0], before[1], edge, setting)
    depth_lag, grad_lag = depth_and_normal(b, f, s_lag, edge, setting)
    lag_force = lagged_force(depth_lag, grad_lag, edge, setting)

    s = moving_coordinate(a, e, now[0], now[1], edge, setting)
    depth, grad = depth_and_normal(a, e, s, edge, setting)
    press, _slope = normal_response(depth, depth_lag, edge, setting)
    velocity, speed = lagged_slip(
        a, x1_in[i], b, y1_in[i], edge.c * s_lag, wp.normalize(grad_lag), setting.dt
    )
    coefficient = friction_coefficient(speed, edge.mu, edge.stribeck, edge.kf)

    normal_force_out[i] = grad * press
    friction_force_out[i] = velocity * (-lag_force * coefficient / speed)
    u_out[i] = vec2(edge.c * s, edge.c * s_lag)
    touch_out[i] = smooth_step(depth / setting.onset)
