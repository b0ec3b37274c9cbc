"""Many cuts at once: different parameters, motions and bodies, on all cores or on the CUDA device."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any, Generic, TypeVar, overload

import numpy as np
import scipy.sparse as sp

from disect_sim.cut_mesh import CutMesh
from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.outcome import InputError, Outcome
from disect_sim.parameters import Values, joined
from disect_sim.processes import Workers
from disect_sim.resident import run_resident
from disect_sim.result import Record, Result
from disect_sim.simulation import Setting, choose_device, settle, simulate
from disect_sim.step_system import StepSystem

# Copies of one body in contiguous arrays, for a batch of cuts in one launch


def repeated(model: Model, copies: int) -> Model:
    """Return the model of `copies` separate copies of a body.

    In every array one copy follows another, each in the order of the model.
    """
    if copies == 1:
        return model

    def again(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values] * copies)

    def on_nodes(values: np.ndarray) -> np.ndarray:
        return _counted_on(values, copies, model.node_count)

    return replace(
        model,
        mesh=_repeated_mesh(model.mesh, copies),
        fixed=again(model.fixed),
        guided=on_nodes(model.guided),
        tet_nodes=on_nodes(model.tet_nodes),
        tet_shape_gradients=again(model.tet_shape_gradients),
        tet_volume=again(model.tet_volume),
        node_volume=again(model.node_volume),
        tet_shares=again(model.tet_shares),
        tet_lame=np.concatenate([model.tet_lame] * copies, axis=1),
        node_flesh_volume=again(model.node_flesh_volume),
        spring_nodes=on_nodes(model.spring_nodes),
        spring_weights=again(model.spring_weights),
        cut_triangles=_counted_on(model.cut_triangles, copies, model.spring_count),
        spring_normal=again(model.spring_normal),
        spring_area_ratio=again(model.spring_area_ratio),
        overlap_stiffness=again(model.overlap_stiffness),
        contact_parents=on_nodes(model.contact_parents),
        contact_coordinate=again(model.contact_coordinate),
        contact_side=again(model.contact_side),
        contact_offset=again(model.contact_offset),
        board_nodes=on_nodes(model.board_nodes),
        board_area_ratio=again(model.board_area_ratio),
        spring_operator=sp.block_diag([model.spring_operator] * copies, format="csr"),
        original=model,
    )


def _repeated_mesh(mesh: CutMesh, copies: int) -> CutMesh:
    """Tile every field, offsetting indices."""
    sizes = {
        "node_original": int(mesh.node_original.max()) + 1,
        "tets": len(mesh.nodes),
        "tet_original": int(mesh.tet_original.max()) + 1,
        "virtual_parents": len(mesh.nodes),
        "spring_virtual": len(mesh.virtual_parents),
    }
    fields: dict[str, Any] = {
        name: _counted_on(values, copies, sizes.get(name, 0))
        for name, values in vars(mesh).items()
        if isinstance(values, np.ndarray)
    }
    return replace(mesh, **fields, snapped_vertices=copies * mesh.snapped_vertices)


def _counted_on(values: np.ndarray, copies: int, size: int) -> np.ndarray:
    """Tile `values`, offsetting each copy by `copy * size` in their own dtype."""
    if size == 0:
        return np.concatenate([values] * copies)
    return np.concatenate([values + copy * size for copy in range(copies)]).astype(values.dtype)


# Batches: many cuts of one body, one copy per cut, in one launch per step


_LARGEST_BATCH_TETS = 200_000
"""Maximum number of tets in a batch; about 2 GB with the stored steps."""


def _can_batch(setting: Setting) -> bool:
    """Return True if the run can be batched: it is solved on the device and stores no states for gradients."""
    return setting.solver == "conjugate_gradients" and not setting.differentiable


def _batches(settings: Sequence[Setting]) -> list[list[int]]:
    """Group runs of one body with the same steps, kept times and tolerances, up to a size."""
    alike: dict[tuple, list[int]] = {}
    for number, s in enumerate(settings):
        key = (id(s.model), s.device, s.dt, len(s.times), s.keep_times, s.newton)
        alike.setdefault(key, []).append(number)
    batches = []
    for numbers in alike.values():
        size = max(1, _LARGEST_BATCH_TETS // settings[numbers[0]].model.tet_count)
        batches += [numbers[first : first + size] for first in range(0, len(numbers), size)]
    return batches


def simulate_batch(settings: Sequence[Setting], progress: Callable[[float], None]) -> list[Result]:
    """Run the batches; every result equals that of a single run."""
    first, copies = settings[0], len(settings)
    model = repeated(first.model, copies)
    parameters = joined([s.parameters for s in settings])
    system = StepSystem(model, parameters, first.dt, first.device)
    poses = np.stack([s.poses for s in settings])
    x = np.concatenate([s.x for s in settings])
    velocity = np.concatenate([s.velocity for s in settings])
    system.begin(x, x, parameters.row("cut_spring_ke"), poses[:, 0], poses[:, 0])
    system.gradient(x)
    untouched = np.zeros(0 if system.edge is None else len(first.model.edge_samples))
    records = []
    for copy, s in enumerate(settings):
        stiffness = s.parameters.row("cut_spring_ke").copy()
        record = Record(s.model, s.dt, s.poses, s.keep_times, stiffness, untouched)
        record.begin(system.energies(copy), *system.motion_energies(s.x, s.velocity, copy))
        records.append(record)
    runs = run_resident(
        system,
        poses,
        x,
        velocity,
        records,
        first.newton,
        progress,
        keep_states=False,
        force_limits_n=[s.force_limit_n for s in settings],
    )
    return [
        record.result(run.outcome, s.sample_rate_hz, run.last)
        for record, run, s in zip(records, runs, settings, strict=True)
    ]


_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Cut:
    """One cut: the arguments of `simulate`."""

    model: Model
    motion: Motion
    parameters: Values = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `simulate`, such as duration, dt, differentiable."""


