"""Every outcome of a simulated cut: severity, message, and what the stages make of it."""

from dataclasses import replace

import numpy as np
import pytest

from disect_sim import ConstantVelocity, build_model, cut_by_plane
from disect_sim import simulate as simulate_motion
from disect_sim.cut_mesh import box_mesh
from disect_sim.newton import NewtonOptions
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.parameters import MATERIALS
from stages.shared.cut import CutOutcome, Severity, outcome_of, verdict

DONE = Outcome(OutcomeKind.COMPLETE)
GOOD = CutOutcome("nominal cut", DONE, 0.97, 0.99, 0)
HEIGHT_M = 0.02


def run(material="apple", *, end_m=0.001, values=None, **options):
    """A cut of a small block, from 5 mm above it."""
    mesh = cut_by_plane(*box_mesh((-0.015, 0.0, -0.01), (0.015, HEIGHT_M, 0.01), (3, 3, 3)))
    model = build_model(mesh, MATERIALS[material], boundary="guided", damage_law="edge")
    motion = ConstantVelocity(initial_y=HEIGHT_M + 0.005, velocity_y=-0.1)
    given = {"duration": (HEIGHT_M + 0.005 - end_m) / 0.1, "dt": 5e-3} | options
    return outcome_of("nominal cut", simulate_motion(model, motion, values, **given), mesh)


def test_a_cut():
    outcome = run()
    assert outcome.severity is Severity.CUT
    assert outcome.message == ""
    assert outcome.metrics() == {
        "cut_fraction": outcome.cut_fraction,
        "reached_fraction": outcome.reached_fraction,
        "inverted_tets": 0,
        "refused": None,
        "warning": None,
    }
    assert 0.9 < outcome.reached_fraction <= 1.0


def test_a_cut_that_ends_early_by_plan_is_a_cut_of_what_it_passed():
    outcome = run(end_m=0.01)
    assert outcome.cut_fraction < 0.7
    assert outcome.severity is Severity.CUT


def test_not_cut_through_is_a_warning():
    outcome = replace(GOOD, reached_fraction=0.8)
    assert outcome.severity is Severity.WARNING
    assert "did not cut through: 80 %" in outcome.message and "--log" in outcome.message
    assert outcome.metrics()["refused"] is None


@pytest.mark.parametrize("fraction", [0.3, np.nan])
def test_a_cut_that_did_not_happen_is_refused(fraction):
    outcome = replace(GOOD, reached_fraction=fraction)
    assert outcome.severity is Severity.REFUSED
    assert "did not happen" in outcome.metrics()["refused"]
    assert outcome.metrics()["warning"] is None


def test_flesh_too_tough_for_its_stiffness_is_refused():
    """A banana with the toughness of an apple is squashed, as physics says."""
    outcome = run("banana", values={"edge_toughness": 400.0})
    assert outcome.severity is Severity.REFUSED
    assert outcome.message


def test_inverted_elements_are_a_warning():
    outcome = replace(GOOD, inverted_tets=7)
    assert outcome.severity is Severity.WARNING
    assert "7 elements turned inside out" in outcome.message and "cut_edge_m" in outcome.message


def test_a_stalled_step_is_refused():
    outcome = run(newton=NewtonOptions(max_iterations=1, tolerance_m=1e-15))
    assert outcome.ended.kind is OutcomeKind.NEWTON_STALLED
    assert outcome.severity is Severity.REFUSED
    assert "stopped before its end. Newton's method stalled" in outcome.message


def test_a_jam_is_refused():
    outcome = run(force_limit_n=1.0)
    assert outcome.ended.kind is OutcomeKind.KNIFE_JAMMED
    assert outcome.severity is Severity.REFUSED
    assert "passed the limit" in outcome.message


def test_a_diverged_run_is_refused():
    outcome = replace(GOOD, ended=Outcome(OutcomeKind.DIVERGED))
    assert outcome.severity is Severity.REFUSED


def test_several_cuts_of_one_stage():
    worse = replace(GOOD, cut="second cut", reached_fraction=0.1)
    entries = verdict(GOOD, replace(GOOD, inverted_tets=1), worse)
    assert entries["refused"].startswith("The second cut did not happen")
    assert "inside out in the nominal cut" in entries["warning"]
