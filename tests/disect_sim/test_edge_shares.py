"""The shares of the edge law: closed forms of a drawn cut, power and energy, rest and reversal, exact gradients."""

import numpy as np
import pytest
import warp as wp

from disect_sim import (
    ConstantVelocity,
    Cut,
    InputError,
    RecordedMotion,
    SlicingMotion,
    simulate,
    simulate_many,
)
from disect_sim.kernels import edge
from disect_sim.knife import Knife
from disect_sim.parameters import SPRING_PARAMETERS
from tests.disect_sim.gradient_cases import Case, slicing, smallest_error, straight
from tests.disect_sim.scenes import block_model, irregular_block, regular_block
from tests.disect_sim.test_edge_law import NO_FRICTION, TOUGHNESS, WIDTH, descend, steady

ADOPTED = {"edge_press": 0.25, "edge_drag": 0.32}
SHARES = {
    "slice": {"edge_press": 0.0, "edge_drag": 0.0},
    "press": {"edge_press": 0.9, "edge_drag": 0.05},
    "drag": {"edge_press": 0.05, "edge_drag": 0.9},
    "adopted": ADOPTED,
}
REST = float(edge.REST_SPEED)
HALF_LENGTH = 0.075
SPEED = 0.05
"""Of the descent [m/s]."""
CUTTING = {"edge_toughness": 400.0, "skin_toughness": 600.0, "sdf_mu": 0.3} | ADOPTED


def closed_form(ratio: float, press: float, drag: float) -> np.ndarray:
    """Force across and along the blade over toughness × width at a slice–push ratio [-], shape [2]."""
    along = (1.0 - press - drag) / (1.0 + ratio**2) + drag / np.sqrt(1.0 + ratio**2)
    return np.array([press + along, ratio * along])


def kernel_force(velocity, press, drag, *, point=(0.0, 6e-4, 0.0), passed=0.0) -> tuple[np.ndarray, float]:
    """Force [N] and drag power [W] of one sample with toughness × area = 1 J and a rise of 0.6 mm."""
    numbers = [passed, 1.0, 0.6e-3, press, drag]
    vectors = [wp.array(np.array([v], float), dtype=wp.vec3d, device="cpu") for v in (point, velocity)]
    given = [wp.array([number], dtype=wp.float64, device="cpu") for number in numbers]
    area = wp.ones(1, dtype=wp.float64, device="cpu")
    force = wp.zeros(1, dtype=wp.vec3d, device="cpu")
    power = wp.zeros(1, dtype=wp.float64, device="cpu")
    inputs = [Knife(length_m=2.0 * HALF_LENGTH).shape(), area, *vectors, *given, force, power]
    wp.launch(edge.edge_force, dim=1, inputs=inputs, device="cpu")
    return force.numpy()[0], float(power.numpy()[0])


PAYING = float(1.0 / 0.6e-3 * np.exp(-1.0))
"""S'(q) at q = rise = 0.6 mm [1/m]."""


def test_defaults_are_the_adopted_shares():
    assert {name: SPRING_PARAMETERS[name].default for name in ADOPTED} == ADOPTED


@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
@pytest.mark.parametrize("ratio", [0.0, 0.5, 3.0, 20.0])
def test_force_and_power_of_a_sample(shares, ratio):
    """At 100 v0, R(w) = w - v0 / 2 and v0² in the denominators leave a relative 1 / 200 + 1e-4."""
    press, drag = shares["edge_press"], shares["edge_drag"]
    velocity = np.array([0.0, -100.0 * REST, ratio * 100.0 * REST])
    force, drag_power = kernel_force(velocity, press, drag)
    across, along = closed_form(ratio, press, drag) * PAYING
    assert -force[1] == pytest.approx(across, rel=6e-3)
    assert force[2] == pytest.approx(along, rel=6e-3, abs=1e-12)
    speed = np.linalg.norm(velocity)
    assert drag_power == pytest.approx(drag * PAYING * speed, rel=6e-3, abs=1e-12)
    assert force @ velocity == pytest.approx(PAYING * ((1.0 - drag) * 100.0 * REST + drag * speed), rel=6e-3)


@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
def test_straight_down_all_shares_are_the_same(shares):
    """At every speed; |v| is rounded at 1e-8 m/s, which is 1e-10 of the square at 1 mm/s."""
    for speed in (0.3 * REST, REST, 50.0 * REST):
        force, _ = kernel_force((0.0, -speed, 0.0), **_kernel(shares))
        pure, _ = kernel_force((0.0, -speed, 0.0), 0.0, 0.0)
        assert force == pytest.approx(pure, rel=1e-8)


