"""Adjoint against central differences over a whole cut on an irregular mesh: the default, short selection."""

import numpy as np
import pytest

from disect_sim import KNIVES, InputError
from disect_sim.laws import DAMAGE_LAWS
from tests.disect_sim.gradient_cases import (
    ALL_PARAMETERS,
    CUTTING,
    Case,
    loss_of,
    recorded,
    slicing,
    smallest_error,
)
from tests.disect_sim.scenes import block_model, irregular_block

TOLERANCE = 1e-4
"""Measured here where no kink is crossed: below 1e-7."""


@pytest.fixture(scope="module")
def mesh():
    return irregular_block()


@pytest.fixture(scope="module")
def straight_cut(mesh):
    return Case(
        block_model(mesh), parameters=CUTTING | {"surface_cut_spring_ke": 700.0, "surface_sdf_mu": 0.6}
    )


@pytest.fixture(scope="module")
def slicing_cut(mesh):
    """A short blade, off centre: its end passes through the block, so that its place along z matters."""
    return Case(block_model(mesh, knife=KNIVES["folding"]), slicing(initial_z=0.02))


def assert_agrees(case, *names):
    """The loss along a relative change of all named parameters at once."""
    error = smallest_error(case, {name: case.direction(name) for name in names}, tolerance=TOLERANCE)
    assert error <= TOLERANCE, (names, error)


def test_the_scene_is_a_whole_cut(straight_cut):
    result = straight_cut.result
    assert result.outcome.ok
    assert result.cut_fraction[-1] > 0.7
    assert (result.stiffness[-1] == 0.0).mean() > 0.3
    assert result.statistics.indefinite_hessians == 0
    assert straight_cut.gradients.indefinite_hessians == 0


@pytest.mark.parametrize(
    "name",
    [
        "cut_spring_softness",
        "sdf_ke",
        "sdf_mu",
        "sdf_tip",
        "surface_cut_spring_ke",
        "poisson",
        "velocity_y",
    ],
)
def test_one_parameter_at_a_time(straight_cut, name):
    assert_agrees(straight_cut, name)


def test_all_parameters_together(straight_cut):
    assert_agrees(straight_cut, *ALL_PARAMETERS, "surface_cut_spring_ke", "surface_sdf_mu", "initial_y")


def test_no_gradient_is_zero(straight_cut, slicing_cut):
    for case in (straight_cut, slicing_cut):
        for name, gradient in (case.gradients.parameters | case.gradients.motion).items():
            assert np.isfinite(gradient).all(), name
            if name in DAMAGE_LAWS[case.model.damage_law].ignores:
                continue
            assert np.abs(gradient).max() > 0.0, name


@pytest.mark.parametrize("names", [["initial_z"], ["amplitude"], ["frequency", "velocity_y", "initial_y"]])
def test_parameters_of_a_slicing_motion(slicing_cut, names):
    assert_agrees(slicing_cut, *names)


def test_one_amplitude_of_a_slicing_motion(slicing_cut):
    assert smallest_error(slicing_cut, {"amplitude": 0.1 * np.eye(5)[2]}) < TOLERANCE


def test_offset_of_a_recorded_motion(mesh):
    assert_agrees(Case(block_model(mesh), recorded()), "offset_y")


def test_individual_springs(mesh):
    """One value per spring for four parameters: the derivative in a random direction of all of them."""
    rng = np.random.default_rng(3)
    model = block_model(mesh)
    names = ["cut_spring_ke", "cut_spring_softness", "sdf_ke", "sdf_mu"]
    start = Case(model)
    values = {name: start.value(name) * rng.uniform(0.8, 1.2, model.spring_count) for name in names}
    case = Case(model, parameters=CUTTING | values)
    assert all(case.adjoint(name).shape == (model.spring_count,) for name in names)
    directions = {name: values[name] * rng.normal(size=model.spring_count) for name in names}
    assert smallest_error(case, directions) < TOLERANCE


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"damage_law": "stretch"}, {"cut_spring_softness": 2000.0}),
        ({"damage_law": "cohesive"}, {"cut_spring_softness": 1.0e-3}),
        ({"boundary": "glued"}, {}),
        ({"boundary": "free"}, {}),
    ],
)
def test_other_laws_and_boundaries(mesh, options, changes):
    case = Case(block_model(mesh, **options), parameters=CUTTING | changes)
    assert_agrees(case, *ALL_PARAMETERS, "initial_y")


@pytest.mark.parametrize("options", [{"dt": 2e-3, "sample_rate_hz": 500.0}, {"sample_rate_hz": 300.0}])
def test_other_steps_and_sampling_rates(mesh, options):
    """Sampling intervals that do not end with a step are averages over parts of steps."""
    assert_agrees(Case(block_model(mesh), options=options), "cut_spring_ke", "sdf_ke", "young_pa")


def test_every_component_of_the_force_counts(straight_cut):
    """A loss with random weights on all samples and components, not only the norm."""
    result, young, step = straight_cut.result, straight_cut.value("young_pa"), 1e-5
    weight = np.random.default_rng(4).normal(size=result.force.shape)
    adjoint = float(result.gradient(weight).parameters["young_pa"]) * young
    losses = [
        (straight_cut.run(straight_cut.parameters | {"young_pa": young * f}).force * weight).sum()
        for f in (1.0 + step, 1.0 - step)
    ]
    assert adjoint == pytest.approx((losses[0] - losses[1]) / (2.0 * step), rel=TOLERANCE)


def test_adjoint_stays_bounded(straight_cut, slicing_cut):
    """Explicit adjoints reach 1e46 here. Measured: about 70 per metre; the loss moves 1e3 N per metre of the knife."""
    assert straight_cut.gradients.largest_adjoint < 1e4
    assert slicing_cut.gradients.largest_adjoint < 1e4


def test_usual_tolerances_give_the_same_gradient(straight_cut):
    """A default run differs from the tight one by its Newton tolerance; its gradients by less than 1 %."""
    usual = straight_cut.run(newton=None, differentiable=True)
    gradients = usual.gradient(loss_of(usual)[1]).parameters
    for name, tight in straight_cut.gradients.parameters.items():
        effect = abs(float(tight) * straight_cut.value(name)) / straight_cut.loss
        if effect > 1e-3:
            assert gradients[name] == pytest.approx(tight, rel=0.01), name


def test_gradient_needs_states_and_the_shape_of_the_force(straight_cut):
    with pytest.raises(InputError, match="differentiable=True"):
        straight_cut.run(duration=2e-3).gradient(np.zeros((2, 3)))
    with pytest.raises(InputError, match="force_bar has shape"):
        straight_cut.result.gradient(np.zeros((3, 3)))
