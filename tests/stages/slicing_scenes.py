"""A tiny synthetic body for the tests of optimize: a block of 200 tets, cut in a fifth of a second."""

from pathlib import Path

import numpy as np

from disect_sim.cut_mesh import box_mesh
from disect_sim.model import Model
from stages.optimize.constraints import passage_of
from stages.optimize.description import OptimizeParams
from stages.optimize.slicing_cut import SlicingCut
from stages.runtime.params import load_params
from tests.disect_sim.scenes import BLOCK_HIGH, BLOCK_LOW, block_model, regular_block

ROOT = Path(__file__).parents[2]
SHIPPED: OptimizeParams = load_params(ROOT / "params.yaml").optimize
VALUES = {
    "cut_spring_ke": 500.0,
    "cut_spring_softness": 0.2,
    "sdf_ke": 1200.0,
    "sdf_mu": 0.7,
    "sdf_radius": 0.5e-3,
    "sdf_tip": 1.0e-3,
}


def quick(**changes: object) -> OptimizeParams:
    """The shipped parameters, made quick: 4 ms steps, one start, one process."""
    base = {
        "dt_s": 0.004,
        "speed_m_s": 0.06,
        "starts": 1,
        "candidates": 1,
        "iterations": 3,
        "ablation_iterations": 2,
        "inner_iterations": 80,
        "processes": 1,
    }
    return SHIPPED.changed(**{**base, **changes})


def block() -> Model:
    """About 200 tets under the kitchen knife."""
    return block_model(regular_block((3, 3, 3)))


def uncut_block() -> tuple[np.ndarray, np.ndarray]:
    """Nodes [m] and tets of the same block before the cut."""
    return box_mesh(BLOCK_LOW, BLOCK_HIGH, (3, 3, 3))


def slicing_cut(params: OptimizeParams, model: Model | None = None) -> SlicingCut:
    """The cut of the block."""
    body = block() if model is None else model
    return SlicingCut(body, (VALUES,), passage_of(body.mesh, body.knife, params), params)