def test_a_vertical_cut_is_the_same_for_all_shares():
    """A whole cut; what is left is rounding, and |v| rounded at 1e-8 m/s."""
    forces = [
        descend(regular_block(), NO_FRICTION | shares, speed=SPEED, boundary="guided").force
        for shares in SHARES.values()
    ]
    for force in forces[1:]:
        assert np.abs(force - forces[0]).max() < 1e-6 * np.abs(forces[0]).max()


def _kernel(shares) -> dict[str, float]:
    return {"press": shares["edge_press"], "drag": shares["edge_drag"]}


@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
@pytest.mark.parametrize("direction", [(0.0, -1.0, 0.0), (0.0, -0.3, 1.0), (0.0, 0.0, 1.0)])
def test_force_goes_to_zero_at_rest(shares, direction):
    """Below v0 it falls at least with the square of the speed: there is no static force."""
    direction = np.array(direction) / np.linalg.norm(direction)
    sizes = [
        np.linalg.norm(kernel_force(speed * direction, **_kernel(shares))[0])
        for speed in (1e-2 * REST, 1e-3 * REST)
    ]
    assert np.linalg.norm(kernel_force(np.zeros(3), **_kernel(shares))[0]) == 0.0
    assert sizes[1] <= 0.011 * sizes[0] < 1e-3 * PAYING


def test_force_turns_over_smoothly_at_reversal():
    """Along the blade through zero while the knife descends, or stands: odd in the stroke's speed, no jump."""
    for descent in (0.0, 50.0 * REST):
        stroke = np.linspace(-5.0, 5.0, 2001) * REST
        force = np.array([kernel_force((0.0, -descent, z), **_kernel(SHARES["adopted"]))[0] for z in stroke])
        assert force[:, 2] == pytest.approx(-force[::-1, 2], abs=1e-12)
        assert np.abs(np.diff(force[:, 2])).max() < 0.005 * PAYING
        assert (force[:, 2] * stroke >= 0.0).all()
    # the reversal of a descending blade meets the whole vertical force
    at_reversal, _ = kernel_force((0.0, -50.0 * REST, 0.0), **_kernel(ADOPTED))
    assert -at_reversal[1] == pytest.approx(PAYING, rel=0.011)


def test_a_knife_that_draws_back_meets_the_drag_alone():
    """Upwards: no work of fracture; the drag is against the motion, and gone 4 mm above the deepest point."""
    for passed, factor in ((6e-4, 1.0), (2.6e-3, 0.5), (4.7e-3, 0.0)):
        force, power = kernel_force((0.0, 0.1, 0.0), **_kernel(ADOPTED), passed=passed)
        paying = passed / 0.6e-3**2 * np.exp(-passed / 0.6e-3)
        assert force[1] == pytest.approx(0.32 * factor * paying, rel=6e-3, abs=1e-12)
        assert power == pytest.approx(0.1 * force[1], rel=1e-6, abs=1e-15)


def test_press_pushes_down_the_slope_beyond_the_blade_end():
    """Beyond its end the edge rises 4 : 1 and passes sideways; the press force is normal to it."""
    beyond = (0.0, 5e-3, HALF_LENGTH + 1.4e-3)
    force, _ = kernel_force((0.0, -0.1, 0.0), 1.0, 0.0, point=beyond)
    assert force[1] < 0.0 and force[2] / force[1] == pytest.approx(-4.0, rel=1e-9)


@pytest.mark.parametrize("ratio", [0.0, 1.0, 3.0, 5.0])
def test_a_drawn_cut_follows_the_closed_form(ratio):
    """Springs and flanks, which the closed form leaves out, add up to 4 % of the vertical force A (0.3 N of 15)."""
    result = descend(
        regular_block((5, 5, 5)), NO_FRICTION | ADOPTED, speed=SPEED, slide=ratio * SPEED, boundary="held"
    )
    force = steady(result)
    across, along = closed_form(ratio, 0.25, 0.32) * TOUGHNESS * WIDTH
    assert force[1] == pytest.approx(across, abs=0.04 * TOUGHNESS * WIDTH)
    assert -force[2] == pytest.approx(along, abs=0.04 * TOUGHNESS * WIDTH)


