"""Soft bodies are cut: contact in series with the flesh, closed form of the force, energy balance, gradients, paths."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, OutcomeKind, build_model, cut_by_plane, simulate
from disect_sim.cut_mesh import box_mesh
from disect_sim.device_model import SeriesStiffness, series_stiffness
from disect_sim.many import Cut, simulate_many
from disect_sim.newton import NewtonOptions
from disect_sim.parameters import MATERIALS, REFERENCE_AREA_M2, Material, expand

WIDTH_M, HEIGHT_M, SPEED_M_S = 0.03, 0.04, 0.05
DOWN = ConstantVelocity(initial_y=HEIGHT_M + 0.006, velocity_y=-SPEED_M_S)
DURATION_S = (HEIGHT_M + 0.005) / SPEED_M_S
TIGHT = NewtonOptions(tolerance_m=1e-11, cg_tolerance=1e-7)
BANANA = MATERIALS["banana"]
VALUES = {"edge_toughness": 10.0, "sdf_mu": 0.15}


def block(material: Material, boundary: str = "guided", cells=(5, 5, 5)):
    mesh = cut_by_plane(*box_mesh((-0.02, 0.0, -0.015), (0.02, HEIGHT_M, 0.015), cells))
    return build_model(mesh, material, boundary=boundary, damage_law="edge")


def cut(material=BANANA, boundary="guided", values=VALUES, **options):
    model = block(material, boundary, options.pop("cells", (5, 5, 5)))
    given = {"duration": DURATION_S, "dt": 3e-3, "sample_rate_hz": 200.0} | options
    return simulate(model, DOWN, values, **given)


def inside(result):
    """Samples well inside the block."""
    return (result.time > 0.35) & (result.time < 0.65)


@pytest.mark.parametrize("boundary", ["guided", "held", "glued"])
def test_the_papers_banana_is_cut(boundary):
    result = cut(boundary=boundary)
    assert result.outcome.kind is OutcomeKind.COMPLETE, str(result.outcome)
    assert result.statistics.inverted_tets == 0
    assert result.cut_fraction[-1] > 0.8
    # flanks, friction and the squeezed flesh under the edge add up to 40 %
    assert 1.0 < result.force[inside(result), 1].mean() / (VALUES["edge_toughness"] * WIDTH_M) < 1.4


@pytest.mark.parametrize("poisson", [0.17, 0.49])
@pytest.mark.parametrize(("young_pa", "share"), [(1.0e5, 0.06), (3.0e4, 0.08), (1.0e4, 0.08)])
def test_a_soft_block_needs_toughness_times_width(young_pa, share, poisson):
    """Twice the toughness adds toughness x width. The softer the flesh, the more of it the edge meets compressed."""
    values = VALUES | {"sdf_mu": 0.02, "edge_rise": 0.5e-3}
    tough, brittle = (
        cut(Material(young_pa, poisson, 1000.0), values=values | {"edge_toughness": factor * young_pa / 5e3})
        for factor in (2.0, 1.0)
    )
    more = (tough.force - brittle.force)[inside(tough), 1].mean()
    assert more == pytest.approx(WIDTH_M * young_pa / 5e3, rel=share)


def test_the_banana_pays_its_toughness_once():
    """Work of fracture and drag = toughness x parted area, within the springs' release length."""
    result = cut()
    paid = result.energy["fracture"][-1] + result.energy["drag"][-1]
    parted = WIDTH_M * HEIGHT_M * result.cut_fraction[-1]
    assert paid == pytest.approx(VALUES["edge_toughness"] * parted, rel=0.05)


def test_energy_is_conserved_in_a_soft_body():
    """Work of the knife = energies + dissipation, which is not negative; half the step changes the work by 2 %."""
    names = ("kinetic", "gravity", "elastic", "springs", "contact", "board", "hold", "fracture", "drag")
    works = []
    for dt in (3e-3, 1.5e-3):
        result = cut(dt=dt)
        total = sum(result.energy[name] for name in names)
        lost = result.energy["knife_work"] - (total - total[0])
        works.append(result.energy["knife_work"][-1])
        # released springs and friction lose a third of the work at most
        assert 0.0 < lost[-1] < works[-1] / 3.0
    assert works[0] == pytest.approx(works[1], rel=0.02)


