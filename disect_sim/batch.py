"""Many cuts of one body in one launch per step: as many copies of the body as there are cuts, on one device."""

from collections.abc import Callable, Sequence

import numpy as np

from disect_sim.copies import repeated
from disect_sim.parameters import joined
from disect_sim.record import Record
from disect_sim.resident import run_resident
from disect_sim.result import Result
from disect_sim.setting import Setting
from disect_sim.step_system import StepSystem

LARGEST_BATCH_TETS = 200_000
"""More cuts than this many tets have are run in several batches: about 2 GB with what is kept of every step."""


def can_batch(setting: Setting) -> bool:
    """Whether the run can be part of a batch: it is solved on the device, and keeps no states for gradients."""
    implicit = setting.integrator == "implicit"
    return implicit and setting.solver == "conjugate_gradients" and not setting.differentiable


def batches(settings: Sequence[Setting]) -> list[list[int]]:
    """Which runs go together: those of one body with the same steps, kept times and tolerances, up to a size."""
    alike: dict[tuple, list[int]] = {}
    for number, s in enumerate(settings):
        key = (id(s.model), s.device, s.dt, len(s.times), s.keep_times, s.newton)
        alike.setdefault(key, []).append(number)
    found = []
    for numbers in alike.values():
        size = max(1, LARGEST_BATCH_TETS // settings[numbers[0]].model.tet_count)
        found += [numbers[first : first + size] for first in range(0, len(numbers), size)]
    return found


def simulate_batch(settings: Sequence[Setting], progress: Callable[[float], None]) -> list[Result]:
    """Run what `batches` puts together; every result is that of its own run."""
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
