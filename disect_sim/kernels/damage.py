"""Damage laws of the springs: stretch, force and cohesive; each is a kernel listed in disect_sim/laws.py.

The kernel takes a DamageSetting, whichever of these it needs (arrays [spring_count]), and stiffness_out:

    stiffness_in        at the start of the step, per reference area [N/m]
    force_positive_in   force of the knife on the positive side of the cut [N]
    force_negative_in   on the negative side [N]
    touch_positive_in   contact of the knife with the positive side: 0 to 1
    touch_negative_in   with the negative side
    d_in                vector between the spring's ends [m]
    <name>_in           a spring parameter by its name, such as cut_spring_softness_in; its gradient follows
"""

import warp as wp

_DAMAGE_TIME = wp.constant(wp.float64(1.0e-5))  # step for which the paper's damage rate is stated [s]
_TINY_STRETCH = wp.constant(wp.float64(1.0e-7))  # rounds the norm of the stretch at zero [m]


@wp.struct
class DamageSetting:
    """Constants of a run, arrays [spring_count]."""

    dt: wp.float64  # [s]
    area_ratio: wp.array(dtype=wp.float64)  # tributary / reference area
    normal: wp.array(dtype=wp.vec3d)  # of the cut surface, towards the positive side


@wp.func
def _rounded_norm(v: wp.vec3d, tiny: wp.float64):
    return wp.sqrt(wp.dot(v, v) + tiny * tiny) - tiny


@wp.func
def _weakened(stiffness: wp.float64, softness: wp.float64, rate: wp.float64, dt: wp.float64):
    """Return the stiffness after a step at dk/dt = -(softness / 1e-5 s) rate, never below zero."""
    return wp.max(wp.float64(0.0), stiffness - softness * (dt / _DAMAGE_TIME) * rate)


# Damage by stretch: dk/dt = -(softness / 1e-5 s) |d| while the knife touches.


_vec3 = wp.vec3d


@wp.kernel
def damage_stretch(
    setting: DamageSetting,
    stiffness_in: wp.array(dtype=wp.float64),
    cut_spring_softness_in: wp.array(dtype=wp.float64),
    touch_positive_in: wp.array(dtype=wp.float64),
    touch_negative_in: wp.array(dtype=wp.float64),
    d_in: wp.array(dtype=_vec3),
    stiffness_out: wp.array(dtype=wp.float64),
):
    """Compute the stiffness [N/m per reference area] at the end of the step."""
    i = wp.tid()
    touch = wp.float64(0.5) * (touch_positive_in[i] + touch_negative_in[i])
    rate = touch * _rounded_norm(d_in[i], _TINY_STRETCH)
    stiffness_out[i] = _weakened(stiffness_in[i], cut_spring_softness_in[i], rate, setting.dt)


# Damage by force: dk/dt = -(softness / 1e-5 s) (|f+| + |f-|) / area_ratio, f the knife's force on either side.

_TINY_FORCE = wp.constant(wp.float64(1.0e-3))  # rounds the norm of the force per reference area at zero [N]


@wp.kernel
def damage_force(
    setting: DamageSetting,
    stiffness_in: wp.array(dtype=wp.float64),
    cut_spring_softness_in: wp.array(dtype=wp.float64),
    force_positive_in: wp.array(dtype=_vec3),
    force_negative_in: wp.array(dtype=_vec3),
    stiffness_out: wp.array(dtype=wp.float64),
):
    """Compute the stiffness [N/m per reference area] at the end of the step."""
    i = wp.tid()
    per_area = wp.float64(1.0) / setting.area_ratio[i]
    rate = _rounded_norm(force_positive_in[i] * per_area, _TINY_FORCE)
    rate = rate + _rounded_norm(force_negative_in[i] * per_area, _TINY_FORCE)
    stiffness_out[i] = _weakened(stiffness_in[i], cut_spring_softness_in[i], rate, setting.dt)


# Cohesive damage: k = ke (1 - |d| / opening) at the largest opening so far, with or without knife contact.
#
# Compression does not count. The traction ke |d| (1 - |d| / opening) rises, softens and vanishes at `opening`
# (cut_spring_softness under this law), which gives a fracture energy of ke opening^2 / 6 per reference area.


@wp.kernel
def damage_cohesive(
    setting: DamageSetting,
    stiffness_in: wp.array(dtype=wp.float64),
    cut_spring_ke_in: wp.array(dtype=wp.float64),
    cut_spring_softness_in: wp.array(dtype=wp.float64),
    d_in: wp.array(dtype=_vec3),
    stiffness_out: wp.array(dtype=wp.float64),
):
    """Compute the stiffness [N/m per reference area] at the end of the step."""
    i = wp.tid()
    normal = setting.normal[i]
    opening = d_in[i] - wp.min(wp.float64(0.0), wp.dot(d_in[i], normal)) * normal
    remaining = wp.float64(1.0) - _rounded_norm(opening, _TINY_STRETCH) / cut_spring_softness_in[i]
    stiffness_out[i] = wp.min(stiffness_in[i], cut_spring_ke_in[i] * wp.max(wp.float64(0.0), remaining))
