"""The whole search: the vertical cut, the descents from all starts, the ablation, and the honesty check."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim import Model
from disect_sim.cut_mesh import CutMesh
from disect_sim.errors import InputError
from stages.optimize.confirmation import Check, Confirmed, confirm
from stages.optimize.constraints import Constraints, rules_of
from stages.optimize.descent import Descent
from stages.optimize.finer_mesh import values_on
from stages.optimize.params import OptimizeParams
from stages.optimize.passage import passage_of
from stages.optimize.slicing_cut import CutFailedError, SlicingCut, Values
from stages.optimize.starts import Start, parameter_draws, start_variables
from stages.runtime.checkpoint import remove_checkpoints
from stages.runtime.parallel import run_parallel

UNCONSTRAINED = "unconstrained"
"""Name of the ablation: the first start without any constraint."""
SEARCH_SHARE = 0.85
"""Of the stage's time, for the progress bar."""

Array = NDArray[np.float64]
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Measured:
    """One simulated motion."""

    cut: SlicingCut
    variables: torch.Tensor
    force: Array
    """On the knife [N], shape [samples, 3]."""

    @property
    def norm(self) -> Array:
        """[N], shape [samples]."""
        return np.linalg.norm(self.force, axis=1)

    def mean_n(self, over: str | None = None) -> float:
        """Mean of the norm over "time" or "depth", by default over params.mean_over [N]."""
        with torch.no_grad():
            return float(self.cut.weights(self.variables, over).numpy() @ self.norm)


@dataclass(frozen=True)
class Optimization:
    """The best motion, the vertical one it is compared with, and how it was found."""

    cut: SlicingCut
    vertical: Measured
    slicing: Measured
    without_sawing: Measured
    """The slicing motion's descent alone. Slow through the top and fast through the bottom lowers a mean over time."""
    residuals: dict[str, float]
    """By how much the slicing motion breaks each rule."""
    limits: dict[str, float]
    best_start: str
    runs: dict[str, Descent]
    """By the name of the start; the ablation is among them."""
    confirmed: list[Confirmed]

    def reduction(self, over: str | None = None) -> float:
        """Share of the vertical cut's mean force that the slicing motion saves; `over` as in Measured.mean_n."""
        return 1.0 - self.slicing.mean_n(over) / self.vertical.mean_n(over)

    @property
    def reduction_by_sawing(self) -> float:
        """The same against its own descent without sawing."""
        return 1.0 - self.slicing.mean_n() / self.without_sawing.mean_n()


def optimize(
    model: Model,
    values: Values,
    params: OptimizeParams,
    *,
    finer: CutMesh,
    scan_dir: Path | None = None,
    key: str = "",
    progress: Progress = lambda fraction, message: None,
) -> Optimization:
    """The least-force motion through the model.

    Args:
        model: The cut body.
        values: Parameters: one value per spring, or one number for the body as a whole.
        params: Section `optimize` of params.yaml.
        finer: The same body with every edge halved, for the honesty check.
        scan_dir: Where checkpoints go; None keeps none.
        key: Hash of everything the search depends on.
        progress: Gets how far the search is, and what it does.
    """
    passage = passage_of(model.mesh, model.knife.length_m, params)
    cut = SlicingCut(model, (values,), passage, params)
    progress(0.0, "simulate the vertical cut")
    vertical = measure(cut, cut.straight())
    scale = vertical.mean_n()
    if scale == 0.0:
        raise InputError(
            "optimize: the vertical cut meets no force. The knife must pass through the fruit. Check precut_half."
        )
    draws = parameter_draws(values, params)
    starts = start_variables(
        cut, params, lambda drawn: progress(0.02, f"draw the starts, {drawn} of {params.candidates}")
    )
    jobs = [
        Start(name, True, variables, model, draws, passage, params, scale, scan_dir, key)
        for name, variables in starts.items()
    ]
    fewer = params.model_copy(update={"iterations": params.ablation_iterations})
    first = starts["vertical"]
    jobs.append(Start(UNCONSTRAINED, False, first, model, draws, passage, fewer, scale, scan_dir, key))
    report = _reporting(progress, sum(job.params.iterations for job in jobs), scale)
    runs = dict(
        zip(
            (job.name for job in jobs),
            run_parallel(Start.run, jobs, processes=params.processes, on_message=report),
            strict=True,
        )
    )
    name, slicing, residuals = _best(cut, runs, params)
    still = slicing.variables.clone()
    still[0] = 0.0
    without_sawing = measure(cut, still)
    progress(SEARCH_SHARE, "simulate again with finer steps, a finer mesh and other parameters")
    base = Check("", model, values, passage, params, vertical.variables, slicing.variables)
    confirmed = confirm(base, finer, values_on(finer, model.mesh, values), processes=params.processes)
    remove_checkpoints(scan_dir, "optimize")
    limits = {rule.name: rule.limit for rule in rules_of(passage, params)}
    return Optimization(cut, vertical, slicing, without_sawing, residuals, limits, name, runs, confirmed)


def measure(cut: SlicingCut, variables: torch.Tensor) -> Measured:
    """Simulate one motion."""
    try:
        with torch.no_grad():
            force = cut.forces(variables)[0].numpy()
    except CutFailedError as error:
        raise InputError(
            f"optimize: a cut stopped before its end. {error}. Change the section optimize of params.yaml."
        ) from error
    return Measured(cut, variables, force)


def _best(
    cut: SlicingCut, runs: dict[str, Descent], params: OptimizeParams
) -> tuple[str, Measured, dict[str, float]]:
    """The best feasible motion of all starts, brought exactly to the end height if it stays feasible there."""
    found = {n: run for n, run in runs.items() if n != UNCONSTRAINED and run.feasible}
    if not found:
        raise InputError(
            "optimize: no iterate kept every constraint. The limits must leave room for a cut of this duration. "
            "Lower optimize.mean_speed_m_s, or raise optimize.iterations or the damping in optimize.constraints."
        )
    objectives = {n: run.best.objective for n, run in found.items() if run.best is not None}
    name = min(objectives, key=lambda n: objectives[n])
    best = found[name].best
    assert best is not None
    variables = best.variables
    constraints = Constraints(rules_of(cut.passage, params), params)
    exact = cut.at_end_height(variables)
    residuals = constraints.residuals(cut.trajectory(exact))
    if constraints.violation(residuals) > 0.0:
        exact, residuals = variables, constraints.residuals(cut.trajectory(variables))
    return name, measure(cut, exact), residuals


def _reporting(progress: Progress, total: int, vertical_n: float) -> Callable[[tuple[str, int, float]], None]:
    """From the messages of all descents to one progress."""
    done: dict[str, int] = {}

    def report(message: tuple[str, int, float]) -> None:
        name, iterations, mean = message
        done[name] = iterations
        share = SEARCH_SHARE * sum(done.values()) / total
        progress(share, f"{name} {iterations}: mean force {mean:.2f} N, vertical cut {vertical_n:.2f} N")

    return report
