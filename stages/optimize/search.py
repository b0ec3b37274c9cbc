"""The whole search: the vertical cut, the descents from all starts, the ablation, and the confirmation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim import Model
from disect_sim.cut_mesh import CutMesh
from disect_sim.many import Answer, Cut, force_of, simulate_many
from disect_sim.processes import Workers, report_to_parent
from disect_sim.simulation import on_cuda
from stages.optimize.confirmation import (
    MATERIALS,
    NODES,
    POSSIBLE,
    Check,
    Confirmed,
    SavingBand,
    ShareSurrogate,
    checks_of,
    saving_band,
    shares_in,
    values_on,
    with_shares,
)
from stages.optimize.constraints import RATE_HZ, Constraints, Passage, passage_of, rules_of
from stages.optimize.descent import (
    LEFT_BEHIND,
    Descent,
    Reached,
    SoFar,
    descend,
    feasible_start,
    nearest_feasible,
)
from stages.optimize.description import OptimizeParams
from stages.optimize.final_draw import FinalDraw, Whole, WholeCut, final_draw, joined
from stages.optimize.kinematics import Trajectory
from stages.optimize.slicing_cut import AMPLITUDE_M_S, FREQUENCY_RAD_S, PITCH_RAD_S, SlicingCut, Values
from stages.runtime.checkpoint import Checkpoint, remove_checkpoints
from stages.runtime.errors import InputError
from stages.runtime.stage_io import stage_workers
from stages.shared.cut import CutOutcome, Factors, of_material
from stages.shared.fitting import share_done

# Starts of the search: the vertical cut, and a few seeded slicing motions


_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Start:
    """One descent, as it is sent to a process."""

    name: str
    constrained: bool
    variables: _Array
    model: Model
    draws: tuple[Values, ...]
    passage: Passage
    params: OptimizeParams
    scale_n: float
    """Mean force of the vertical cut."""
    scan_dir: Path | None
    key: str
    state: dict[str, Any] | None = None
    """State at the end of an earlier part of the descent."""

    def run(self) -> Descent:
        """Descend; report every iteration to the parent process."""
        cut = SlicingCut(self.model, self.draws, self.passage, self.params)

        def report(run: Descent) -> None:
            if run.history:
                best = run.best if self.constrained and run.feasible else None
                reached = Reached(self.name, len(run.history), run.history[-1]["mean_force_n"])
                if best is not None:
                    reached = replace(reached, best=best.variables, best_mean_n=best.mean_force_n)
                report_to_parent(reached)

        return descend(
            cut,
            self.variables,
            self.params,
            scale_n=self.scale_n,
            constrained=self.constrained,
            checkpoint=Checkpoint(
                self.scan_dir, self.key, stage="optimize", part=self.name.replace(" ", "-")
            ),
            report=report,
            state=self.state,
        )


_START_PITCH_RAD_S = 0.05
"""Pitch rate of the first start [rad/s]: the tip, away from the fixture, begins low."""


def near_vertical(cut: SlicingCut, params: OptimizeParams) -> _Array:
    """Return the first start: the vertical cut, perturbed just enough that the descent can leave it.

    A vertical cut is a symmetric point: its gradient in the amplitude is zero.
    """
    variables = cut.straight()
    variables[0] = params.start_amplitude_m_s / AMPLITUDE_M_S
    if cut.rock is not None:
        variables[3] = _START_PITCH_RAD_S / PITCH_RAD_S
    return cut.held(variables)


def drawn_motions(cut: SlicingCut, params: OptimizeParams, count: int) -> list[_Array]:
    """Return `count` seeded slicing motions, each moved into the limits."""
    generator = np.random.default_rng(params.seed)
    rules = rules_of(cut.passage, params)
    out = []
    for _ in range(count):
        wish = cut.straight()
        wish[0] = generator.uniform(*params.start_amplitude_range_m_s) / AMPLITUDE_M_S
        wish[1] = generator.uniform(*params.start_frequency_range_rad_s) / FREQUENCY_RAD_S
        if cut.rock is not None:
            turned = generator.uniform(0.2, 0.9) * np.radians(params.max_pitch_deg)
            wish[3] = turned / cut.passage.duration_s / PITCH_RAD_S
        out.append(nearest_feasible(cut, Constraints(rules, params), cut.held(wish), params))
    return out


KEYFRAMES = {
    "amplitude": "amplitude_m_s",
    "frequency": "frequency_rad_s",
    "velocity_y": "velocity_y_m_s",
    "pitch_rate": "pitch_rate_rad_s",
}
"""Parameters of a motion → columns of the table optimize/keyframes; the last only of a rocking motion."""


def first_motion(
    amplitude: _Array, frequency: _Array, velocity_y: _Array, pitch_rate: _Array | None = None
) -> list[list[float]]:
    """Return keyframes in SI units in the form of optimize.first_motion."""
    rows = np.stack([amplitude, frequency, velocity_y / velocity_y.mean()], axis=1)
    if pitch_rate is not None:
        rows = np.column_stack([rows, pitch_rate])
    return [[round(float(value), 6) for value in row] for row in rows]


def _known_motion(cut: SlicingCut, params: OptimizeParams) -> _Array:
    """Return params.first_motion on this cut's keyframes, moved into the limits if it breaks one."""
    known = dict(zip(KEYFRAMES, np.array(params.first_motion).T, strict=False))
    duration = cut.passage.duration_s  # a motion for this duration: pitch rates are not stretched
    wish = cut.variables_of(np.linspace(0.0, duration, len(params.first_motion)), known)
    return feasible_start(cut, wish, params)


