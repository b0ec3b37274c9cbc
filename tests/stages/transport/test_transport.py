"""The stage transport: the plan's laws, the values' bounds, hostile sets, and the tables it writes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disect_sim.parameters import SPRING_NAMES
from stages.calibrate.problem import TOUCHED_NS
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.shared.fitting import make_bound
from stages.transport.plan import Comparison, SpringSet, bare_flesh, combine, touch_weights, transport_plan
from stages.transport.transport import NO_LOG, Source, metrics, tables, transport
from tests.stages.transport_scenes import BOUNDS, SHIPPED, disc, field, source_of, with_params

EXACT = {"max_exact": 10_000, "entropy": 0.002}
ENTROPIC = {"max_exact": 1, "entropy": 0.002}
FLAT = Comparison(np.zeros(0), np.zeros(0), np.zeros(0), "Not simulated.")


def test_the_same_surface_gives_the_same_values_to_the_bit():
    springs = disc(150, 0)
    done = transport(source_of(springs), springs, SHIPPED)
    assert np.array_equal(done.plan.weights.toarray(), np.eye(len(springs.area_m2)))
    assert done.plan.cost == 0.0
    for name, value in field(springs).items():
        assert np.array_equal(done.values[name], value), name


@pytest.mark.parametrize("options", [EXACT, ENTROPIC])
def test_rows_sum_to_one_and_marginals_are_the_masses(options):
    source, target = disc(120, 1), disc(80, 2, height=0.5)
    plan = transport_plan(source, target, **options)
    # Sums of a few hundred shares: rounding only.
    assert np.allclose(plan.weights.sum(axis=1), 1.0, atol=1e-12)
    assert plan.weights.data.min() > 0.0
    # The simplex keeps marginals to rounding; Sinkhorn stops at 1e-5 in the 2-norm, which is 1e-4 summed over 200.
    assert plan.marginal_error < (1e-12 if options is EXACT else 1e-4)
    mass = np.array([target.masses()[target.skin == skin].sum() for skin in (True, False)])
    for skin, total in zip((True, False), mass, strict=True):
        arrived = target.masses() * (target.skin == skin) @ plan.weights / total
        wanted = np.where(source.skin == skin, source.masses(), 0.0)
        # Dust below 1e-6 of a row is swept away before the rows are made to sum to one.
        assert np.abs(arrived - wanted / wanted.sum()).sum() < (1e-10 if options is EXACT else 1e-3)
    assert plan.method == ("exact" if options is EXACT else "entropic")
    assert (plan.iterations > 0) == (options is ENTROPIC)


def test_skin_maps_to_skin_and_flesh_to_flesh():
    source, target = disc(100, 3), disc(60, 4, height=0.5)
    shares = transport_plan(source, target, **EXACT).weights.tocoo()
    assert np.array_equal(source.skin[shares.col], target.skin[shares.row])


def test_entropic_plan_agrees_with_the_exact_one():
    source, target = disc(150, 5), disc(120, 6)
    exact, entropic = (transport_plan(source, target, **options) for options in (EXACT, ENTROPIC))
    # The entropy lets mass stray by about its root, 0.045 of the box, so the mean square grows by about 0.002.
    assert exact.cost <= entropic.cost + 1e-9
    assert entropic.cost - exact.cost < 0.003
    truth = field(source)
    skins = (source.skin, target.skin)
    for name in SPRING_NAMES:
        sharp, soft = (combine(plan.weights, truth, BOUNDS, *skins)[name] for plan in (exact, entropic))
        # A blur of 0.045 in fields that vary over the whole box: a few percent of their range.
        assert np.sqrt(np.mean((sharp - soft) ** 2)) < 0.08 * np.ptp(truth[name])


@given(
    shift=st.tuples(st.floats(-1, 1), st.floats(-1, 1)), scale=st.floats(0.1, 10.0), seed=st.integers(0, 99)
)
@settings(max_examples=15)
def test_moving_scaling_and_shuffling_change_nothing(shift, scale, seed):
    source, target = disc(60, 7), disc(50, 8, height=0.6)
    before = transport(source_of(source), target, SHIPPED)
    order = np.random.default_rng(seed).permutation(len(source.area_m2))
    moved = SpringSet(
        (scale * source.position_m + np.array(shift))[order],
        scale**2 * source.area_m2[order],
        source.skin[order],
    )
    values = {name: value[order] for name, value in field(source).items()}
    after = transport(source_of(moved, values), target, SHIPPED)
    # Positions are rounded after the shift of up to 1 m, which is 1e-14 of the box: no pivot turns on that here.
    assert after.plan.cost == pytest.approx(before.plan.cost, rel=1e-9)
    assert np.allclose(after.plan.weights.toarray(), before.plan.weights.toarray()[:, order], atol=1e-9)
    for name in SPRING_NAMES:
        assert np.allclose(after.values[name], before.values[name], rtol=1e-7)


@given(data=st.data(), seed=st.integers(0, 10_000))
@settings(max_examples=30)
def test_values_stay_between_their_sources_and_inside_the_bounds(data, seed):
    source, target = disc(25, 9, skin_count=6), disc(20, 10, skin_count=5)
    rng = np.random.default_rng(seed)
    values = {}
    for name in SPRING_NAMES:
        bound = BOUNDS[name, True]
        share = rng.uniform(size=len(source.area_m2))
        # Some exactly on a bound.
        share[rng.integers(len(share), size=5)] = data.draw(st.sampled_from([0.0, 1.0]))
        values[name] = np.clip(bound.low + (bound.high - bound.low) * share, bound.low, bound.high)
    done = transport(source_of(source, values), target, SHIPPED)
    weights = done.plan.weights.toarray() > 0.0
    for name in SPRING_NAMES:
        value, bound = done.values[name], BOUNDS[name, True]
        assert np.isfinite(value).all()
        assert (value >= bound.low).all() and (value <= bound.high).all()
        for row, found in zip(weights, value, strict=True):
            assert values[name][row].min() <= found <= values[name][row].max()


def test_constants_stay_to_the_bit_even_where_no_fit_could_put_them():
    source, target = disc(60, 11), disc(50, 12)
    values = field(source)
    values["sdf_stribeck"] = np.zeros(len(source.area_m2))
    values["sdf_kf"] = np.full(len(source.area_m2), 0.01)
    values["sdf_radius"] = np.full(len(source.area_m2), BOUNDS["sdf_radius", False].high)
    done = transport(source_of(source, values), target, SHIPPED)
    for name, number in (("sdf_stribeck", 0.0), ("sdf_kf", 0.01), ("sdf_radius", values["sdf_radius"][0])):
        assert (done.values[name] == number).all()
        assert (done.averaged[name] == number).all()


def test_bounds_of_the_fit_are_those_of_the_average():
    """Two sources of equal weight: the middle of the free numbers is the middle of the logarithms in the bounds."""
    weights = transport_plan(disc(1, 0, skin_count=0), disc(1, 0, skin_count=0), **EXACT).weights
    assert weights.toarray() == [[1.0]]
    half = type(weights)(np.array([[0.5, 0.5]]))
    narrow = {**BOUNDS, ("cut_spring_ke", False): make_bound("cut_spring_ke", 100.0, 10_000.0)}
    values = {name: np.array([BOUNDS[name, False].low, BOUNDS[name, False].high]) for name in SPRING_NAMES}
    values["cut_spring_ke"] = np.array([100.0 * 100.0**0.2, 100.0 * 100.0**0.8])
    flesh = np.zeros(2, bool)
    found = combine(half, values, narrow, flesh, flesh[:1])["cut_spring_ke"]
    assert found == pytest.approx(1000.0, rel=1e-12)


def test_untouched_springs_count_for_little():
    source = disc(100, 13)
    touched = source.position_m[:, 1] > 0.02
    assert np.array_equal(touch_weights(np.zeros(3, bool), 0.1), np.ones(3))
    values = field(source)
    values["sdf_mu"] = np.where(touched, 0.6, 0.99)
    springs = Source(source, values, BOUNDS, touched)
    target = disc(100, 14)
    light, full = (transport(springs, target, with_params(untouched_weight=w)) for w in (0.1, 1.0))
    assert (light.values["sdf_mu"] > 0.9).mean() < 0.4 * (full.values["sdf_mu"] > 0.9).mean()


def test_averages_are_those_of_the_kind():
    source, target = disc(50, 15), disc(40, 16)
    values = field(source)
    values["sdf_mu"] = np.where(source.skin, 0.9, 0.6)
    done = transport(source_of(source, values), target, SHIPPED)
    assert np.array_equal(done.averaged["sdf_mu"], np.where(target.skin, 0.9, 0.6))
    assert np.ptp(done.averaged["cut_spring_ke"][~target.skin]) == 0.0


@pytest.mark.parametrize("side", ["source", "target"])
def test_no_skin_on_one_side(side):
    bare, whole = disc(40, 17, skin_count=0), disc(40, 18)
    source, target = (bare, whole) if side == "source" else (whole, bare)
    done = transport(source_of(source), target, SHIPPED)
    assert done.plan.mixed == (side == "source")
    assert np.allclose(done.plan.weights.sum(axis=1), 1.0, atol=1e-12)
    assert all(np.isfinite(value).all() for value in done.values.values())


@pytest.mark.parametrize(("sources", "targets"), [(1, 30), (30, 1), (1, 1)])
def test_one_spring(sources, targets):
    source, target = disc(sources, 19, skin_count=0), disc(targets, 20, skin_count=0)
    done = transport(source_of(source), target, SHIPPED)
    for name, value in field(source).items():
        assert (done.values[name] >= value.min()).all() and (done.values[name] <= value.max()).all()


def test_springs_in_a_line_and_springs_without_area():
    source, target = disc(30, 21), disc(30, 22)
    line = replace(source, position_m=source.position_m * [1.0, 0.0])
    assert np.allclose(line.in_unit_box[:, 1], 0.5)
    no_area = replace(target, area_m2=np.where(np.arange(50) < 10, 0.0, target.area_m2))
    done = transport(source_of(line), no_area, SHIPPED)
    assert all(np.isfinite(value).all() for value in done.values.values())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"position_m": np.full((50, 2), np.nan)}, "NaN or infinite"),
        ({"area_m2": np.full(50, np.inf)}, "NaN or infinite"),
        ({"area_m2": np.full(50, -1.0)}, "None may be negative"),
        ({"area_m2": np.zeros(50)}, "not all may be 0"),
        ({"position_m": np.zeros((0, 2)), "area_m2": np.zeros(0), "skin": np.zeros(0, bool)}, "no springs"),
    ],
)
def test_bad_springs_are_refused(change, sentence):
    good, bad = disc(30, 23), replace(disc(30, 23), **change)
    with pytest.raises(InputError, match=f"The second cut has .*{sentence}"):
        transport_plan(good, bad, **EXACT)
    with pytest.raises(InputError, match=f"The first cut has .*{sentence}"):
        transport_plan(bad, good, **EXACT)


def test_bad_values_are_refused():
    source = disc(30, 24)
    values = field(source)
    values["sdf_mu"] = np.full(50, np.nan)
    with pytest.raises(InputError, match="sdf_mu has values that are NaN"):
        transport(source_of(source, values), disc(30, 25), SHIPPED)


def test_two_thousand_springs():
    source, target = disc(1900, 26, skin_count=100), disc(1900, 27, skin_count=100)
    plan = transport_plan(source, target, max_exact=SHIPPED.max_exact_springs, entropy=SHIPPED.entropy)
    assert plan.method == "exact"
    assert plan.marginal_error < 1e-12
    # A vertex of the transport polytope has at most sources + targets - 1 entries, skin and flesh each.
    assert plan.weights.nnz <= 4000 - 2


def test_tables_keep_their_contracts_and_a_scan_without_log_says_so():
    source, target = disc(40, 28), disc(30, 29)
    uniform = {name: np.full(60, BOUNDS[name, False].low) for name in SPRING_NAMES}
    springs = source_of(source, uniform, touched=False)
    done = transport(springs, target, SHIPPED)
    for name, frame in tables(target, done).items():
        check_table(ARTIFACTS[name], frame, name)
    plan = tables(target, done)["transport/plan"]
    assert plan["target"].is_sorted() and plan["target"].n_unique() == len(target.area_m2)
    found = metrics(springs, target, done, FLAT, 0)
    assert found["outcome"] == NO_LOG
    assert found["varied_parameters"] == [] and found["spread_kept"] is None
    found = metrics(source_of(source), target, transport(source_of(source), target, SHIPPED), FLAT, 0)
    assert found["spread_kept"] == pytest.approx(1.0, abs=0.3)
    assert found["apart_from_average"] > 0.1


def test_bare_flesh_is_what_lies_in_the_first_cuts_face():
    points = np.array([[0.0, 0.0005, 0.01], [0.0, 0.02, 0.0]])
    found = bare_flesh(points, np.zeros(3), np.array([0.0, -1.0, 0.0]), 0.0015)
    assert found.tolist() == [True, False]


def test_shipped_threshold_of_touch_is_that_of_the_pictures():
    assert SHIPPED.touched_ns == TOUCHED_NS
