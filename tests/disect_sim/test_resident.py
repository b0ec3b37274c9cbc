"""A run that stays on the device: the same answers as with the factor on the host, and nobody at the host looks in."""

from dataclasses import fields

import numpy as np
import pytest
import warp as wp

import disect_sim.resident as resident
from disect_sim import ConstantVelocity, InputError, SlicingMotion, simulate
from disect_sim.kernels.resident_newton import PARTS
from disect_sim.newton import NewtonOptions
from disect_sim.outcome import OutcomeKind
from disect_sim.simulation import (
    _LARGE_FORWARD_TETS,
    _LARGE_TETS,
    _choose_solver,
    describe_device,
    forward_solver,
)
from disect_sim.step_system import Energies
from tests.disect_sim.scenes import APPLE, BLOCK_HEIGHT, block_model, irregular_block, regular_block

TIGHT = NewtonOptions(tolerance_m=1e-10, cg_tolerance=1e-8)
ON_A_FIRM_BOARD = NewtonOptions(tolerance_m=1e-9, cg_tolerance=1e-7)
"""Its stiffness makes 1e-10 m a matter of rounding."""
STRAIGHT = ConstantVelocity(initial_y=BLOCK_HEIGHT + 5e-4, velocity_y=-0.05)
SAWING = SlicingMotion(duration=0.3, initial_y=BLOCK_HEIGHT + 5e-4, velocity_y=-0.05, amplitude=0.05)
SOFT = {"cut_spring_softness": 0.1}
TOUGH = {"edge_toughness": 200.0, "skin_toughness": 300.0}
SAME = 1e-6
"""Share of the largest value. Newton's tolerance of 1e-10 m is 1e-7 of the contact's onset of 0.1 mm, on both sides."""


def both(model, motion, parameters=SOFT, *, newton=TIGHT, duration=0.2, **options):
    return [
        simulate(
            model,
            motion,
            parameters,
            duration=duration,
            solver=solver,
            newton=newton,
            device="cpu",
            **options,
        )
        for solver in ("cholesky", "conjugate_gradients")
    ]


def assert_same(a, b, tolerance):
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= tolerance * max(np.abs(a).max(), 1e-12)


SCENES = {
    "straight": (STRAIGHT, {}, SOFT),
    "sawing": (SAWING, {}, SOFT),
    "free": (STRAIGHT, {"boundary": "free"}, SOFT),
    "guided": (SAWING, {"boundary": "guided"}, SOFT),
    "by stretch": (STRAIGHT, {"damage_law": "stretch"}, {}),
    "edge law": (STRAIGHT, {"damage_law": "edge"}, TOUGH),
    "edge law, sawing": (SAWING, {"damage_law": "edge"}, TOUGH),
}


FAST = ("straight", "guided", "edge law, sawing")
LATER = (pytest.mark.slow, pytest.mark.ci)


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=LATER) for name in SCENES]
)
def test_the_answer_is_that_of_the_factor(name):
    motion, options, parameters = SCENES[name]
    newton = ON_A_FIRM_BOARD if "boundary" in options else TIGHT
    direct, device = both(
        block_model(regular_block(), **options), motion, parameters, newton=newton, keep_times=[0.05, 0.051]
    )
    assert device.outcome == direct.outcome
    assert device.statistics.steps == direct.statistics.steps
    assert_same(direct.force, device.force, SAME)
    # the forces of both sides cancel in the torque about the blade, so their errors weigh more
    assert_same(direct.torque, device.torque, 100.0 * SAME)
    assert_same(direct.stiffness, device.stiffness, SAME)
    assert_same(direct.contact_area, device.contact_area, SAME)
    assert list(direct.positions) == list(device.positions)
    for time, x in direct.positions.items():
        assert np.abs(x - device.positions[time]).max() < 1e-9
    for kind, energy in direct.energy.items():
        assert_same(energy, device.energy[kind], 10.0 * SAME)


def test_usual_tolerances_give_the_same_force_on_an_irregular_mesh():
    model = block_model(irregular_block())
    exact = both(model, STRAIGHT)[0]
    usual = both(model, STRAIGHT, newton=None)[1]
    assert_same(exact.force, usual.force, SAME)
    assert 1.0 <= usual.statistics.newton_per_step <= 4.0
    assert usual.statistics.cg_iterations < 40 * usual.statistics.newton_iterations
    assert set(usual.statistics.seconds) == {"device", "other"}


