"""Warp's autodiff as the oracle of the hand-written derivatives.

The test kernels below call the simulator's own functions for energies and distances, and Warp differentiates them; the
simulator's gradients, Hessians and pullbacks must say the same to rounding.
"""

import numpy as np
import pytest
import warp as wp

from disect_sim.kernels import contact_force, elasticity, laws
from disect_sim.kernels.contact_point import (
    KnifeShape,
    one_sided_distance,
    one_sided_gradient,
)
from disect_sim.knife import KNIVES, Knife
from disect_sim.parameters import MATERIALS
from disect_sim.step_system import StepStart
from tests.disect_sim.knife_distance import knife_distance
from tests.disect_sim.scenes import block_model, irregular_block, step_system
from tests.disect_sim.tet_body import TetBody
from tests.disect_sim.tet_meshes import jittered_box

DT = 1e-3


@wp.kernel
def tet_energy_sum(
    nodes: wp.array(dtype=wp.vec4i),
    shape_gradients: wp.array(dtype=wp.mat33d),
    volume: wp.array(dtype=wp.float64),
    moduli: wp.array(dtype=wp.float64),
    dt: wp.float64,
    x: wp.array(dtype=wp.vec3d),
    x_previous: wp.array(dtype=wp.vec3d),
    total: wp.array(dtype=wp.float64),
):
    """Energy of the step, written down once more from its formula; moduli: lame_mu, lame_lambda, retardation."""
    t = wp.tid()
    n = nodes[t]
    b = shape_gradients[t]
    f = elasticity.deformation_gradient(x, n, b)
    g = elasticity.deformation_gradient(x_previous, n, b)
    e = elasticity.Elastic()
    e.lame_mu = moduli[0]
    e.lame_lambda = moduli[1]
    e.retardation = moduli[2]
    de = (wp.transpose(f) * f - wp.transpose(g) * g) * wp.float64(0.5)
    rate = moduli[2] / (wp.float64(2.0) * dt)
    viscous = rate * (wp.float64(2.0) * moduli[0] * wp.ddot(de, de) + moduli[1] * wp.trace(de) * wp.trace(de))
    density = elasticity.elastic_energy(wp.ddot(f, f), wp.determinant(f), e) + viscous
    wp.atomic_add(total, 0, density * volume[t])


@wp.kernel
def distances(
    shape: KnifeShape,
    side: wp.float64,
    tip: wp.float64,
    points: wp.array(dtype=wp.vec3d),
    out: wp.array(dtype=wp.float64),
):
    i = wp.tid()
    out[i] = one_sided_distance(points[i], side, tip, shape)


@wp.kernel
def distance_gradients(
    shape: KnifeShape,
    side: wp.float64,
    tip: wp.float64,
    points: wp.array(dtype=wp.vec3d),
    out: wp.array(dtype=wp.vec3d),
):
    i = wp.tid()
    out[i] = one_sided_gradient(points[i], side, tip, shape)


@wp.kernel
def scalar_laws(
    z: wp.array(dtype=wp.float64),
    speed: wp.array(dtype=wp.float64),
    onset: wp.float64,
    integrals: wp.array(dtype=wp.float64),
    laws_out: wp.array(dtype=wp.float64),
    friction_integrals: wp.array(dtype=wp.float64),
    friction_out: wp.array(dtype=wp.float64),
):
    i = wp.tid()
    integrals[i] = laws.ramp_integral(z[i], onset)
    laws_out[i] = laws.ramp(z[i], onset)
    friction_integrals[i] = laws.friction_integral(
        speed[i], wp.float64(0.5), wp.float64(0.2), wp.float64(0.03)
    )
    friction_out[i] = laws.friction_coefficient(speed[i], wp.float64(0.5), wp.float64(0.2), wp.float64(0.03))


@wp.kernel
def scalar_slopes(
    z: wp.array(dtype=wp.float64),
    speed: wp.array(dtype=wp.float64),
    onset: wp.float64,
    slope_out: wp.array(dtype=wp.float64),
    friction_slope_out: wp.array(dtype=wp.float64),
):
    i = wp.tid()
    slope_out[i] = laws.ramp_slope(z[i], onset)
    friction_slope_out[i] = laws.friction_slope(speed[i], wp.float64(0.5), wp.float64(0.2), wp.float64(0.03))