@pytest.mark.parametrize(
    ("boundary", "ratio"), [("held", 1.0), ("guided", 1.0), ("glued", 1.0), ("free", 0.5)]
)
def test_every_boundary(boundary, ratio):
    """A free body is held along the blade by the board's friction alone, 0.6 F_n: at ξ = 1 it would slide away."""
    result = descend(
        regular_block(), NO_FRICTION | ADOPTED, speed=SPEED, slide=ratio * SPEED, boundary=boundary
    )
    assert result.outcome.ok
    force = steady(result)
    across, along = closed_form(ratio, 0.25, 0.32) * TOUGHNESS * WIDTH
    # On a coarse mesh springs and flanks add up to 5 % of the vertical force.
    assert force[1] == pytest.approx(across, abs=0.05 * TOUGHNESS * WIDTH)
    assert -force[2] == pytest.approx(along, abs=0.05 * TOUGHNESS * WIDTH)


def saw(dt=2e-3, cells=(3, 3, 3), parameters=None, boundary="held", solver=None, **options):
    """Two strokes to and fro while the knife descends at 0.05 m/s; peak ξ = 3."""
    model = block_model(regular_block(cells), damage_law="edge", boundary=boundary)
    duration = 0.48
    t = np.linspace(0.0, duration, 241)
    peak, period = 3.0 * SPEED, 0.24
    z = peak * period / (2.0 * np.pi) * np.sin(2.0 * np.pi * t / period)
    motion = RecordedMotion(t, np.stack([0.0265 - SPEED * t, z], axis=1))
    values = NO_FRICTION | ADOPTED | {"edge_rise": 1.5e-3} | (parameters or {})
    return simulate(model, motion, values, duration=duration, dt=dt, solver=solver, device="cpu", **options)


@pytest.mark.parametrize("boundary", ["held", "guided"])
def test_energy_balance_of_sawing_with_reversals(boundary):
    """Knife's work = fracture + drag + what is stored; the rest is damping and severed springs: small, positive."""
    rise = 0.6e-3
    result = saw(boundary=boundary, parameters={"edge_rise": rise})
    energy = {name: values[-1] - values[0] for name, values in result.energy.items()}
    work = energy.pop("knife_work")
    # The integral of S over a depth d is d - 2 rise: the force of the law starts as if 2 rise lengths later.
    descended = 0.0225 - 2.0 * rise
    assert energy["fracture"] == pytest.approx(0.68 * TOUGHNESS * WIDTH * descended, rel=0.05)
    t = np.linspace(0.48 - descended / SPEED, 0.48, 2000)
    path = float(np.mean(np.hypot(SPEED, 3.0 * SPEED * np.cos(2.0 * np.pi * t / 0.24))) * np.ptp(t))
    assert energy["drag"] == pytest.approx(0.32 * TOUGHNESS * WIDTH * path, rel=0.05)
    lost = work - sum(energy.values())
    assert -0.005 * work < lost < 0.06 * work
    assert (np.diff(result.energy["drag"]) >= 0.0).all()


def test_pure_slicing_dissipates_nothing_by_drag():
    result = saw(parameters=SHARES["slice"])
    assert np.abs(result.energy["drag"]).max() == 0.0


def test_sawing_converges_with_the_step():
    """Against steps of 0.25 ms the mean force errs in second order: rates of 2.4 and 2.3, 1e-3 of the force at 4 ms."""
    exact = saw(dt=2.5e-4).force[:400].mean(axis=0)
    errors = [np.abs(saw(dt=dt).force[:400].mean(axis=0) - exact).max() for dt in (4e-3, 2e-3, 1e-3)]
    size = np.abs(exact).max()
    assert errors[0] < 0.003 * size
    assert min(np.log2(errors[0] / errors[1]), np.log2(errors[1] / errors[2])) > 1.7, errors


def test_drawn_force_does_not_depend_on_the_mesh():
    forces = [
        steady(
            descend(
                regular_block((n, n, n)),
                NO_FRICTION | ADOPTED,
                speed=SPEED,
                slide=2.0 * SPEED,
                boundary="held",
            )
        )
        for n in (3, 5, 7)
    ]
    for force in forces[1:]:
        assert force[1:] == pytest.approx(forces[0][1:], rel=0.03)


def test_on_the_device_as_on_the_host():
    """The whole run on the device gives the forces and energies of the factor path, within Newton's tolerance."""
    direct, device = (saw(solver=solver, boundary="guided") for solver in ("cholesky", "conjugate_gradients"))
    assert np.abs(direct.force - device.force).max() < 1e-3 * np.abs(direct.force).max()
    for name in ("fracture", "drag", "knife_work"):
        assert direct.energy[name] == pytest.approx(device.energy[name], abs=1e-3 * direct.energy[name].max())


