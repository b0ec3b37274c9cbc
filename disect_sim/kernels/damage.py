"""What the damage laws share. Each law is a file with one kernel `damage` and a line in disect_sim/laws/damage.py.

The kernel takes a DamageSetting, whichever of these it needs (arrays [spring_count]), and stiffness_out:

    stiffness_in        at the start of the step, per reference area [N/m]
    force_positive_in   force of the knife on the positive side of the cut [N]
    force_negative_in   on the negative side [N]
    touch_positive_in   whether the knife touches the positive side: 0 to 1
    touch_negative_in   the negative side
    d_in                vector between the spring's ends [m]
    <name>_in           a parameter of the springs by its name, as cut_spring_softness_in; its gradient comes with it
"""

import warp as wp

DAMAGE_TIME = wp.constant(wp.float64(1.0e-5))  # step for which the paper's damage rate is stated [s]
TINY_STRETCH = wp.constant(wp.float64(1.0e-7))  # rounds the norm of the stretch at zero [m]


@wp.struct
class DamageSetting:
    """What does not change during a run, arrays [spring_count]."""

    dt: wp.float64  # [s]
    area_ratio: wp.array(dtype=wp.float64)  # tributary over reference area
    normal: wp.array(dtype=wp.vec3d)  # of the cut surface, towards the positive side


@wp.func
def rounded_norm(v: wp.vec3d, tiny: wp.float64):
    return wp.sqrt(wp.dot(v, v) + tiny * tiny) - tiny


@wp.func
def weakened(stiffness: wp.float64, softness: wp.float64, rate: wp.float64, dt: wp.float64):
    """Stiffness after a step at dk/dt = -(softness / 1e-5 s) rate, never below zero."""
    return wp.max(wp.float64(0.0), stiffness - softness * (dt / DAMAGE_TIME) * rate)