def _chosen_starts(
    cut: SlicingCut, params: OptimizeParams, drawn: Sequence[tuple[_Array, Answer[_Array]]]
) -> dict[str, _Array]:
    """Return the first start, and the drawn motions with the least force; those that did not finish are dropped."""
    if params.first_motion:
        return {"known motion": _known_motion(cut, params)}
    means = [
        (cut.mean_of([force.value], motion), motion) for motion, force in drawn if force.value is not None
    ]
    best = sorted(means, key=lambda pair: pair[0])[: params.starts - 1]
    return {"vertical": near_vertical(cut, params)} | {
        f"drawn {i + 1}": variables for i, (_, variables) in enumerate(best)
    }


def _parameter_draws(
    values: Values, params: OptimizeParams, materials: Sequence[Factors] = ()
) -> tuple[Values, ...]:
    """Return the parameters themselves and, for a robust motion, other sets.

    These are possible materials, as factors by name, if calibrate has a posterior; otherwise seeded variations by
    draw_spread.
    """
    if materials:
        return (values, *(of_material(values, factors) for factors in materials[: params.draws - 1]))
    generator = np.random.default_rng(params.seed)
    draws: list[Values] = [values]
    for _ in range(1, params.draws):
        factors = np.exp(params.draw_spread * generator.standard_normal(len(values)))
        draws.append({name: value * f for (name, value), f in zip(values.items(), factors, strict=True)})
    return tuple(draws)


UNCONSTRAINED = "unconstrained"
"""Name of the ablation: the first start without any constraint."""
_FIRST_SHARE, _SEARCH_SHARE = 0.1, 0.8
"""Fractions of the stage's time at which the starts are drawn and the search ends, for the progress bar."""
_TRIAL = 5
"""Number of simulations after which a start is compared with the others ..."""
_BEHIND = 0.05
"""... and dropped if its objective exceeds the best one's by more than this fraction."""
_WHOLE_SHARE = 0.97
"""Fraction of the stage's time at which the simulations of the whole motion begin."""
_CONFIRMING = "simulate again with finer steps, a finer mesh and other parameters"
_Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Measured:
    """One simulated motion."""

    cut: SlicingCut
    variables: _Array
    force: _Array
    """Force on the knife [N], shape [samples, 3]."""

    @property
    def norm(self) -> _Array:
        """Norm of the force [N], shape [samples]."""
        return np.linalg.norm(self.force, axis=1)

    def mean_n(self, over: str | None = None) -> float:
        """Return the mean of the norm over "time" or "depth", by default over params.mean_over [N]."""
        return float(self.cut.weights(self.variables, over) @ self.norm)


