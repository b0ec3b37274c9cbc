"""Parts of optimize: the passage, the motion's variables, the constraints, MDMM, the finer mesh, the checks."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disect_sim.cut_mesh import tet_volumes
from disect_sim.knife import KNIVES, Knife
from disect_sim.many import Answer, simulate_many
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.processes import Workers
from stages.optimize import search
from stages.optimize.confirmation import (
    MATERIALS,
    POSSIBLE,
    Check,
    Confirmed,
    SavingBand,
    _halve_edges,
    checks_of,
    finer_cut,
    values_on,
)
from stages.optimize.constraints import Constraints, passage_of, rules_of
from stages.optimize.descent import Curvature, ForceModel, nearest_feasible, solve
from stages.optimize.optimize_report import _band
from stages.optimize.search import _chosen_starts, _parameter_draws, drawn_motions, near_vertical
from stages.runtime.errors import InputError
from stages.shared.library.library import CUT_SPREAD
from tests.disect_sim.scenes import BLOCK_HEIGHT, regular_block
from tests.stages.slicing_scenes import VALUES, block, quick, slicing_cut, uncut_block

MODEL = block()


def _wild(cut, seed=1):
    return cut.straight() + 0.8 * np.random.default_rng(seed).standard_normal((3, cut.keyframes))


def test_passage_goes_from_above_the_fruit_to_the_board_with_the_fruit_under_the_blade():
    params = quick()
    passage = passage_of(regular_block(), KNIVES["kitchen"], params)
    assert passage.start_m == pytest.approx(BLOCK_HEIGHT + params.cut.start_clearance_m)
    assert passage.end_m == params.cut.board_clearance_m
    # 150 mm of blade over 30 mm of block, 2 mm to spare at both ends
    assert passage.lateral_limit_m == pytest.approx(0.058)
    assert passage.duration_s / params.cut.dt_s == pytest.approx(
        round(passage.duration_s / params.cut.dt_s), abs=1e-9
    )


def test_a_fruit_longer_than_the_blade_and_a_cut_that_cuts_nothing_are_refused():
    with pytest.raises(InputError, match=r"0\.030 m long along the blade of 0\.03 m.*longer knife"):
        passage_of(regular_block(), Knife(length_m=0.03), quick())
    with pytest.raises(InputError, match=r"board_clearance_m is 0\.03 m"):
        passage_of(regular_block(), Knife(), quick(board_clearance_m=0.03))


def test_the_vertical_cut_ends_at_its_height_and_never_moves_sideways():
    cut = slicing_cut(quick())
    trajectory = cut.trajectory(cut.straight())
    assert float(trajectory.position[-1, 1]) == pytest.approx(cut.passage.end_m, abs=1e-12)
    assert np.abs(trajectory.position[:, 2] - cut.passage.z_m).max() == 0.0


def test_velocity_and_acceleration_are_the_derivatives_of_the_position_and_rest_at_both_ends():
    cut = slicing_cut(quick())
    t = cut.trajectory(_wild(cut))
    position, velocity, acceleration = (t.position[:, 1:], t.velocity, t.acceleration)
    # Central differences over 1 ms: their error is dt²/6 times the third derivative, about 1e-4 of the motion's size.
    for value, rate in ((position, velocity), (velocity, acceleration)):
        difference = (value[2:] - value[:-2]) / 2e-3
        assert np.abs(difference - rate[1:-1]).max() < 2e-3 * max(1.0, np.abs(rate).max())
    assert (velocity[[0, -1]] == 0.0).all() and (acceleration[[0, -1]] == 0.0).all()


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31))
def test_any_motion_can_be_scaled_to_the_end_height(seed):
    cut = slicing_cut(quick(), MODEL)
    exact = cut.at_end_height(_wild(cut, seed))
    assert float(cut.trajectory(exact).position[-1, 1]) == pytest.approx(cut.passage.end_m, abs=1e-12)


def test_residuals_say_in_metres_what_is_broken():
    params = quick()
    cut = slicing_cut(params)
    constraints = Constraints(rules_of(cut.passage, params), params)
    straight = constraints.residuals(cut.trajectory(cut.straight()))
    assert constraints.violation(straight) == 0.0
    slower = cut.straight()
    slower[2] = -0.5  # a tenth slower: it ends a tenth of the way too high
    residuals = constraints.residuals(cut.trajectory(slower))
    assert residuals["end_height_m"] == pytest.approx(0.1 * (cut.passage.start_m - cut.passage.end_m))
    assert residuals["board_m"] == 0.0 and constraints.violation(residuals) > 0.0
    sideways = cut.straight()
    sideways[0], sideways[1] = 4.0, 0.0
    residuals = constraints.residuals(cut.trajectory(sideways))
    path = cut.trajectory(sideways).position[:, 2]
    assert residuals["lateral_m"] == pytest.approx(np.abs(path).max() - cut.passage.lateral_limit_m)
    assert residuals["speed_m_s"] > 0.1


def test_mdmm_brings_a_wild_motion_inside_every_limit():
    params = quick(inner_iterations=300)
    cut = slicing_cut(params)
    constraints = Constraints(rules_of(cut.passage, params), params)
    wild = cut.straight()
    wild[0], wild[1], wild[2] = 2.5, 2.0, 0.7
    assert constraints.violation(constraints.residuals(cut.trajectory(wild))) > 1.0
    inside = nearest_feasible(cut, constraints, wild, params)
    assert constraints.violation(constraints.residuals(cut.trajectory(inside))) == 0.0
    # and no farther than it must: it still saws at least half as fast as the limit allows
    assert np.abs(cut.trajectory(inside).velocity[:, 1]).max() > 0.5 * params.max_speed_m_s


def test_without_rules_the_step_is_one_radius_down_the_slope():
    params = quick(inner_iterations=400, speed_weight_s2_m2=0.0)
    cut = slicing_cut(params)
    slope = np.linspace(-1.0, 1.0, 3 * cut.keyframes).reshape(3, -1)
    model = ForceModel(cut.straight(), slope, Curvature(slope, 0.3))
    step = solve(cut, Constraints((), params), model, 0.3, params) - cut.straight()
    # Adamax stops within a fraction of its last rate of the minimum.
    assert np.allclose(step, -0.3 * slope / np.linalg.norm(slope), atol=0.01)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31))
def test_learnt_curvature_explains_the_last_step_and_stays_positive(seed):
    generator = np.random.default_rng(seed)
    shape = generator.standard_normal((6, 6))
    hessian = shape @ shape.T + np.eye(6)
    learnt = Curvature(np.ones((2, 3)), 0.5)
    for _ in range(8):
        step = generator.standard_normal((2, 3))
        change = (hessian @ step.reshape(-1)).reshape(2, 3)
        learnt.learn(step, change)
        # undamped, the secant condition holds to rounding; damped, only positivity is promised
        assert np.linalg.eigvalsh(learnt.matrix).min() > 0.0
    learnt.learn(step, -change)
    assert np.linalg.eigvalsh(learnt.matrix).min() > 0.0


def test_curvature_of_a_quadratic_is_found_along_the_step():
    learnt = Curvature(np.ones(3), 1.0)
    hessian = np.diag([3.0, 2.0, 5.0])
    step = np.array([1.0, -1.0, 0.5])
    learnt.learn(step, hessian @ step)
    assert np.allclose(learnt.matrix @ step, hessian @ step, atol=1e-12)


def test_the_first_start_is_beside_the_vertical_cut_and_the_others_are_drawn_with_a_seed():
    params = quick(starts=2, candidates=2)
    cut = slicing_cut(params)
    amplitude = cut.motion_parameters(near_vertical(cut, params))["amplitude"]
    assert amplitude == pytest.approx(params.start_amplitude_m_s)
    drawn, again = drawn_motions(cut, params, 2), drawn_motions(cut, params, 2)
    assert len(drawn) == 2 and np.array_equal(drawn, again)
    assert not np.array_equal(drawn, drawn_motions(cut, params.changed(seed=1), 2))
    assert drawn_motions(cut, params, 0) == []


def test_of_the_drawn_motions_the_one_with_the_least_force_is_a_start_and_a_failed_one_never():
    params = quick(starts=2, candidates=3)
    cut = slicing_cut(params)
    count = len(cut.weights(cut.straight()))
    motions = [_wild(cut, seed) for seed in range(3)]
    done, jammed = Outcome(OutcomeKind.COMPLETE), Outcome(OutcomeKind.KNIFE_JAMMED)
    strong, weak = (Answer(done, np.full((count, 3), newton)) for newton in (5.0, 3.0))
    answers = list(zip(motions, (strong, Answer(jammed, None), weak), strict=True))
    starts = _chosen_starts(cut, params, answers)
    assert list(starts) == ["vertical", "drawn 1"]
    assert starts["drawn 1"] is motions[2]
    assert list(_chosen_starts(cut, params, answers[1:2])) == ["vertical"]


def test_parameter_draws_begin_with_the_fitted_ones_and_stay_positive():
    values = {"sdf_mu": np.full(4, 0.6), "young_pa": np.asarray(3e6)}
    draws = _parameter_draws(values, quick(draws=5, draw_spread=0.2))
    assert len(draws) == 5 and draws[0] is values
    factors = np.array([draw["sdf_mu"] / values["sdf_mu"] for draw in draws[1:]])
    assert (factors > 0.0).all() and (factors == factors[:, :1]).all() and len(np.unique(factors)) == 4


def test_draws_of_a_posterior_come_before_a_spread():
    values = {"edge_toughness": np.full(4, 400.0), "sdf_mu": np.asarray(0.3)}
    materials = [{"edge_toughness": 1.2}, {"edge_toughness": 0.8, "sdf_mu": 2.0}, {"sdf_mu": 0.5}]
    draws = _parameter_draws(values, quick(draws=3), materials)
    assert len(draws) == 3 and draws[0] is values
    assert draws[1]["edge_toughness"] == pytest.approx(480.0) and float(draws[1]["sdf_mu"]) == 0.3
    assert draws[2]["edge_toughness"] == pytest.approx(320.0) and float(draws[2]["sdf_mu"]) == 0.6


def test_possible_materials_replace_the_ten_per_cent():
    params = quick()
    model, values = block(), {name: np.asarray(value) for name, value in VALUES.items()}
    cut = slicing_cut(params)
    base = Check("", model, values, cut.passage, params, cut.straight(), cut.straight())
    finer = finer_cut(*uncut_block())
    materials = [{"sdf_mu": 1.0 + 0.1 * i} for i in range(20)]
    checks = checks_of(base, finer, values, materials)
    assert [check.name for check in checks[:3]] == ["half the edge", "half the step", f"{POSSIBLE} 1"]
    assert len(checks) == 2 + MATERIALS
    assert float(checks[3].values["sdf_mu"]) == pytest.approx(1.1 * float(values["sdf_mu"]))
    assert len(checks_of(base, finer, values)) == 5


def test_the_band_of_the_peak_is_that_of_possible_materials():
    """It has the next amplitude (scale 7 %, cut CUT_SPREAD) beside the materials' spread, here none."""
    saved = [Confirmed(f"{POSSIBLE} {i}", 10.0, 10.0 - 0.1 * i, 20.0) for i in range(11)]
    found = SimpleNamespace(
        confirmed=[Confirmed("half the edge", 10.0, 1.0, 20.0), *saved],
        slicing=SimpleNamespace(norm=np.array([5.0, 20.0])),
        band=SavingBand(0.2, 0.5, 0.4, 0.1, 0.6, 0.01),
    )
    high = 20.0 * np.exp(1.6449 * np.hypot(0.07, CUT_SPREAD))
    expected = {"reduction_low": 0.2, "reduction_high": 0.5, "reduction_mean": 0.4}
    expected |= {"reduction_two_cuts_low": 0.1, "reduction_two_cuts_high": 0.6}
    expected |= {"reduction_material_spread": 0.01, "peak_force_high_n": high}
    assert _band(found) == pytest.approx(expected)
    nothing = dict.fromkeys(expected)
    found.band = None
    found.confirmed.append(Confirmed(f"{POSSIBLE} 12", 10.0, float("nan"), float("nan")))
    assert _band(found) == nothing
    found.confirmed = found.confirmed[:1]
    assert _band(found) == nothing