def array(values, dtype=wp.float64):
    return wp.array(np.ascontiguousarray(values), dtype=dtype, requires_grad=True, device="cpu")


def zeros(count, dtype=wp.float64):
    return wp.zeros(count, dtype=dtype, requires_grad=True, device="cpu")


def autodiff(kernel, count, inputs, outputs, seeds):
    """Run a kernel and its adjoint; gradients are then on the inputs."""
    tape = wp.Tape()
    with tape:
        wp.launch(kernel, dim=count, inputs=inputs, outputs=outputs, device="cpu")
    tape.backward(
        grads={o: wp.array(s, dtype=o.dtype, device="cpu") for o, s in zip(outputs, seeds, strict=True)}
    )


@pytest.fixture(scope="module")
def strained_tets():
    nodes, tets = jittered_box(1, (2, 2, 2))
    material = MATERIALS["cucumber"].replaced(retardation_s=2e-3)
    rng = np.random.default_rng(1)
    x = nodes @ (np.eye(3) + 0.2 * rng.uniform(-1.0, 1.0, (3, 3))).T + 1e-3 * rng.normal(size=nodes.shape)
    previous = x + 5e-4 * rng.normal(size=nodes.shape)
    return TetBody(nodes, tets, material), material, x, previous


TURNED = np.array([[0.0, 0.014, 0.0, 0.12], [0.0, 0.0139, 2e-5, 0.124]])
"""Poses [m, rad] of a knife with a belly, at 7 degrees and turning."""


@pytest.fixture(scope="module", params=["straight", "turning"])
def contact_step(request):
    mesh = irregular_block()
    turning = request.param == "turning"
    model = block_model(mesh, knife=Knife(belly_radius_m=0.25) if turning else None)
    system = step_system(model, {"sdf_kd": 30.0, "sdf_stribeck": 0.2, "sdf_kf": 0.1}, DT)
    rng = np.random.default_rng(6)
    x_n = mesh.nodes + 2e-4 * rng.normal(size=mesh.nodes.shape)
    x, ahead = (x_n + 2e-5 * rng.normal(size=x_n.shape) for _ in range(2))
    straight = np.array([[0.0, 0.012, 0.0, 0.0], [0.0, 0.0119, 2e-5, 0.0]])
    poses = TURNED if turning else straight
    k = system.parameters.row("cut_spring_ke")
    start = StepStart(x_n, x, k, *poses, ahead, np.array([0.0, 2e-6, 5e-6, 3e-4 * turning]))
    system.begin(*start)
    system.gradient(x)
    return system, x, start


class TestTets:
    """Gradient and pullback of the tets against autodiff of their energy."""

    @staticmethod
    def oracle_energy(body, moduli, x, previous):
        """Inputs with their gradients, after the sum of energies has been differentiated."""
        edges = np.stack(
            [body.nodes[body.tets[:, a]] - body.nodes[body.tets[:, 0]] for a in (1, 2, 3)], axis=2
        )
        inputs = [
            wp.array(body.tets, dtype=wp.vec4i, device="cpu"),
            array(np.linalg.inv(edges), wp.mat33d),
            array(np.abs(np.linalg.det(edges)) / 6.0),
            array(moduli),
            wp.float64(DT),
            array(x, wp.vec3d),
            array(previous, wp.vec3d),
        ]
        total = zeros(1)
        autodiff(tet_energy_sum, len(body.tets), inputs, [total], [np.ones(1)])
        return total.numpy()[0], inputs[3].grad.numpy(), inputs[5].grad.numpy(), inputs[6].grad.numpy()

    @staticmethod
    def moduli(material):
        return np.array([material.lame_mu_pa, material.lame_lambda_pa, material.retardation_s])

    def test_energy_and_gradient(self, strained_tets):
        body, material, x, previous = strained_tets
        energy, _, gradient, _ = self.oracle_energy(body, self.moduli(material), x, previous)
        found = body.evaluate(x, previous, DT)
        assert found.elastic + found.viscous == pytest.approx(energy, rel=1e-12)
        assert np.abs(found.gradient - gradient).max() < 1e-11 * np.abs(gradient).max()

    def test_hessian_times_vector(self, strained_tets):
        """Central differences of Warp's gradient, which owes nothing to the hand-written one."""
        body, material, x, previous = strained_tets
        direction = np.random.default_rng(2).normal(size=x.shape)
        step = 1e-7
        plus, minus = (
            self.oracle_energy(body, self.moduli(material), x + s * step * direction, previous)[2]
            for s in (1.0, -1.0)
        )
        product = (body.hessian(x, previous, DT) @ direction.ravel()).reshape(-1, 3)
        assert np.abs((plus - minus) / (2.0 * step) - product).max() < 1e-6 * np.abs(product).max()

    def test_pullback_in_moduli_and_previous_positions(self, strained_tets):
        """-v . d(gradient)/d(it): differences along v of Warp's derivative of the energy in it."""
        body, material, x, previous = strained_tets
        v = np.random.default_rng(3).normal(size=x.shape)
        step = 1e-7
        plus, minus = (
            self.oracle_energy(body, self.moduli(material), x + s * step * v, previous) for s in (1.0, -1.0)
        )
        moduli_bar, previous_bar = body.pullback(x, previous, v, DT)
        for k in range(3):
            assert moduli_bar[k] == pytest.approx(-(plus[1][k] - minus[1][k]) / (2.0 * step), rel=1e-6)
        expected = -(plus[3] - minus[3]) / (2.0 * step)
        assert np.abs(previous_bar - expected).max() < 1e-6 * np.abs(expected).max()


