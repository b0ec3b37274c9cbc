"""simulate_many and the processes under it: same numbers, same order, failures as outcomes, no orphans."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from disect_sim import ConstantVelocity, Cut, InputError, OutcomeKind, simulate, simulate_many
from disect_sim.processes import THREAD_VARIABLES, WorkerLostError, Workers, cores_given, report_to_parent
from stages.runtime.stage_io import stage_workers
from tests.disect_sim.scenes import block_model, regular_block

ROOT = Path(__file__).parents[2]
MODEL = block_model(regular_block((2, 2, 2)))
OPTIONS = {"duration": 0.08, "dt": 0.004, "sample_rate_hz": 250.0}
DOWN = ConstantVelocity(initial_y=0.022, velocity_y=-0.1)


def mean_and_slope(over: float, result):
    """What a sampler wants: a number and its gradient in the friction coefficient."""
    force_bar = result.force / over
    return float((result.force**2).sum() / (2.0 * over)), float(
        result.gradient(force_bar).parameters["sdf_mu"]
    )


def cuts_with_gradient() -> list[Cut]:
    return [Cut(MODEL, DOWN, {"sdf_mu": mu}, {**OPTIONS, "differentiable": True}) for mu in (0.5, 0.7, 0.9)]


@pytest.fixture(scope="module")
def two():
    with Workers(2) as workers:
        yield workers


def test_answers_are_those_of_simulate_in_the_order_of_the_cuts_for_one_and_two_processes(two):
    cuts = cuts_with_gradient()
    work = partial(mean_and_slope, 10.0)
    here = [
        work(simulate(c.model, c.motion, c.parameters, differentiable=True, **OPTIONS))  # type: ignore[arg-type]
        for c in cuts
    ]
    for options in ({"processes": 1}, {"workers": two}):
        shares: list[float] = []
        answers = simulate_many(cuts, of=work, progress=shares.append, **options)
        assert [answer.value for answer in answers] == here
        assert all(answer.outcome.kind is OutcomeKind.COMPLETE for answer in answers)
        assert shares == sorted(shares) and shares[-1] == 1.0
    assert len({value for value, _ in here}) == 3


def test_motions_and_whole_results_travel_too(two):
    cuts = [
        Cut(MODEL, DOWN.with_parameters(velocity_y=speed), {}, {**OPTIONS, "keep_times": [0.04]})
        for speed in (-0.05, -0.1)
    ]
    answers = simulate_many(cuts, workers=two)
    for cut, answer in zip(cuts, answers, strict=True):
        alone = simulate(MODEL, cut.motion, **cut.options)
        assert np.array_equal(answer.value.force, alone.force)
        assert list(answer.value.positions) == list(alone.positions)


def doubled_and_reported(tensor: torch.Tensor) -> torch.Tensor:
    report_to_parent(tensor)
    return 2.0 * tensor


def test_tensors_travel_by_value_without_sockets_in_a_temporary_folder(tmp_path, monkeypatch):
    """A stage sweeps that folder before it exits; what multiprocessing wanted to remove there was not found then."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delitem(multiprocessing.current_process()._config, "tempdir", raising=False)
    heard: list[torch.Tensor] = []
    with Workers(2) as workers:
        answers = workers.run(doubled_and_reported, [torch.ones(2), torch.zeros(3)], on_message=heard.append)
    assert [answer.tolist() for answer in answers] == [[2.0, 2.0], [0.0, 0.0, 0.0]]
    assert sorted(tensor.tolist() for tensor in heard) == [[0.0, 0.0, 0.0], [1.0, 1.0]]
    assert list(tmp_path.iterdir()) == []


def reported_last(number: int) -> int:
    sys.setswitchinterval(10.0)  # as on a busy machine: a thread that sends in the background comes too late
    report_to_parent(number)
    return number


def reported_in_spite_of_an_error(number: int) -> int:
    if number == 0:
        raise ValueError("the first one fails")
    for _ in range(3):
        report_to_parent(bytes(100_000))  # more than a pipe holds at once
    return number