def test_the_layer_is_in_series_with_the_contact():
    model = block(BANANA)
    given = expand({"sdf_ke": 1000.0, "sdf_radius": 0.5e-3, "sdf_tip": 1e-3}, BANANA, model.surface, "edge")
    layer = BANANA.young_pa * REFERENCE_AREA_M2 / 1.5e-3
    assert series_stiffness(given).stiffness == pytest.approx(1.0 / (1.0 / 1000.0 + 1.0 / layer))


def test_firm_flesh_keeps_its_contact():
    for name in ("apple", "potato", "cucumber"):
        material = MATERIALS[name]
        given = expand({}, material, block(material).surface, "edge")
        assert series_stiffness(given).share.min() > 0.94


def test_gradients_of_the_series_are_exact():
    rng = np.random.default_rng(0)
    given = {name: rng.uniform(0.5, 2.0, 4) for name in ("given", "damping_given", "thickness", "young")}
    given["young"] *= 1e5
    k_bar, c_bar = rng.normal(size=(2, 4, 3))

    def loss(**values):
        series = SeriesStiffness(**values)
        return (k_bar * series.stiffness[:, None] + c_bar * series.damping[:, None]).sum(axis=0)

    bars = vars(SeriesStiffness(**given).pullback(k_bar, c_bar))
    for name, value in given.items():
        step = 1e-6 * value
        difference = loss(**given | {name: value + step}) - loss(**given | {name: value - step})
        assert 0.5 * difference == pytest.approx((bars[name] * step[:, None]).sum(axis=0), rel=1e-6)


@pytest.mark.parametrize(
    "name", ["young_pa", "sdf_ke", "sdf_kd", "sdf_radius", "sdf_tip", "sdf_mu", "edge_toughness", "poisson"]
)
def test_gradient_of_a_soft_cut(name, soft_gradient):
    run, values, adjoint = soft_gradient
    errors = []
    for share in (1e-5, 1e-6):
        step = share * values[name]
        up, down = (run(values | {name: values[name] + sign * step}) for sign in (1.0, -1.0))
        difference = ((up.force**2).sum() - (down.force**2).sum()) / (2.0 * step)
        errors.append(abs(difference / adjoint[name] - 1.0))
    assert min(errors) < 1e-6, errors


@pytest.fixture(scope="module")
def soft_gradient():
    values = VALUES | {"sdf_ke": 1000.0, "sdf_kd": 1.0, "sdf_radius": 0.5e-3, "sdf_tip": 1e-3}
    values |= {"young_pa": BANANA.young_pa, "poisson": BANANA.poisson}

    def run(values, **options):
        return cut(values=values, cells=(3, 3, 3), dt=5e-3, newton=TIGHT, **options)

    result = run(values, differentiable=True)
    return run, values, result.gradient(2.0 * result.force).parameters


def test_host_resident_and_batch_agree_on_a_soft_body(soft_gradient):
    _, values, adjoint = soft_gradient
    model = block(BANANA, cells=(3, 3, 3))
    options = {"duration": DURATION_S, "dt": 5e-3, "sample_rate_hz": 200.0, "newton": TIGHT}
    host = simulate(model, DOWN, values, **options)
    resident = simulate(
        model, DOWN, values, **options, solver="conjugate_gradients", differentiable=True, device="cpu"
    )
    assert np.abs(resident.force - host.force).max() < 1e-6 * np.abs(host.force).max()
    gradients = resident.gradient(2.0 * resident.force).parameters
    for name in ("young_pa", "sdf_ke", "sdf_radius"):
        assert gradients[name] == pytest.approx(adjoint[name], rel=1e-4)
    stiffer = values | {"young_pa": 1.0e5}
    cuts = [Cut(model, DOWN, v, options | {"solver": "conjugate_gradients"}) for v in (values, stiffer)]
    one, other = (answer.value for answer in simulate_many(cuts, batch=True))
    alone = simulate(model, DOWN, stiffer, **options, solver="conjugate_gradients")
    assert np.abs(one.force - resident.force).max() < 1e-9
    assert np.abs(other.force - alone.force).max() < 1e-9
