"""Force against duration: the least-force motion for several durations, each search started from its neighbour's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim import Model
from disect_sim.many import force_of, simulate_many
from disect_sim.processes import report_to_parent
from stages.optimize.constraints import passage_of
from stages.optimize.descent import descend, feasible_start
from stages.optimize.description import OptimizeParams
from stages.optimize.final_draw import FinalDraw, Whole, WholeCut, final_draw, joined
from stages.optimize.optimize_report import motion_rows
from stages.optimize.search import KEYFRAMES, Measured, first_motion, straight_path
from stages.optimize.slicing_cut import SlicingCut, Values
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.stage_io import stage_workers
from stages.shared.pictures import CUT, SCAN, TEXT, WARNING, new_figure, pixels_of

_Array = NDArray[np.float64]
_FACTORS = (0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5)
"""Durations of the descent over that of the scan's own motion."""
_ITERATIONS = 6
"""Simulations with gradient per duration: the start is a neighbour's optimum."""
_ROUNDS, _GENTLER = 2, 0.7
"""Times that motions are searched again, and the factor on their acceleration along the blade each time."""


@dataclass(frozen=True)
class Timed:
    """The least-force motion of one duration."""

    motion: Measured
    draw: FinalDraw
    whole: Whole
    """With its final strokes."""
    vertical: Whole
    """The vertical cut of the same total duration, start and end height."""
    params: OptimizeParams
    """Limits under which it was found."""

    @property
    def duration_s(self) -> float:
        """Total duration, final strokes included [s]."""
        return float(self.whole.times[-1])

    @property
    def descent_s(self) -> float:
        """Duration of the descent, as in optimize.duration_s."""
        return self.motion.cut.passage.duration_s

    @property
    def mean_n(self) -> float:
        """Mean force of the whole motion [N]."""
        return self.whole.mean_n(self.motion.cut.mean_over)

    @property
    def peak_n(self) -> float:
        """Largest force [N]."""
        return float(self.whole.norm.max())

    @property
    def first_motion(self) -> list[list[float]]:
        """The motion in the form of optimize.first_motion."""
        return first_motion(**self.motion.cut.motion_parameters(self.motion.variables))

    @property
    def saving(self) -> float:
        """Fraction of the vertical cut's mean force that is saved."""
        return 1.0 - self.mean_n / self.vertical.mean_n(self.motion.cut.mean_over)

    def table(self) -> pl.DataFrame:
        """Return the motion with the columns of optimize/motion."""
        return motion_rows(self.motion, self.draw)


@dataclass(frozen=True)
class _Found:
    """Result of one duration as it leaves its process."""

    params: OptimizeParams
    variables: _Array
    force: _Array
    draw: FinalDraw
    vertical: _Array
    """Force of the vertical cut of the same total duration [N]."""


@dataclass(frozen=True)
class _Chain:
    """Durations that one process works through, from a known motion outwards."""

    model: Model
    values: Values
    params: OptimizeParams
    durations_s: tuple[float, ...]
    accelerations_m_s2: tuple[float, ...]
    """Limit along the blade for each duration."""
    times: _Array
    """Times of the known motion's keyframes [s]."""
    keyframes: Mapping[str, _Array]
    """Its parameters in SI units."""

    def run(self) -> list[_Found | None]:
        times, keyframes, out = self.times, self.keyframes, []
        for duration, acceleration in zip(self.durations_s, self.accelerations_m_s2, strict=True):
            params = self.params.changed(
                duration_s=duration,
                max_acceleration_along_m_s2=acceleration,
                iterations=min(_ITERATIONS, self.params.iterations),
            )
            passage = passage_of(self.model.mesh, self.model.knife, params)
            cut = SlicingCut(self.model, (self.values,), passage, params)
            found = _search(self, cut, cut.variables_of(times, keyframes), params)
            if found is not None:
                times, keyframes = cut.keyframe_times, cut.motion_parameters(found.variables)
            out.append(found)
            report_to_parent(duration)
        return out


def _search(chain: _Chain, cut: SlicingCut, wish: _Array, params: OptimizeParams) -> _Found | None:
    """Return the best motion from a start near `wish`; None if none is feasible and finishes."""
    (straight,) = simulate_many(cut.cuts(cut.straight()), of=force_of, processes=1)
    if straight.value is None:
        return None
    run = descend(
        cut,
        feasible_start(cut, wish, params),
        params,
        scale_n=cut.mean_of([straight.value], cut.straight()),
        checkpoint=Checkpoint(None, "", stage="optimize", part="tradeoff"),
    )
    if run.best is None or not run.feasible:
        return None
    best = cut.at_end_height(run.best.variables)
    (answer,) = simulate_many(cut.cuts(best), of=force_of, processes=1)
    if answer.value is None:
        return None
    draw = final_draw(chain.model, chain.values, cut, best, params)
    path = joined(cut.trajectory(best), draw.path)
    vertical, _ = WholeCut(chain.model, chain.values, straight_path(cut, path, params), params).run()
    return None if vertical is None else _Found(params, best, answer.value, draw, vertical)


