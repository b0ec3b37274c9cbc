"""Section body: regions and grain from the scan's axes to the cutting frame; messages for what a fruit can't have."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import trimesh

from disect_sim.regions import Anatomy
from stages.runtime.artifacts import read_table, write_table
from stages.runtime.errors import InputError
from stages.runtime.params import merge_params
from stages.shared.anatomy import anatomy_frames, anatomy_names, anatomy_of, read_anatomy
from stages.shared.surface import Surface

ROOT = Path(__file__).parents[3]
RADIUS = 0.035
FRAME = np.array([[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, RADIUS], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
"""The scan's x is up, its origin in the middle of the fruit, RADIUS above the board."""
STONE = {"name": "stone", "shape": "sphere", "centre_m": [0.0, 0.0, 0.0], "radius_m": 0.012, "rigid": True}


def fruit() -> Surface:
    ball = trimesh.creation.icosphere(subdivisions=3, radius=RADIUS)
    return Surface(ball.vertices + np.array([0.0, RADIUS, 0.0]), ball.faces.astype(np.int32))


def section(**body):
    return merge_params(ROOT / "params.yaml", {"body": body}, overrides_from="--set").body


def placed(*regions, grain=None, folder=Path(), material="apple", unit=1.0) -> Anatomy:
    params = section(regions=list(regions), grain=grain)
    return anatomy_of(params, fruit(), FRAME, metres_per_unit=unit, material=material, folder=folder)


def test_by_default_there_is_nothing_inside():
    assert not placed()


def test_positions_are_those_of_the_scan_file():
    shape = placed({**STONE, "centre_m": [0.01, 0.0, 0.005]}).regions[0].shape
    assert shape.frame[:3, 3] == pytest.approx([0.005, RADIUS + 0.01, 0.0])


def test_a_rigid_region_is_stiff_unless_stated():
    assert placed(STONE).regions[0].young_ratio == 100.0
    assert placed({**STONE, "young_ratio": 7.0}).regions[0].young_ratio == 7.0


def test_a_cylinder_lies_along_its_axis():
    core = {"name": "core", "shape": "cylinder", "centre_m": [0, 0, 0], "axis": [2, 0, 0]}
    shape = placed({**core, "radius_m": 0.01, "height_m": 0.04}).regions[0].shape
    up = np.array([[0.0, RADIUS + 0.019, 0.0], [0.0, RADIUS + 0.021, 0.0], [0.011, RADIUS, 0.0]])
    assert shape.contains(up).tolist() == [True, False, False]


def test_a_peel_is_the_layer_below_the_skin():
    shape = (
        placed({"name": "peel", "shape": "peel", "thickness_m": 0.003, "toughness_ratio": 2.0})
        .regions[0]
        .shape
    )
    direction = np.array([0.6, 0.8, 0.0])
    points = np.array([0.0, RADIUS, 0.0]) + np.outer([0.034, 0.0325, 0.0310, 0.01], direction)
    assert shape.contains(points).tolist() == [True, True, False, False]


def test_a_file_is_in_the_unit_of_the_scan(tmp_path):
    ball = trimesh.creation.icosphere(subdivisions=3, radius=9.0)
    ball.invert()
    ball.export(tmp_path / "stone.stl")
    digest = sha256((tmp_path / "stone.stl").read_bytes()).hexdigest()
    region = {"name": "stone", "shape": "file", "file": "stone.stl"}
    shape = placed({**region, "sha256": digest}, folder=tmp_path, unit=1e-3).regions[0].shape
    assert shape.volume_m3 == pytest.approx(4 / 3 * np.pi * 0.009**3, rel=0.01)
    assert shape.contains(np.array([[0.0, RADIUS + 0.0085, 0.0], [0.0, RADIUS + 0.0095, 0.0]])).tolist() == [
        1,
        0,
    ]
    with pytest.raises(InputError, match="changed since"):
        placed({**region, "sha256": "0" * 64}, folder=tmp_path, unit=1e-3)
    ball.update_faces(np.arange(len(ball.faces)) > 3)
    ball.export(tmp_path / "stone.stl")
    with pytest.raises(InputError, match="not a closed surface"):
        placed(region, folder=tmp_path, unit=1e-3)
    (tmp_path / "stone.stl").unlink()
    with pytest.raises(InputError, match="can't be read"):
        placed(region, folder=tmp_path, unit=1e-3)


