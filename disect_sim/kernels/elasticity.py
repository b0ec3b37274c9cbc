"""Tetrahedra: stable Neo-Hookean elasticity and Green-strain-rate damping.

Per tet with rest-shape gradients b_a [1/m] (a = 0..3, sum zero): F = sum_a x_a b_a^T. Energy density (Smith et al.
2018) plus the increment of the dissipation potential over one step:

    Psi = mu/2 (I_C - 3) + lam/2 (J - alpha)^2 - mu/2 log(I_C + 1)
    D   = tau/(2 dt) (2 mu_L |dE|^2 + lam_L tr(dE)^2),   dE = E(F) - E(F_previous),  E = (F^T F - 1)/2

mu and lam are computed from the Lame values so that small strain obeys Hooke's law.
"""

import warp as wp

wp.set_module_options({"enable_backward": False})

_vec3 = wp.vec3d
_mat33 = wp.mat33d


@wp.struct
class Elastic:
    """Moduli shared by all tets of a body."""

    lame_mu: wp.float64  # [Pa]
    lame_lambda: wp.float64  # [Pa]
    retardation: wp.float64  # viscous stress / elastic stiffness [s]


@wp.struct
class TetGeometry:
    """Rest geometry of the tets, in launch order."""

    nodes: wp.array(dtype=wp.vec4i)  # [tet_count]
    shape_gradients: wp.array(dtype=_mat33)  # rows b_1, b_2, b_3 [1/m], [tet_count]
    volume: wp.array(
        dtype=wp.float64
    )  # rest volume x material fraction x mu over the flesh's [m^3], [tet_count]
    bulk: wp.array(dtype=wp.float64)  # lambda over mu, relative to the flesh's [-], [tet_count]
    number: wp.array(dtype=wp.int32)  # index in the model, [tet_count]
    per_copy: int  # tets of one body, if the model has several copies


@wp.func
def _bulk_of(tets: TetGeometry, t: int):
    """Return the tet's lambda over mu, relative to the flesh's [-]; 1 where no ratios are given."""
    if tets.bulk.shape[0] == 0:
        return wp.float64(1.0)
    return tets.bulk[t]