def test_a_batch_of_shares_gives_each_its_own_run():
    model = block_model(regular_block(), damage_law="edge", boundary="guided")
    motion = SlicingMotion(duration=0.3, initial_y=0.0255, velocity_y=-0.05, amplitude=0.05)
    options = {"duration": 0.15, "solver": "conjugate_gradients", "device": "cpu"}
    cuts = [Cut(model, motion, NO_FRICTION | shares, options) for shares in SHARES.values()]
    answers = simulate_many(cuts, batch=True)
    for cut, answer in zip(cuts, answers, strict=True):
        alone = simulate(model, motion, cut.parameters, **options)
        scale = np.abs(alone.force).max()
        assert np.abs(alone.force - answer.value.force).max() <= 1e-6 * scale
        for name in ("fracture", "drag"):
            assert answer.value.energy[name] == pytest.approx(alone.energy[name], rel=1e-6, abs=1e-12)
    means = {round(float(answer.value.force_norm.mean()), 6) for answer in answers}
    assert len(means) == len(cuts), "no two shares are alike"


@pytest.fixture(scope="module")
def sawing():
    return Case(block_model(irregular_block(), damage_law="edge"), slicing(), CUTTING)


@pytest.mark.parametrize("name", ["edge_press", "edge_drag"])
def test_gradients_in_the_shares_are_exact(sawing, name):
    """Central differences at 1e-3 of the share reach a relative 1e-6: the force is linear in the shares."""
    assert smallest_error(sawing, {name: sawing.direction(name)}, tolerance=1e-6, first_step=1e-3) <= 1e-6


@pytest.mark.parametrize("shares", [SHARES["press"], SHARES["drag"]], ids=["press", "drag"])
@pytest.mark.parametrize("name", ["edge_toughness", "edge_rise", "amplitude", "velocity_y", "initial_y"])
def test_other_gradients_under_other_shares(shares, name):
    """Through positions, pose, velocity, toughness, rise and passed depth where press or drag rule."""
    case = Case(block_model(irregular_block(), damage_law="edge"), slicing(), CUTTING | shares)
    assert smallest_error(case, {name: case.direction(name)}) <= 1e-4


def test_shares_on_a_short_blade_with_one_value_per_spring():
    """The press term follows the slope of the blade's end; shares may vary over the cut."""
    model = block_model(irregular_block(), damage_law="edge", knife=Knife(length_m=0.02))
    rng = np.random.default_rng(1)
    values = CUTTING | {name: rng.uniform(0.1, 0.4, model.spring_count) for name in ADOPTED}
    case = Case(model, slicing(initial_z=0.004), values)
    directions = {name: rng.standard_normal(model.spring_count) * 0.1 for name in ADOPTED}
    assert case.adjoint("edge_press").shape == (model.spring_count,)
    assert smallest_error(case, directions, tolerance=1e-5, first_step=1e-3) <= 1e-5


def test_straight_down_the_shares_have_no_gradient():
    case = Case(block_model(irregular_block(), damage_law="edge"), straight(), CUTTING)
    for name in ADOPTED:
        assert abs(float(case.adjoint(name))) < 1e-5 * case.loss


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"edge_press": 0.7, "edge_drag": 0.4},
            r"0\.7 \+ edge_drag 0\.4 = 1\.1.*must not be negative.*Lower",
        ),
        ({"edge_press": 0.8}, r"edge_press 0\.8 \+ edge_drag 0\.32"),
        ({"edge_press": 0.2, "surface_edge_drag": 0.9}, r"edge_drag 0\.9"),
        ({"edge_drag": -0.1}, "finite and positive"),
        ({"edge_press": np.nan}, "finite and positive"),
    ],
)
def test_bad_shares_are_rejected(values, message):
    model = block_model(irregular_block(), damage_law="edge")
    with pytest.raises(InputError, match=message):
        simulate(model, ConstantVelocity(), values, duration=0.01)


def test_shares_that_sum_to_one_are_allowed():
    model = block_model(regular_block(), damage_law="edge")
    result = simulate(
        model, ConstantVelocity(), {"edge_press": 0.7, "edge_drag": 0.3}, duration=0.006, device="cpu"
    )
    assert len(result.force)
