"""Damage by stretch: dk/dt = -(softness / 1e-5 s) |d| while the knife touches."""

import warp as wp

from disect_sim.kernels.damage import TINY_STRETCH, DamageSetting, rounded_norm, weakened

vec3 = wp.vec3d


@wp.kernel
def damage(
    setting: DamageSetting,
    stiffness_in: wp.array(dtype=wp.float64),
    cut_spring_softness_in: wp.array(dtype=wp.float64),
    touch_positive_in: wp.array(dtype=wp.float64),
    touch_negative_in: wp.array(dtype=wp.float64),
    d_in: wp.array(dtype=vec3),
    stiffness_out: wp.array(dtype=wp.float64),
):
    """Stiffness [N/m per reference area] at the end of the step."""
    i = wp.tid()
    touch = wp.float64(0.5) * (touch_positive_in[i] + touch_negative_in[i])
    rate = touch * rounded_norm(d_in[i], TINY_STRETCH)
    stiffness_out[i] = weakened(stiffness_in[i], cut_spring_softness_in[i], rate, setting.dt)
