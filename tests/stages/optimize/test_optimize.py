"""optimize: less force under hard constraints, gradients, checkpoints, the ablation, the honesty check, the tables."""

from dataclasses import replace

import numpy as np
import pytest

from disect_sim.outcome import Outcome, OutcomeKind
from stages.optimize.confirmation import finer_cut
from stages.optimize.descent import _NO_GAIN, ForceModel, Search, descend, live_picture
from stages.optimize.optimize import check_plane
from stages.optimize.optimize_report import (
    confirmation_table,
    history_table,
    keyframe_table,
    metrics,
    motion_table,
    optimize_picture,
    profile_table,
)
from stages.optimize.search import UNCONSTRAINED, near_vertical, optimize
from stages.optimize.slicing_cut import SlicingCut
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.errors import InputError
from tests.disect_sim.scenes import regular_block
from tests.stages.slicing_scenes import VALUES, block, quick, slicing_cut, uncut_block

NO_CHECKPOINT = Checkpoint(None, "", stage="optimize", part="test")


def _descend(cut, params, **options):
    scale = cut.mean_force(cut.straight())
    start = near_vertical(cut, params)
    return descend(cut, start, params, scale_n=scale, **{"checkpoint": NO_CHECKPOINT, **options}), scale


SHOWN: list[tuple[float, tuple[int, ...]]] = []
"""What the searches showed on their way: mean force of the best motion [N], shape of the picture."""


def _search(processes):
    """A short search on the block, with an ablation and all checks."""
    params = quick(iterations=4, starts=2, candidates=2, processes=processes)
    values = {name: np.asarray(value) for name, value in VALUES.items()}
    model, silhouette = block(), regular_block().nodes[:, [2, 1]]
    SHOWN.clear()

    def show(so_far):
        SHOWN.append((so_far.best_mean_n, live_picture(so_far, silhouette).shape))

    return optimize(model, values, params, finer=finer_cut(*uncut_block()), show=show)


@pytest.fixture(scope="module")
def found():
    return _search(1)


def test_the_best_motion_so_far_can_be_watched(found):
    means, shapes = zip(*SHOWN, strict=True)
    assert len(SHOWN) == sum(len(run.history) for run in found.runs.values())
    assert list(means) == sorted(means, reverse=True), "it never gets worse"
    best = min(
        run.best.mean_force_n for name, run in found.runs.items() if name != UNCONSTRAINED and run.feasible
    )
    assert means[-1] == best
    assert set(shapes) == {(450, 1100, 3)}


def test_two_processes_give_exactly_what_one_gives(found):
    other = _search(2)
    assert metrics(other) == metrics(found)
    for table in (motion_table, profile_table, keyframe_table, history_table, confirmation_table):
        assert table(other).equals(table(found)), table.__name__


def test_the_motion_needs_less_force_and_keeps_every_constraint(found):
    reported = metrics(found)
    # A saw at 0.2 m/s turns the friction of a 0.06 m/s descent sideways: a tenth is the least one expects of it.
    assert reported["reduction_of_descent"] > 0.1
    # Under the force law a vertical cut as slow as the whole motion, strokes included, needs less force itself.
    assert 0.0 < reported["reduction"] < reported["reduction_of_descent"]
    for name in ("end_height_residual_m", "lateral_residual_m", "board_residual_m"):
        assert reported[name] <= 0.5e-3
    assert reported["end_height_residual_m"] == pytest.approx(0.0, abs=1e-9)
    assert reported["speed_residual_m_s"] <= 1e-3
    assert reported["mean_force_optimized_n"] < reported["mean_force_vertical_n"]


def test_what_the_sawing_itself_saves_is_reported_apart(found):
    """The same descent without sawing lies between the two motions, or the sawing would not be worth its while."""
    reported = metrics(found)
    expected = 1.0 - reported["mean_force_descent_n"] / reported["mean_force_without_sawing_n"]
    assert reported["reduction_by_sawing"] == pytest.approx(expected)
    assert reported["reduction_by_sawing"] > 0.0
    still = found.cut.trajectory(found.without_sawing.variables).position
    sliced = found.cut.trajectory(found.slicing.variables).position
    assert np.array_equal(still[:, 1], sliced[:, 1]) and (still[:, 2] == still[0, 2]).all()


