"""Signed distance to the knife at points, from the kernels' functions."""

import numpy as np
import warp as wp

from disect_sim.kernels.contact_point import (
    KnifeShape,
    one_sided_distance,
    one_sided_gradient,
    one_sided_hessian,
)


@wp.kernel
def sample_distance(
    shape: KnifeShape,
    tip: wp.float64,
    side: wp.array(dtype=wp.float64),
    points_in: wp.array(dtype=wp.vec3d),
    distance_out: wp.array(dtype=wp.float64),
    gradient_out: wp.array(dtype=wp.vec3d),
    hessian_out: wp.array(dtype=wp.mat33d),
):
    i = wp.tid()
    q = points_in[i]
    distance_out[i] = one_sided_distance(q, side[i], tip, shape)
    gradient_out[i] = one_sided_gradient(q, side[i], tip, shape)
    hessian_out[i] = one_sided_hessian(q, side[i], tip, shape)


def knife_distance(knife, points, side, tip_width_m=1.0e-3):
    """Return distance [m], gradient [-] and Hessian [1/m] at points [m], shape [n, 3], in the knife's frame.

    `side` is +1 or -1, one for all or one per point: the half of the fruit the knife is seen from.
    """
    n = len(points)
    with wp.ScopedDevice("cpu"):
        results = wp.zeros(n, dtype=wp.float64), wp.zeros(n, dtype=wp.vec3d), wp.zeros(n, dtype=wp.mat33d)
        inputs = [
            knife.shape(),
            wp.float64(tip_width_m),
            wp.array(np.broadcast_to(side, n).astype(float), dtype=wp.float64),
            wp.array(np.ascontiguousarray(points, float), dtype=wp.vec3d),
        ]
        wp.launch(sample_distance, dim=n, inputs=inputs, outputs=list(results))
    return tuple(array.numpy() for array in results)