@dataclass(frozen=True)
class Optimization:
    """The best motion, the vertical one it is compared with, and how it was optimum."""

    cut: SlicingCut
    vertical: Measured
    slicing: Measured
    without_sawing: Measured
    """Descent of the slicing motion alone: a slow top and a fast bottom already lower a mean over time."""
    residuals: dict[str, float]
    """Violation of each rule by the slicing motion."""
    limits: dict[str, float]
    best_start: str
    runs: dict[str, Descent]
    """Runs by the name of the start, the ablation included."""
    confirmed: list[Confirmed]
    draw: FinalDraw
    """Final draw after the slicing motion, which cuts what it left."""
    whole: Whole
    """The slicing motion with its final strokes."""
    whole_vertical: Whole
    """The vertical cut of the same total duration, start and end height."""
    vertical_outcome: CutOutcome
    """Outcome of that."""
    band: SavingBand | None
    """Interval of the saving; None without a posterior, or if a simulation for it did not finish."""
    rests_on: str
    """Basis of the interval."""
    alone: "dict[str, Optimization]" = field(default_factory=dict)
    """Of a rocking motion: the best motions that only saw or only rock, under the same limits."""

    def reduction(self, over: str | None = None) -> float:
        """Return the fraction of the vertical cut's mean force that the whole motion saves, final strokes included.

        over: "time" or "depth", by default params.mean_over.
        """
        over = over or self.cut.mean_over
        return 1.0 - self.whole.mean_n(over) / self.whole_vertical.mean_n(over)

    def descent_reduction(self, over: str | None = None) -> float:
        """Return the same for the descent without final strokes, against a vertical cut as long as the descent."""
        return 1.0 - self.slicing.mean_n(over) / self.vertical.mean_n(over)

    @property
    def reduction_by_sawing(self) -> float:
        """Return the same against its own descent without sawing."""
        return 1.0 - self.slicing.mean_n() / self.without_sawing.mean_n()


def optimize(
    model: Model,
    values: Values,
    params: OptimizeParams,
    *,
    finer: CutMesh,
    materials: Sequence[Factors] = (),
    shares: _Array | None = None,
    rests_on: str = "",
    scan_dir: Path | None = None,
    key: str = "",
    progress: _Progress = lambda fraction, message: None,
    show: Callable[[SoFar], None] = lambda so_far: None,
) -> Optimization:
    """Find the least-force motion through the model.

    Args:
        model: The cut body.
        values: Parameters: one value per spring, or one number for the body as a whole. The shares among them should
            be the means of `shares`: forces are linear in them, so candidates are then judged by their mean over the
            posterior.
        params: Section `optimize` of params.yaml.
        finer: The same body with every edge halved, for the confirmation.
        materials: Possible materials by the posterior: factors on the parameters by name.
        shares: Possible press and drag shares by the posterior, shape [draws, 2]; None if they are fixed.
        rests_on: What the interval of the saving is based on.
        scan_dir: Folder of the checkpoints; None keeps none.
        key: Hash of everything the search depends on.
        progress: Called with the fraction done and the current activity.
        show: Called with the best motion so far after every simulation of the search.
    """
    passage = passage_of(model.mesh, model.knife, params)
    cut = SlicingCut(model, (values,), passage, params)
    with stage_workers(params.processes) as workers:
        progress(0.0, "simulate the vertical cut and the drawn motions")
        search = params.starts > 1 and not params.first_motion
        drawn = drawn_motions(cut, params, params.candidates if search else 0)
        forces = simulate_many(
            [one for variables in (cut.straight(), *drawn) for one in cut.cuts(variables)],
            of=force_of,
            workers=workers,
            progress=lambda share: progress(_FIRST_SHARE * share, "draw the starts"),
        )
        vertical = _measured(cut, cut.straight(), forces[0])
        scale = vertical.mean_n()
        if scale == 0.0:
            raise InputError(
                "optimize: the vertical cut has zero force. The knife must pass through the fruit. Check precut_half."
            )
        starts = _chosen_starts(cut, params, list(zip(drawn, forces[1:], strict=True)))
        template = Start(
            "",
            True,
            next(iter(starts.values())),
            model,
            _parameter_draws(values, params, materials),
            passage,
            params,
            scale,
            scan_dir,
            key,
        )
        runs = _descents(workers, template, starts, progress, SoFar(cut, scale), show)
        name, best, residuals = _best(cut, runs, params)
        still = best.copy()
        still[0] = 0.0
        base = Check("", model, values, passage, params, cut.straight(), best)
        checks = (
            checks_of(base, finer, values_on(finer, model.mesh, values), materials) if params.confirm else []
        )
        again = [*(c for check in checks for c in check.cuts()), *cut.cuts(best), *cut.cuts(still)]
        draw, answers = _confirmations(
            workers,
            partial(final_draw, model, values, cut, best, params),
            again,
            lambda share: progress(_SEARCH_SHARE + (_WHOLE_SHARE - _SEARCH_SHARE) * share, _CONFIRMING),
        )
        confirmed = [check.confirmed(answers[2 * i : 2 * i + 2]) for i, check in enumerate(checks)]
        slicing, without_sawing = (
            _measured(cut, variables, answer)
            for variables, answer in zip((best, still), answers[-2:], strict=True)
        )
        progress(_WHOLE_SHARE, "simulate the whole vertical cut, and the whole motion with other shares")
        path = joined(cut.trajectory(best), draw.path)
        force = np.concatenate([slicing.force, draw.force])
        whole = Whole(path, force, cut.sample_rate_hz, draw.torque)
        straight = straight_path(cut, path, params)
        nodes = (
            []
            if shares is None or not params.confirm
            else [shares_in(values) * factors for factors in NODES[1:]]
        )
        jobs = [WholeCut(model, values, straight, params)]
        jobs += [WholeCut(model, with_shares(values, node), path, params) for node in nodes]
        (straight_force, vertical_outcome), *others = workers.run(WholeCut.run, jobs)
    if straight_force is None:
        raise InputError(
            f"optimize: the vertical cut of the whole duration, {_path_seconds(path):.2f} s, stopped before its end. "
            f"{vertical_outcome.ended} The saving is relative to it. Lower cut.dt_s, or raise "
            "cut.force_limit_n."
        )
    remove_checkpoints(scan_dir, "optimize")
    limits = {rule.name: rule.limit for rule in rules_of(passage, params)}
    optimum = Optimization(
        cut,
        vertical,
        slicing,
        without_sawing,
        residuals,
        limits,
        name,
        runs,
        confirmed,
        draw,
        whole,
        Whole(straight, straight_force, cut.sample_rate_hz),
        vertical_outcome,
        None,
        rests_on,
    )
    tried = [shares_in(of_material(values, factors)) for factors in materials[:MATERIALS]] if nodes else []
    band = _band(optimum, shares, [shares_in(values), *nodes] if nodes else [], tried, others, params.seed)
    return replace(optimum, band=band)