def test_on_cuda_the_confirming_cuts_are_a_batch_with_the_same_forces(monkeypatch):
    """Warp's CPU device stands for the GPU."""
    cut = slicing_cut(quick())
    cuts = [*cut.cuts(cut.straight()), *cut.cuts(_wild(cut))]
    shares: list[float] = []
    with Workers(1) as workers:
        drawn, apart = search._confirmations(workers, partial(len, "draw"), cuts, shares.append)
        monkeypatch.setattr(search, "on_cuda", lambda: True)
        monkeypatch.setattr(search, "simulate_many", partial(simulate_many, batch=True))
        drawn_too, together = search._confirmations(workers, partial(len, "draw"), cuts, shares.append)
    assert drawn == drawn_too == 4
    assert shares[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert shares[3:] == sorted(shares[3:]) and shares[-1] == 1.0
    for one, other in zip(apart, together, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-3 * np.abs(one.value).max())


def test_halved_edges_keep_the_volume_and_the_shape_of_the_tets():
    nodes, tets = uncut_block()
    fine, small = _halve_edges(nodes, tets)
    assert len(small) == 8 * len(tets)
    volumes = tet_volumes(fine, small)
    assert (volumes > 0.0).all()
    assert volumes.sum() == pytest.approx(tet_volumes(nodes, tets).sum(), rel=1e-12)
    # every small tet has an eighth of its parent's volume
    assert np.sort(volumes) == pytest.approx(np.sort(np.repeat(tet_volumes(nodes, tets) / 8.0, 8)), rel=1e-9)
    # conforming: every inner face belongs to two tets, so faces on the boundary are four times as many as before
    assert _boundary_count(small) == 4 * _boundary_count(tets)


def test_values_of_the_finer_mesh_come_from_its_neighbours_skin_from_skin():
    coarse, fine = regular_block(), finer_cut(*uncut_block())
    skin = np.where(coarse.spring_surface, 2.0, 1.0)
    height = coarse.spring_position[:, 1]
    found = values_on(fine, coarse, {"a": skin, "b": height, "young_pa": np.asarray(5.0)})
    assert found["a"] == pytest.approx(np.where(fine.spring_surface, 2.0, 1.0), rel=1e-12)
    # a smooth field comes over within a coarse edge
    assert np.abs(found["b"] - fine.spring_position[:, 1]).max() < 8.4e-3
    assert found["young_pa"] == 5.0


def _boundary_count(tets):
    faces = np.sort(
        np.concatenate([tets[:, list(c)] for c in ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))]), axis=1
    )
    _, counts = np.unique(faces, axis=0, return_counts=True)
    assert counts.max() <= 2
    return int((counts == 1).sum())
