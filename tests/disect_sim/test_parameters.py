"""Parameters: bounds, names and shapes, an effect and a gradient for every one of them."""

import subprocess
import sys

import numpy as np
import pytest

from disect_sim import InputError, parameter_info
from disect_sim.laws import DAMAGE_LAWS
from disect_sim.parameters import (
    CONTACT_NAMES,
    CONTACT_PER_AREA,
    MATERIAL_PARAMETERS,
    SPRING_PARAMETERS,
    expand,
)
from tests.disect_sim.gradient_cases import ALL_PARAMETERS, CUTTING, Case, loss_of
from tests.disect_sim.scenes import APPLE, block_model, irregular_block

SPRINGS = tuple(name for name in SPRING_PARAMETERS if name in ALL_PARAMETERS)
"""Of the springs, those that the force law uses; the edge law's own: test_edge_law.py."""
SKIN = tuple(f"surface_{name}" for name in SPRINGS)
SURFACE = np.array([True, False, False])


@pytest.mark.parametrize("name", [*SPRING_PARAMETERS, *MATERIAL_PARAMETERS])
def test_defaults_are_inside_their_bounds(name):
    info = parameter_info(name)
    assert info.low <= info.default <= info.high
    assert info.low < info.high


def test_what_is_stated_per_area_says_so():
    """The meaning is what other programs print; the flag is what the forces use."""
    per_area = {name for name, info in SPRING_PARAMETERS.items() if info.per_area}
    assert per_area == {"cut_spring_ke", "cut_spring_kd", "sdf_ke", "sdf_kd"}
    for name, info in SPRING_PARAMETERS.items():
        assert ("per reference area" in info.meaning) == (name in per_area)
    assert dict(zip(CONTACT_NAMES, CONTACT_PER_AREA, strict=True)) == {
        name: SPRING_PARAMETERS[name].per_area for name in CONTACT_NAMES
    }


def test_descriptions_are_light():
    """Tables, command lines and refusals read them: they must not wait for Warp or torch."""
    code = (
        "import sys, disect_sim.parameters, disect_sim.knife, disect_sim.laws, disect_sim.laws; "
        "sys.exit(len({'warp', 'torch', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_documented_defaults_and_bounds():
    """The paper's, but for friction: under the edge law a wet blade has a tenth."""
    table = {
        "cut_spring_ke": (500.0, 100.0, 8000.0),
        "cut_spring_kd": (0.1, 0.01, 0.15),
        "cut_spring_softness": (0.01, 0.0, 1.0),
        "sdf_ke": (1000.0, 500.0, 8000.0),
        "sdf_kd": (1.0, 0.1, 100.0),
        "sdf_kf": (0.01, 0.001, 8000.0),
        "sdf_mu": (0.5, 0.02, 1.0),
        "sdf_radius": (0.5e-3, 0.1e-3, 1.2e-3),
    }
    for name, expected in table.items():
        info = parameter_info(name)
        assert (info.default, info.low, info.high) == expected
    stretch = parameter_info("cut_spring_softness", damage_law="stretch")
    assert (stretch.default, stretch.low, stretch.high) == (500.0, 10.0, 5000.0)
    assert parameter_info("surface_cut_spring_softness", damage_law="stretch") is stretch


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
    inside = {name: base.value(name) for name in SPRINGS}
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


@pytest.mark.parametrize("law", DAMAGE_LAWS)
def test_what_a_law_ignores_has_no_effect(law):
    """Said in one place, for the command line, and true in the simulator."""
    case = Case(block_model(irregular_block(), damage_law=law), parameters={}, options={"duration": 0.04})
    for name in DAMAGE_LAWS[law].ignores:
        assert float(case.adjoint(name)) == 0.0
        assert loss_of(case.run({name: 0.5 * parameter_info(name).high}))[0] == case.loss


def test_gradient_names_are_exactly_the_nameable_parameters(skinned_cut):
    assert set(skinned_cut.gradients.parameters) == {*SPRING_PARAMETERS, *MATERIAL_PARAMETERS, *SKIN}