def _path_seconds(path: Trajectory) -> float:
    """Return the duration of a path with one row per millisecond [s]."""
    return (len(path.position) - 1) / RATE_HZ


def straight_path(cut: SlicingCut, path: Trajectory, params: OptimizeParams) -> Trajectory:
    """Return the vertical cut of the path's duration, start and end height, from rest to rest."""
    seconds, (start, end) = round(_path_seconds(path), 9), path.position[[0, -1], 1]
    longer = cut.along(
        replace(cut.passage, duration_s=seconds, start_m=float(start), end_m=float(end)), params
    )
    return longer.trajectory(longer.straight())


def _band(
    optimum: Optimization,
    shares: _Array | None,
    nodes: Sequence[_Array],
    tried: Sequence[_Array],
    others: Sequence[tuple[_Array | None, CutOutcome]],
    seed: int,
) -> SavingBand | None:
    """Return the interval of the saving, from the checks with possible materials and the simulations with other shares.

    nodes: press and drag share of the whole motion and of the others, each of shape [2]; tried: those of the materials.
    """
    rows = [row for row in optimum.confirmed if row.name.startswith(POSSIBLE)]
    simulated = np.array([row.slicing_n / row.vertical_n for row in rows])
    over = optimum.cut.mean_over
    ratio, descent = 1.0 - optimum.reduction(), 1.0 - optimum.descent_reduction()
    if len(rows) < 2 or not np.isfinite(simulated).all() or any(force is None for force, _ in others):
        return None
    if shares is None:
        return saving_band(np.array([ratio]), np.log(simulated / descent), seed)
    count = len(optimum.whole.force)
    forces = [optimum.whole.force, *(force[:count] for force, _ in others if force is not None)]
    surrogate = ShareSurrogate(np.array(nodes), np.array(forces))
    vertical_n = optimum.whole_vertical.mean_n(over)
    ratios = surrogate.mean_n(shares, optimum.whole.weights(over)) / vertical_n
    weights = optimum.cut.weights(optimum.slicing.variables)
    expected = surrogate.mean_n(np.array(tried), weights) / optimum.vertical.mean_n()
    return saving_band(ratios, np.log(simulated / expected), seed)


def _confirmations(
    workers: Workers, draw: Callable[[], Any], cuts: list[Cut], progress: Callable[[float], None]
) -> tuple[Any, list[Answer[_Array]]]:
    """Return the final draw and the forces of the cuts: in parallel processes or, on CUDA, the cuts in batches."""
    if on_cuda():
        return draw(), simulate_many(cuts, of=force_of, progress=progress)
    jobs: list[Callable[[], Any]] = [draw, *(partial(_force, cut) for cut in cuts)]
    drawn, *answers = workers.run(_call, jobs, on_done=lambda done: progress(done / len(jobs)))
    return drawn, answers