def test_a_mean_over_depth_can_not_be_lowered_by_timing(found):
    """Each millimetre counts the same, however long the knife stays there; over time it counts as long as it stays."""
    reported = metrics(found)
    assert reported["mean_over"] == "depth"
    assert reported["reduction"] == reported["reduction_over_depth"] != reported["reduction_over_time"]
    cut = found.cut
    late = cut.straight()
    late[2] = np.linspace(-3.0, 3.0, cut.keyframes)
    late = cut.at_end_height(late)
    depth = cut.passage.start_m - cut.passage.end_m
    means = {}
    for name, variables in (("straight", cut.straight()), ("late", late)):
        down = (cut.passage.start_m - cut.trajectory(variables).position[:, 1]) / depth
        for over in ("time", "depth"):
            weights = cut.weights(variables, over)
            # a force that grows with depth, averaged over each sample's milliseconds
            force = (0.5 * (down[:-1] + down[1:])).reshape(len(weights), -1).mean(axis=1)
            means[name, over] = float(weights @ force)
    assert means["late", "time"] < 0.95 * means["straight", "time"]
    # the integral of a straight line: a half, up to the error of samples of 4 ms
    assert means["straight", "depth"] == pytest.approx(0.5, rel=1e-3)
    assert means["late", "depth"] == pytest.approx(0.5, rel=1e-3)
    hovering = cut.straight()
    hovering[2] = -5.0  # no descent at all
    assert cut.weights(hovering, "depth").sum() == pytest.approx(1.0)


def test_the_best_start_is_kept_and_the_ablation_is_reported_apart(found):
    assert set(found.runs) == {"vertical", "drawn 1", UNCONSTRAINED}
    assert found.best_start != UNCONSTRAINED
    feasible = [
        r for n, run in found.runs.items() if n != UNCONSTRAINED for r in run.history if r["feasible"]
    ]
    assert found.runs[found.best_start].best.objective == min(row["objective"] for row in feasible)
    reported = metrics(found)
    assert reported["unconstrained_reduction"] is not None


def test_the_honesty_check_repeats_both_motions(found):
    names = [row.name for row in found.confirmed]
    assert names[:2] == ["half the edge", "half the step"] and len(names) == 5
    reported = metrics(found)
    assert reported["confirmed_reduction"] == pytest.approx(min(row.reduction for row in found.confirmed))


def test_a_confirmation_that_stops_is_named_and_the_table_stays_finite(found):
    stopped = replace(found.confirmed[1], vertical_n=float("nan"))
    less = replace(found, confirmed=[found.confirmed[0], stopped, *found.confirmed[2:]])
    table = confirmation_table(less)
    check_table(ARTIFACTS["optimize/confirmation"], table, "optimize/confirmation")
    assert len(table) == len(found.confirmed) - 1
    reported = metrics(less)
    assert reported["confirmed_reduction"] is None
    assert "1 of 5 confirming simulations (half the step)" in reported["warning"]


def test_the_optimised_cut_is_refused_and_the_vertical_one_warned_about(found):
    squashed = replace(found.vertical_outcome, reached_fraction=0.1)
    reported = metrics(replace(found, vertical_outcome=squashed))
    assert reported["refused"] is None
    assert "The vertical cut did not happen" in reported["warning"]
    worse = replace(found.draw, outcome=replace(squashed, cut="optimised cut"))
    assert "optimised cut did not happen" in metrics(replace(found, draw=worse))["refused"]
    jammed = replace(found.draw.outcome, ended=Outcome(OutcomeKind.KNIFE_JAMMED))
    assert "stopped" in metrics(replace(found, draw=replace(found.draw, outcome=jammed)))["refused"]


def test_the_whole_motion_is_compared_with_a_vertical_cut_as_long(found):
    """Final strokes included: same start, same end height, same duration, both from rest to rest."""
    whole, vertical = found.whole, found.whole_vertical
    assert len(whole.path.position) == len(vertical.path.position) == len(motion_table(found))
    assert len(whole.force) == len(vertical.force)
    assert whole.path.position[0, 1] == pytest.approx(vertical.path.position[0, 1], abs=1e-12)
    assert whole.path.position[-1, 1] == pytest.approx(vertical.path.position[-1, 1], abs=1e-12)
    assert np.ptp(vertical.path.position[:, 2]) == 0.0
    for over in ("time", "depth"):
        assert whole.weights(over).sum() == pytest.approx(1.0)
        assert found.reduction(over) == pytest.approx(1.0 - whole.mean_n(over) / vertical.mean_n(over))
    # a stroke along the board goes nowhere down: over depth it weighs nothing
    assert whole.weights("depth")[-10:].sum() < 1e-9
    assert metrics(found)["whole_duration_s"] == pytest.approx(
        found.cut.passage.duration_s + found.draw.duration_s
    )


