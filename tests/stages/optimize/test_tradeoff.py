"""Force against duration: durations are kept, a neighbour's motion starts the search, a point can be chosen."""

import json
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.scans.register import Request, register_scan
from pipelines.scans.tradeoff import _basis, _earlier, pick_point, settings_of
from pipelines.scans.tradeoff import tradeoff as tradeoff_of_a_scan
from stages.optimize import tradeoff as tradeoff_module
from stages.optimize.confirmation import finer_cut
from stages.optimize.constraints import passage_of
from stages.optimize.optimize_report import keyframe_table
from stages.optimize.search import optimize
from stages.optimize.tradeoff import on_front, plan_front, plan_picture, tradeoff, tradeoff_picture
from stages.runtime.errors import InputError
from tests.pipelines.tiny_project import ROOT, make_real_project
from tests.stages.slicing_scenes import VALUES, block, quick, slicing_cut, uncut_block


def test_the_duration_is_that_of_the_settings_in_whole_steps():
    model, params = block(), quick(duration_s=0.7301)
    passage = passage_of(model.mesh, model.knife, params)
    assert passage.duration_s == pytest.approx(0.732), "steps of 4 ms"
    assert passage_of(model.mesh, model.knife, quick()).duration_s != passage.duration_s


def test_a_motion_stretched_to_its_own_duration_is_the_same_and_to_another_saws_as_fast():
    cut, slower = slicing_cut(quick()), slicing_cut(quick(duration_s=2.0))
    variables = np.random.default_rng(0).uniform(-0.5, 0.5, (3, cut.keyframes))
    variables[2] -= variables[2].mean()
    keyframes = cut.motion_parameters(variables)
    assert cut.variables_of(cut.keyframe_times, keyframes) == pytest.approx(variables)
    longer = slower.motion_parameters(slower.variables_of(cut.keyframe_times, keyframes))
    for name in ("amplitude", "frequency"):
        assert [longer[name][0], longer[name][-1]] == pytest.approx([keyframes[name][0], keyframes[name][-1]])
    assert slower.trajectory(slower.straight()).position[-1, 1] == pytest.approx(cut.passage.end_m)


def test_more_time_needs_less_force_under_the_same_limits(monkeypatch):
    """A slower descent turns the force sideways, although its acceleration along the blade is limited in proportion."""
    monkeypatch.setattr(tradeoff_module, "_FACTORS", (1.0, 2.0))
    params, model = quick(iterations=4), block()
    values = {name: np.asarray(value) for name, value in VALUES.items()}
    known = optimize(model, values, params, finer=finer_cut(*uncut_block()))
    shares = []
    points = tradeoff(
        model,
        values,
        params,
        keyframe_table(known),
        lambda point: True,
        lambda share, _: shares.append(share),
    )
    assert shares == sorted(shares) and 0.0 < shares[-1] < 1.0
    first, second = points
    assert second.descent_s == pytest.approx(2.0 * first.descent_s, abs=0.005)
    assert second.mean_n < first.mean_n
    for point in points:
        assert len(point.vertical.path.position) == len(point.whole.path.position), "the same total duration"
        assert point.vertical.path.position[-1, 1] == pytest.approx(point.whole.path.position[-1, 1])
        assert point.table()["time_s"][-1] == pytest.approx(point.duration_s)
    assert tradeoff_picture(points, [True, False]).std() > 5.0


def test_a_chosen_motion_is_taken_over_as_it_is(monkeypatch):
    """Another search under the same limits found another motion, which the certificate refused."""
    monkeypatch.setattr(tradeoff_module, "_FACTORS", (0.9, 1.0))
    params, model = quick(iterations=3), block()
    values = {name: np.asarray(value) for name, value in VALUES.items()}
    finer = finer_cut(*uncut_block())
    known = optimize(model, values, params, finer=finer)
    faster, _ = tradeoff(
        model, values, params, keyframe_table(known), lambda point: True, lambda share, what: None
    )
    row = {
        "descent_s": faster.descent_s,
        "max_acceleration_along_m_s2": faster.params.max_acceleration_along_m_s2,
        "first_motion": faster.first_motion,
    }
    settings = settings_of(row)["optimize"]
    taken = optimize(model, values, params.changed(**settings), finer=finer)
    assert taken.cut.passage.duration_s == pytest.approx(faster.descent_s)
    found, wished = taken.slicing.variables, faster.motion.variables
    assert found == pytest.approx(wished, abs=1e-5), "keyframes are written with six decimals"
    assert taken.slicing.mean_n() == pytest.approx(faster.motion.mean_n(), rel=1e-4)
    again = tradeoff(
        model,
        values,
        params.changed(**settings),
        keyframe_table(taken),
        lambda point: True,
        lambda share, what: None,
    )
    assert max(point.params.iterations for point in again) > 1, "a curve from it searches as ever"


def test_a_refused_motion_is_searched_again_with_less_acceleration(monkeypatch):
    monkeypatch.setattr(tradeoff_module, "_FACTORS", (1.0,))
    params, model = quick(iterations=2), block()
    values = {name: np.asarray(value) for name, value in VALUES.items()}
    known = optimize(model, values, params, finer=finer_cut(*uncut_block()))
    full = params.max_acceleration_along_m_s2

    def certified(point):
        return point.params.max_acceleration_along_m_s2 < 0.6 * full

    (point,) = tradeoff(model, values, params, keyframe_table(known), certified, lambda share, what: None)
    assert point.params.max_acceleration_along_m_s2 == pytest.approx(0.49 * full)
    along = np.abs(point.motion.cut.trajectory(point.motion.variables).acceleration[:, 1]).max()
    assert along <= 0.49 * full + 0.05


