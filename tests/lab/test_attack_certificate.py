"""The search for certified motions that break a limit: it finds none, would find one, and goes on where it stopped."""

from dataclasses import replace

import numpy as np
import pytest

from lab.attack import attack_certificate
from lab.attack.attack_certificate import Tally, attack, attempt, load
from lab.attack.attack_edits import EDITS, _with_edge, _with_joints
from lab.attack.attack_export import base_attack, exported
from lab.attack.motion_judge import FORCE_FACTOR, flange_poses, violations
from stages.export.certificate import first_failure
from stages.export.demand import says_what_is_so, with_moment
from stages.export.load_checks import UPPER_BAND
from stages.export.motion_checks import cut_phase, edge_poses, in_cutting_frame, kinematics
from stages.runtime.errors import InputError
from tests.stages.franka_reference import flange

BASE = base_attack()


def test_the_base_is_certified_and_the_judge_agrees():
    assert first_failure(BASE.files, BASE.demand) is None
    assert violations(BASE.case()) == []


def test_the_judges_kinematics_are_those_of_a_third_derivation():
    q = np.random.default_rng(1).uniform(-2.0, 2.0, (10, 7))
    # Two chains of seven turns in double precision.
    assert flange_poses(q) == pytest.approx(flange(q), abs=5e-15)


def test_a_dozen_edits_let_nothing_through():
    tally = attack(12, seed=5, base=BASE)
    assert tally.done >= 12 and tally.broken == []
    assert sum(tally.refused.values()) + tally.certified == tally.done


@pytest.mark.parametrize("kind", sorted(EDITS))
def test_every_kind_of_edit_is_an_edit_and_none_of_size_zero_changes_the_verdict(kind):
    draw, often = EDITS[kind]
    assert often > 0
    edit, largest = draw(np.random.default_rng(3))
    whole = attempt(edit, BASE, largest)
    assert whole[0] or not whole[1], "refused, or certified and good"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda q: q + np.array([0, 0.02, 0, 0, 0, 0, 0]), "board"),
        (lambda q: np.round(q, 4), "derivative 3"),
        (lambda q: np.concatenate([q[:660], q[680:]]), "derivative 1"),
        (lambda q: q + np.array([0, 0, 0, 0, 0, 0, 4.0]), "range"),
    ],
)
def test_the_judge_by_itself_objects(change, word):
    """The edits that the certificate refuses would also be found by the judge, were they certified."""
    changed = _with_joints(BASE, 0, change(BASE.files.cut.joints.copy()))
    assert any(word in found for found in violations(changed.case()))


def test_the_judge_takes_the_force_that_95_of_100_cuts_stay_below():
    assert pytest.approx(UPPER_BAND, rel=5e-4) == FORCE_FACTOR


@pytest.mark.parametrize("which", [0, 1])
def test_a_detour_of_the_approach_is_refused(which):
    """3 mm along the blade and back before the cut, the knife upright, every copy renewed, every limit kept."""
    files, demand = BASE.files, BASE.demand
    joints = (files.cut, files.air)[which].joints
    edge = in_cutting_frame(edge_poses(joints, demand), demand)
    start = cut_phase(files)[0]
    edge[:start, 2] += 0.003 * np.sin(np.pi * np.linspace(0.0, 1.0, start)) ** 4
    found = first_failure(**vars(_with_edge(BASE, which, edge)))
    assert (
        found is not None and found.name == f"{('cut', 'air cut')[which]}: edge against the optimised motion"
    )


def test_files_of_a_lower_air_cut_are_refused():
    lower = BASE.demand.params.changed(air_cut_lift_m=0.02)
    other = exported(replace(BASE.demand, params=lower))
    assert first_failure(other.files, other.demand) is None
    failed = [c.name for c in says_what_is_so(other.files, BASE.demand) if not c.passed]
    failed += [c.name for c in kinematics(other.files, BASE.demand) if not c.passed]
    assert failed == [
        "cut.json agrees with cell, robot and motion",
        "air cut: edge against the optimised motion",
    ]


def test_a_hole_in_the_checks_is_found(monkeypatch):
    """With the checks switched off, the same edits are reported as certified motions that break a limit."""
    monkeypatch.setattr(attack_certificate, "first_failure", lambda files, demand: None)
    tally = attack(6, seed=5, base=BASE)
    assert tally.broken and tally.broken[0].startswith("seed 5, edit 0")


def test_a_stopped_search_goes_on_where_it_was_on_any_number_of_processes(tmp_path):
    states = []
    monkey = attack(6, seed=9, base=BASE, save=lambda tally: states.append(replace(tally)))
    assert states[-1].done == monkey.done
    first = attack(3, seed=9, base=BASE)
    again = attack(6, seed=9, base=BASE, tally=first)
    assert (again.done, again.refused, again.certified) == (monkey.done, monkey.refused, monkey.certified)
    two = attack(6, seed=9, base=BASE, processes=2)
    assert (two.done, two.refused, two.passed) == (monkey.done, monkey.refused, monkey.passed)
    path = tmp_path / "state.json"
    assert load(path, 9) == Tally()
    path.write_text('{"seed": 8, "done": 1, "certified": 0, "refused": {}, "broken": [], "passed": {}}')
    with pytest.raises(InputError, match=r"is of seed 8, not 9.*Give --seed"):
        load(path, 9)


def _rocking(degrees):
    share = np.linspace(0.0, 1.0, len(BASE.demand.cut))
    pitch = np.deg2rad(degrees) * np.sin(np.pi * share) ** 3
    cut = replace(BASE.demand.cut, pitch=pitch)
    return exported(replace(BASE.demand, cut=with_moment(cut, BASE.demand.fruit, 0.15)))


def test_a_turning_cut_is_certified_and_the_judge_agrees():
    """1° in a cut of 0.6 s: the lower end stays above the board, the joints within their limits."""
    turning = _rocking(1.0)
    assert first_failure(turning.files, turning.demand) is None
    assert violations(turning.case()) == []


def test_the_judge_looks_at_both_ends_of_the_blade():
    """At 25° its lower end is in the board, the centre is not; and an upright knife is not the commanded one."""
    found = violations(_rocking(25.0).case())
    assert "cut: board" in found and "cut: tilted" not in found
    upright = replace(_rocking(1.0), files=BASE.files)
    assert "cut: tilted" in violations(upright.case())
    assert first_failure(upright.files, upright.demand) is not None