def test_tables_keep_their_contract_and_motion_is_one_row_per_millisecond(found):
    tables = {
        "optimize/motion": motion_table(found),
        "optimize/profile": profile_table(found),
        "optimize/keyframes": keyframe_table(found),
        "optimize/history": history_table(found),
        "optimize/confirmation": confirmation_table(found),
    }
    for name, table in tables.items():
        check_table(ARTIFACTS[name], table, name)
    motion = tables["optimize/motion"]
    assert motion["time_s"].to_numpy() == pytest.approx(np.arange(len(motion)) * 1e-3, abs=1e-12)
    for column in ("velocity_m_s", "acceleration_m_s2"):
        assert (motion[column].to_numpy()[[0, -1]] == 0.0).all()
    assert tables["optimize/profile"]["optimized_position_m"].equals(motion["position_m"], check_names=False)
    # the table's force is the simulated one: their means over time agree up to interpolation at the ends
    mean = np.linalg.norm(motion["force_n"].to_numpy(), axis=1).mean()
    assert mean == pytest.approx(found.slicing.norm.mean(), rel=0.02)


def test_picture_shows_something(found):
    nodes = regular_block().nodes
    pixels = optimize_picture(found, nodes[:, [2, 1]])
    assert pixels.ndim == 3 and pixels.std() > 10.0


@pytest.mark.parametrize("mean_over", ["time", "depth"])
def test_gradient_of_the_objective_matches_differences_in_every_motion_parameter(mean_over):
    """1 % is what the pipeline promises. At 4 ms a spring dies within few steps, hence 2 ms.

    Where a step of the simulation is solved by one correction more or less, the mean force jumps by 2e-6 of itself: a
    difference over a wide step is sure to hold such a jump and one over a narrow step seldom, never two of two.
    """
    cut = slicing_cut(quick(dt_s=0.002, mean_over=mean_over))
    at = cut.straight()
    at[0] = [0.5, 0.7, 0.4][: cut.keyframes]
    at[1] = [0.9, 0.6, 0.8][: cut.keyframes]
    at[2] = [0.3, -0.2, 0.1][: cut.keyframes]
    mean, gradient = cut.mean_force_and_slope(at)
    assert mean == cut.mean_force(at)
    worst = float(np.abs(gradient).max())

    def difference(index: tuple[int, ...], size: float) -> float:
        values = []
        for sign in (-1.0, 1.0):
            moved = at.copy()
            moved[index] += sign * size
            values.append(cut.mean_force(moved))
        return (values[1] - values[0]) / (2.0 * size)

    for index in np.ndindex(*at.shape):
        found = float(gradient[index])
        differences = [difference(index, size * abs(float(at[index]))) for size in (1e-5, 3e-6)]
        nearest = min(differences, key=lambda value: abs(value - found))
        # where a parameter hardly matters, 1 % is of the largest gradient's tenth
        assert found == pytest.approx(nearest, rel=0.01, abs=1e-3 * worst), (index, differences)


def test_a_killed_search_goes_on_and_ends_with_the_same_numbers(tmp_path):
    params = quick(iterations=3)
    cut = slicing_cut(params)
    whole, _ = _descend(cut, params)
    place = Checkpoint(tmp_path, "key", stage="optimize", part="vertical")

    class KilledError(Exception):
        pass

    def kill(run):
        if len(run.history) == 2:
            raise KilledError

    with pytest.raises(KilledError):
        _descend(cut, params, checkpoint=place, report=kill)
    seen = []
    resumed, _ = _descend(cut, params, checkpoint=place, report=lambda run: seen.append(len(run.history)))
    assert seen == [3]
    assert np.array_equal(resumed.best.variables, whole.best.variables)
    assert resumed.history == whole.history


def test_a_search_ends_when_its_next_step_promises_too_little(tmp_path):
    params = quick(iterations=5, least_gain=0.1)
    cut = slicing_cut(params)
    place = Checkpoint(tmp_path, "key", stage="optimize", part="vertical")
    run, _ = _descend(cut, params, checkpoint=place)
    assert run.ended == _NO_GAIN
    assert run.feasible and len(run.history) < 5
    # killed after its last simulation, it ends there again
    again, _ = _descend(cut, params, checkpoint=place)
    assert again.ended == run.ended and again.history == run.history


