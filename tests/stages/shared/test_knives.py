"""Knife files: every number stated, one name one knife, messages for wrong ones, and the picture."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from disect_sim.knife import KNIVES, Knife
from stages.export.cell import cell_of
from stages.export.export_picture import knife_in_cell
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.shared.knives.knife_file import SHIPPED_KNIVES, described, read_knife_file
from stages.shared.knives.knife_picture import _outline

ROOT = Path(__file__).parents[3]
PARAMS = load_params(ROOT / "params.yaml").export
CHEF = {
    "length_m": 0.2,
    "height_m": 0.045,
    "spine_m": 0.002,
    "edge_m": 1e-4,
    "bevel_deg": 30.0,
    "mass_kg": 0.45,
    "com_m": [0.0, 0.05, 0.07],
}


def write(folder, content, name="chef"):
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize("name", KNIVES)
def test_the_papers_knives_are_files_with_the_simulators_blades(name):
    assert name in SHIPPED_KNIVES
    knife = described(name)
    assert knife.blade == KNIVES[name] and knife.label == knife.name == name


def test_a_file_is_a_knife_with_its_load(tmp_path):
    knife = described(read_knife_file(write(tmp_path, CHEF)))
    assert (knife.name, knife.mass_kg, knife.com_m) == ("chef", 0.45, (0.0, 0.05, 0.07))
    assert knife.blade.length_m == 0.2 and knife.blade.tip_m == pytest.approx(0.5e-4 / np.tan(np.pi / 12))


def test_another_blade_has_another_label_and_another_load_has_not():
    label = described({"name": "chef", **CHEF}).label
    assert label.startswith("chef [")
    assert described({"name": "chef", **CHEF, "mass_kg": 0.5}).label == label
    assert described({"name": "chef", **CHEF, "length_m": 0.21}).label != label


@pytest.mark.parametrize("key", [*CHEF])
def test_a_missing_number_is_named(tmp_path, key):
    path = write(tmp_path, {name: value for name, value in CHEF.items() if name != key})
    with pytest.raises(InputError, match=rf"chef\.yaml: .*{key} not given\. .* Measure"):
        read_knife_file(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lenght_m": 0.2}, "lenght_m is not a knife dimension"),
        ({"spine_m": -0.002}, r"spine_m is -0\.002\. It must be > 0 m"),
        ({"edge_m": 0.003}, "The section must be convex"),
        ({"tip_m": 1e-4}, "beside tip_m"),
        ({"mass_kg": 0}, "mass_kg is '0'.* Weigh"),
        ({"mass_kg": "heavy"}, "mass_kg is 'heavy'"),
        ({"mass_kg": True}, "mass_kg is 'True'"),
        ({"mass_kg": float("nan")}, "mass_kg is 'nan'"),
        ({"com_m": [0.0, 0.05]}, r"com_m is '\[0\.0, 0\.05\]'.*in metres"),
        ({"com_m": [0.0, 50.0, 60.0]}, "com_m is .*in metres"),
        ({"name": "santoku"}, "name is 'santoku'. It must be the file's, chef"),
        ({"length_m": [0.2]}, r"length_m is \[0\.2\]\. It must be a number"),
    ],
)
def test_a_wrong_file_gets_a_message_with_its_path(tmp_path, change, message):
    with pytest.raises(InputError, match=message) as error:
        read_knife_file(write(tmp_path, {**CHEF, **change}))
    assert str(tmp_path / "chef.yaml") in str(error.value)


def test_the_knife_gives_the_tools_load_unless_the_cell_does():
    assert PARAMS.tool_mass_kg is None and PARAMS.tool_com_m is None
    kitchen = cell_of(PARAMS)
    assert kitchen.tool_mass_kg == 0.4 and kitchen.tool_com_m.tolist() == [0.0, 0.04, 0.06]
    chef = PARAMS.changed(knife={"name": "chef", **CHEF})
    assert cell_of(chef).tool_mass_kg == 0.45 and cell_of(chef).tool_com_m.tolist() == CHEF["com_m"]
    weighed = cell_of(chef.changed(tool_mass_kg=0.6))
    assert weighed.tool_mass_kg == 0.6 and weighed.tool_com_m.tolist() == CHEF["com_m"]


def test_a_scans_knife_replaces_another_as_a_whole(tmp_path):
    """The tip of one knife beside the bevel of another would be a third knife, or none."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["cut"]["knife"] = {"name": "thick", **CHEF, "spine_m": 0.004, "about": "of all scans"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    other = {"name": "chef", **{k: v for k, v in CHEF.items() if k != "bevel_deg"}, "tip_m": 1e-4}
    (tmp_path / "scan.yaml").write_text(yaml.safe_dump({"id": "apple", "cut": {"knife": other}}))
    knife = load_params(tmp_path / "params.yaml", tmp_path / "scan.yaml").cut.tool
    assert (knife.name, knife.about, knife.blade.tip_m) == ("chef", "", 1e-4)


def test_the_picture_shows_blade_section_and_wedge():
    picture = knife_in_cell(described("kitchen"), PARAMS)
    for panel in (picture[:, :600], picture[:, 650:860], picture[:, 900:]):
        assert 0.05 < (panel < 240).any(axis=2).mean() < 0.8
    longer = knife_in_cell(described("slicing"), PARAMS)
    assert picture.shape == longer.shape and (picture != longer).any()


def test_the_side_view_shows_curve_and_tilt():
    """World point = R q with R = rotation about x: a positive tilt lowers the +z end."""
    flat = _outline(Knife())
    assert flat[: len(flat) - 2, 1] == pytest.approx(0.0)
    curved = _outline(Knife(length_m=0.2, belly_radius_m=0.5))
    ends = curved[[0, len(curved) - 3]]
    assert ends[:, 1] == pytest.approx([0.5 - np.sqrt(0.25 - 0.01)] * 2, abs=5e-4)
    tilted = _outline(Knife(tilt_deg=10.0))
    assert tilted[len(tilted) - 3] == pytest.approx(
        [0.075 * np.cos(np.radians(10.0)), -0.075 * np.sin(np.radians(10.0))]
    )
