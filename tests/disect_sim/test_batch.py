"""Cuts of one body in one launch per step, on Warp's CPU device: each gets the answer of its own run."""

from functools import partial

import numpy as np
import pytest
import warp as wp

import disect_sim.device_model as device_model
import disect_sim.many as many
from disect_sim import ConstantVelocity, Cut, OutcomeKind, SlicingMotion, simulate, simulate_many
from disect_sim.many import force_of, repeated
from disect_sim.model import BoardProperties
from disect_sim.newton import NewtonOptions
from disect_sim.sparsity import launch_groups
from tests.disect_sim.scenes import BLOCK_HEIGHT, block_model, irregular_block, regular_block

SAME = 1e-6
ABOVE = BLOCK_HEIGHT + 5e-4
OPTIONS = {"duration": 0.15, "solver": "conjugate_gradients", "device": "cpu", "keep_times": (0.05,)}
MOTIONS = [
    ConstantVelocity(initial_y=ABOVE, velocity_y=-0.05),
    SlicingMotion(duration=0.3, initial_y=ABOVE, velocity_y=-0.05, amplitude=0.05),
    ConstantVelocity(initial_y=ABOVE, velocity_y=-0.12),
]
PARAMETERS = {
    "force": [
        {"cut_spring_softness": 0.1},
        {"cut_spring_softness": 0.3, "sdf_mu": 0.2, "young_pa": 1.0e6},
        {"cut_spring_softness": 0.1, "sdf_ke": 2000.0, "density_kg_m3": 1500.0, "retardation_s": 1e-3},
    ],
    "edge": [
        {"edge_toughness": 200.0, "skin_toughness": 300.0},
        {"edge_toughness": 400.0, "edge_rise": 3e-3, "young_pa": 1.0e6},
        {"edge_toughness": 100.0, "sdf_mu": 0.8, "skin_depth": 3e-3, "density_kg_m3": 1500.0},
    ],
}


def alone(cut: Cut):
    return simulate(cut.model, cut.motion, cut.parameters, **cut.options)


def together(cuts, **options):
    answers = simulate_many(cuts, batch=True, **options)
    return [answer.value for answer in answers]


def assert_same(one, other):
    assert one.outcome == other.outcome
    scale = np.abs(one.force).max()
    assert one.force.shape == other.force.shape and scale > 0.1
    assert np.abs(one.force - other.force).max() <= SAME * scale
    assert np.abs(one.torque - other.torque).max() <= SAME * np.abs(one.torque).max()
    assert np.abs(one.stiffness - other.stiffness).max() <= SAME * one.stiffness.max()
    assert np.abs(one.contact_area - other.contact_area).max() <= SAME * one.contact_area.max()
    assert (one.pose == other.pose).all() and (one.time == other.time).all()
    assert list(one.positions) == list(other.positions)
    for time, x in one.positions.items():
        assert np.abs(x - other.positions[time]).max() < 1e-9
    for kind, energy in one.energy.items():
        assert np.abs(energy - other.energy[kind]).max() <= SAME * max(np.abs(energy).max(), 1e-9), kind
    assert one.statistics.steps == other.statistics.steps
    assert one.statistics.newton_iterations == other.statistics.newton_iterations


@pytest.mark.parametrize("damage_law", ["force", "edge"])
@pytest.mark.parametrize("boundary", ["guided", "glued"])
def test_motions_and_parameters_of_their_own(damage_law, boundary):
    model = block_model(regular_block(), boundary=boundary, damage_law=damage_law)
    values = PARAMETERS[damage_law]
    cuts = [
        *(Cut(model, motion, values[0], OPTIONS) for motion in MOTIONS),
        *(Cut(model, MOTIONS[0], other, OPTIONS) for other in values[1:]),
        Cut(model, MOTIONS[1], values[2], OPTIONS),
    ]
    found = together(cuts)
    for cut, result in zip(cuts, found, strict=True):
        assert_same(alone(cut), result)
    means = [result.force_norm.mean() for result in found]
    assert len({round(mean, 6) for mean in means}) == len(cuts), "no two cuts are alike"


@pytest.mark.parametrize("damage_law", ["stretch", "cohesive"])
def test_other_damage_laws(damage_law):
    model = block_model(regular_block((3, 2, 2)), damage_law=damage_law)
    cuts = [Cut(model, motion, {}, {**OPTIONS, "duration": 0.1}) for motion in MOTIONS[:2]]
    for cut, result in zip(cuts, together(cuts), strict=True):
        assert_same(alone(cut), result)


