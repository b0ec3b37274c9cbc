"""Damage by force: dk/dt = -(softness / 1e-5 s) (|f+| + |f-|) / area_ratio, f the knife's force on either side."""

import warp as wp

from disect_sim.kernels.damage import DamageSetting, rounded_norm, weakened

vec3 = wp.vec3d
TINY_FORCE = wp.constant(wp.float64(1.0e-3))  # rounds the norm of the force per reference area at zero [N]


@wp.kernel
def damage(
    setting: DamageSetting,
    stiffness_in: wp.array(dtype=wp.float64),
    cut_spring_softness_in: wp.array(dtype=wp.float64),
    force_positive_in: wp.array(dtype=vec3),
    force_negative_in: wp.array(dtype=vec3),
    stiffness_out: wp.array(dtype=wp.float64),
):
    """Stiffness [N/m per reference area] at the end of the step."""
    i = wp.tid()
    per_area = wp.float64(1.0) / setting.area_ratio[i]
    rate = rounded_norm(force_positive_in[i] * per_area, TINY_FORCE)
    rate = rate + rounded_norm(force_negative_in[i] * per_area, TINY_FORCE)
    stiffness_out[i] = weakened(stiffness_in[i], cut_spring_softness_in[i], rate, setting.dt)
