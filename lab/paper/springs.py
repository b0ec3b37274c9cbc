"""Fits of the paper's springs to synthetic logs, and what they predict: shared values, or one per spring."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from disect_sim.model import Model
from lab.paper.scene import PAPER, Scene
from stages.calibrate.calibration import calibrate
from stages.calibrate.description import CalibrateParams
from stages.calibrate.phase import Values
from stages.calibrate.problem import RecordedCut, pose_problem

SOUGHT = ["cut_spring_ke", "cut_spring_softness", "sdf_ke", "sdf_mu"]
START = PAPER | {"cut_spring_ke": 500.0, "sdf_ke": 2000.0, "sdf_mu": 0.4, "cut_spring_softness": 0.2}
"""Away from any truth used here."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    """How fine and how long."""

    scene: Scene = field(default_factory=Scene)
    truth_cells: tuple[int, int, int] = (5, 5, 5)
    """Of the mesh that the synthetic logs come from."""
    shared: int = 10
    individual: int = 12


SMALL = Size(Scene((3, 2, 2), 0.01, 100.0), (3, 3, 3), 3, 2)
"""For a test."""


def settings(scene: Scene, *, shared: int, individual: int) -> CalibrateParams:
    """So many iterations of both phases."""
    return scene.params(
        fit="springs",
        shared=SOUGHT,
        individual=SOUGHT,
        shared_iterations=shared,
        individual_iterations=individual,
        start=START,
        hold_out_fraction=0.0,
    )


def fitted(model: Model, log: RecordedCut, params: CalibrateParams) -> dict[str, Values]:
    """Values after the shared phase and after the individual one."""
    found = calibrate(model, log, params)
    return {"shared": found.reference_values, "individual": found.values}


def mean_error_n(model: Model, log: RecordedCut, params: CalibrateParams, values: Values) -> float:
    """Mean absolute error of the force over a log's contact [N]."""
    problem = pose_problem(model, log, params)
    profile, _ = problem.run(values, differentiable=False)
    use = problem.contact & problem.valid
    return float(np.abs(profile - problem.measured)[use].mean())


def curve(model: Model, log: RecordedCut, params: CalibrateParams, values: Values) -> dict[str, Array]:
    """Times [s], measured and simulated force [N] of a log's contact, for a figure."""
    problem = pose_problem(model, log, params)
    profile, _ = problem.run(values, differentiable=False)
    use = problem.contact & problem.valid
    return {
        "time": np.round(problem.time[use], 4),
        "measured": np.round(problem.measured[use], 3),
        "simulated": np.round(profile[use], 3),
    }