def test_a_message_just_before_the_answer_is_heard(two):
    heard: list[int] = []
    for _ in range(50):  # too late is a matter of luck
        two.run(reported_last, range(2), on_message=heard.append)
    assert sorted(heard) == [0] * 50 + [1] * 50


def test_a_job_that_reports_much_ends_though_another_failed(two):
    with pytest.raises(ValueError, match="the first one fails"):
        two.run(reported_in_spite_of_an_error, range(4))
    assert two.run(reported_last, range(4)) == [*range(4)]


def test_a_run_that_fails_is_its_outcome_and_the_others_are_there(two):
    cuts = [Cut(MODEL, DOWN, {}, {**OPTIONS, "force_limit_n": limit}) for limit in (1000.0, 1e-6, 1000.0)]
    good, jammed, other = simulate_many(cuts, of=mean_norm, workers=two)
    assert jammed.outcome.kind is OutcomeKind.KNIFE_JAMMED and jammed.value is None
    assert good.value == other.value > 0.0
    # without a function the partial result is kept
    assert simulate_many(cuts[1:2])[0].value.outcome.kind is OutcomeKind.KNIFE_JAMMED


def mean_norm(result) -> float:
    return float(result.force_norm.mean())


def test_what_simulate_refuses_is_raised_and_the_workers_live_on(two):
    bad = [Cut(MODEL, DOWN, {"sdf_moo": 1.0}, OPTIONS), Cut(MODEL, DOWN, {}, OPTIONS)]
    with pytest.raises(InputError, match="'sdf_moo' is not a parameter"):
        simulate_many(bad, workers=two)
    assert simulate_many([bad[1]] * 2, of=mean_norm, workers=two)[0].value > 0.0


def test_a_gradient_that_could_not_travel_is_refused():
    with pytest.raises(InputError, match=r"cut 1 is differentiable.*function `of`"):
        simulate_many([Cut(MODEL, DOWN, {}, OPTIONS), cuts_with_gradient()[0]])


def test_no_cuts_give_no_answers():
    assert simulate_many([]) == []


def _tell(job: int) -> int:
    report_to_parent(job)
    return os.getpid()


def test_messages_arrive_with_one_and_with_two_processes_and_only_from_their_own_batch(two):
    for workers in (Workers(1), two):
        for batch in ([1, 2, 3], [10, 20]):
            heard: list[int] = []
            workers.run(_tell, batch, on_message=heard.append)
            assert set(heard) <= set(batch)
            if workers.processes == 1:
                assert heard == batch
    report_to_parent("nobody listens")


def _threads(_: int) -> list[bytes | None]:
    """As the libraries, which are C, see them."""
    ask = ctypes.CDLL(None).getenv
    ask.restype = ctypes.c_char_p
    return [ask(name.encode()) for name in THREAD_VARIABLES]


def test_workers_start_no_threads_beside_each_other(two):
    assert two.run(_threads, [1, 2]) == [[b"1"] * len(THREAD_VARIABLES)] * 2


def test_a_worker_that_vanishes_is_a_sentence():
    with Workers(2) as workers, pytest.raises(WorkerLostError, match="Lower the number of processes"):
        workers.run(os._exit, [9, 9])


def test_the_cores_given_are_those_allowed_or_fewer(monkeypatch):
    allowed = len(os.sched_getaffinity(0))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cores_given() == allowed == Workers().processes == stage_workers(0).processes
    assert stage_workers(7).processes == 7
    for text, cores in (("1", 1), ("4096", allowed), ("", allowed), ("0", allowed), ("many", allowed)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert stage_workers(0).processes == cores


SLEEPERS = """
import os, sys, time
from disect_sim.processes import Workers, report_to_parent

def sleep(job):
    report_to_parent(os.getpid())
    time.sleep(60)

def show(pid):
    print(pid, flush=True)

if __name__ == "__main__":
    with Workers(2) as workers:
        workers.run(sleep, [1, 2], on_message=show)
"""


def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "sleepers.py"
    script.write_text(SLEEPERS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    workers = [int(parent.stdout.readline()) for _ in range(2)]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10.0
    while any(_runs(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in workers)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
