"""Parameters: bounds and their map, names and shapes, an effect and a gradient for every one of them."""

import numpy as np
import pytest

from disect_sim import InputError, parameter_info
from disect_sim.parameters import (
    MATERIAL_PARAMETERS,
    SPRING_PARAMETERS,
    STRETCH_SOFTNESS,
    expand,
    to_bounded,
    to_unconstrained,
)
from tests.disect_sim.gradient_cases import ALL_PARAMETERS, CUTTING, Case, loss_of
from tests.disect_sim.scenes import APPLE, block_model, irregular_block

SKIN = tuple(f"surface_{name}" for name in SPRING_PARAMETERS)
SURFACE = np.array([True, False, False])


@pytest.mark.parametrize("name", ALL_PARAMETERS)
def test_sigmoid_map_stays_inside_and_comes_back(name):
    info = parameter_info(name)
    inside = np.linspace(info.low, info.high, 13)[1:-1]
    assert to_bounded(to_unconstrained(inside, info), info) == pytest.approx(inside, rel=1e-12)
    far = to_bounded(np.array([-40.0, 0.0, 40.0]), info)
    assert (np.diff(far) > 0.0).all()
    assert far[0] >= info.low
    assert far[2] <= info.high
    assert far[1] == pytest.approx(0.5 * (info.low + info.high))


@pytest.mark.parametrize("name", ALL_PARAMETERS)
def test_values_on_or_beyond_a_bound_get_a_finite_start(name):
    info = parameter_info(name)
    start = to_unconstrained(np.array([info.low, info.high, info.low - 1.0, info.high + 1.0]), info)
    assert np.isfinite(start).all()
    assert info.low <= info.default <= info.high


def test_documented_defaults_and_bounds():
    """The table of PHYSICS.md."""
    table = {
        "cut_spring_ke": (500.0, 100.0, 8000.0),
        "cut_spring_kd": (0.1, 0.01, 0.15),
        "cut_spring_softness": (0.01, 0.0, 1.0),
        "sdf_ke": (1000.0, 500.0, 8000.0),
        "sdf_kd": (1.0, 0.1, 100.0),
        "sdf_kf": (0.01, 0.001, 8000.0),
        "sdf_mu": (0.5, 0.45, 1.0),
        "sdf_radius": (0.5e-3, 0.1e-3, 1.2e-3),
    }
    for name, expected in table.items():
        info = parameter_info(name)
        assert (info.default, info.low, info.high) == expected
    stretch = parameter_info("cut_spring_softness", damage_law="stretch")
    assert (stretch.default, stretch.low, stretch.high) == (500.0, 10.0, 5000.0)
    assert parameter_info("surface_cut_spring_softness", damage_law="stretch") is STRETCH_SOFTNESS


@pytest.mark.parametrize("name", ["sdf_k", "", "surface_young_pa", "ke", "surface_surface_sdf_ke"])
def test_unknown_names_are_refused_with_the_known_ones(name):
    with pytest.raises(InputError, match=r"is not a parameter.*cut_spring_ke"):
        expand({name: 1.0}, APPLE, SURFACE, "force")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sdf_ke": np.ones(2)}, "one per spring"),
        ({"sdf_ke": np.ones((3, 1))}, "one per spring"),
        ({"young_pa": np.ones(3)}, "one number"),
        ({"sdf_ke": -1.0}, "must be finite and positive"),
        ({"sdf_ke": 0.0}, "must be finite and positive"),
        ({"sdf_mu": np.nan}, "must be finite and positive"),
        ({"cut_spring_ke": np.array([1.0, np.inf, 1.0])}, "must be finite and positive"),
        ({"poisson": 0.6}, "poisson"),
    ],
)
def test_wrong_shapes_and_values_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        expand(values, APPLE, SURFACE, "force")


def test_shared_individual_and_skin_values():
    given = {"sdf_ke": np.array([1.0, 2.0, 3.0]), "surface_sdf_ke": 9.0, "sdf_mu": 0.7, "young_pa": 5.0}
    expanded = expand(given, APPLE, SURFACE, "force")
    assert expanded.row("sdf_ke") == pytest.approx([9.0, 2.0, 3.0])
    assert expanded.row("sdf_mu") == pytest.approx([0.7] * 3)
    assert expanded.row("cut_spring_ke") == pytest.approx([500.0] * 3)
    assert expanded.material.young_pa == 5.0
    assert expanded.material.density_kg_m3 == APPLE.density_kg_m3


@pytest.fixture(scope="module")
def skinned_cut():
    """The cut of the gradient tests with every parameter given, for the inside and for the skin."""
    base = Case(block_model(irregular_block()))
    inside = {name: base.value(name) for name in SPRING_PARAMETERS}
    skin = {f"surface_{name}": 1.05 * value for name, value in inside.items()}
    return Case(base.model, parameters=CUTTING | inside | skin, options={"duration": 0.06})


@pytest.mark.parametrize("name", [*ALL_PARAMETERS, *SKIN])
def test_every_parameter_has_an_effect_and_a_gradient(skinned_cut, name):
    case = skinned_cut
    gradient = float(case.adjoint(name))
    assert np.isfinite(gradient)
    assert gradient != 0.0
    # Up by 1 %: the loss moves, and by about what the gradient says (weak ones: where rounding does not hide it).
    value = case.value(name)
    moved = loss_of(case.run(case.parameters | {name: 1.01 * value}))[0] - case.loss
    assert moved != 0.0
    assert moved == pytest.approx(0.01 * gradient * float(value), rel=0.2, abs=1e-7 * case.loss)


def test_gradient_names_are_exactly_the_nameable_parameters(skinned_cut):
    assert set(skinned_cut.gradients.parameters) == {*SPRING_PARAMETERS, *MATERIAL_PARAMETERS, *SKIN}
