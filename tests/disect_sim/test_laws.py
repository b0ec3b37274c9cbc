"""Laws chosen by name: every name has its kernel, an unknown one is refused wherever it can be given."""

import inspect

import pytest

from disect_sim import InputError, parameter_info
from disect_sim.laws import DAMAGE_LAWS
from disect_sim.parameters import SPRING_PARAMETERS, expand
from tests.disect_sim.scenes import APPLE, block_model, regular_block, step_system


@pytest.fixture(scope="module")
def mesh():
    return regular_block()


@pytest.mark.parametrize("law", DAMAGE_LAWS)
def test_every_damage_law_has_a_kernel_that_can_be_fed(mesh, law):
    system = step_system(block_model(mesh, damage_law=law))
    kernel = system.on_device.damage_kernel
    if DAMAGE_LAWS[law].at_edge:
        assert kernel is None
        assert system.edge is not None
        return
    assert kernel.key == DAMAGE_LAWS[law].kernel
    arguments = list(inspect.signature(kernel.func).parameters)
    assert arguments == ["setting", *(f"{name}_in" for name in system.damage_arrays), "stiffness_out"]
    assert "stiffness" in system.damage_arrays


def test_no_two_damage_laws_share_a_kernel():
    assert len({law.kernel for law in DAMAGE_LAWS.values()}) == len(DAMAGE_LAWS)


@pytest.mark.parametrize("law", DAMAGE_LAWS)
def test_parameters_a_law_describes_are_spring_parameters(law):
    for name, info in DAMAGE_LAWS[law].parameters.items():
        assert name in SPRING_PARAMETERS
        assert parameter_info(name, damage_law=law) is info
        assert info.low <= info.default <= info.high


@pytest.mark.parametrize(
    "use",
    [
        lambda mesh: block_model(mesh, damage_law="strech"),
        lambda mesh: parameter_info("sdf_ke", damage_law="strech"),
        lambda mesh: expand({}, APPLE, mesh.spring_surface, "strech"),
    ],
)
def test_an_unknown_damage_law_is_refused_everywhere(mesh, use):
    with pytest.raises(
        InputError, match=r"damage_law is 'strech'. It must be one of 'cohesive', 'edge', 'force', 'stretch'"
    ):
        use(mesh)
