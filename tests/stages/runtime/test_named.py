"""Names that stand for an entry of a table: all of them load, an unknown one is refused by a sentence."""

import subprocess
import sys

import pytest

from stages.calibrate.methods import LOSSES, METHODS, methods_of
from stages.optimize.description import OPTIMISERS
from stages.runtime.describe import load_named
from stages.runtime.errors import InputError
from stages.runtime.params import merge_params
from stages.shared.robots.robot import ROBOTS
from tests.stages.calibration_scenes import ROOT


def set_param(section, key, value):
    return merge_params(ROOT / "params.yaml", {section: {key: value}}, overrides_from="scan.yaml")


@pytest.mark.parametrize("place", [*(method.function for method in METHODS.values()), *OPTIMISERS.values()])
def test_every_place_is_there(place):
    assert callable(load_named(place))


@pytest.mark.parametrize(
    ("section", "key", "names"),
    [
        ("calibrate", "shared_optimiser", methods_of("shared")),
        ("calibrate", "individual_optimiser", methods_of("individual")),
        ("calibrate", "shared_loss", LOSSES),
        ("calibrate", "loss", LOSSES),
        ("optimize", "optimiser", OPTIMISERS),
        ("arm", "robot", ROBOTS),
    ],
)
def test_names_of_a_table_are_taken_and_others_refused(section, key, names):
    for name in names:
        assert getattr(getattr(set_param(section, key, name), section), key) == name
    for wrong in ("newtonn", "", 3, None, [next(iter(names))]):
        with pytest.raises(
            InputError, match=rf"scan\.yaml: {section}\.{key} is .*, but .*\. Change {section}"
        ):
            set_param(section, key, wrong)
    known = ", ".join(names)
    with pytest.raises(InputError, match=rf"{key} is 'newtonn', but must be one of {known}\. Change"):
        set_param(section, key, "newtonn")


def test_a_method_that_can_only_do_the_first_phase_is_refused_for_the_second():
    with pytest.raises(InputError, match=r"individual_optimiser is 'gauss_newton', but must be one of lbfgs"):
        set_param("calibrate", "individual_optimiser", "gauss_newton")


def test_the_tables_import_neither_torch_nor_scipy():
    code = (
        "import sys, stages.calibrate.description, stages.optimize.description, stages.export.description\n"
        "assert not {'torch', 'scipy', 'warp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
