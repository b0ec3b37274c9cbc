"""Cutting springs: linear, damped, dead when their stiffness is gone, skin apart, halves that do not pass through."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, simulate
from tests.disect_sim.scenes import block_model, irregular_block, regular_block, step_system

FAR = np.array([0.0, 10.0, 0.0])
DT = 1e-3


@pytest.fixture(scope="module")
def mesh():
    return regular_block()


def opened(mesh, gap):
    """Positions with the half at x > 0 moved by gap [m], shape [3]."""
    side = np.zeros(len(mesh.nodes))
    side[mesh.tets] = mesh.tet_side[:, None]
    return mesh.nodes + np.where(side[:, None] > 0, gap, 0.0)


def force_between_halves(
    mesh, gap, stiffness_fraction=1.0, previous_gap=None, parameters=None, material=None
):
    """Force on the positive half [N], shape [3], without board, gravity and inertia."""
    options = {} if material is None else {"material": material}
    model = block_model(mesh, boundary="free", gravity=(0.0, 0.0, 0.0), **options)
    system = step_system(model, parameters, DT)
    x = opened(mesh, gap) + np.array([0.0, 1.0, 0.0])
    start = opened(mesh, gap if previous_gap is None else previous_gap) + np.array([0.0, 1.0, 0.0])
    k = stiffness_fraction * system.parameters.row("cut_spring_ke")
    system.begin(start, x, k, FAR, FAR)
    gradient = system.gradient(x)
    positive = np.unique(mesh.tets[mesh.tet_side > 0])
    return -gradient[positive].sum(axis=0)


@pytest.mark.parametrize("gap", [(1e-3, 0.0, 0.0), (0.0, 5e-4, 0.0), (2e-4, -3e-4, 7e-4)])
def test_opening_is_resisted_by_stiffness_per_reference_area(mesh, gap):
    """Every spring stretched alike: the sum is ke × cut area / reference area × gap."""
    model = block_model(mesh)
    expected = -500.0 * model.spring_area_ratio.sum() * np.array(gap)
    assert model.spring_area_ratio.sum() == pytest.approx(0.025 * 0.03 / 1.2e-5)
    # Rotation-free tets, no board: only rounding of the stresses.
    assert force_between_halves(mesh, gap) == pytest.approx(expected, abs=1e-8)


def test_stiffness_per_spring(mesh):
    """One value per spring: the sum is weighted with the areas."""
    ratio = block_model(mesh).spring_area_ratio
    ke = np.linspace(200.0, 900.0, len(ratio))
    force = force_between_halves(mesh, (1e-3, 0.0, 0.0), parameters={"cut_spring_ke": ke})
    assert force[0] == pytest.approx(-1e-3 * (ke * ratio).sum(), rel=1e-8)


def test_damping_acts_on_the_rate_of_opening(mesh):
    steady = force_between_halves(mesh, (1e-3, 0.0, 0.0))
    moving = force_between_halves(mesh, (1e-3, 0.0, 0.0), previous_gap=(9e-4, 0.0, 0.0))
    ratio = block_model(mesh).spring_area_ratio.sum()
    assert (moving - steady)[0] == pytest.approx(-0.1 * ratio * 1e-4 / DT, rel=1e-6)


@pytest.mark.parametrize("gap", [(1e-3, 0.0, 0.0), (0.0, 1e-3, 1e-3)])
def test_a_dead_spring_carries_nothing(mesh, gap):
    """Neither stiffness nor damping: the halves part freely, however fast."""
    force = force_between_halves(mesh, gap, stiffness_fraction=0.0, previous_gap=(0.0, 0.0, 0.0))
    assert np.abs(force).max() < 1e-8


def test_half_dead_springs_carry_half(mesh):
    gap, before = (1e-3, 0.0, 0.0), (8e-4, 0.0, 0.0)
    whole, half = (force_between_halves(mesh, gap, f, previous_gap=before) for f in (1.0, 0.5))
    assert half == pytest.approx(0.5 * whole, abs=1e-8)


def test_dead_springs_still_keep_the_halves_apart(mesh):
    overlap = force_between_halves(mesh, (-1e-4, 0.0, 0.0), stiffness_fraction=0.0)
    model = block_model(mesh)
    # Beyond the onset of 0.02 mm the push grows linearly: k (overlap - onset / 2).
    expected = model.overlap_stiffness.sum() * (1e-4 - 1e-5)
    assert overlap[0] == pytest.approx(expected, rel=1e-6)
    assert np.abs(overlap[1:]).max() < 1e-8


def test_halves_pressed_together_do_not_pass_through_each_other(mesh):
    """Both halves thrown at each other at 0.2 m/s with every spring practically dead: they bounce."""
    model = block_model(mesh, boundary="free", gravity=(0.0, 0.0, 0.0))
    side = np.zeros(len(mesh.nodes))
    side[mesh.tets] = mesh.tet_side[:, None]
    velocity = np.zeros_like(mesh.nodes)
    velocity[:, 0] = -0.2 * side
    start = mesh.nodes + np.array([0.0, 0.1, 0.0])
    result = simulate(
        model,
        ConstantVelocity(initial_y=10.0, velocity_y=0.0),
        {"cut_spring_ke": 1e-3, "cut_spring_kd": 1e-6},
        duration=0.02,
        dt=2e-4,
        initial_positions=start,
        initial_velocity=velocity,
        keep_times=np.linspace(0.0, 0.02, 41)[1:],
    )
    assert result.outcome.ok
    gaps = np.array([(model.spring_operator @ x)[:, 0] for x in result.positions.values()])
    # Momentum of 12 g at 0.2 m/s against E sqrt(A) per spring: a tenth of a millimetre at most.
    assert gaps.min() > -2e-4
    assert gaps[-1].mean() > 1e-4


@pytest.mark.parametrize(
    "name", ["cut_spring_ke", "cut_spring_kd", "cut_spring_softness", "sdf_ke", "sdf_mu", "sdf_radius"]
)
def test_surface_parameters_act_on_skin_springs_only(mesh, name):
    model = block_model(mesh)
    skin = model.surface
    assert 0 < skin.sum() < len(skin)
    plain = step_system(model).parameters
    value = 0.9 * plain.row(name)[0]
    with_skin = step_system(model, {f"surface_{name}": value}).parameters
    assert (with_skin.row(name)[skin] == value).all()
    assert (with_skin.row(name)[~skin] == plain.row(name)[~skin]).all()


def test_stiffer_skin_resists_at_the_skin_only(mesh):
    base = force_between_halves(mesh, (1e-3, 0.0, 0.0))[0]
    skinned = force_between_halves(mesh, (1e-3, 0.0, 0.0), parameters={"surface_cut_spring_ke": 1500.0})[0]
    model = block_model(mesh)
    assert base - skinned == pytest.approx(
        1000.0 * 1e-3 * model.spring_area_ratio[model.surface].sum(), rel=1e-6
    )


def test_normals_cross_the_cut_also_where_springs_crowd():
    """A plane's normals, but for facets around nodes next to the plane, which were moved off it: 0.1 % of the area."""
    model = block_model(irregular_block())
    across = model.spring_normal[:, 0]
    assert np.linalg.norm(model.spring_normal, axis=1) == pytest.approx(1.0)
    assert (across > 0.5).all()
    assert model.spring_area_ratio[across < 0.9].sum() < 2e-3 * model.spring_area_ratio.sum()
