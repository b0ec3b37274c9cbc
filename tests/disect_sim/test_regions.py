"""Regions, grain and the stop at a stone: closed forms, convergence of volume fractions, gradients."""

from dataclasses import replace

import numpy as np
import pytest

from disect_sim import ConstantVelocity, Material, build_model, cut_by_plane, simulate
from disect_sim.cut_mesh import box_mesh
from disect_sim.outcome import InputError, OutcomeKind
from disect_sim.regions import Anatomy, Grain, Region, Shape, rigid_tops, tet_shares
from disect_sim.stop import obstacle
from tests.disect_sim.scenes import APPLE, BLOCK_HIGH, BLOCK_LOW, regular_block

UPRIGHT = np.array([[1.0, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
"""Pose of a cylinder whose axis is the vertical."""
EDGE_ONLY = {"sdf_mu": 0.02, "sdf_ke": 500.0, "cut_spring_ke": 100.0}
"""Little force beside that of the edge."""


def at(height: float) -> np.ndarray:
    frame = UPRIGHT.copy()
    frame[1, 3] = height
    return frame


def slab(name: str, middle: float, thickness: float, **ratios) -> Region:
    """A layer across the whole block."""
    return Region(name, Shape.primitive("cylinder", at(middle), (0.2, 0.2, 0.5 * thickness)), **ratios)


def cut(
    anatomy: Anatomy | None, *, boundary="glued", cells=(3, 5, 3), depth=0.022, material=APPLE, **options
):
    mesh = replace(regular_block(cells), anatomy=anatomy)
    model = build_model(mesh, material, boundary=boundary, damage_law="edge")
    motion = ConstantVelocity(initial_y=0.0255, velocity_y=-0.05)
    return simulate(model, motion, EDGE_ONLY | options, duration=depth / 0.05, differentiable=True)


@pytest.mark.parametrize(
    ("shape", "inside", "outside"),
    [
        (Shape.sphere((0.0, 0.01, 0.0), 0.005), (0.0, 0.0149, 0.0), (0.0, 0.0151, 0.0)),
        (
            Shape.primitive("cylinder", at(0.01), (0.003, 0.003, 0.006)),
            (0.0, 0.0159, 0.0),
            (0.004, 0.01, 0.0),
        ),
        (Shape.primitive("ellipsoid", np.eye(4), (0.001, 0.002, 0.003)), (0, 0, 0.0029), (0, 0.0021, 0)),
    ],
)
def test_shapes_contain_what_they_should(shape, inside, outside):
    assert shape.contains(np.array([inside, outside], float)).tolist() == [True, False]


def test_a_moved_shape_moves_its_points():
    frame = np.array([[0.0, 0, 1, 0.01], [1, 0, 0, -0.02], [0, 1, 0, 0.03], [0, 0, 0, 1]])
    shape = Shape.primitive("ellipsoid", at(0.02), (0.002, 0.004, 0.006))
    points = np.random.default_rng(0).uniform(-0.01, 0.03, (2000, 3))
    moved = points @ frame[:3, :3].T + frame[:3, 3]
    assert np.array_equal(shape.contains(points), shape.moved(frame).contains(moved))
    low, high = shape.moved(frame).bounds
    inside = moved[shape.contains(points)]
    assert (inside >= low).all()
    assert (inside <= high).all()


def test_volume_fractions_converge():
    """The error of a sphere's volume falls with the number of points, about as their number to the power -2/3.

    The rule of evenly spread points has an error of the layer of cells at the boundary: (count)^(-1/3) per tet, and
    the tets' errors have random signs. Less than half of that rate is asked for.
    """
    nodes, tets = box_mesh(BLOCK_LOW, BLOCK_HIGH, (4, 3, 3))
    volume = np.prod(np.subtract(BLOCK_HIGH, BLOCK_LOW)) / len(tets)
    errors = {count: [] for count in (16, 1024)}
    for offset in np.linspace(-0.002, 0.002, 9):
        sphere = Shape.sphere((offset, 0.0125 + 0.3 * offset, 0.7 * offset), 0.009)
        for count, list_of in errors.items():
            share = tet_shares(Anatomy((Region("stone", sphere),)), nodes[tets], count)
            list_of.append(volume * share.sum() / sphere.volume_m3 - 1.0)
    coarse, fine = (np.sqrt(np.mean(np.square(errors[count]))) for count in (16, 1024))
    assert fine < 0.01
    assert fine < coarse / (1024 / 16) ** (1 / 3)


def test_mass_and_region_volume_are_those_of_the_shapes():
    region = slab("layer", 0.0125, 0.015, density_ratio=3.0)
    model = build_model(
        replace(regular_block((3, 5, 3)), anatomy=Anatomy((region,))), APPLE, damage_law="edge"
    )
    # The layer covers three of the five layers of cells exactly.
    expected = APPLE.density_kg_m3 * 0.04 * 0.03 * (0.010 + 3.0 * 0.015)
    assert APPLE.density_kg_m3 * model.node_flesh_volume.sum() == pytest.approx(expected, rel=1e-12)


def test_layers_of_two_stiffnesses_are_springs_in_series():
    """Uniaxial strain-free compression (nu = 0) of two layers: 1/k = h1/(E1 A) + h2/(E2 A), by the stop's stiffness.

    The rigid lid makes the load even; its own compliance is 1e-4, the joint's and the fixed first millimetre 2 %.
    """
    lid = slab("lid", 0.0225, 0.005, young_ratio=1e5, rigid=True)
    soft = slab("soft", 0.015, 0.01, young_ratio=0.25)
    mesh = replace(regular_block((3, 5, 3)), anatomy=Anatomy((lid, soft)))
    model = build_model(mesh, Material(3.0e6, 0.0, 800.0), boundary="glued", damage_law="edge")
    area = 0.04 * 0.03
    expected = 3.0e6 * area / (0.010 + 0.010 / 0.25)
    met = obstacle(model)
    assert met.name == "lid"
    assert met.stiffness_n_m == pytest.approx(expected, rel=0.03)
    assert met.top_m == pytest.approx(0.025, abs=4e-4)


def test_poisson_of_a_region_is_that_of_a_body_of_it():
    """A region that covers the whole block with E and nu of its own gives the force of a block of that material."""
    whole = Region("all", Shape.sphere((0.0, 0.0, 0.0), 1.0), 0.5, 0.4)
    forces = [
        cut(Anatomy((whole,)), depth=0.01).force,
        cut(None, depth=0.01, material=APPLE.replaced(young_pa=0.5 * APPLE.young_pa, poisson=0.4)).force,
    ]
    # Contact of knife and halves keeps the flesh's modulus, which changes the force by less than 2 %.
    assert np.abs(forces[0] - forces[1]).max() < 0.02 * np.abs(forces[1]).max()


def test_an_empty_anatomy_changes_no_digit():
    assert np.array_equal(cut(None).force, cut(Anatomy()).force)


def test_force_in_a_tough_layer_is_its_toughness_times_the_width():
    """A stiff block, cut straight down: F = G x width in the flesh and ratio x that in the layer, 30 mm wide.

    In the middle of a layer of 10 mm the fraction 1 - (1 + z) exp(-z) of the rise is reached, z = 5 mm / 1.5 mm: 85 %.
    """
    stiff = APPLE.replaced(young_pa=3.0e7)
    values = {"edge_toughness": 300.0, "skin_toughness": 0.0}
    layer = Anatomy((slab("core", 0.010, 0.010, toughness_ratio=3.0),))
    plain, tough = (cut(one, cells=(3, 10, 6), material=stiff, **values) for one in (None, layer))
    ratio = tough.force[:, 1] - plain.force[:, 1]
    depth = 0.025 - (0.0255 - 0.05 * plain.time)
    z = np.maximum(0.0, depth - 0.010) / 1.5e-3
    expected = 2.0 * 300.0 * 0.03 * (1.0 - (1.0 + z) * np.exp(-z))
    inside = (depth > 0.0105) & (depth < 0.0195)
    # Samples are 1.25 mm apart, so the layer begins within half of that: 5 % of the plateau of 18 N.
    assert np.abs(ratio - expected)[inside].max() < 0.05 * 18.0
    assert np.abs(ratio[depth < 0.009]).max() < 0.01 * 18.0


def test_shares_of_a_region_replace_those_of_the_flesh():
    region = slab("core", 0.0125, 0.015, press=0.1, drag=0.6)
    model = build_model(replace(regular_block(), anatomy=Anatomy((region,))), APPLE, damage_law="edge")
    fields = model.sample_fields
    inside = fields.shares[:, 0] > 0.0
    assert np.all(fields.own["press"][0][~inside] == 1.0)
    assert np.all(fields.own["drag"][1][inside] == 0.6)


@pytest.mark.parametrize("radius", [0.004, 0.007])
def test_the_knife_stops_at_a_stone(radius):
    """The stop is at the top of the stone, within the spacing of its points (0.4 mm) and a step (0.15 mm)."""
    stone = Region("stone", Shape.sphere((0.001, 0.012, 0.002), radius), 100.0, rigid=True)
    result = cut(Anatomy((stone,)), boundary="guided")
    free = cut(None, boundary="guided")
    assert result.outcome.kind is OutcomeKind.KNIFE_STOPPED
    top = 0.012 + np.sqrt(radius**2 - 0.001**2)
    height = result.pose[len(result.step_time) - 1, 1]
    assert height == pytest.approx(top, abs=0.55e-3)
    # Up to there the edge has met flesh only; the stiff stone changes the body's deformation by a few percent.
    steps = len(result.force)
    assert result.force_norm[-1] == pytest.approx(free.force_norm[steps - 1], rel=0.05)
    assert "stone" in str(result.outcome)


def test_a_stone_beside_the_cut_does_not_stop_it():
    stone = Region("stone", Shape.sphere((0.010, 0.012, 0.0), 0.006), 100.0, rigid=True)
    assert cut(Anatomy((stone,))).outcome.ok
    assert len(rigid_tops(Anatomy((stone,)), 0.002)) == 0
    tops = rigid_tops(Anatomy((stone,)), 0.005)
    # At 5 mm beside the plane the sphere's section has a radius of sqrt(6^2 - 5^2) = 3.3 mm.
    assert tops[:, 1].max() == pytest.approx(0.012 + 0.0033, abs=3e-4)


GRADED = {"young_ratio": 2.0, "density_ratio": 3.0, "toughness_ratio": 2.5, "press": 0.3, "drag": 0.2}
GRAIN = (1.0, 1.5, 1.2)


def graded(grain=GRAIN, **ratios) -> Anatomy:
    core = Region("core", Shape.sphere((0.002, 0.014, 0.0), 0.007), poisson=0.4, **(GRADED | ratios))
    axis = np.array([0.48, 0.36, 0.8])
    return Anatomy((core,), Grain(np.array([0.0, 0.012, 0.001]), axis, np.array(grain)))


@pytest.fixture(scope="module")
def graded_cut():
    result = cut(graded(), boundary="held", depth=0.012)
    return result, result.gradient(2.0 * result.force).anatomy


def loss(anatomy: Anatomy) -> float:
    return float((cut(anatomy, boundary="held", depth=0.012).force ** 2).sum())


@pytest.mark.parametrize("name", ["young_ratio", "density_ratio", "toughness_ratio"])
def test_gradients_in_the_ratios_are_exact(graded_cut, name):
    """Central differences; a straight cut has the same force for all shares, see the next test for those."""
    step = 1e-4 * GRADED[name]
    slope = (loss(graded(**{name: GRADED[name] + step})) - loss(graded(**{name: GRADED[name] - step}))) / (
        2 * step
    )
    assert graded_cut[1][name][0] == pytest.approx(slope, rel=1e-3)


def test_gradients_in_the_shares_are_exact():
    from disect_sim import SlicingMotion

    def run(**shares):
        model = build_model(
            replace(regular_block((3, 5, 3)), anatomy=graded(**shares)),
            APPLE,
            boundary="held",
            damage_law="edge",
        )
        motion = SlicingMotion(initial_y=0.0255, velocity_y=-0.05, amplitude=0.005, frequency=2.0)
        return simulate(model, motion, EDGE_ONLY, duration=0.2, differentiable=True)

    result = run()
    gradient = result.gradient(2.0 * result.force).anatomy
    for name in ("press", "drag"):
        high, low = (float((run(**{name: GRADED[name] + d}).force ** 2).sum()) for d in (1e-4, -1e-4))
        assert gradient[name][0] == pytest.approx((high - low) / 2e-4, rel=1e-3)


@pytest.mark.parametrize("direction", range(3))
def test_gradients_in_the_grain_are_exact(graded_cut, direction):
    high, low = np.array(GRAIN), np.array(GRAIN)
    high[direction] += 1e-4
    low[direction] -= 1e-4
    slope = (loss(graded(tuple(high))) - loss(graded(tuple(low)))) / 2e-4
    assert graded_cut[1]["grain"][direction] == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [((0.0, 1.0, 0.0), 1.3), ((0.0, 0.0, 1.0), None), ((1.0, 0.0, 0.0), None)],
)
def test_grain_by_direction(axis, expected):
    """A vertical axis: the crack advances along it. A horizontal one: radially above and below it, around it beside."""
    grain = Grain(np.array([0.0, 0.01, 0.0]), np.array(axis), np.array([1.0, 1.5, 1.3]))
    points = np.array([[0.0, 0.02, 0.0], [0.0, 0.01, 0.008], [0.0, 0.004, 0.006]])
    factor = grain.weights(points) @ grain.ratios
    if expected is not None:
        assert factor == pytest.approx([expected] * 3)
    elif axis[0] == 1.0:
        # Above the axis radial (1), beside it tangential (1.5), at 45 degrees half of each.
        assert factor == pytest.approx([1.0, 1.5, 1.25])
    else:
        # The cut contains the axis: all points lie above or below it, except on it.
        assert factor[[0, 2]] == pytest.approx([1.0, 1.0])


def test_turning_the_fruit_changes_the_force_by_the_grain():
    """An axis far above the block: the crack advances radially; far beside it: tangentially, 1.5 times the force.

    Far away the direction is the same all over the block, so the force of the edge has exactly that ratio.
    """
    stiff = APPLE.replaced(young_pa=3.0e7)
    along = np.array([1.0, 0.0, 0.0])
    places = {"radial": (0.0, 1e3, 0.0), "tangential": (0.0, 0.0125, 1e3)}
    mean = {}
    for name, point in places.items():
        anatomy = Anatomy((), Grain(np.array(point), along, np.array([1.0, 1.5, 1.0])))
        force = cut(anatomy, material=stiff, edge_toughness=1000.0).force[:, 1]
        mean[name] = force[len(force) // 2 :].mean()
    # Friction and contact of the flanks, which have no grain, are 3 % of the force.
    assert mean["tangential"] / mean["radial"] == pytest.approx(1.5, rel=0.03)


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ({"young_ratio": 0.0}, "young_ratio"),
        ({"toughness_ratio": np.nan}, "toughness_ratio"),
        ({"density_ratio": np.inf}, "density_ratio"),
        ({"poisson": 0.5}, "poisson"),
        ({"press": 0.7, "drag": 0.6}, "press"),
    ],
)
def test_bad_regions_are_rejected(ratios, word):
    mesh = cut_by_plane(*box_mesh(BLOCK_LOW, BLOCK_HIGH, (3, 3, 3)))
    region = Region("core", Shape.sphere((0.0, 0.01, 0.0), 0.005), **ratios)
    with pytest.raises(InputError, match=word):
        build_model(replace(mesh, anatomy=Anatomy((region,))), APPLE, damage_law="edge")


@pytest.mark.parametrize("kind", ["surface", "peel"])
def test_tets_clear_of_a_boundary_have_the_sampled_fraction(kind):
    """Tets that are not sampled are wholly inside or outside: the same as by sampling every tet."""
    import trimesh

    ball = trimesh.creation.icosphere(subdivisions=3, radius=0.011)
    vertices = np.asarray(ball.vertices) + np.array([0.0, 0.0125, 0.0])
    shape = Shape(kind, np.eye(4), np.full(3, 0.004), vertices, np.asarray(ball.faces, np.int32))
    nodes, tets = box_mesh(BLOCK_LOW, BLOCK_HIGH, (12, 9, 9))
    share = tet_shares(Anatomy((Region("part", shape),)), nodes[tets], 32)[:, 0]
    from disect_sim.regions import _spread_over_tet

    points = np.einsum("pa,tax->tpx", _spread_over_tet(32), nodes[tets])
    sampled = shape.contains(points.reshape(-1, 3)).reshape(len(tets), -1).mean(axis=1)
    assert np.array_equal(share, sampled)
    assert {0.0, 1.0} <= set(share)
