"""Inertia of the backward Euler step and the bookkeeping of the block-sparse Hessian."""

import warp as wp

vec3 = wp.vec3d
mat33 = wp.mat33d


@wp.kernel
def inertia_gradient(
    mass: wp.array(dtype=wp.float64),
    dt: wp.float64,
    x_in: wp.array(dtype=vec3),
    predicted_in: wp.array(dtype=vec3),
    energy_out: wp.array(dtype=wp.float64),
    gradient_out: wp.array(dtype=vec3),
):
    """Overwrites gradient_out with the inertia term: every other force adds to it."""
    i = wp.tid()
    away = x_in[i] - predicted_in[i]
    k = mass[i] / (dt * dt)
    energy_out[i] = wp.float64(0.5) * k * wp.dot(away, away)
    gradient_out[i] = away * k


@wp.kernel
def inertia_hessian(
    mass: wp.array(dtype=wp.float64),
    dt: wp.float64,
    slots: wp.array(dtype=wp.int32),
    hessian_out: wp.array(dtype=mat33),
):
    i = wp.tid()
    wp.atomic_add(hessian_out, slots[i], wp.identity(n=3, dtype=wp.float64) * (mass[i] / (dt * dt)))


@wp.kernel
def mirror_lower(
    upper: wp.array(dtype=wp.int32),
    lower: wp.array(dtype=wp.int32),
    hessian_out: wp.array(dtype=mat33),
):
    """Copies every upper off-diagonal block, transposed, to its place below the diagonal."""
    i = wp.tid()
    hessian_out[lower[i]] = wp.transpose(hessian_out[upper[i]])