def test_in_the_order_in_which_a_parallel_device_launches(monkeypatch):
    """Groups of elements without a node in common, over all copies, on an irregular mesh."""
    grouped = partial(launch_groups, parallel=True)
    monkeypatch.setattr(
        device_model, "launch_groups", lambda nodes, *, parallel, copies: grouped(nodes, copies=copies)
    )
    model = block_model(irregular_block(), boundary="guided", damage_law="edge")
    options = {**OPTIONS, "duration": 0.06}
    cuts = [
        Cut(model, motion, values, options)
        for motion, values in zip(MOTIONS, PARAMETERS["edge"], strict=True)
    ]
    for cut, result in zip(cuts, together(cuts), strict=True):
        assert_same(alone(cut), result)


def test_groups_of_copies_share_no_node():
    nodes = block_model(irregular_block()).tet_nodes
    count = int(nodes.max()) + 1
    thrice = np.concatenate([nodes + copy * count for copy in range(3)])
    order, groups = launch_groups(thrice, parallel=True, copies=3)
    assert sorted(order) == list(range(len(thrice)))
    assert len(groups) == len(launch_groups(nodes, parallel=True)[1]), "as many launches as for one"
    for first, size in groups:
        used = thrice[order[first : first + size]].ravel()
        assert len(np.unique(used)) == len(used)


def test_a_cut_that_fails_does_not_disturb_the_others():
    """One jams, one throws its body away, one never gets a knife."""
    model = block_model(regular_block(), boundary="free")
    nowhere = ConstantVelocity(initial_y=10.0, velocity_y=0.0)
    thrown = np.tile([0.0, 60.0, 0.0], (model.node_count, 1))
    cuts = [
        Cut(model, MOTIONS[0], {}, OPTIONS),
        Cut(model, MOTIONS[0], {}, {**OPTIONS, "force_limit_n": 0.5}),
        Cut(model, nowhere, {}, {**OPTIONS, "initial_velocity": thrown}),
        Cut(model, MOTIONS[1], {}, OPTIONS),
    ]
    good, jammed, away, other = simulate_many(cuts, batch=True)
    assert jammed.outcome.kind is OutcomeKind.KNIFE_JAMMED
    assert away.outcome.kind is OutcomeKind.DIVERGED
    for cut, answer in zip(cuts, (good, jammed, away, other), strict=True):
        single = alone(cut)
        assert answer.outcome == single.outcome
        assert (answer.value.force.shape, len(answer.value.step_time)) == (
            single.force.shape,
            len(single.step_time),
        )
    assert_same(alone(cuts[0]), good.value)
    assert_same(alone(cuts[1]), jammed.value)
    assert_same(alone(cuts[3]), other.value)
    assert [answer.value is None for answer in simulate_many(cuts, of=force_of, batch=True)] == [
        False,
        True,
        True,
        False,
    ]


def test_a_step_that_does_not_converge_ends_only_its_own_cut():
    """One iteration is enough for a body on which nothing acts, and not where the knife touches."""
    absent = BoardProperties(ke=0.0, kd=0.0)
    model = block_model(regular_block(), gravity=(0.0, 0.0, 0.0), board=absent)
    nowhere = ConstantVelocity(initial_y=10.0, velocity_y=0.0)
    options = {**OPTIONS, "newton": NewtonOptions(tolerance_m=1e-9, cg_tolerance=1e-3, max_iterations=1)}
    cuts = [Cut(model, motion, {}, options) for motion in (MOTIONS[0], nowhere)]
    touching, apart = simulate_many(cuts, batch=True)
    assert touching.outcome == alone(cuts[0]).outcome
    assert touching.outcome.kind is OutcomeKind.NEWTON_STALLED
    assert apart.outcome.kind is OutcomeKind.NOTHING_CUT
    assert apart.value.statistics.steps == 50


def test_a_batch_of_one_is_the_single_run():
    cut = Cut(block_model(), MOTIONS[1], PARAMETERS["force"][1], OPTIONS)
    (found,) = together([cut])
    assert (found.force == alone(cut).force).all()


