"""Conjugate gradients on the block-sparse Hessian, entirely on the device, for one or many right-hand sides.

The columns share one matrix or, in a batch of bodies, have one each, of the same pattern.

Vectors are [column_count, row_count] of vec3, one row of 3x3 blocks per free node. Sums are computed in two parts, so
that they are reproducible: LANES threads add every LANES-th entry each, then one thread per column adds those.

The preconditioner adds two corrections: the inverse of every diagonal block, and the best correction in a coarse space
in which each cluster of nodes moves by an affine map.
"""

import warp as wp

from disect_sim.kernels.laws import ONE, ZERO

wp.set_module_options({"enable_backward": False})

_vec3 = wp.vec3d
_mat33 = wp.mat33d

LANES = 256
LANE_COUNT = wp.constant(LANES)


@wp.struct
class BlockMatrix:
    """Square symmetric matrix of 3x3 blocks; the blocks of a row are contiguous."""

    starts: wp.array(dtype=wp.int32)  # first block of each row, [row_count + 1]
    columns: wp.array(dtype=wp.int32)  # [block_count]
    diagonal: wp.array(dtype=wp.int32)  # block on the diagonal, [row_count]
    blocks: wp.array(dtype=_mat33)  # [N/m], matrix after matrix, [matrix_count block_count]
    block_count: int  # of one matrix
    own: int  # 1: one matrix per column, 0: one for all


@wp.struct
class CoarseSpace:
    """Clusters of rows; unknown 4 k + a is the amplitude of the a-th affine function on cluster k."""

    cluster: wp.array(dtype=wp.int32)  # [row_count]
    functions: wp.array(dtype=wp.vec4d)  # 1 and the coordinates in the cluster, -1 to 1, [row_count]
    starts: wp.array(dtype=wp.int32)  # first member of each cluster, [cluster_count + 1]
    members: wp.array(dtype=wp.int32)  # rows sorted by cluster, [row_count]
    inverse: wp.array3d(dtype=_mat33)  # [m/N], [matrix_count, unknown_count, unknown_count]
    own: int  # 1: one inverse per column, 0: one for all


@wp.struct
class Solve:
    """State of the solves of all columns; arrays [column_count] unless stated otherwise."""

    tolerance: wp.array(dtype=wp.float64)  # largest |residual| / |reference|, [1]
    max_iterations: int
    running: wp.array(dtype=wp.int32)  # 1 while any column is active, [1]
    open: wp.array(dtype=wp.int32)  # 1: active
    solved: wp.array(dtype=wp.int32)  # 1: converged
    indefinite: wp.array(dtype=wp.int32)  # 1: met a direction of non-positive curvature
    iterations: wp.array(dtype=wp.int32)  # iterations of all solves so far
    this_solve: wp.array(dtype=wp.int32)  # iterations of this solve
    reference: wp.array(dtype=wp.float64)  # squared norm that the tolerance refers to
    rz: wp.array(dtype=wp.float64)
    alpha: wp.array(dtype=wp.float64)
    beta: wp.array(dtype=wp.float64)


@wp.func
def _lane_sum(lanes: wp.array2d(dtype=wp.float64), column: int):
    total = ZERO
    for lane in range(LANE_COUNT):
        total += lanes[column, lane]
    return total


@wp.kernel
def multiply(matrix: BlockMatrix, vector_in: wp.array2d(dtype=_vec3), product_out: wp.array2d(dtype=_vec3)):
    column, row = wp.tid()
    total = _vec3()
    first = matrix.own * column * matrix.block_count
    for k in range(matrix.starts[row], matrix.starts[row + 1]):
        total += matrix.blocks[first + k] * vector_in[column, matrix.columns[k]]
    product_out[column, row] = total


@wp.kernel
def invert_diagonal(matrix: BlockMatrix, inverse_out: wp.array2d(dtype=_mat33)):
    """Invert the diagonal blocks; of a block that is not positive definite, only its diagonal."""
    number, row = wp.tid()
    m = matrix.blocks[number * matrix.block_count + matrix.diagonal[row]]
    minor = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    if m[0, 0] > ZERO and minor > ZERO and wp.determinant(m) > ZERO:
        inverse_out[number, row] = wp.inverse(m)
    else:
        size = wp.max(wp.abs(m[0, 0]), wp.max(wp.abs(m[1, 1]), wp.abs(m[2, 2])))
        inverse_out[number, row] = wp.identity(n=3, dtype=wp.float64) * (
            ONE / wp.max(size, wp.float64(1.0e-300))
        )


@wp.kernel
def begin(
    count: int,
    right_in: wp.array2d(dtype=_vec3),
    x_out: wp.array2d(dtype=_vec3),
    residual_out: wp.array2d(dtype=_vec3),
    direction_out: wp.array2d(dtype=_vec3),
    lanes_out: wp.array2d(dtype=wp.float64),
):
    """Start from x = 0; compute lanes of the squared right-hand side."""
    column, lane = wp.tid()
    total = ZERO
    for row in range(lane, count, LANE_COUNT):
        b = right_in[column, row]
        x_out[column, row] = _vec3()
        direction_out[column, row] = _vec3()
        residual_out[column, row] = b
        total += wp.dot(b, b)
    lanes_out[column, lane] = total


@wp.kernel
def refer_to_right_side(lanes_in: wp.array2d(dtype=wp.float64), reference_out: wp.array(dtype=wp.float64)):
    column = wp.tid()
    reference_out[column] = _lane_sum(lanes_in, column)


