"""Nodes held along the blade by springs to where they rest: they may rise and move apart, but are not drawn along."""

import warp as wp

vec3 = wp.vec3d
mat33 = wp.mat33d
ALONG = wp.constant(2)


@wp.struct
class Held:
    nodes: wp.array(dtype=wp.int32)
    rest: wp.array(dtype=wp.float64)  # along the blade [m]
    stiffness: wp.array(dtype=wp.float64)  # [N/m]


@wp.kernel
def hold_gradient(
    held: Held,
    x_in: wp.array(dtype=vec3),
    energy_out: wp.array(dtype=wp.float64),
    gradient_out: wp.array(dtype=vec3),
):
    i = wp.tid()
    n = held.nodes[i]
    away = x_in[n][ALONG] - held.rest[i]
    pull = held.stiffness[i] * away
    energy_out[i] = wp.float64(0.5) * pull * away
    wp.atomic_add(gradient_out, n, vec3(wp.float64(0.0), wp.float64(0.0), pull))


@wp.kernel
def hold_hessian(held: Held, slots: wp.array(dtype=wp.int32), hessian_out: wp.array(dtype=mat33)):
    i = wp.tid()
    block = mat33()
    block[ALONG, ALONG] = held.stiffness[i]
    wp.atomic_add(hessian_out, slots[i], block)