def _force(cut: Cut) -> Answer[_Array]:
    """Return the force of one cut, simulated in this process.

    Repeated with the default solver if another one failed.
    """
    answer = simulate_many([cut], of=force_of, processes=1)[0]
    if answer.value is None and cut.options.get("solver") is not None:
        cut = replace(cut, options={**cut.options, "solver": None})
        answer = simulate_many([cut], of=force_of, processes=1)[0]
    return answer


def _call(job: Callable[[], Any]) -> Any:
    return job()


def _measured(cut: SlicingCut, variables: _Array, answer: Answer[_Array]) -> Measured:
    """Return a motion that must be simulated to its end."""
    if answer.value is None:
        raise InputError(
            f"optimize: a simulated cut stopped before its end. {answer.outcome}. Change the section optimize of "
            "params.yaml."
        )
    return Measured(cut, variables, answer.value)


def _descents(
    workers: Workers,
    template: Start,
    starts: dict[str, _Array],
    progress: _Progress,
    so_far: SoFar,
    show: Callable[[SoFar], None],
) -> dict[str, Descent]:
    """Descend from every start, and from the first without constraints; return the results by name.

    After a few simulations only starts that are not far behind the best continue.
    """
    params = template.params
    tried = params.model_copy(update={"iterations": min(_TRIAL, params.iterations)})
    fewer = params.model_copy(update={"iterations": params.ablation_iterations})
    jobs = [replace(template, name=name, variables=variables) for name, variables in starts.items()]
    free = replace(template, name=UNCONSTRAINED, constrained=False, params=fewer)
    planned = (*jobs, free) if params.ablation_iterations else jobs
    report = _reporting(progress, {job.name: job.params.iterations for job in planned}, so_far, show)
    trials = workers.run(Start.run, [replace(job, params=tried) for job in jobs], on_message=report)
    reached = [run.best_after(_TRIAL) for run in trials]
    ahead = [mean <= (1.0 + _BEHIND) * min(reached) for mean in reached]
    onward = [replace(job, state=run.state) for job, run, on in zip(jobs, trials, ahead, strict=True) if on]
    tried_runs = {job.name: run for job, run in zip(jobs, trials, strict=True)}
    for run in tried_runs.values():
        run.ended = LEFT_BEHIND
    again = [*onward, free] if params.ablation_iterations else onward
    return tried_runs | {
        job.name: run
        for job, run in zip(again, workers.run(Start.run, again, on_message=report), strict=True)
    }


def _best(
    cut: SlicingCut, runs: dict[str, Descent], params: OptimizeParams
) -> tuple[str, _Array, dict[str, float]]:
    """Return the best feasible motion of all starts, moved exactly to the end height if it stays feasible there."""
    feasible = {n: run for n, run in runs.items() if n != UNCONSTRAINED and run.feasible}
    if not feasible:
        raise InputError(
            "optimize: no motion of the search satisfies every constraint. A cut of this duration must be feasible. "
            "Lower cut.speed_m_s, or raise optimize.window_s, iterations or the damping in optimize.constraints."
        )
    objectives = {n: run.best.objective for n, run in feasible.items() if run.best is not None}
    name = min(objectives, key=lambda n: objectives[n])
    best = feasible[name].best
    assert best is not None
    constraints = Constraints(rules_of(cut.passage, params), params)
    exact = cut.at_end_height(best.variables)
    residuals = constraints.residuals(cut.trajectory(exact))
    if constraints.violation(residuals) > 0.0:
        exact, residuals = best.variables, constraints.residuals(cut.trajectory(best.variables))
    return name, exact, residuals


def _reporting(
    progress: _Progress, limits: Mapping[str, int], so_far: SoFar, show: Callable[[SoFar], None]
) -> Callable[[Reached], None]:
    """Combine the messages of all descents into one progress."""

    def report(reached: Reached) -> None:
        so_far.add(reached)
        done = sum(share_done(rows[-1][0], limits[name]) for name, rows in so_far.means.items())
        share = _FIRST_SHARE + (_SEARCH_SHARE - _FIRST_SHARE) * done / len(limits)
        text = f"{reached.start} {reached.simulations}: mean force {reached.mean_force_n:.2f} N"
        progress(share, f"{text}, vertical cut {so_far.vertical_n:.2f} N")
        show(so_far)

    return report