def tradeoff(
    model: Model,
    values: Values,
    params: OptimizeParams,
    keyframes: pl.DataFrame,
    certified: Callable[[Timed], bool],
    progress: Callable[[float, str], None],
    factors: Sequence[float] = (),
) -> list[Timed]:
    """Return the least-force motions by duration, the shortest first; durations that the arm can't keep are left out.

    The force along the blade changes its sign while the blade's speed passes that of the descent, so the acceleration
    along the blade is limited in proportion to the descent's speed: the arm's torques can't change faster. A motion
    that is refused is searched again with less; one that needs more force than a shorter one, from that one's.

    Args:
        model: The cut body.
        values: Its parameters.
        params: Section `optimize` of params.yaml.
        keyframes: The table optimize/keyframes of the known motion.
        certified: Whether the certificate accepts a motion.
        progress: Called with the fraction done and the current activity.
        factors: Durations of the descent over that of the known motion, 1 among them; by default seven.
    """
    known = passage_of(model.mesh, model.knife, params).duration_s
    durations = [round(factor * known, 3) for factor in factors or _FACTORS]
    start = {
        name: keyframes[column].to_numpy()
        for name, column in KEYFRAMES.items()
        if column in keyframes.columns
    }
    middle = durations.index(round(known, 3))
    full = params.max_acceleration_along_m_s2
    limits = [full * min(1.0, known / duration) for duration in durations]
    if params.first_motion:  # taken over from an earlier curve with a single iteration
        params = params.changed(first_motion=(), iterations=_ITERATIONS)
    chain = _Chain(model, values, params, (), (), keyframes["time_s"].to_numpy(), start)
    itself = replace(chain, params=params.changed(iterations=1))
    chains = [
        replace(itself, durations_s=(known,), accelerations_m_s2=(full,)),
        replace(chain, durations_s=tuple(durations[middle:]), accelerations_m_s2=tuple(limits[middle:])),
        replace(
            chain,
            durations_s=tuple(reversed(durations[:middle])),
            accelerations_m_s2=tuple(reversed(limits[:middle])),
        ),
    ]
    done: list[float] = []

    def listen(duration: float) -> None:
        done.append(duration)
        progress(min(0.95, 0.5 * len(done) / len(durations)), f"descent of {duration:.2f} s")

    points: dict[float, Timed] = {}
    good: dict[float, bool] = {}
    tried: dict[float, float] = {}
    with stage_workers(params.processes) as workers:
        for _ in range(1 + _ROUNDS):
            for each in (
                found for results in workers.run(_Chain.run, chains, on_message=listen) for found in results
            ):
                if each is None:
                    continue
                point = _timed(model, values, each)
                descent, passes = point.descent_s, certified(point)
                tried[descent] = min(tried.get(descent, np.inf), each.params.max_acceleration_along_m_s2)
                old = points.get(descent)
                if old is None or (not passes, point.mean_n) < (not good[descent], old.mean_n):
                    points[descent], good[descent] = point, passes
            chains = _again(chain, points, good, tried)
            if not chains:
                break
    return [points[duration] for duration in sorted(points)]


def _again(
    chain: _Chain, points: Mapping[float, Timed], good: Mapping[float, bool], tried: Mapping[float, float]
) -> list[_Chain]:
    """Return what to search again: refused motions more gently, and those that a shorter one beats, from that one's.

    tried: least acceleration along the blade so far, by duration [m/s²].
    """
    chains, best = [], None
    for duration in sorted(points):
        point = points[duration]
        if not good[duration]:
            chains.append(_from(chain, point, duration, _GENTLER * tried[duration]))
        elif best is not None and point.mean_n > best.mean_n:
            chains.append(_from(chain, best, duration, best.params.max_acceleration_along_m_s2))
        else:
            best = point
    return chains


def _from(chain: _Chain, known: Timed, duration_s: float, acceleration_m_s2: float) -> _Chain:
    cut = known.motion.cut
    return replace(
        chain,
        durations_s=(duration_s,),
        accelerations_m_s2=(acceleration_m_s2,),
        times=cut.keyframe_times,
        keyframes=cut.motion_parameters(known.motion.variables),
    )


def _timed(model: Model, values: Values, found: _Found) -> Timed:
    passage = passage_of(model.mesh, model.knife, found.params)
    cut = SlicingCut(model, (values,), passage, found.params)
    path = joined(cut.trajectory(found.variables), found.draw.path)
    return Timed(
        Measured(cut, found.variables, found.force),
        found.draw,
        Whole(path, np.concatenate([found.force, found.draw.force]), cut.sample_rate_hz),
        Whole(straight_path(cut, path, found.params), found.vertical, cut.sample_rate_hz),
        found.params,
    )


def on_front(means_n: Sequence[float]) -> list[bool]:
    """Return which of the motions, the shortest first, have less force than every shorter one."""
    least = np.minimum.accumulate(means_n)
    return [i == 0 or bool(mean < least[i - 1]) for i, mean in enumerate(means_n)]


