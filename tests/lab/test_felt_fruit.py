"""The force that a simulated arm feels is that of the step it was sent, also where the knife is slow."""

import numpy as np
import pytest

from pipelines.arm.felt_fruit import Fruit, Reflex

MS = np.arange(1501)
STEP = np.array([0.1, -0.2, 0.0, 0.3, 0.0, 0.1, -0.1])
"""From start to end of the cut [rad]."""


def way() -> np.ndarray:
    """Joints [rad] for a second from rest to rest, then half a second that is thirty times slower."""
    s = np.clip(1e-3 * MS, 0.0, 1.0)
    done = s**3 * (10.0 + s * (6.0 * s - 15.0)) + 0.03 * np.clip(1e-3 * MS - 1.0, 0.0, None)
    return done[:, None] * STEP


def sent(joints: np.ndarray) -> np.ndarray:
    """What is felt [N] along z; the fruit's force is 1 N at first and then its time in milliseconds."""
    force = np.stack([0.0 * MS, 0.0 * MS, np.maximum(MS, 1.0)], axis=1)
    fruit = Fruit({"joints_rad": way().tolist(), "force_n": force.tolist()})
    return np.array([fruit.felt(q)[2] for q in joints])


def with_rest(joints: np.ndarray) -> np.ndarray:
    return np.concatenate([np.tile(way()[:1], (200, 1)), joints])


def test_force_is_that_of_its_step_at_any_speed():
    """The first steps are nanoradians long, as the certified motion's are: they count as the rest before."""
    found = sent(with_rest(way()))[200:]
    exact = np.abs(way()).max(axis=1) > 1e-6
    assert np.array_equal(found[exact], MS[exact]) and exact.sum() > 1450
    assert np.abs(found - MS).max() < 50.0


def test_lost_packets_and_a_slower_way_through_it():
    lost = sent(with_rest(way()[::3]))[200:]
    assert np.abs(lost - MS[::3])[20:].max() <= 1.0
    halves = 0.5 * (way()[:-1] + way()[1:])
    slow = sent(with_rest(np.stack([way()[:-1], halves], axis=1).reshape(-1, 7)))[200:]
    assert slow[200::2] == pytest.approx(MS[100:-1], abs=1.0)


def test_nothing_is_felt_in_the_air_on_the_way_back_and_after_the_cut():
    assert not sent(with_rest(way()) + 0.1 * np.eye(7)[1]).any(), "an air cut"
    back = sent(with_rest(np.concatenate([way()[:800], way()[800:100:-4]])))
    assert back[200 + 799] == 799.0 and not back[-100:].any()
    away = way()[-1] + np.outer(np.linspace(0.0, 0.1, 300), np.ones(7))
    felt = sent(with_rest(np.concatenate([way(), away])))
    assert felt[200 + 1500] == 1500.0 and not felt[-290:].any()


def test_a_second_cut_begins_anew():
    found = sent(np.concatenate([with_rest(way()[:700]), with_rest(way())]))
    assert found[-1] == 1500.0 and found[900 + 200 + 600] == 600.0


def test_the_reflex_enforces_the_thresholds_that_the_client_set():
    """The last six of 52 numbers are the nominal upper force thresholds; the arm stops once per contact."""
    reflex = Reflex()
    assert not reflex.trips(np.array([0.0, 0.0, -1e4])), "nothing was set"
    reflex = Reflex()
    reflex.set(np.array([*range(46), 10.0, 39.0, 39.0, 5.0, 5.0, 5.0]).tobytes())
    pushes = [(0.0, 0.0, -38.0), (0.0, 0.0, -40.0), (0.0, 0.0, -40.0), (0.0, 0.0, 0.0), (11.0, 0.0, 0.0)]
    assert [reflex.trips(np.array(push)) for push in pushes] == [False, True, False, False, True]