def test_only_motions_with_less_force_than_every_shorter_one_are_on_the_front():
    assert on_front([9.0, 7.0, 8.0, 6.0]) == [True, True, False, True]


class Known:
    """A point of a cut's curve with a known duration and force."""

    def __init__(self, duration_s, mean_n):
        self.duration_s, self.mean_n, self.peak_n = duration_s, mean_n, 2.0 * mean_n
        self.vertical = SimpleNamespace(mean_n=lambda over: 3.0 * mean_n)
        self.motion = SimpleNamespace(cut=SimpleNamespace(mean_over="time"))


def test_the_front_of_a_plan_is_that_of_all_combinations():
    generator = np.random.default_rng(3)
    curves = [
        [Known(1.0 + i, force) for i, force in enumerate(generator.normal([20.0, 14.0, 11.0, 9.0], 2.0))]
        for _ in range(4)
    ]
    every = {
        choice: (
            sum(curve[i].duration_s for curve, i in zip(curves, choice, strict=True)),
            np.mean([curve[i].mean_n for curve, i in zip(curves, choice, strict=True)]),
        )
        for choice in product(range(4), repeat=4)
    }
    front = plan_front(curves, 100)
    assert len(front) >= 4 and [p.duration_s for p in front] == sorted(p.duration_s for p in front)
    for point in front:
        duration, force = every[point.chosen]
        assert (point.duration_s, point.mean_n) == pytest.approx((duration, force))
        assert not any(d <= duration and f < force - 1e-12 for d, f in every.values())
        assert point.vertical_n == pytest.approx(3.0 * point.mean_n)
    least = min(f for _, f in every.values())
    assert front[-1].mean_n == pytest.approx(least) and front[0].duration_s == pytest.approx(4.0)
    few = plan_front(curves, 3)
    assert len(few) == 3 and few[0] == front[0] and few[-1] == front[-1]
    picture = plan_picture(curves, few, [9.0, 10.0, 11.0], [True, False, True])
    assert picture.std() > 5.0


POINTS = [
    {"duration_s": 1.0, "mean_force_n": 9.0, "peak_force_n": 20.0, "certified": True},
    {"duration_s": 2.0, "mean_force_n": 6.0, "peak_force_n": 12.0, "certified": True},
    {"duration_s": 3.0, "mean_force_n": 5.0, "peak_force_n": 8.0, "certified": False},
]


def test_a_point_is_chosen_by_its_duration_or_its_peak_force():
    assert pick_point(POINTS, 2.5, None)["duration_s"] == 2.0
    assert pick_point(POINTS, None, 25.0)["duration_s"] == 1.0
    assert pick_point(POINTS, 9.0, None)["duration_s"] == 2.0, "a refused motion is never chosen"
    with pytest.raises(InputError, match=r"duration of at most 0\.5 s.*least is 1\.00 s"):
        pick_point(POINTS, 0.5, None)
    with pytest.raises(InputError, match=r"peak force of at most 9 N.*least is 12\.00 N"):
        pick_point(POINTS, None, 9.0)


def test_a_scan_without_a_motion_and_two_choices_are_refused(tmp_path, monkeypatch):
    project = make_real_project(tmp_path)
    scan = register_scan(project, Request(ROOT / "data" / "sample" / "synthetic_apple.ply"))
    with pytest.raises(InputError, match=f"run {scan}"):
        tradeoff_of_a_scan(project, scan, lambda share, what: None)
    monkeypatch.chdir(tmp_path)
    for options, message in (
        (["--duration", "2", "--force-limit", "9"], "both given"),
        (["--duration", "-1"], "positive"),
        (["--force-limit", "nan"], "positive"),
    ):
        refused = CliRunner().invoke(app, ["tradeoff", scan, *options])
        assert isinstance(refused.exception, InputError) and message in str(refused.exception)


def test_an_earlier_curve_serves_until_body_material_or_settings_change(tmp_path):
    """Choosing a point changes the scan's settings and motion, not the curve it was chosen from."""
    project = make_real_project(tmp_path)
    raw = ROOT / "data" / "sample" / "synthetic_apple.ply"
    scan = register_scan(project, Request(raw))
    folder = project.scan_dir(scan)
    for stage in ("precut_half", "halve", "transport", "calibrate"):
        (folder / stage).mkdir()
        (folder / stage / "table").write_text("1")
    basis = _basis(project, scan)
    point = {"descent_s": 0.7, "max_acceleration_along_m_s2": 2.5, "first_motion": [[0.1, 10.0, 1.0]] * 2}
    register_scan(project, Request(raw, scan_id=scan, overrides=settings_of(point)))
    assert _basis(project, scan) == basis
    (folder / "tradeoff").mkdir()
    (folder / "tradeoff" / "tradeoff.json").write_text(json.dumps({"basis": basis, "points": POINTS}))
    assert _earlier(folder / "tradeoff", basis)["points"] == POINTS
    register_scan(project, Request(raw, scan_id=scan, overrides={"optimize": {"final_strokes": 1}}))
    assert _earlier(folder / "tradeoff", _basis(project, scan)) is None
    other = _basis(project, scan)
    (folder / "transport" / "table").write_text("2")
    assert _basis(project, scan) != other
    (folder / "tradeoff" / "tradeoff.json").write_text("{")
    assert _earlier(folder / "tradeoff", basis) is None, "a damaged file is computed again"