class TestKnifeDistance:
    """Gradient and Hessian of the knife's distance against autodiff of distance and gradient."""

    POINTS = np.random.default_rng(4).uniform((-0.004, -0.004, -0.03), (0.004, 0.045, 0.03), (500, 3))
    BLADES = (KNIVES["folding"], Knife(length_m=0.054, belly_radius_m=0.09))

    @pytest.mark.parametrize("knife", BLADES)
    @pytest.mark.parametrize("tip", [2e-4, 1e-3])
    @pytest.mark.parametrize("side", [1.0, -1.0])
    def test_gradient_of_the_one_sided_distance(self, side, tip, knife):
        points = array(self.POINTS, wp.vec3d)
        inputs = [knife.shape(), wp.float64(side), wp.float64(tip), points]
        autodiff(distances, 500, inputs, [zeros(500)], [np.ones(500)])
        gradient = knife_distance(knife, self.POINTS, side, tip)[1]
        assert np.abs(gradient - points.grad.numpy()).max() < 1e-12

    @pytest.mark.parametrize("knife", BLADES)
    @pytest.mark.parametrize("tip", [2e-4, 1e-3])
    @pytest.mark.parametrize("side", [1.0, -1.0])
    def test_hessian_times_vector(self, side, tip, knife):
        seeds = np.random.default_rng(5).normal(size=(500, 3))
        points = array(self.POINTS, wp.vec3d)
        inputs = [knife.shape(), wp.float64(side), wp.float64(tip), points]
        autodiff(distance_gradients, 500, inputs, [zeros(500, wp.vec3d)], [seeds])
        hessian = knife_distance(knife, self.POINTS, side, tip)[2]
        product = np.einsum("nij,nj->ni", hessian, seeds)
        assert np.abs(product - points.grad.numpy()).max() < 1e-9 * np.abs(product).max()


def test_scalar_laws_are_derivatives_of_their_integrals_and_slopes_of_the_laws():
    z = np.linspace(-2e-4, 2e-3, 300)
    speed = np.linspace(1e-6, 0.3, 300)
    onset = wp.float64(1e-4)
    ones, none = np.ones(300), np.zeros(300)
    slopes = zeros(300), zeros(300)
    wp.launch(
        scalar_slopes,
        dim=300,
        inputs=[array(z), array(speed), onset],
        outputs=list(slopes),
        device="cpu",
    )
    law = {}
    for which, seeds in (("law", [ones, none, ones, none]), ("slope", [none, ones, none, ones])):
        inputs = [array(z), array(speed), onset]
        outputs = [zeros(300) for _ in range(4)]
        autodiff(scalar_laws, 300, inputs, outputs, seeds)
        law[which] = inputs[0].grad.numpy(), inputs[1].grad.numpy()
        values = outputs[1].numpy(), outputs[3].numpy()
    assert np.abs(law["law"][0] - values[0]).max() < 1e-14
    assert np.abs(law["law"][1] - values[1]).max() < 1e-12
    assert np.abs(law["slope"][0] - slopes[0].numpy()).max() < 1e-11
    assert np.abs(law["slope"][1] - slopes[1].numpy()).max() < 1e-9 * np.abs(slopes[1].numpy()).max()


