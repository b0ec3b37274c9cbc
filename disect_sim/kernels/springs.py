"""Springs across the cut surface, and the one-sided contact of the two halves.

d is the vector from the virtual node on the negative side to its twin on the positive side [m]; it is zero at rest.
"""

import warp as wp

from disect_sim.kernels.laws import ramp, ramp_integral, ramp_slope

_vec3 = wp.vec3d
_vec4 = wp.vec4d
_mat33 = wp.mat33d

_HALF = wp.constant(wp.float64(0.5))


@wp.struct
class SpringGeometry:
    """Geometry of the springs, [spring_count]."""

    nodes: wp.array(dtype=wp.vec4i)  # parents on the positive side, parents on the negative side
    weights: wp.array(dtype=_vec4)  # d = sum_a weights[a] x[nodes[a]]
    normal: wp.array(dtype=_vec3)  # of the cut surface, towards the positive side
    overlap_stiffness: wp.array(dtype=wp.float64)  # [N/m]
    overlap_onset: wp.float64  # [m]


@wp.func
def stretch_vector(x: wp.array(dtype=_vec3), n: wp.vec4i, w: _vec4):
    return x[n[0]] * w[0] + x[n[1]] * w[1] + x[n[2]] * w[2] + x[n[3]] * w[3]


@wp.func
def _spring_tension(
    d: _vec3,
    d_previous: _vec3,
    k: wp.float64,
    damping: wp.float64,
    dt: wp.float64,
    normal: _vec3,
    overlap_stiffness: wp.float64,
    overlap_onset: wp.float64,
):
    """Return the gradient of the spring's incremental energy in d [N]."""
    overlap = ramp(-wp.dot(normal, d), overlap_onset)
    return d * k + (d - d_previous) * (damping / dt) - normal * (overlap_stiffness * overlap)


@wp.kernel
def spring_gradient(
    springs: SpringGeometry,
    dt: wp.float64,
    order: wp.array(dtype=wp.int32),
    first: int,
    stiffness_in: wp.array(dtype=wp.float64),
    damping_in: wp.array(dtype=wp.float64),
    x_in: wp.array(dtype=_vec3),
    x_previous_in: wp.array(dtype=_vec3),
    energy_out: wp.array(dtype=_vec3),
    gradient_out: wp.array(dtype=_vec3),
):
    """Compute the energy (spring, damping, overlap) and add its gradient to gradient_out."""
    i = order[first + wp.tid()]
    n = springs.nodes[i]
    w = springs.weights[i]
    d = stretch_vector(x_in, n, w)
    d_previous = stretch_vector(x_previous_in, n, w)
    normal = springs.normal[i]
    k = stiffness_in[i]
    c = damping_in[i]
    ko = springs.overlap_stiffness[i]
    tension = _spring_tension(d, d_previous, k, c, dt, normal, ko, springs.overlap_onset)
    moved = d - d_previous
    energy_out[i] = _vec3(
        _HALF * k * wp.dot(d, d),
        _HALF * c / dt * wp.dot(moved, moved),
        ko * ramp_integral(-wp.dot(normal, d), springs.overlap_onset),
    )
    for a in range(4):
        wp.atomic_add(gradient_out, n[a], tension * w[a])


@wp.kernel
def spring_hessian(
    springs: SpringGeometry,
    dt: wp.float64,
    order: wp.array(dtype=wp.int32),
    first: int,
    slots: wp.array(dtype=wp.int32, ndim=2),
    stiffness_in: wp.array(dtype=wp.float64),
    damping_in: wp.array(dtype=wp.float64),
    x_in: wp.array(dtype=_vec3),
    hessian_out: wp.array(dtype=_mat33),
):
    """Add the Hessian; slots [spring_count, 10]: pairs (0,0) (1,1) (2,2) (3,3) (0,1) (0,2) (0,3) (1,2) (1,3) (2,3)."""
    i = order[first + wp.tid()]
    n = springs.nodes[i]
    w = springs.weights[i]
    normal = springs.normal[i]
    closing = ramp_slope(-wp.dot(normal, stretch_vector(x_in, n, w)), springs.overlap_onset)
    k = wp.identity(n=3, dtype=wp.float64) * (stiffness_in[i] + damping_in[i] / dt)
    k += wp.outer(normal, normal) * (springs.overlap_stiffness[i] * closing)
    for a in range(4):
        wp.atomic_add(hessian_out, slots[i, a], k * (w[a] * w[a]))
    wp.atomic_add(hessian_out, slots[i, 4], k * (w[0] * w[1]))
    wp.atomic_add(hessian_out, slots[i, 5], k * (w[0] * w[2]))
    wp.atomic_add(hessian_out, slots[i, 6], k * (w[0] * w[3]))
    wp.atomic_add(hessian_out, slots[i, 7], k * (w[1] * w[2]))
    wp.atomic_add(hessian_out, slots[i, 8], k * (w[1] * w[3]))
    wp.atomic_add(hessian_out, slots[i, 9], k * (w[2] * w[3]))


@wp.kernel
def spring_force(
    springs: SpringGeometry,
    dt: wp.float64,
    area_ratio: wp.array(dtype=wp.float64),
    stiffness_in: wp.array(dtype=wp.float64),
    initial_in: wp.array(dtype=wp.float64),
    damping_in: wp.array(dtype=wp.float64),
    d_in: wp.array(dtype=_vec3),
    d_previous_in: wp.array(dtype=_vec3),
    tension_out: wp.array(dtype=_vec3),
):
    """Compute the spring tension as a differentiable function; Warp's adjoint gives the vector-Jacobian product.

    stiffness, initial, damping: per reference area; a spring loses damping in proportion to its stiffness.
    """
    i = wp.tid()
    k = stiffness_in[i] * area_ratio[i]
    c = damping_in[i] * area_ratio[i] * (stiffness_in[i] / initial_in[i])
    tension_out[i] = _spring_tension(
        d_in[i],
        d_previous_in[i],
        k,
        c,
        dt,
        springs.normal[i],
        springs.overlap_stiffness[i],
        springs.overlap_onset,
    )
