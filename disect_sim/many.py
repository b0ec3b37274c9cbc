"""Many cuts at once: parameter sets, motions, bodies, over the cores of this machine or on its CUDA device."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, Generic, TypeVar, overload

import numpy as np

from disect_sim.batch import batches, can_batch, simulate_batch
from disect_sim.errors import InputError
from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.outcome import Outcome
from disect_sim.parameters import Values
from disect_sim.processes import Workers
from disect_sim.result import Result
from disect_sim.setting import Setting, settle
from disect_sim.simulation import simulate
from disect_sim.solvers import choose_device

Value = TypeVar("Value")


@dataclass(frozen=True)
class Cut:
    """One cut: the arguments of `simulate`."""

    model: Model
    motion: Motion
    parameters: Values = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `simulate`, such as duration, dt, differentiable."""


@dataclass(frozen=True)
class Answer(Generic[Value]):
    """What one cut gave."""

    outcome: Outcome
    """How the run ended."""
    value: Value | None
    """What was asked of its result; None if the run did not finish."""


def force_of(result: Result) -> np.ndarray:
    """The force on the knife [N], shape [sample_count, 3]: often all that is asked of a result."""
    return result.force


@overload
def simulate_many(
    cuts: Sequence[Cut],
    *,
    of: None = ...,
    processes: int = ...,
    workers: Workers | None = ...,
    batch: bool | None = ...,
    progress: Callable[[float], None] | None = ...,
) -> list[Answer[Result]]: ...
@overload
def simulate_many(
    cuts: Sequence[Cut],
    *,
    of: Callable[[Result], Value],
    processes: int = ...,
    workers: Workers | None = ...,
    batch: bool | None = ...,
    progress: Callable[[float], None] | None = ...,
) -> list[Answer[Value]]: ...
def simulate_many(
    cuts: Sequence[Cut],
    *,
    of: Callable[[Result], Any] | None = None,
    processes: int = 0,
    workers: Workers | None = None,
    batch: bool | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Answer[Any]]:
    """Simulate every cut; the answers are in the order of the cuts and do not depend on the number of processes.

    **Main arguments**

    - `cuts`: what to simulate; they may differ in parameters, motion, body and options.
    - `of`: a function of the result, evaluated where the cut was simulated, so that only its value travels. It must be
      picklable: a function of a module, or a `functools.partial` of one. It is the place for gradients: with
      `options={"differentiable": True}` it may call `result.gradient`. It is not asked of a run that did not finish.
      Without it the value is the whole `Result`, also of a run that did not finish.

    **Other arguments**

    - `processes`: how many; 0 takes every core this process may use.
    - `workers`: processes that are running already, instead of new ones: starting one takes seconds.
    - `batch`: whether cuts of one body run together on one device, in one launch per step; by default on CUDA only.
    - `progress`: called with the fraction done.

    A run that goes wrong does not disturb the others: its outcome says what happened. Input that `simulate` refuses,
    or an error in `of`, is raised.

    On CPU the cuts are spread over processes. On CUDA (`device="cuda"` in the options, or a CUDA device that is there
    by default) they run in this process: those of the same model with the same steps, kept times and tolerances
    together, in one launch per step, whatever their motions and parameters are; the force is that of the single run.
    Differentiable ones, and those solved with a factor on the host, run one after another.
    """
    for number, cut in enumerate(cuts):
        if cut.options.get("differentiable") and of is None:
            raise InputError(
                f"simulate_many: cut {number} is differentiable, but what it keeps for gradients can't leave its "
                "process. The gradient must be taken there. Give a function `of` that calls result.gradient."
            )
    jobs = [_Job(cut, of) for cut in cuts]

    def tell(done: int) -> None:
        if progress is not None:
            progress(done / len(jobs))

    cuda = any(choose_device(cut.options.get("device")) != "cpu" for cut in cuts)
    if cuda if batch is None else batch:
        return _in_batches(jobs, progress or _ignore, forced=batch is True)
    if cuda:
        workers, processes = None, 1
    if workers is not None:
        return workers.run(_Job.run, jobs, on_done=tell)
    with Workers(processes) as own:
        return own.run(_Job.run, jobs, on_done=tell)


@dataclass(frozen=True)
class _Job:
    """As it is sent to a process."""

    cut: Cut
    of: Callable[[Result], Any] | None

    def run(self) -> Answer[Any]:
        cut = self.cut
        return self.answer(simulate(cut.model, cut.motion, cut.parameters, **cut.options))

    def answer(self, result: Result) -> Answer[Any]:
        if self.of is None:
            return Answer(result.outcome, result)
        return Answer(result.outcome, self.of(result) if result.outcome.ok else None)

    def setting(self, *, forced: bool) -> Setting:
        """The run as `simulate` would make it; forced: with the solver that batches need, if none is asked for."""
        cut = self.cut
        options = {**({"solver": "conjugate_gradients"} if forced else {}), **cut.options}
        given = signature(simulate).bind(cut.model, cut.motion, cut.parameters, **options)
        given.apply_defaults()
        return settle(**{name: value for name, value in given.arguments.items() if name != "progress"})


def _in_batches(
    jobs: Sequence[_Job], progress: Callable[[float], None], *, forced: bool
) -> list[Answer[Any]]:
    """In this process: what can be batched together, the rest one by one."""
    settings = [job.setting(forced=forced) for job in jobs]
    able = [number for number, setting in enumerate(settings) if can_batch(setting)]
    answers: dict[int, Answer[Any]] = {}
    for members in batches([settings[number] for number in able]):
        batch, done = [able[member] for member in members], len(answers)
        results = simulate_batch(
            [settings[number] for number in batch],
            partial(_tell, progress, done / len(jobs), len(batch) / len(jobs)),
        )
        answers |= {
            number: jobs[number].answer(result) for number, result in zip(batch, results, strict=True)
        }
    for number, job in enumerate(jobs):
        if number not in answers:
            answers[number] = job.run()
            progress(len(answers) / len(jobs))
    return [answers[number] for number in range(len(jobs))]


def _tell(progress: Callable[[float], None], done: float, part: float, share: float) -> None:
    """Progress of a share of a part, after what is done."""
    progress(done + part * share)


def _ignore(_: float) -> None:
    return None