def test_grain_has_the_prior_of_the_material():
    for material, tangential in (("apple", 1.5), ("potato", 1.0), ("banana", 1.0)):
        grain = placed(grain={"axis": [3.0, 0.0, 0.0]}, material=material).grain
        assert grain.ratios.tolist() == [1.0, tangential, 1.0]
    assert grain.axis == pytest.approx([0.0, 1.0, 0.0])
    assert grain.point == pytest.approx([0.0, RADIUS, 0.0], abs=1e-6)


def test_tables_give_the_anatomy_back_and_move_with_the_half(tmp_path):
    regions = [STONE, {"name": "peel", "shape": "peel", "thickness_m": 0.003, "poisson": 0.3, "press": 0.2}]
    anatomy = placed(*regions, grain={"axis": [0.0, 0.0, 1.0]}).moved(FRAME)
    for name, frame in anatomy_frames(anatomy, "halve").items():
        write_table(tmp_path, name, frame)
    again = read_anatomy(lambda name: read_table(tmp_path, name), "halve")
    points = np.random.default_rng(0).uniform(-0.04, 0.08, (3000, 3))
    assert np.array_equal(again.contained(points), anatomy.contained(points))
    assert anatomy.contained(points).any(axis=0).all()
    for a, b in zip(again.regions, anatomy.regions, strict=True):
        assert [getattr(a, k) for k in vars(a) if k != "shape"] == [
            getattr(b, k) for k in vars(b) if k != "shape"
        ]
    assert np.array_equal(again.grain.weights(points), anatomy.grain.weights(points))


def test_empty_tables_are_no_anatomy(tmp_path):
    for name, frame in anatomy_frames(Anatomy(), "precut").items():
        write_table(tmp_path, name, frame)
    assert not read_anatomy(lambda name: read_table(tmp_path, name), "precut")
    assert len(anatomy_names("precut")) == 4


CORE = {"name": "core", "shape": "ellipsoid", "centre_m": [0.02, 0, 0], "semi_axes_m": [0.006, 0.006, 0.006]}
THIN = {"name": "peel", "shape": "peel", "thickness_m": 0.0005}


@pytest.mark.parametrize(
    ("regions", "words"),
    [
        ([{**STONE, "centre_m": [0.1, 0, 0]}], ("lies outside the fruit", "must lie inside", "Move")),
        ([{**STONE, "centre_m": [0.03, 0, 0]}], ("lies outside the fruit", "must lie inside", "Move")),
        ([{**STONE, "radius_m": 0.036}], ("has 195", "smaller than the fruit", "metres")),
        ([THIN], ("0.5 mm thick", "at least 1.5 mm", "skin_toughness")),
        ([STONE, {**CORE, "centre_m": [0.015, 0, 0]}], ("overlap", "one region at most", "Move")),
        ([{**STONE, "poisson": 0.5}], ("poisson is 0.5", "less than 0.5", "Change")),
        ([{**STONE, "radius_m": float("nan")}], ("radius_m is nan", "finite", "Change")),
        ([{**STONE, "centre_m": [0.0, float("inf"), 0.0]}], ("is inf", "finite", "Change")),
        ([{**STONE, "radius_m": -0.01}], ("radius_m is -0.01", "greater than 0", "Change")),
        ([{**STONE, "axis": [0, 0, 1]}], ("axis is given", "must have centre_m, radius_m", "Change")),
        (
            [{"name": "stone", "shape": "sphere", "radius_m": 0.01}],
            ("centre_m is missing", "must have", "Change"),
        ),
        ([STONE, {**CORE, "name": "stone"}], ("name of its own", "Change")),
        ([{**STONE, "press": 0.6, "drag": 0.6}], ("press + drag", "at most 1", "Change")),
        ([{**STONE, "toughness": 2.0}], ("not a known parameter", "Correct or remove")),
    ],
)
def test_messages_say_what_the_rule_and_the_remedy(regions, words):
    with pytest.raises(InputError) as error:
        placed(*regions)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_regions_that_touch_do_not_overlap():
    assert len(placed(STONE, CORE).regions) == 2