def test_a_step_of_the_whole_batch_is_one_launch(monkeypatch):
    launched = []
    launch = wp.capture_launch
    monkeypatch.setattr(wp, "capture_launch", lambda graph: (launched.append(graph), launch(graph)))
    model = block_model(regular_block((3, 2, 2)))
    shares: list[float] = []
    cuts = [Cut(model, motion, {}, OPTIONS) for motion in MOTIONS]
    together(cuts, progress=shares.append)
    steps = [graph for graph in launched if launched.count(graph) > 1]
    assert len(steps) == 50 and len(set(steps)) == 1
    assert shares == [1.0]


def test_what_goes_together(monkeypatch):
    """One body, the same steps, kept times and tolerances; in pieces where they are too many; answers in order."""
    models = [block_model(regular_block((2, 2, 2))) for _ in range(2)]
    short = {"duration": 0.03, "solver": "conjugate_gradients", "device": "cpu"}
    cuts = [
        Cut(models[0], MOTIONS[0], {}, short),
        Cut(models[1], MOTIONS[0], {"sdf_mu": 0.7}, short),
        Cut(models[0], MOTIONS[2], {}, short),
        Cut(models[0], MOTIONS[0], {}, {**short, "dt": 0.002}),
        Cut(models[0], MOTIONS[0], {}, {**short, "solver": "cholesky"}),
        Cut(models[0], MOTIONS[1], {}, {**short, "sample_rate_hz": 100.0}),
    ]
    sizes: list[int] = []
    run = many.simulate_batch
    monkeypatch.setattr(many, "simulate_batch", lambda s, tell: (sizes.append(len(s)), run(s, tell))[1])
    shares: list[float] = []
    found = together(cuts, progress=shares.append)
    assert sizes == [3, 1, 1]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0)
    for cut, result in zip(cuts, found, strict=True):
        assert np.allclose(result.force, alone(cut).force, rtol=1e-5, atol=1e-7)
    monkeypatch.setattr(many, "_LARGEST_BATCH_TETS", 2 * models[0].tet_count)
    sizes.clear()
    together(cuts)
    assert sizes == [2, 1, 1, 1]


def norm_slope(over: float, result):
    return float(result.gradient(result.force / over).parameters["sdf_mu"])


def test_gradients_are_taken_one_by_one():
    model = block_model(regular_block((2, 2, 2)))
    options = {"duration": 0.06, "differentiable": True, "device": "cpu"}
    cuts = [Cut(model, MOTIONS[0], {"sdf_mu": mu}, options) for mu in (0.3, 0.6)]
    work = partial(norm_slope, 2.0)
    answers = simulate_many(cuts, of=work, batch=True)
    assert [answer.value for answer in answers] == pytest.approx([work(alone(cut)) for cut in cuts], rel=1e-4)


@pytest.mark.parametrize("there", [True, False])
def test_a_cuda_device_batches_by_default(monkeypatch, there):
    called = []
    monkeypatch.setattr(many, "choose_device", lambda device: "cuda:0" if there else "cpu")
    monkeypatch.setattr(
        many, "_in_batches", lambda jobs, progress, *, forced: called.append((len(jobs), forced)) or []
    )
    cuts = [Cut(block_model(regular_block((2, 2, 2))), MOTIONS[0], {}, {"duration": 0.006, "device": "cpu"})]
    simulate_many(cuts, processes=1)
    assert called == ([(1, False)] if there else [])
    called.clear()
    simulate_many(cuts, processes=1, batch=False)
    assert called == []


def test_copies_have_nothing_in_common():
    model = block_model(irregular_block(), boundary="guided", damage_law="edge")
    thrice = repeated(model, 3)
    assert (thrice.copies, thrice.one) == (3, model)
    assert (model.copies, model.one) == (1, model)
    thrice.mesh.check()
    assert thrice.mesh.material_volume() == pytest.approx(3.0 * model.mesh.material_volume())
    n = model.node_count
    for nodes in (thrice.tet_nodes, thrice.spring_nodes, thrice.contact_parents):
        owners = nodes.reshape(3, -1) // n
        assert (owners == np.arange(3)[:, None]).all()
    x = np.random.default_rng(0).normal(size=(3 * n, 3))
    apart = np.concatenate([model.spring_operator @ part for part in x.reshape(3, n, 3)])
    assert np.allclose(thrice.spring_operator @ x, apart)
    places = np.concatenate([model.edge_samples.places(part) for part in x.reshape(3, n, 3)])
    assert np.allclose(thrice.edge_samples.places(x), places)