@wp.kernel
def restrict_to_clusters(
    coarse: CoarseSpace, residual_in: wp.array2d(dtype=_vec3), coarse_out: wp.array2d(dtype=_vec3)
):
    column, unknown = wp.tid()
    cluster = unknown // 4
    a = unknown % 4
    total = _vec3()
    for k in range(coarse.starts[cluster], coarse.starts[cluster + 1]):
        row = coarse.members[k]
        total += residual_in[column, row] * coarse.functions[row][a]
    coarse_out[column, unknown] = total


@wp.kernel
def solve_clusters(
    coarse: CoarseSpace, coarse_in: wp.array2d(dtype=_vec3), amplitude_out: wp.array2d(dtype=_vec3)
):
    column, unknown = wp.tid()
    total = _vec3()
    number = coarse.own * column
    for k in range(coarse_in.shape[1]):
        total += coarse.inverse[number, unknown, k] * coarse_in[column, k]
    amplitude_out[column, unknown] = total


@wp.kernel
def precondition(
    count: int,
    inverse_diagonal: wp.array2d(dtype=_mat33),
    coarse: CoarseSpace,
    amplitude_in: wp.array2d(dtype=_vec3),
    residual_in: wp.array2d(dtype=_vec3),
    z_out: wp.array2d(dtype=_vec3),
    lanes_out: wp.array2d(dtype=wp.float64),
):
    """Apply both corrections to the residual; compute lanes of their product with it."""
    column, lane = wp.tid()
    total = ZERO
    number = coarse.own * column
    for row in range(lane, count, LANE_COUNT):
        r = residual_in[column, row]
        z = inverse_diagonal[number, row] * r
        f = coarse.functions[row]
        first = 4 * coarse.cluster[row]
        for a in range(4):
            z += amplitude_in[column, first + a] * f[a]
        z_out[column, row] = z
        total += wp.dot(r, z)
    lanes_out[column, lane] = total


@wp.kernel
def open_columns(
    squared_in: wp.array2d(dtype=wp.float64), rz_in: wp.array2d(dtype=wp.float64), solve_out: Solve
):
    """Activate the columns; one whose right-hand side is within the tolerance already stays at zero."""
    column = wp.tid()
    limit = solve_out.tolerance[0] * solve_out.tolerance[0] * solve_out.reference[column]
    there = _lane_sum(squared_in, column) <= limit
    solve_out.rz[column] = _lane_sum(rz_in, column)
    solve_out.beta[column] = ZERO
    solve_out.this_solve[column] = 0
    solve_out.indefinite[column] = 0
    solve_out.solved[column] = 0
    solve_out.open[column] = 1
    if there:
        solve_out.solved[column] = 1
        solve_out.open[column] = 0
    else:
        solve_out.running[0] = 1


@wp.kernel
def turn(
    solve: Solve,
    z_in: wp.array2d(dtype=_vec3),
    direction_out: wp.array2d(dtype=_vec3),
):
    """Compute the next direction, z + beta times the last one; zero in an inactive column."""
    column, row = wp.tid()
    if solve.open[column] == 1:
        direction_out[column, row] = z_in[column, row] + direction_out[column, row] * solve.beta[column]
    else:
        direction_out[column, row] = _vec3()


@wp.kernel
def curvature(
    count: int,
    direction_in: wp.array2d(dtype=_vec3),
    product_in: wp.array2d(dtype=_vec3),
    lanes_out: wp.array2d(dtype=wp.float64),
):
    column, lane = wp.tid()
    total = ZERO
    for row in range(lane, count, LANE_COUNT):
        total += wp.dot(direction_in[column, row], product_in[column, row])
    lanes_out[column, lane] = total


@wp.kernel
def step_length(curvature_in: wp.array2d(dtype=wp.float64), solve_out: Solve):
    """Compute the step length.

    At non-positive curvature a column ends, at its start after one step along the direction.
    """
    column = wp.tid()
    if column == 0:
        solve_out.running[0] = 0
    alpha = ZERO
    if solve_out.open[column] == 1:
        bend = _lane_sum(curvature_in, column)
        if bend > ZERO:
            alpha = solve_out.rz[column] / bend
        else:
            solve_out.indefinite[column] = 1
            solve_out.open[column] = 0
            if solve_out.this_solve[column] == 0:
                alpha = ONE
        solve_out.iterations[column] += 1
        solve_out.this_solve[column] += 1
    solve_out.alpha[column] = alpha


@wp.kernel
def advance(
    count: int,
    solve: Solve,
    direction_in: wp.array2d(dtype=_vec3),
    product_in: wp.array2d(dtype=_vec3),
    x_out: wp.array2d(dtype=_vec3),
    residual_out: wp.array2d(dtype=_vec3),
    lanes_out: wp.array2d(dtype=wp.float64),
):
    """Advance along the direction; compute lanes of the squared residual."""
    column, lane = wp.tid()
    alpha = solve.alpha[column]
    total = ZERO
    for row in range(lane, count, LANE_COUNT):
        x_out[column, row] += direction_in[column, row] * alpha
        r = residual_out[column, row] - product_in[column, row] * alpha
        residual_out[column, row] = r
        total += wp.dot(r, r)
    lanes_out[column, lane] = total


@wp.kernel
def next_direction(
    squared_in: wp.array2d(dtype=wp.float64), rz_in: wp.array2d(dtype=wp.float64), solve_out: Solve
):
    column = wp.tid()
    if solve_out.open[column] == 0:
        return
    limit = solve_out.tolerance[0] * solve_out.tolerance[0] * solve_out.reference[column]
    if _lane_sum(squared_in, column) <= limit:
        solve_out.solved[column] = 1
        solve_out.open[column] = 0
        return
    rz = _lane_sum(rz_in, column)
    solve_out.beta[column] = rz / solve_out.rz[column]
    solve_out.rz[column] = rz
    if solve_out.this_solve[column] < solve_out.max_iterations:
        solve_out.running[0] = 1
    else:
        solve_out.open[column] = 0
