"""A run gives its memory back: a fit does hundreds of them in one process."""

import gc

import psutil
import pytest
import warp as wp

from disect_sim import ConstantVelocity, simulate
from disect_sim.device_arrays import clear, host, upload, zeros
from tests.disect_sim.scenes import BLOCK_HEIGHT, block_model, regular_block

MOTION = ConstantVelocity(initial_y=BLOCK_HEIGHT + 5e-4, velocity_y=-0.05)
LARGEST_GROWTH_MB = 0.25
"""Per simulation. This scene's arrays take 1.1 MB, which is what a run that keeps them costs; the allocator's own
ups and downs were below 0.05 MB per simulation, over as many as here."""


def cut_and_gradient(model, solver="cholesky"):
    result = simulate(model, MOTION, duration=0.015, differentiable=True, device="cpu", solver=solver)
    result.gradient(result.force)


def resident_mb():
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


@pytest.mark.parametrize(
    ("law", "solver"), [("force", "cholesky"), ("edge", "cholesky"), ("edge", "conjugate_gradients")]
)
def test_memory_does_not_grow_with_the_number_of_simulations(law, solver):
    model = block_model(regular_block((5, 5, 5)), damage_law=law)
    for _ in range(8):
        cut_and_gradient(model, solver)
    before, runs = resident_mb(), 20
    for _ in range(runs):
        cut_and_gradient(model, solver)
    grown = (resident_mb() - before) / runs
    assert grown < LARGEST_GROWTH_MB, f"{grown:.2f} MB per simulation"


@pytest.mark.parametrize("solver", ["cholesky", "conjugate_gradients"])
def test_no_array_outlives_its_run(solver):
    model = block_model(damage_law="edge")

    def living():
        gc.collect()
        return sum(type(thing) is wp.array for thing in gc.get_objects())

    cut_and_gradient(model, solver)
    before = living()
    cut_and_gradient(model, solver)
    assert living() == before


@pytest.mark.parametrize("dtype", [wp.float64, wp.vec3d, wp.mat33d])
@pytest.mark.parametrize("make", [zeros, wp.zeros])
def test_a_view_shares_the_arrays_memory_and_outlives_it(make, dtype):
    with wp.ScopedDevice("cpu"):
        array = make(7, dtype)
    assert host(array).shape[0] == 7
    host(array)[2] = 3.0
    assert (array.numpy()[2] == 3.0).all()
    upload(array, host(array)[2:4] + 1.0)
    view = host(array)
    del array
    gc.collect()
    assert (view[0] == 4.0).all() and (view[1] == 1.0).all() and (view[2] == 3.0).all()


def test_clear_sets_all_to_zero():
    with wp.ScopedDevice("cpu"):
        array = zeros((2, 3), wp.vec3d)
    host(array)[...] = 1.0
    clear(array)
    assert not array.numpy().any()
