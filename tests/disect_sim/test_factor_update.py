"""A factor corrected for contacts that have opened or closed: Woodbury, and what the simulator counts as one."""

import numpy as np
import pytest
import scipy.sparse as sp

from disect_sim import MATERIALS, SlicingMotion, build_model, simulate
from disect_sim.linear_solver import _MAX_COLUMNS, CachedCholeskySolver, FactorUpdate
from disect_sim.model import BoardProperties
from disect_sim.parameters import expand
from disect_sim.step_system import StepSystem
from tests.disect_sim.scenes import irregular_block

RANDOM = np.random.default_rng(7)


class Dense:
    """A factor as cholespy offers it."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self.columns = 0

    def solve(self, b: np.ndarray, x: np.ndarray) -> None:
        self.columns += 1 if b.ndim == 1 else b.shape[1]
        x[...] = np.linalg.solve(self._matrix, b)


def switched(size: int, count: int):
    """A positive definite matrix without its switches, the switches' directions, and their stiffness."""
    root = RANDOM.normal(size=(size, size))
    directions = sp.csr_matrix(RANDOM.normal(size=(count, size)) * (RANDOM.random((count, size)) < 0.2))
    return root @ root.T + np.eye(size), directions, RANDOM.uniform(50.0, 100.0, count)


@pytest.mark.parametrize("columns", [1, 3])
def test_a_corrected_factor_solves_the_changed_matrix(columns):
    bare, directions, stiffness = switched(40, 12)

    def matrix(values):
        return bare + directions.T @ np.diag(values) @ directions

    before = np.where(np.arange(12) < 6, stiffness, 0.0)
    after = np.where(np.arange(12) % 2 == 0, stiffness, 0.0)
    update = FactorUpdate(directions)
    factor = Dense(matrix(before))
    update.restart(factor, before, np.diag(matrix(before)))
    b = RANDOM.normal(size=40 if columns == 1 else (40, columns))
    assert np.allclose(update.solve(b), np.linalg.solve(matrix(before), b))
    for _ in range(2):
        update.use(after)
        # rounding, times a condition number of about 1e4
        assert np.allclose(update.solve(b), np.linalg.solve(matrix(after), b), rtol=1e-9, atol=1e-12)
    assert factor.columns == 3 * columns + 6, "a direction is solved once, when it first changes"
    update.use(before)
    assert np.allclose(update.solve(b), np.linalg.solve(matrix(before), b))


def test_it_keeps_no_more_directions_than_agreed():
    count = _MAX_COLUMNS + 40
    directions = sp.identity(count, format="csr")
    update = FactorUpdate(directions)
    factor = Dense(np.eye(count))
    update.restart(factor, np.zeros(count), np.ones(count))
    update.use(np.ones(count))
    assert factor.columns == _MAX_COLUMNS
    expected = np.where(np.arange(count) < _MAX_COLUMNS, 0.5, 1.0)
    assert np.allclose(update.solve(np.ones(count)), expected)


def test_the_switches_are_what_board_and_overlap_change_in_the_hessian():
    """Without friction and damping nothing else changes between two states with the same tets' Hessian."""
    board = BoardProperties(ke=1.0e4, kd=0.0, mu=0.0)
    model = build_model(irregular_block(), MATERIALS["apple"], boundary="free", board=board)
    system = StepSystem(model, expand({}, model.material, model.surface, model.damage_law), 3e-3, "cpu")
    far, x = np.array([0.0, 1.0, 0.0]), model.mesh.nodes

    def hessian(moved):
        system.begin(x, x, system.parameters.row("cut_spring_ke"), far, far)
        system.gradient(x + moved)
        blocks = system.hessian(fresh=False).copy()
        pattern = system.pattern
        return sp.bsr_matrix((blocks, pattern.indices, pattern.indptr)).toarray(), system.switched_stiffness()

    closer = RANDOM.normal(size=x.shape) * 3e-5
    closer[:, 1] += 9.5e-4  # contact with the board begins at 1 mm
    (first, before), (second, after) = hessian(np.zeros_like(x)), hessian(closer)
    springs = model.spring_count
    assert (before != after)[:springs].any()
    assert (before != after)[springs:].any()
    directions = system.switches.directions
    change = directions.T @ sp.diags(after - before) @ directions
    assert np.allclose(second - first, change.toarray(), rtol=1e-9, atol=1e-6)


def test_a_loose_body_under_a_drawn_blade_needs_fewer_iterations_for_it(monkeypatch):
    """The same force either way: it is the linear solver alone that knows of switches."""
    model = build_model(irregular_block(), MATERIALS["apple"], boundary="guided", damage_law="edge")
    motion = SlicingMotion(
        duration=0.24, initial_y=0.0265, velocity_y=-0.15, amplitude=0.15, frequency=25.0, window_s=0.03
    )
    with_switches = simulate(model, motion, duration=0.24)
    monkeypatch.setattr(CachedCholeskySolver, "set_matrix", _without_switches)
    without = simulate(model, motion, duration=0.24)
    assert with_switches.outcome.ok
    # both are solved to 1e-8 m, under contacts of 1e4 N/m
    assert np.abs(with_switches.force - without.force).max() < 1e-3
    assert with_switches.statistics.cg_iterations < 0.8 * without.statistics.cg_iterations


def _without_switches(self, blocks, stiffness=None):
    self._matrix.data = blocks
    self._stiffness = stiffness
