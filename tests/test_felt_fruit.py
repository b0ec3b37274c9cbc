"""The force that a simulated arm feels comes when it is due, also where the knife is slow and the arm sags."""

import numpy as np
import pytest

from scripts.felt_fruit import Fruit

DUE_S = 1e-3 * np.arange(1501)
REST = 200
"""Samples at rest before the cut."""


def way() -> np.ndarray:
    """40 mm down, from rest to rest, then half a second along the board at 2 mm/s."""
    s = np.clip(DUE_S / 1.0, 0.0, 1.0)
    down = 0.04 * s**3 * (10.0 + s * (6.0 * s - 15.0))
    along = 0.002 * np.clip(DUE_S - 1.0, 0.0, None)
    return np.stack([0 * s, along, 0.05 - down], axis=1)


def readings(edge: np.ndarray) -> np.ndarray:
    """What is felt [N] along z at these places of the edge; the fruit's force is its time in milliseconds."""
    force = np.stack([0 * DUE_S, 0 * DUE_S, 1e3 * DUE_S], axis=1)
    fruit = Fruit({"position_m": way().tolist(), "force_n": force.tolist()})
    return np.array([fruit.felt(place)[2] for place in edge])


def executed(*, sag_m: float = 0.0, late: int = 0) -> np.ndarray:
    """The way with a rest before it, so much lower and so many samples late."""
    path = np.concatenate([np.tile(way()[:1], (REST + late, 1)), way()[: len(DUE_S) - late]])
    return path - [0.0, 0.0, sag_m]


@pytest.mark.parametrize("sag_m", [0.0, 0.001, 0.0015])
def test_force_comes_when_it_is_due_although_the_arm_sags(sag_m):
    """A millimetre lower, the nearest place is up to half a second ahead: at both ends the knife is that slow."""
    found = readings(executed(sag_m=sag_m))[REST:]
    # The arm counts as resting below 1 mm/s, which this way has after 30 ms.
    assert np.abs(found - 1e3 * DUE_S)[31:].max() <= 2.0 and not found[:30].any()


def test_force_waits_for_an_arm_that_is_late():
    found = readings(executed(late=30))[REST:]
    middle = slice(300, 900)
    assert found[middle] == pytest.approx(1e3 * DUE_S[middle] - 30.0, abs=2.0)


def test_nothing_is_felt_elsewhere_and_after_the_cut():
    assert not readings(executed(sag_m=-0.06)).any(), "an air cut"
    up = way()[-1] + np.outer(np.linspace(0.0, 0.06, 300), [0.0, 0.0, 1.0])
    felt = readings(np.concatenate([executed(), up]))
    assert felt[REST + 1500] == pytest.approx(1500.0, abs=2.0) and not felt[-200:].any()