@pytest.mark.parametrize(
    "name", ["straight", *(pytest.param(name, marks=LATER) for name in ("sawing", "edge law, sawing"))]
)
def test_gradients_are_those_of_the_factor(name):
    motion, options, parameters = SCENES[name]
    direct, device = both(block_model(**options), motion, parameters, differentiable=True)
    weights = np.random.default_rng(0).normal(size=(2, *direct.force.shape))
    for one, other in zip(direct.gradients(weights), device.gradients(weights), strict=True):
        for name, value in one.parameters.items():
            # adjoint solves are accurate to 1e-7 of their right-hand side on both sides, over 67 steps; the worst is
            # the retardation time of 10 microseconds, whose gradient is a small difference
            assert_same(np.asarray(value), np.asarray(other.parameters[name]), 2e-5)
        # the derivatives in the knife's positions hold those in all parameters of the motion
        assert_same(one.poses, other.poses, 1e-5)


HARD = {
    "sharp tip": ({}, STRAIGHT, {"sdf_tip": 2e-4}),
    "soft": ({"material": APPLE.replaced(young_pa=3.0e4)}, STRAIGHT, {}),
    "inside out": ({"material": APPLE.replaced(young_pa=3.0e3)}, STRAIGHT, {}),
    "bouncing": ({"boundary": "free"}, SAWING, {}),
    "fast": ({}, ConstantVelocity(initial_y=BLOCK_HEIGHT + 5e-4, velocity_y=-0.2), {}),
}


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", HARD)
def test_hard_cuts_end_alike(name):
    """Line search, tets inside out, bounces: with the usual tolerances.

    Against tight ones the factor's force of the soft body is off by 1e-4 of the largest at a single sample, by 2e-6 on
    average; the other solver's by 1e-6 at most.
    """
    options, motion, parameters = HARD[name]
    model = block_model(irregular_block(), **options)
    direct, device = both(model, motion, SOFT | parameters, newton=None, duration=0.3)
    assert device.outcome.kind is direct.outcome.kind
    assert_same(direct.force, device.force, 2e-4)
    assert np.abs(direct.force - device.force).mean() <= 1e-5 * np.abs(direct.force).max()


def test_the_gradient_is_that_of_differences():
    model, h = block_model(), 1e-4

    def mean_square(factor, **options):
        parameters = SOFT | {"sdf_mu": 0.3 * factor}
        return simulate(
            model,
            STRAIGHT,
            parameters,
            duration=0.15,
            newton=TIGHT,
            solver="conjugate_gradients",
            device="cpu",
            **options,
        )

    result = mean_square(1.0, differentiable=True)
    found = float(result.gradient(2.0 * result.force).parameters["sdf_mu"]) * 0.3
    ends = [(mean_square(1.0 + side * h).force ** 2).sum() for side in (1.0, -1.0)]
    # central differences of step 1e-4 leave h^2 of the third derivative and 1e-8 / h of the solves' rounding
    assert found == pytest.approx((ends[0] - ends[1]) / (2.0 * h), rel=1e-4)


def test_a_step_is_one_launch_and_the_host_reads_one_number_every_fifty(monkeypatch):
    """Everything by which the host could look at the device is counted while the steps run."""
    calls = {"graph": 0, "host": 0}
    stepping = []
    run = resident._ResidentRun.step_through

    def count(name, function):
        def counted(*args, **kwargs):
            if stepping:
                calls[name] = calls.get(name, 0) + 1
            return function(*args, **kwargs)

        return counted

    def step_through(self, progress):
        stepping.append(True)
        run(self, progress)
        stepping.clear()

    monkeypatch.setattr(resident._ResidentRun, "step_through", step_through)
    monkeypatch.setattr(resident, "host", count("host", resident.host))
    monkeypatch.setattr(wp, "capture_launch", count("graph", wp.capture_launch))
    for name in ("launch", "copy", "synchronize", "synchronize_device", "synchronize_stream"):
        monkeypatch.setattr(wp, name, count(name, getattr(wp, name)))
    for name in ("numpy", "list", "assign", "fill_", "zero_"):
        monkeypatch.setattr(wp.array, name, count(name, getattr(wp.array, name)))
    shown = []
    result = simulate(
        block_model(),
        STRAIGHT,
        SOFT,
        duration=0.33,
        solver="conjugate_gradients",
        device="cpu",
        progress=shown.append,
    )
    assert result.statistics.steps == 110
    assert calls == {"graph": 110, "host": 3}, "after 50, 100 and 110 steps: is the run still going?"
    assert shown == [50 / 110, 100 / 110, 1.0]


