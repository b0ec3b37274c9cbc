"""The fit of a material does not hang on the mesh or on where it starts: what it predicts is the same."""

import numpy as np
import pytest

from stages.calibrate.material.fit import material_unknowns
from stages.calibrate.material.likelihood import depth_likelihood
from stages.calibrate.material.search import MaterialSearch
from stages.calibrate.problem import OFFSET, pose_problem
from tests.disect_sim.scenes import block_model, regular_block
from tests.stages.calibrate.test_material_fit import EDGE_TRUTH, quick_material
from tests.stages.calibration_scenes import record

PARAMS = quick_material(
    material=["edge_toughness", "edge_rise", "skin_toughness", "sdf_mu"], shared_iterations=10
)


def body(cells):
    return block_model(regular_block((cells,) * 3), damage_law="edge", boundary="guided")


@pytest.fixture(scope="module")
def logs():
    """A straight cut to fit and a drawn one to predict, of a finer block than those that are fitted."""
    fine = body(6)
    return record(fine, EDGE_TRUTH, noise_n=0.2), record(fine, EDGE_TRUTH, slide=0.1, speed=0.1)


def predicted(logs, cells, start=0.0):
    """Profile of the drawn cut [N] as the fit of the straight one on a block of so many cells predicts it."""
    model = body(cells)
    problem, other = (pose_problem(model, log, PARAMS) for log in logs)
    unknowns = material_unknowns("nothing known", PARAMS)
    search = MaterialSearch(
        "material", unknowns, [depth_likelihood(problem, problem.contact & problem.valid, 0.5)], 10
    )
    search.t = start * np.random.default_rng(1).standard_normal(len(unknowns))
    while not search.over():
        search.step()
    values = {name: value for name, value in unknowns.values(search.t).items() if name != OFFSET}
    profile, _ = other.run(values, differentiable=False)
    return profile[other.contact & other.valid]


@pytest.mark.slow
def test_two_meshes_and_two_starts_predict_the_same(logs):
    """Within 5 % of the mean force: a quarter of the model error, which leaves the fit that much freedom."""
    first, other_mesh, other_start = (
        predicted(logs, 4),
        predicted(logs, 5),
        predicted(logs, 4, start=0.7),
    )
    for other in (other_mesh, other_start):
        assert np.abs(other - first).mean() < 0.05 * first.mean()
