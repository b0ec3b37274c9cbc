"""Every parameter × every motion × two knife tips × three steps: adjoint against central differences. Slow."""

import numpy as np
import pytest

from disect_sim import KNIVES, cut_by_plane
from tests.disect_sim.gradient_cases import ALL_PARAMETERS, CUTTING, MOTIONS, Case, slicing, smallest_error
from tests.disect_sim.scenes import block_model, irregular_block, tetwild_block

pytestmark = pytest.mark.slow

TIPS = (1e-3, 2e-3)
MOTION_PARAMETERS = {
    "constant": ("initial_y", "velocity_y"),
    "recorded": ("offset_y",),
    "slicing": ("initial_y", "amplitude", "frequency", "velocity_y"),
}
SKIN = ("surface_cut_spring_ke", "surface_cut_spring_softness", "surface_sdf_mu")


SKIN_VALUES = {"surface_cut_spring_ke": 700.0, "surface_cut_spring_softness": 0.25, "surface_sdf_mu": 0.6}


@pytest.fixture(scope="module")
def cases():
    """One cut per motion and tip."""
    model = block_model(irregular_block())
    return {
        (name, tip): Case(model, motion(), CUTTING | SKIN_VALUES | {"sdf_tip": tip})
        for name, motion in MOTIONS.items()
        for tip in TIPS
    }


EVERYTHING = [
    (motion, tip, name)
    for motion in MOTIONS
    for tip in TIPS
    for name in (*ALL_PARAMETERS, *SKIN, *MOTION_PARAMETERS[motion])
]


IN_CI = 9
"""Every so many of the combinations run in CI: another parameter for each motion and tip, all kinds among them."""


@pytest.mark.parametrize(
    ("motion", "tip", "name"),
    [
        pytest.param(*case, marks=[pytest.mark.ci] if number % IN_CI == 0 else [])
        for number, case in enumerate(EVERYTHING)
    ],
)
def test_adjoint_agrees_with_differences(cases, motion, tip, name):
    case = cases[motion, tip]
    directions = {name: case.direction(name)}
    assert case.result.outcome.ok
    assert np.abs(case.adjoint(name)).max() > 0.0
    errors = {size: case.error(directions, size) for size in (1e-2, 5e-2)}
    errors[1e-4] = smallest_error(case, directions, first_step=1e-4)
    assert errors[1e-4] <= 1e-4, errors
    # A percent of a parameter, or of a millimetre in height, is what an optimiser's step looks like. The worst is the
    # descent of the sawing cut, 0.032: the loss is smooth there, but its slope changes by 10 % over that percent.
    assert errors[1e-2] <= 0.04, errors
    assert errors[5e-2] <= 0.1, errors


@pytest.mark.parametrize("tip", TIPS)
@pytest.mark.parametrize("name", MOTION_PARAMETERS["slicing"] + ("initial_z",))
def test_a_blade_end_that_passes_through(tip, name):
    """A short blade off centre saws with its end inside the block: the place along z matters, and edges snap off it.

    Such events are met (13 indefinite Hessians in the forward run) and their timing is out of a gradient's sight: the
    slope is exact at small steps, while 1 % of the frequency already changes it by a quarter of its usual size.
    """
    model = block_model(irregular_block(), knife=KNIVES["folding"])
    case = Case(model, slicing(initial_z=0.02), CUTTING | {"sdf_tip": tip})
    assert np.abs(case.adjoint(name)).max() > 0.0
    assert smallest_error(case, {name: case.direction(name)}, first_step=1e-4) <= 1e-4
    assert case.gradients.largest_adjoint < 1e4


@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("tip", TIPS)
def test_adjoint_stays_bounded(cases, motion, tip):
    """Explicit adjoints reach 1e46 on such scenes; here it stays near the slope of the loss in the knife's height."""
    gradients = cases[motion, tip].gradients
    assert gradients.largest_adjoint < 1e4
    assert np.abs(gradients.poses).max() < 1e4


@pytest.mark.ci
def test_freshly_made_irregular_mesh(tmp_path):
    """A mesh that nobody chose. All parameters at once."""
    case = Case(block_model(cut_by_plane(*tetwild_block(tmp_path))))
    assert case.result.outcome.ok
    names = (*ALL_PARAMETERS, "initial_y")
    rng = np.random.default_rng(0)
    directions = {name: case.direction(name) * rng.uniform(0.5, 1.5) for name in names}
    assert smallest_error(case, directions) <= 1e-4