class TestContact:
    """The differentiable contact kernel repeats the one that assembles, and its adjoint repeats the Hessian."""

    @staticmethod
    def differentiable(step, seeds):
        system, x, start = step
        a, b = system.model.contact_parents.T
        count = len(a)
        found = contact_force.Found()
        found.now, found.before, found.ahead = (
            wp.array(np.stack([s.numpy(), c.numpy()], axis=1), dtype=wp.vec2d, device="cpu")
            for s, c in (
                (system.found, system.curvature),
                (system.before_found, system.before_curvature),
                (system.ahead_found, system.ahead_curvature),
            )
        )
        places = ((x, start.pose), (start.x_n, start.pose_n), (start.ahead, start.pose))
        ends = [array(where[end] - pose[:3], wp.vec3d) for where, pose in places for end in (a, b)]
        d = system.on_device
        swing = array(np.tile(start.swing[:3], (count, 1)), wp.vec3d)
        now, before = start.pose[3], start.pose_n[3]
        angles = [array(np.full(count, angle)) for angle in (now, before, now - before + start.swing[3])]
        inputs = [d.contact, d.edges, found, array(d.contact_parameters.numpy()), *ends, swing, *angles]
        outputs = [zeros(count, wp.vec3d), zeros(count, wp.vec3d), zeros(count, wp.vec2d), zeros(count)]
        autodiff(contact_force.contact_force, count, inputs, outputs, seeds(count))
        return outputs, ends

    def test_forward_repeats_the_assembled_forces(self, contact_step):
        system = contact_step[0]

        def nothing(count):
            return [np.zeros((count, 3)), np.zeros((count, 3)), np.zeros((count, 2)), np.zeros(count)]

        outputs, _ = self.differentiable(contact_step, nothing)
        active = (system.touch.numpy() > 0.0) | (system.friction_limit.numpy() > 0.0)
        assert 10 < active.sum() < len(active)
        for found, expected in zip(
            outputs,
            (
                system.normal_force.numpy(),
                system.friction_force.numpy(),
                np.stack([system.found.numpy(), system.ahead_found.numpy()], axis=1)
                * system.model.contact_coordinate[:, None],
                system.touch.numpy(),
            ),
            strict=True,
        ):
            # One more Newton step on a converged coordinate changes it by its rounding; edges out of reach, whose
            # coordinate was not sought, have no forces.
            apart = np.abs(found.numpy() - expected)[active]
            assert apart.max() < 1e-9 * max(1.0, np.abs(expected).max())
        assert (np.linalg.norm(system.normal_force.numpy(), axis=1) > 0.0).sum() > 10

    def test_adjoint_repeats_the_hessian(self, contact_step):
        """v . d(force)/dx by Warp equals -H v, with H the hand-written contact Hessian (with minus without knife)."""
        system, x, start = contact_step
        m = system.model
        a, b = m.contact_parents.T
        v = np.random.default_rng(7).normal(size=x.shape) * ~m.fixed[:, None]
        u = (m.contact_coordinate * system.found.numpy())[:, None]
        u_ahead = (m.contact_coordinate * system.ahead_found.numpy())[:, None]
        along = v[b] - v[a]
        forces = system.normal_force.numpy().copy(), system.friction_force.numpy().copy()

        def seeds(count):
            by_u = np.stack([(along * f).sum(axis=1) for f in forces], axis=1)
            return [v[a] + along * u, v[a] + along * u_ahead, by_u, np.zeros(count)]

        _, ends = self.differentiable(contact_step, seeds)
        product = np.zeros_like(x)
        np.add.at(product, a, ends[0].grad.numpy())
        np.add.at(product, b, ends[1].grad.numpy())
        numeric = []
        far = np.array([0.0, 10.0, 0.0, 0.0])
        for where in (start, start._replace(pose_n=far, pose=far)):
            system.begin(*where)
            pair = [system.gradient(x + s * 1e-9 * v).copy() for s in (1.0, -1.0)]
            numeric.append((pair[0] - pair[1]) / 2e-9)
        system.begin(*start)
        system.gradient(x)
        # Friction's own coordinate is that of the predicted end: it does not move with x, nor does its seed.
        expected = -(numeric[0] - numeric[1])
        free = ~m.fixed
        assert np.abs(product - expected)[free].max() < 1e-4 * np.abs(expected).max()