def tradeoff_picture(points: Sequence[Timed], certified: Sequence[bool]) -> NDArray[np.uint8]:
    """Draw mean and peak force over the total duration, beside the vertical cut's; 8-bit pixels [height, width, 3]."""
    figure, canvas = new_figure((11.0, 4.2))
    force, forces = figure.subplots(1, 2)
    times = [point.duration_s for point in points]
    force.plot(times, [point.mean_n for point in points], color=CUT, label="mean force")
    force.plot(times, [point.peak_n for point in points], color=CUT, ls=":", label="peak force")
    vertical = [point.vertical.mean_n(point.motion.cut.mean_over) for point in points]
    force.plot(times, vertical, color=SCAN, label="vertical cut, mean force")
    for point, good in zip(points, certified, strict=True):
        force.plot(point.duration_s, point.mean_n, "o" if good else "x", color=CUT if good else WARNING)
    force.set(
        xlabel="total duration, final strokes included [s]", ylabel="force on the knife [N]", ylim=(0, None)
    )
    force.set_title("least force for a duration (cross: refused)", color=TEXT, fontsize=10)
    force.legend(frameon=False)
    for i, point in enumerate(points):
        shade = 0.2 + 0.7 * i / max(1, len(points) - 1)
        rate = point.whole.sample_rate_hz
        forces.plot(np.arange(len(point.whole.norm)) / rate, point.whole.norm, color=CUT, alpha=shade)
    forces.set(xlabel="time [s]", ylabel="force on the knife [N]")
    forces.set_title("force of each motion (darker: longer)", color=TEXT, fontsize=10)
    return pixels_of(canvas)


# A plan of several cuts


@dataclass(frozen=True)
class _PlanPoint:
    """One motion for every cut of a plan."""

    chosen: tuple[int, ...]
    """Point of each cut's curve."""
    duration_s: float
    """Of all cuts, without the moves between them."""
    mean_n: float
    """Mean over the cuts of their mean forces."""
    peak_n: float
    vertical_n: float
    """The same mean for vertical cuts of the same durations."""


def plan_front(curves: Sequence[Sequence[Timed]], most: int) -> list[_PlanPoint]:
    """Return choices of one motion per cut that none beats in duration and force, the shortest first.

    All such choices are found, cut by cut; `most` of them are returned, evenly spread over the duration.
    """
    front: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, ())]
    for curve in curves:
        longer = sorted(
            (duration + point.duration_s, force + point.mean_n, (*chosen, index))
            for duration, force, chosen in front
            for index, point in enumerate(curve)
        )
        forces = on_front([force for _, force, _ in longer])
        front = [choice for choice, kept in zip(longer, forces, strict=True) if kept]
    durations = np.array([duration for duration, _, _ in front])
    wished = np.linspace(durations[0], durations[-1], most)
    spread = sorted({int(np.abs(durations - one).argmin()) for one in wished})
    return [_plan_point(curves, front[index][2]) for index in spread]


def _plan_point(curves: Sequence[Sequence[Timed]], chosen: tuple[int, ...]) -> _PlanPoint:
    points = [curve[index] for curve, index in zip(curves, chosen, strict=True)]
    return _PlanPoint(
        chosen,
        sum(point.duration_s for point in points),
        float(np.mean([point.mean_n for point in points])),
        max(point.peak_n for point in points),
        float(np.mean([point.vertical.mean_n(point.motion.cut.mean_over) for point in points])),
    )


def plan_picture(
    curves: Sequence[Sequence[Timed]],
    front: Sequence[_PlanPoint],
    totals_s: Sequence[float],
    certified: Sequence[bool],
) -> NDArray[np.uint8]:
    """Draw force over the programme's total duration, and the force of every cut; 8-bit pixels [height, width, 3]."""
    figure, canvas = new_figure((11.0, 4.2))
    force, cuts = figure.subplots(1, 2)
    force.plot(totals_s, [point.mean_n for point in front], color=CUT, label="mean force of the cuts")
    force.plot(totals_s, [point.peak_n for point in front], color=CUT, ls=":", label="largest peak")
    force.plot(totals_s, [point.vertical_n for point in front], color=SCAN, label="vertical cuts, mean force")
    for total, point, good in zip(totals_s, front, certified, strict=True):
        force.plot(total, point.mean_n, "o" if good else "x", color=CUT if good else WARNING)
    force.set(xlabel="duration of the whole programme [s]", ylabel="force on the knife [N]", ylim=(0, None))
    force.set_title("least force for a duration (cross: refused)", color=TEXT, fontsize=10)
    force.legend(frameon=False)
    numbers = np.arange(1, len(curves) + 1)
    for i, point in enumerate(front):
        means = [curve[index].mean_n for curve, index in zip(curves, point.chosen, strict=True)]
        shade = 0.2 + 0.7 * i / max(1, len(front) - 1)
        cuts.plot(numbers, means, "o-", color=CUT, alpha=shade)
    cuts.set(xlabel="cut", ylabel="mean force [N]", ylim=(0, None), xticks=numbers)
    cuts.set_title("mean force of each cut (darker: longer programme)", color=TEXT, fontsize=10)
    return pixels_of(canvas)