@dataclass(frozen=True)
class Answer(Generic[_Value]):
    """Outcome and value of one cut."""

    outcome: Outcome
    """Outcome of the run."""
    value: _Value | None
    """Value of the function `of`; None if the run did not finish."""


def force_of(result: Result) -> np.ndarray:
    """Return the force on the knife [N], shape [sample_count, 3]: often the only value needed."""
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
    of: Callable[[Result], _Value],
    processes: int = ...,
    workers: Workers | None = ...,
    batch: bool | None = ...,
    progress: Callable[[float], None] | None = ...,
) -> list[Answer[_Value]]: ...
def simulate_many(
    cuts: Sequence[Cut],
    *,
    of: Callable[[Result], Any] | None = None,
    processes: int = 0,
    workers: Workers | None = None,
    batch: bool | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Answer[Any]]:
    """Simulate every cut; answers are in the order of the cuts and do not depend on the number of processes.

    **Main arguments**

    - `cuts`: cuts to simulate; they may differ in parameters, motion, body and options.
    - `of`: function of the result, evaluated in the worker, so that only its value is transferred. It must be
      picklable: a module-level function, or a `functools.partial` of one. Compute gradients there: with
      `options={"differentiable": True}` it may call `result.gradient`. It is not called for a run that did not
      finish. Without it the value is the whole `Result`, also of a run that did not finish.

    **Other arguments**

    - `processes`: number of processes; 0 uses every core available to this process.
    - `workers`: running processes to reuse, since starting one takes seconds.
    - `batch`: run cuts of one body together on one device, in one launch per step; by default on CUDA only.
    - `progress`: called with the fraction done.

    A failed run does not affect the others: its outcome says what happened. Input that `simulate` rejects, or an error
    in `of`, is raised.

    On the CPU the cuts are distributed over processes. On CUDA (`device="cuda"` in the options, or a CUDA device
    present by default) they run in this process: cuts of the same model with the same steps, kept times and tolerances
    together, in one launch per step, with any motions and parameters; the force equals that of a single run.
    Differentiable cuts, and those solved with a factor on the host, run one after another.
    """
    for number, cut in enumerate(cuts):
        if cut.options.get("differentiable") and of is None:
            raise InputError(
                f"simulate_many: cut {number} is differentiable, but the states it stores can't leave its "
                "process. The gradient must be computed there. Give a function `of` that calls result.gradient."
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
    with Workers(processes) as pool:
        return pool.run(_Job.run, jobs, on_done=tell)


@dataclass(frozen=True)
class _Job:
    """One cut as it is sent to a process."""

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
        """Return the run as `simulate` would set it up.

        forced: with the solver that batches need unless one is given.
        """
        cut = self.cut
        options = {**({"solver": "conjugate_gradients"} if forced else {}), **cut.options}
        given = signature(simulate).bind(cut.model, cut.motion, cut.parameters, **options)
        given.apply_defaults()
        return settle(**{name: value for name, value in given.arguments.items() if name != "progress"})


def _in_batches(
    jobs: Sequence[_Job], progress: Callable[[float], None], *, forced: bool
) -> list[Answer[Any]]:
    """Run in this process: in batches where possible, the rest one by one."""
    settings = [job.setting(forced=forced) for job in jobs]
    able = [number for number, setting in enumerate(settings) if _can_batch(setting)]
    answers: dict[int, Answer[Any]] = {}
    for members in _batches([settings[number] for number in able]):
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
    """Report progress of a part, in addition to what is done."""
    progress(done + part * share)


def _ignore(_: float) -> None:
    return None
