"""The block pattern of the Hessian and the groups in which elements are launched."""

import numpy as np
import psutil
import pytest
import scipy.sparse as sp

from disect_sim.cut_mesh import box_mesh
from disect_sim.linear_solver import CachedCholeskySolver, IndefiniteHessianError, _is_positive_definite
from disect_sim.sparsity import _TET_PAIRS, block_pattern, element_slots, launch_groups


def random_tets(seed: int = 0, nodes: int = 40, tets: int = 90) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.sort(np.stack([rng.choice(nodes, 4, replace=False) for _ in range(tets)]), axis=1).astype(
        np.int32
    )


def test_every_pair_of_free_nodes_of_an_element_has_a_block_and_its_twin():
    tets = random_tets()
    fixed = np.arange(40) % 7 == 0
    pattern = block_pattern([tets], fixed)
    dense = np.zeros((40, 40), bool)
    for a in range(4):
        for b in range(4):
            dense[tets[:, a], tets[:, b]] = True
    np.fill_diagonal(dense, True)
    free = np.flatnonzero(~fixed)
    found = np.zeros((len(free), len(free)), bool)
    rows = np.repeat(np.arange(len(free)), np.diff(pattern.indptr))
    found[rows, pattern.indices] = True
    assert (found == dense[np.ix_(free, free)]).all()
    assert (rows[pattern.upper] == pattern.indices[pattern.lower]).all()
    assert (pattern.indices[pattern.upper] == rows[pattern.lower]).all()


def test_slots_point_to_their_pair_and_pairs_with_a_fixed_node_to_the_trash():
    tets = random_tets(1)
    fixed = np.arange(40) % 5 == 0
    pattern = block_pattern([tets], fixed)
    slots = element_slots(pattern, tets)
    rows = np.repeat(np.arange(pattern.free_count), np.diff(pattern.indptr))
    for column, (a, b) in enumerate(_TET_PAIRS):
        i, j = pattern.free_index[tets[:, a]], pattern.free_index[tets[:, b]]
        held = (i < 0) | (j < 0)
        assert (slots[held, column] == pattern.trash).all()
        assert (rows[slots[~held, column]] == i[~held]).all()
        assert (pattern.indices[slots[~held, column]] == j[~held]).all()


def test_parallel_groups_share_no_node_and_cover_every_element_once():
    tets = random_tets(2)
    order, groups = launch_groups(tets, parallel=True)
    assert sorted(order) == list(range(len(tets)))
    assert sum(count for _, count in groups) == len(tets)
    for first, count in groups:
        nodes = tets[order[first : first + count]].ravel()
        assert len(np.unique(nodes)) == len(nodes)


def test_a_sequential_device_gets_one_group():
    order, groups = launch_groups(random_tets(3), parallel=False)
    assert groups == [(0, 90)]
    assert (order == np.arange(90)).all()


def laplacian_blocks(pattern, scale: float) -> np.ndarray:
    """A positive definite matrix for scale > 0: a graph Laplacian plus a little identity, in 3x3 blocks."""
    rows = np.repeat(np.arange(pattern.free_count), np.diff(pattern.indptr))
    blocks = np.tile(-np.eye(3), (len(pattern.indices), 1, 1))
    blocks[rows == pattern.indices] = np.eye(3) * (np.diff(pattern.indptr) - 1 + 0.1)[:, None, None]
    return blocks * scale


def test_an_old_factor_solves_a_changed_matrix_to_the_tolerance_asked_for():
    _, tets = box_mesh((0, 0, 0), (1, 1, 1), (3, 3, 3))
    pattern = block_pattern([tets], np.zeros(tets.max() + 1, bool))
    solver = CachedCholeskySolver(pattern)
    b = np.random.default_rng(0).normal(size=solver.size)
    solver.set_matrix(laplacian_blocks(pattern, 1.0))
    solver.solve(b, tolerance=1e-10)
    changed = laplacian_blocks(pattern, 1.0)
    rows = np.repeat(np.arange(pattern.free_count), np.diff(pattern.indptr))
    changed[rows == pattern.indices] *= 1.3
    solver.set_matrix(changed)
    x = solver.solve(b, tolerance=1e-10)
    # CG's own recurrence for the residual drifts by rounding times the condition number (about 300 here)
    assert np.linalg.norm(solver._matrix @ x - b) < 1e-9 * np.linalg.norm(b)
    assert solver.statistics.factorisations == 1


def indefinite_solver(cells):
    """A solver of a box's Laplacian with one negative block on the diagonal, and its pattern."""
    _, tets = box_mesh((0, 0, 0), (1, 1, 1), cells)
    pattern = block_pattern([tets], np.zeros(tets.max() + 1, bool))
    solver = CachedCholeskySolver(pattern)
    blocks = laplacian_blocks(pattern, 1.0)
    rows = np.repeat(np.arange(pattern.free_count), np.diff(pattern.indptr))
    blocks[(rows == pattern.indices) & (rows == 4)] = -0.5 * np.eye(3)
    solver.set_matrix(blocks)
    return solver, pattern


def test_an_indefinite_matrix_is_counted_said_and_still_solvable(capfd):
    solver, _ = indefinite_solver((2, 2, 2))
    b = np.ones(solver.size)
    with pytest.raises(IndefiniteHessianError):
        solver.solve(b, tolerance=1e-8)
    assert solver.statistics.indefinite == 1
    x = solver.solve_indefinite(b)
    assert np.allclose(solver._matrix @ x, b, atol=1e-9)
    assert capfd.readouterr().out == "", "CHOLMOD's remarks must not reach the caller's standard output"


def test_definiteness_is_that_of_the_eigenvalues():
    random = np.random.default_rng(5)
    for shift in (-3.0, -0.5, 0.5, 3.0):
        dense = random.normal(size=(40, 40)) * (random.random((40, 40)) < 0.1)
        dense = dense + dense.T + shift * np.eye(40) * np.abs(np.linalg.eigvalsh(dense + dense.T)).max()
        expected = bool((np.linalg.eigvalsh(dense) > 0.0).all())
        assert _is_positive_definite(sp.csc_matrix(dense)) is expected is (shift > 1.0)
    assert not _is_positive_definite(sp.csc_matrix(np.diag([1.0, 0.0, 2.0])))


def test_a_cut_that_struggles_does_not_eat_the_memory():
    """cholespy never frees a factor that fails: 40 of them, of this size, are 300 MB."""
    solver, pattern = indefinite_solver((9, 9, 9))
    before = psutil.Process().memory_info().rss
    for _ in range(40):
        with pytest.raises(IndefiniteHessianError):
            solver.solve(np.ones(solver.size), tolerance=1e-8)
    assert solver.statistics.indefinite == 40
    # one failed factor and the workspace of the check; without the check it grows by a factor at every turn
    grown = psutil.Process().memory_info().rss - before
    assert grown < 100e6, grown
    solver.set_matrix(laplacian_blocks(pattern, 1.0))
    b = np.ones(solver.size)
    assert np.allclose(solver._matrix @ solver.solve(b, tolerance=1e-10), b, atol=1e-6)
