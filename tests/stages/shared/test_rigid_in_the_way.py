"""A planned cut and a stone: rejected within 2 mm, with the stop force and settings that help; allowed otherwise."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disect_sim.parameters import MATERIALS
from disect_sim.regions import Anatomy, Region, Shape
from disect_sim.simulation import simulate
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.shared.cut import check_clear_of_rigid, cutting_model, outcome_of, straight_cut
from tests.disect_sim.scenes import regular_block

CUT = load_params(Path(__file__).parents[3] / "params.yaml").cut
VALUES = CUT.nominal_parameters("apple")


def model_with(x: float, radius: float, *, rigid=True):
    stone = Region("stone", Shape.sphere((x, 0.012, 0.0), radius), 100.0, rigid=rigid)
    mesh = replace(regular_block((3, 5, 3)), anatomy=Anatomy((stone,)))
    return cutting_model(mesh, MATERIALS["apple"], CUT)


def check(model, lowest=0.001):
    check_clear_of_rigid(model, VALUES, CUT, lowest_m=lowest, offset="halve.offset_m")


@pytest.mark.parametrize(("x", "radius"), [(0.0, 0.006), (0.002, 0.005), (-0.003, 0.007)])
def test_hidden_stones_stop_the_cut_where_they_are(x, radius):
    """Height within the points' spacing and a step; the force that the message states is that of the stopped run."""
    model = model_with(x, radius)
    with pytest.raises(InputError) as error:
        check(model)
    text = str(error.value)
    top = 0.012 + np.sqrt(radius**2 - x**2)
    stated = float(re.search(r"'stone' ([\d.]+) mm above", text)[1])
    assert stated == pytest.approx(1e3 * top, abs=0.5)
    motion, duration = straight_cut(model.mesh, CUT)
    result = simulate(model, motion, VALUES, duration=duration, dt=CUT.dt_s)
    force = float(re.search(r"with ([\d.]+) N", text)[1])
    assert force == pytest.approx(result.force_norm[-1], rel=0.01)
    outcome = outcome_of("nominal cut", result, model.mesh)
    assert outcome.severity == "refused"
    assert "stone" in outcome.message
    assert re.search(r"adds [\d.e+]+ N", text)


def test_the_remedies_are_accepted():
    with pytest.raises(InputError) as error:
        check(model_with(0.001, 0.006))
    text = str(error.value)
    sides = [float(value) for value in re.search(r"by (-?[\d.]+) or \+?(-?[\d.]+)", text).groups()]
    assert sides == pytest.approx([-0.007, 0.009], abs=1e-4)
    for side in sides:
        check(model_with(0.001 - side - np.sign(side) * 1e-5, 0.006))
    height = float(re.search(r"board_clearance_m=([\d.]+)", text)[1])
    check(model_with(0.001, 0.006), lowest=height + 5e-4)


def test_a_stone_beside_the_blade_is_too_near_without_being_met():
    with pytest.raises(InputError, match="passes within 2 mm of a rigid region"):
        check(model_with(0.0075, 0.006))


def test_a_core_that_is_not_rigid_is_no_obstacle():
    check(model_with(0.0, 0.006, rigid=False))