def test_a_step_that_promises_nothing_is_not_simulated_but_made_shorter(monkeypatch):
    """MDMM may end above its centre when it may go far; a simulation of that would be wasted."""
    params = quick(iterations=3, least_gain=0.001)
    cut = slicing_cut(params)
    radii = []

    def solve(cut, constraints, model, radius, params):
        radii.append(radius)
        uphill = 1.0 if radius > 0.2 else -1.0
        return model.centre + uphill * 0.1 * model.slope / np.linalg.norm(model.slope)

    monkeypatch.setattr("stages.optimize.descent.solve", solve)
    search = Search(cut, near_vertical(cut, params), params, scale_n=1.0, constrained=False)
    search.step()
    assert len(search.run.history) == 1
    assert radii == pytest.approx([0.75, 0.3, 0.12])
    search.step()
    assert search.run.history[-1]["radius"] == radii[2]


def test_a_search_that_keeps_no_rule_yet_does_not_end_for_little_gain():
    params = quick(iterations=3, least_gain=0.1, max_acceleration_vertical_m_s2=0.01)
    run, _ = _descend(slicing_cut(params), params)
    assert not run.feasible and len(run.history) == 3


def test_the_expected_gain_is_what_the_next_motion_brings(monkeypatch):
    """Of a force that is exactly the model's quadratic, the promise is kept to rounding."""
    params = quick(iterations=3, least_gain=0.0, inner_iterations=100)
    cut = slicing_cut(params)
    aim = cut.straight() + 0.3

    def bowl(variables):
        return 10.0 + float(((variables - aim) ** 2).sum()), 2.0 * (variables - aim)

    monkeypatch.setattr(cut, "mean_force_and_slope", bowl)
    search = Search(cut, near_vertical(cut, params), params, scale_n=10.0, constrained=True)
    search.step()
    assert search.run.best is not None
    search._curvature.matrix = 0.2 * np.eye(3 * cut.keyframes)
    model = ForceModel(search.run.best.variables, search.run.best.slope, search._curvature)
    promised = search._expected_gain(search.run.best, model) * search.run.best.mean_force_n / 10.0
    before = search.run.best.objective
    search.step()
    drop = before - search.run.history[-1]["objective"]
    assert promised == pytest.approx(drop, rel=1e-9) and drop > 0.0


def test_without_constraints_the_search_breaks_them_and_with_them_it_does_not():
    params = quick(iterations=4, start_radius=2.0, max_speed_m_s=0.12)
    cut = slicing_cut(params)
    free, _ = _descend(cut, params, constrained=False)
    kept, _ = _descend(cut, params)
    assert max(free.best.residuals.values()) > 0.01
    assert kept.feasible
    assert free.best.objective < kept.best.objective


def test_a_robust_motion_averages_over_the_draws():
    params = quick()
    model = block()
    stiff = {**VALUES, "sdf_ke": 2400.0}
    at = near_vertical(slicing_cut(params, model), params)
    single = [
        SlicingCut(model, (v,), slicing_cut(params, model).passage, params).mean_force_and_slope(at)
        for v in (VALUES, stiff)
    ]
    both = SlicingCut(model, (VALUES, stiff), slicing_cut(params, model).passage, params)
    assert both.mean_force(at) == pytest.approx(np.mean([mean for mean, _ in single]), rel=1e-9)
    mean, slope = both.mean_force_and_slope(at)
    assert mean == pytest.approx(both.mean_force(at), rel=1e-12)
    assert slope == pytest.approx(np.mean([slope for _, slope in single], axis=0), rel=1e-9)


def test_a_cut_surface_beside_the_knife_is_refused():
    mesh = regular_block()
    check_plane(mesh)
    shifted = type(mesh)(**{**vars(mesh), "nodes": mesh.nodes + np.array([0.004, 0.0, 0.0])})
    with pytest.raises(InputError, match=r"0\.0040 m from the knife's plane.*halve\.offset_m"):
        check_plane(shifted)


def test_limits_that_leave_no_room_are_a_sentence():
    params = quick(iterations=1, max_acceleration_vertical_m_s2=0.01)
    with pytest.raises(
        InputError, match=r"no motion of the search satisfies every constraint.*cut\.speed_m_s"
    ):
        optimize(
            block(),
            {name: np.asarray(v) for name, v in VALUES.items()},
            params,
            finer=finer_cut(*uncut_block()),
        )
