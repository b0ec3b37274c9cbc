"""Cohesive damage: k = ke (1 - |d| / opening) at the widest opening so far, whether the knife touches or not.

Pressing the sides together does not count. The traction ke |d| (1 - |d| / opening) rises, softens and is gone at
`opening` (cut_spring_softness under this law), so that parting costs ke opening^2 / 6 per reference area.
"""

import warp as wp

from disect_sim.kernels.damage import TINY_STRETCH, DamageSetting, rounded_norm

vec3 = wp.vec3d


@wp.kernel
def damage(
    setting: DamageSetting,
    stiffness_in: wp.array(dtype=wp.float64),
    cut_spring_ke_in: wp.array(dtype=wp.float64),
    cut_spring_softness_in: wp.array(dtype=wp.float64),
    d_in: wp.array(dtype=vec3),
    stiffness_out: wp.array(dtype=wp.float64),
):
    """Stiffness [N/m per reference area] at the end of the step."""
    i = wp.tid()
    normal = setting.normal[i]
    opening = d_in[i] - wp.min(wp.float64(0.0), wp.dot(d_in[i], normal)) * normal
    left = wp.float64(1.0) - rounded_norm(opening, TINY_STRETCH) / cut_spring_softness_in[i]
    stiffness_out[i] = wp.min(stiffness_in[i], cut_spring_ke_in[i] * wp.max(wp.float64(0.0), left))