def test_every_part_of_the_energy_is_summed():
    assert len(fields(Energies)) == PARTS


def test_the_same_bits_every_time():
    runs = [both(block_model(), STRAIGHT, newton=None)[1] for _ in range(2)]
    assert (runs[0].force == runs[1].force).all()
    assert (runs[0].stiffness == runs[1].stiffness).all()


def test_a_knife_that_jams_ends_the_run_in_the_same_step():
    direct, device = both(block_model(), STRAIGHT, force_limit_n=3.0)
    assert device.outcome.kind is OutcomeKind.KNIFE_JAMMED
    assert (device.outcome.step, device.outcome.detail) == (direct.outcome.step, direct.outcome.detail)
    assert_same(direct.force, device.force, SAME)
    assert len(device.step_time) == device.outcome.step + 1


def test_a_step_that_does_not_converge_ends_the_run_with_the_states_so_far():
    impatient = NewtonOptions(tolerance_m=1e-14, cg_tolerance=1e-3, max_iterations=1)
    device = both(block_model(), STRAIGHT, newton=impatient, differentiable=True)[1]
    assert device.outcome.kind is OutcomeKind.NEWTON_STALLED
    assert device.outcome.step == 1
    assert device.force.shape == (0, 3)
    assert len(device.tape.states) == 2


def test_a_body_that_runs_away_is_named():
    model = block_model(boundary="free", gravity=(0.0, 0.0, 0.0))
    velocity = np.tile([0.0, 30.0, 0.0], (model.node_count, 1))
    away = ConstantVelocity(initial_y=10.0, velocity_y=0.0)
    direct, device = both(model, away, {}, duration=0.03, initial_velocity=velocity)
    assert device.outcome.kind is OutcomeKind.DIVERGED
    assert (device.outcome.step, device.outcome.detail) == (direct.outcome.step, direct.outcome.detail)


def test_the_device_decides_unless_asked(monkeypatch):
    assert _choose_solver(None, "cpu", 1000) == "cholesky"
    assert _choose_solver(None, "cpu", _LARGE_TETS + 1) == "conjugate_gradients"
    assert _choose_solver("cholesky", "cpu", _LARGE_TETS + 1) == "cholesky"
    monkeypatch.setattr(wp, "is_conditional_graph_supported", lambda: True)
    assert _choose_solver(None, "cuda:0", 1000) == "conjugate_gradients"
    assert _choose_solver("cholesky", "cuda:0", 1000) == "cholesky"
    monkeypatch.setattr(wp, "is_conditional_graph_supported", lambda: False)
    assert _choose_solver(None, "cuda:0", 1000) == "cholesky"
    assert _choose_solver("conjugate_gradients", "cpu", 1000) == "conjugate_gradients"
    with pytest.raises(InputError, match=r"driver of version 12\.4"):
        _choose_solver("conjugate_gradients", "cuda:0", 1000)
    with pytest.raises(InputError, match="solver is 'magic'"):
        simulate(block_model(), STRAIGHT, solver="magic")


def test_a_run_without_gradient_leaves_the_factor_sooner(monkeypatch):
    monkeypatch.setattr(wp, "is_cuda_available", lambda: False)
    assert forward_solver(_LARGE_FORWARD_TETS) is None
    assert forward_solver(_LARGE_FORWARD_TETS + 1) == "conjugate_gradients"
    monkeypatch.setattr(wp, "is_cuda_available", lambda: True)
    assert forward_solver(_LARGE_FORWARD_TETS + 1) is None, "the device's own"


def test_what_the_doctor_prints(monkeypatch):
    monkeypatch.setattr(wp, "is_cuda_available", lambda: False)
    assert describe_device().startswith("no CUDA device; the simulator runs on the CPU")
    card = type("Card", (), {"name": "NVIDIA L4", "total_memory": 24e9})
    monkeypatch.setattr(wp, "is_cuda_available", lambda: True)
    monkeypatch.setattr(wp, "get_device", lambda name: card)
    monkeypatch.setattr(wp, "is_conditional_graph_supported", lambda: True)
    assert describe_device().startswith("NVIDIA L4, 24 GB (cuda:0): conjugate gradients with block-Jacobi")
    monkeypatch.setattr(wp, "is_conditional_graph_supported", lambda: False)
    assert "older than CUDA 12.4; update it" in describe_device()