@wp.func
def _elastic_of(tets: TetGeometry, elastic: wp.array(dtype=Elastic), t: int):
    """Return the moduli of the body that the tet belongs to; the tet's own are these times its mu ratio."""
    e = elastic[tets.number[t] // tets.per_copy]
    own = Elastic()
    own.lame_mu = e.lame_mu
    own.lame_lambda = e.lame_lambda * _bulk_of(tets, t)
    own.retardation = e.retardation
    return own


@wp.func
def _neo_hookean_mu(e: Elastic):
    return wp.float64(4.0 / 3.0) * e.lame_mu


@wp.func
def _neo_hookean_lambda(e: Elastic):
    return e.lame_lambda + wp.float64(5.0 / 6.0) * e.lame_mu


@wp.func
def deformation_gradient(x: wp.array(dtype=_vec3), n: wp.vec4i, b: _mat33):
    x0 = x[n[0]]
    d = wp.matrix_from_cols(x[n[1]] - x0, x[n[2]] - x0, x[n[3]] - x0)
    return d * b


@wp.func
def _cofactor(f: _mat33):
    """Return dJ/dF: columns are cross products of the columns of F."""
    a = _vec3(f[0, 0], f[1, 0], f[2, 0])
    b = _vec3(f[0, 1], f[1, 1], f[2, 1])
    c = _vec3(f[0, 2], f[1, 2], f[2, 2])
    return wp.matrix_from_cols(wp.cross(b, c), wp.cross(c, a), wp.cross(a, b))


@wp.func
def _invariants(f: _mat33):
    """Return cof F, I_C = tr(F^T F) and J = det F."""
    cof = _cofactor(f)
    return cof, wp.ddot(f, f), f[0, 0] * cof[0, 0] + f[1, 0] * cof[1, 0] + f[2, 0] * cof[2, 0]


@wp.func
def _strain_increment(f: _mat33, f_previous: _mat33):
    """Return Green strain minus previous Green strain [-]."""
    return (wp.transpose(f) * f - wp.transpose(f_previous) * f_previous) * wp.float64(0.5)


@wp.func
def _viscous_stress(de: _mat33, e: Elastic, dt: wp.float64):
    """Return the second Piola-Kirchhoff stress of the damping [Pa]."""
    s = e.retardation / dt
    tr = de[0, 0] + de[1, 1] + de[2, 2]
    stress = de * (wp.float64(2.0) * e.lame_mu * s)
    p = e.lame_lambda * s * tr
    stress[0, 0] += p
    stress[1, 1] += p
    stress[2, 2] += p
    return stress


@wp.func
def elastic_energy(ic: wp.float64, j: wp.float64, e: Elastic):
    """Return the energy density [J/m^3], zero at rest."""
    mu = _neo_hookean_mu(e)
    lam = _neo_hookean_lambda(e)
    half = wp.float64(0.5)
    alpha = wp.float64(1.0) + wp.float64(0.75) * mu / lam
    rest = half * lam * (wp.float64(1.0) - alpha) * (wp.float64(1.0) - alpha) - half * mu * wp.log(
        wp.float64(4.0)
    )
    return (
        half * mu * (ic - wp.float64(3.0))
        + half * lam * (j - alpha) * (j - alpha)
        - half * mu * wp.log(ic + wp.float64(1.0))
        - rest
    )


@wp.kernel
def tet_gradient(
    tets: TetGeometry,
    elastics: wp.array(dtype=Elastic),
    dt: wp.float64,
    first: int,
    x_in: wp.array(dtype=_vec3),
    x_previous_in: wp.array(dtype=_vec3),
    energy_out: wp.array(dtype=_vec3),
    gradient_out: wp.array(dtype=_vec3),
):
    """Compute energy (elastic, viscous increment) and det F per tet, in the model's order.

    Add the gradient to gradient_out.
    """
    t = first + wp.tid()
    elastic = _elastic_of(tets, elastics, t)
    n = tets.nodes[t]
    b = tets.shape_gradients[t]
    v = tets.volume[t]
    f = deformation_gradient(x_in, n, b)
    cof, ic, j = _invariants(f)
    mu = _neo_hookean_mu(elastic)
    lam = _neo_hookean_lambda(elastic)
    alpha = wp.float64(1.0) + wp.float64(0.75) * mu / lam
    de = _strain_increment(f, deformation_gradient(x_previous_in, n, b))
    s = _viscous_stress(de, elastic, dt)
    c1 = mu * (wp.float64(1.0) - wp.float64(1.0) / (ic + wp.float64(1.0)))
    stress = f * c1 + cof * (lam * (j - alpha)) + f * s
    force = stress * wp.transpose(b) * v
    f1 = _vec3(force[0, 0], force[1, 0], force[2, 0])
    f2 = _vec3(force[0, 1], force[1, 1], force[2, 1])
    f3 = _vec3(force[0, 2], force[1, 2], force[2, 2])
    energy_out[tets.number[t]] = _vec3(
        v * elastic_energy(ic, j, elastic), wp.float64(0.5) * v * wp.ddot(s, de), j
    )
    wp.atomic_add(gradient_out, n[0], -(f1 + f2 + f3))
    wp.atomic_add(gradient_out, n[1], f1)
    wp.atomic_add(gradient_out, n[2], f2)
    wp.atomic_add(gradient_out, n[3], f3)


@wp.func
def _hessian_block(
    ba: _vec3,
    bb: _vec3,
    f: _mat33,
    fa: _vec3,
    fb: _vec3,
    ga: _vec3,
    gb: _vec3,
    s_bb: _vec3,
    fft: _mat33,
    c1: wp.float64,
    c2: wp.float64,
    lam: wp.float64,
    pressure: wp.float64,
    mu_v: wp.float64,
    lam_v: wp.float64,
):
    """Return d2(energy density)/dx_a dx_b. fa = F b_a, ga = cof(F) b_a, s_bb = S_viscous b_b."""
    bab = wp.dot(ba, bb)
    w = f * wp.cross(ba, bb) * pressure
    diagonal = c1 * bab + wp.dot(ba, s_bb)
    k = (
        wp.outer(fa, fb) * (c2 + lam_v)
        + wp.outer(fb, fa) * mu_v
        + wp.outer(ga, gb) * lam
        + fft * (mu_v * bab)
    )
    return k + _mat33(diagonal, w[2], -w[1], -w[2], diagonal, w[0], w[1], -w[0], diagonal)


@wp.kernel
def tet_hessian(
    tets: TetGeometry,
    elastics: wp.array(dtype=Elastic),
    dt: wp.float64,
    slots: wp.array(dtype=wp.int32, ndim=2),
    first: int,
    x_in: wp.array(dtype=_vec3),
    x_previous_in: wp.array(dtype=_vec3),
    hessian_out: wp.array(dtype=_mat33),
):
    """Add the Hessian of the tet energy to the upper-triangle blocks of hessian_out.

    slots [tet_count, 10]: block index of the pairs (0,0) (1,1) (2,2) (3,3) (0,1) (0,2) (0,3) (1,2) (1,3) (2,3);
    node order inside a tet is ascending, so that every pair is in the upper triangle.
    """
    t = first + wp.tid()
    elastic = _elastic_of(tets, elastics, t)
    n = tets.nodes[t]
    b = tets.shape_gradients[t]
    v = tets.volume[t]
    f = deformation_gradient(x_in, n, b)
    cof, ic, j = _invariants(f)
    mu = _neo_hookean_mu(elastic)
    lam = _neo_hookean_lambda(elastic)
    alpha = wp.float64(1.0) + wp.float64(0.75) * mu / lam
    de = _strain_increment(f, deformation_gradient(x_previous_in, n, b))
    s = _viscous_stress(de, elastic, dt)
    ic1 = ic + wp.float64(1.0)
    c1 = v * mu * (wp.float64(1.0) - wp.float64(1.0) / ic1)
    c2 = v * wp.float64(2.0) * mu / (ic1 * ic1)
    p = v * lam * (j - alpha)
    mu_v = v * elastic.lame_mu * elastic.retardation / dt
    lam_v = v * elastic.lame_lambda * elastic.retardation / dt
    lam = lam * v
    fft = f * wp.transpose(f)
    b1 = _vec3(b[0, 0], b[0, 1], b[0, 2])
    b2 = _vec3(b[1, 0], b[1, 1], b[1, 2])
    b3 = _vec3(b[2, 0], b[2, 1], b[2, 2])
    f1 = f * b1
    f2 = f * b2
    f3 = f * b3
    g1 = cof * b1
    g2 = cof * b2
    g3 = cof * b3
    s1 = s * b1 * v
    s2 = s * b2 * v
    s3 = s * b3 * v
    k11 = _hessian_block(b1, b1, f, f1, f1, g1, g1, s1, fft, c1, c2, lam, p, mu_v, lam_v)
    k22 = _hessian_block(b2, b2, f, f2, f2, g2, g2, s2, fft, c1, c2, lam, p, mu_v, lam_v)
    k33 = _hessian_block(b3, b3, f, f3, f3, g3, g3, s3, fft, c1, c2, lam, p, mu_v, lam_v)
    k12 = _hessian_block(b1, b2, f, f1, f2, g1, g2, s2, fft, c1, c2, lam, p, mu_v, lam_v)
    k13 = _hessian_block(b1, b3, f, f1, f3, g1, g3, s3, fft, c1, c2, lam, p, mu_v, lam_v)
    k23 = _hessian_block(b2, b3, f, f2, f3, g2, g3, s3, fft, c1, c2, lam, p, mu_v, lam_v)
    k01 = -(k11 + wp.transpose(k12) + wp.transpose(k13))
    k02 = -(k12 + k22 + wp.transpose(k23))
    k03 = -(k13 + k23 + k33)
    k00 = -(k01 + k02 + k03)
    wp.atomic_add(hessian_out, slots[t, 0], k00)
    wp.atomic_add(hessian_out, slots[t, 1], k11)
    wp.atomic_add(hessian_out, slots[t, 2], k22)
    wp.atomic_add(hessian_out, slots[t, 3], k33)
    wp.atomic_add(hessian_out, slots[t, 4], k01)
    wp.atomic_add(hessian_out, slots[t, 5], k02)
    wp.atomic_add(hessian_out, slots[t, 6], k03)
    wp.atomic_add(hessian_out, slots[t, 7], k12)
    wp.atomic_add(hessian_out, slots[t, 8], k13)
    wp.atomic_add(hessian_out, slots[t, 9], k23)


@wp.kernel
def tet_pullback(
    tets: TetGeometry,
    elastics: wp.array(dtype=Elastic),
    dt: wp.float64,
    first: int,
    columns: int,
    x_in: wp.array(dtype=_vec3),
    x_previous_in: wp.array(dtype=_vec3),
    v_in: wp.array2d(dtype=_vec3),
    moduli_out: wp.array2d(dtype=_vec3),
    x_previous_bar_out: wp.array2d(dtype=_vec3),
):
    """Compute -v . d(gradient)/d(...): per tet for (lame_mu, lame_lambda, retardation), and added to
    x_previous_bar_out.

    With V = sum_a v_a b_a^T the product v . gradient is vol (P : V); the viscous part is vol S : sym(F^T V).
    v, moduli and x_previous_bar [columns, count]: one row per gradient.
    """
    t = first + wp.tid()
    elastic = _elastic_of(tets, elastics, t)
    n = tets.nodes[t]
    b = tets.shape_gradients[t]
    vol = tets.volume[t]
    f = deformation_gradient(x_in, n, b)
    f_previous = deformation_gradient(x_previous_in, n, b)
    cof, ic, j = _invariants(f)
    one = wp.float64(1.0)
    de = _strain_increment(f, f_previous)
    tr_de = de[0, 0] + de[1, 1] + de[2, 2]
    rate = elastic.retardation / dt
    f_transposed = wp.transpose(f)
    b_transposed = wp.transpose(b)
    for column in range(columns):
        vf = deformation_gradient(v_in[column], n, b)
        fv = wp.ddot(f, vf)
        cv = wp.ddot(cof, vf)
        # P = mu (1 - 1/(I_C + 1)) F + (lam (J - 1) - 3/4 mu) cof F, so both derivatives are plain
        by_mu = (one - one / (ic + one)) * fv - wp.float64(0.75) * cv
        by_lam = (j - one) * cv
        a = f_transposed * vf
        a = (a + wp.transpose(a)) * wp.float64(0.5)
        tr_a = a[0, 0] + a[1, 1] + a[2, 2]
        shear = wp.float64(2.0) * wp.ddot(de, a)
        bulk = tr_de * tr_a
        by_lame_mu = wp.float64(4.0 / 3.0) * by_mu + wp.float64(5.0 / 6.0) * by_lam + rate * shear
        by_lame_lambda = by_lam + rate * bulk
        by_retardation = (elastic.lame_mu * shear + elastic.lame_lambda * bulk) / dt
        moduli_out[column, t] = _vec3(
            -vol * by_lame_mu, -vol * _bulk_of(tets, t) * by_lame_lambda, -vol * by_retardation
        )
        m = _viscous_stress(a, elastic, dt)
        pull = f_previous * m * b_transposed * vol
        p1 = _vec3(pull[0, 0], pull[1, 0], pull[2, 0])
        p2 = _vec3(pull[0, 1], pull[1, 1], pull[2, 1])
        p3 = _vec3(pull[0, 2], pull[1, 2], pull[2, 2])
        wp.atomic_add(x_previous_bar_out, column, n[0], -(p1 + p2 + p3))
        wp.atomic_add(x_previous_bar_out, column, n[1], p1)
        wp.atomic_add(x_previous_bar_out, column, n[2], p2)
        wp.atomic_add(x_previous_bar_out, column, n[3], p3)
