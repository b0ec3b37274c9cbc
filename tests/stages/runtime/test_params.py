"""params.yaml is checked: every fault gives key path, rule and remedy."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from stages.runtime.catalogue import STAGES
from stages.runtime.errors import InputError
from stages.runtime.params import SECTIONS, SHARED, load_params

ROOT = Path(__file__).parents[3]
PARAMS = ROOT / "params.yaml"


@pytest.fixture
def edited(tmp_path):
    """params.yaml with one change: edited(section, key, value), or key deleted with value `...`."""

    def edit(section: str, key: str, value: object) -> Path:
        content = yaml.safe_load(PARAMS.read_text())
        if value is ...:
            del content[section][key]
        else:
            content[section][key] = value
        path = tmp_path / "params.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return edit


def refusal(path: Path, scan_yaml: Path | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_params(path, scan_yaml)
    return str(caught.value)


def test_shipped_params_are_valid_and_frozen():
    params = load_params(PARAMS)
    with pytest.raises(ValidationError):
        params.clean.unit = "mm"


def test_every_value_has_one_place():
    """In params.yaml, or as the default of a setting that is rarely changed; never in both."""
    content = yaml.safe_load(PARAMS.read_text())
    assert set(content) == set(SECTIONS)
    for section in SECTIONS:
        stage = STAGES.get(section)
        model = stage.params if stage else SHARED[section]
        own = set(model.model_fields) - set(SHARED)
        if stage and stage.base:
            assert set(content[section]) <= own, "an instance states only what differs"
        else:
            stated = set(content[section])
            assert stated <= own
            for key in own:
                field = model.model_fields[key]
                assert key in stated or not field.is_required(), f"{section}.{key} has no value"
                assert key not in stated or field.is_required() or field.default is None, (
                    f"{section}.{key} has two"
                )


def test_an_instance_has_its_bases_values_where_it_states_none(edited):
    params = load_params(edited("tetrahedralize", "cut_band_m", 0.0123))
    assert params.tetrahedralize_half.cut_band_m == 0.0123
    assert params.tetrahedralize_half.edge_m == load_params(PARAMS).tetrahedralize_half.edge_m


def test_every_stage_that_cuts_has_the_same_cut(edited):
    params = load_params(edited("cut", "knife", {"length_m": 0.2, "height_m": 0.045, "bevel_deg": 30}))
    cuts = [section.cut for _, section in params if hasattr(section, "cut")]
    assert len(cuts) == 6 and all(cut == params.cut for cut in cuts)
    assert params.export.cut.blade.length_m == 0.2


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("knife", "cleaver", "Known: folding, kitchen, slicing"),
        ("knife", {"width_m": 1.0}, "width_m is not a knife dimension"),
        ("knife", {"length_m": "long"}, "cut.knife is {'length_m': 'long'}, but knife: length_m is"),
        ("knife", {"length_m": -1}, "Measure the blade. Change cut.knife in"),
        ("knife", [1], "cut.knife is [1], but it must be the name of a known knife"),
        ("damage_law", "melt", "cut.damage_law is 'melt'"),
        ("boundary", "taped", "cut.boundary is 'taped'"),
    ],
)
def test_a_cut_that_cannot_be_is_refused(edited, key, value, words):
    assert words in refusal(edited("cut", key, value))


@pytest.mark.parametrize(("key", "where"), [("dt_s", "cut.dt_s"), ("cut", "cut")])
def test_a_stage_has_no_cut_of_its_own(edited, key, where):
    text = refusal(edited("simulate", key, {}))
    assert f"simulate.{key} is given" in text and text.endswith(f"Write it as {where}.")


def test_unknown_section(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS.read_text() + "\ncarve: {}\n")
    assert "'carve' is not a known section" in refusal(path)


def test_unknown_key(edited):
    text = refusal(edited("clean", "target_edge_mm", 4))
    assert "clean.target_edge_mm is not a known parameter" in text
    assert "target_edge_m" in text.split("Known parameters")[1]


@pytest.mark.parametrize(
    ("section", "key", "value", "rule"),
    [
        ("clean", "target_edge_m", 4, "less than or equal to 0.1"),
        ("clean", "target_edge_m", -0.004, "greater than or equal to 0.0002"),
        ("clean", "unit", "furlong", "'auto', 'm'"),
        ("clean", "target_edge_m", float("nan"), "finite"),
        ("tetrahedralize", "edge_m", "wide", "valid number"),
        ("precut", "plane_normal", [1, 0], "missing"),
    ],
)
def test_value_out_of_range(edited, section, key, value, rule):
    path = edited(section, key, value)
    text = refusal(path)
    assert f"{section}.{key}" in text
    assert rule in text
    assert str(path) in text


@pytest.mark.parametrize(
    ("section", "key", "value", "rule"),
    [
        ("clean", "target_edge_m", "0.003", "a number without quotes"),
        ("clean", "smooth_iterations", True, "a number without quotes"),
        ("ingest", "allow_pickle", 1, "true or false"),
        ("ingest", "allow_pickle", "yes", "true or false"),
        ("precut", "plane_normal", ["1.0", 0.0, 0.0], "a number without quotes"),
        ("simulate", "parameters", {"sdf_mu": "0.5"}, "a number without quotes"),
    ],
)
def test_one_kind_of_value_is_not_taken_for_another(edited, section, key, value, rule):
    sentence = refusal(edited(section, key, value))
    assert f"{section}.{key}" in sentence and rule in sentence


def test_a_number_may_be_written_with_an_exponent(tmp_path):
    scan = tmp_path / "scan.yaml"
    scan.write_text("clean: {target_edge_m: 3e-3}\ncut: {dt_s: 2E-3}\n")
    params = load_params(PARAMS, scan)
    assert (params.clean.target_edge_m, params.cut.dt_s) == (0.003, 0.002)


def test_missing_key(edited):
    text = refusal(edited("tetrahedralize", "edge_m", ...))
    assert "tetrahedralize.edge_m is missing" in text
    assert "Add tetrahedralize.edge_m to" in text


def test_missing_section(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("clean: {}\n")
    assert "is missing" in refusal(path)


def test_override_of_the_scan_wins(tmp_path):
    scan_yaml = tmp_path / "scan.yaml"
    scan_yaml.write_text("id: x\nclean: {unit: mm}\nprecut: {}\ntetrahedralize:\n")
    params = load_params(PARAMS, scan_yaml)
    assert params.clean.unit == "mm"
    assert params.clean.target_edge_m == load_params(PARAMS).clean.target_edge_m


def test_fault_in_an_override_names_the_scan_file(tmp_path):
    scan_yaml = tmp_path / "scan.yaml"
    scan_yaml.write_text("clean: {unit: mile}\n")
    text = refusal(PARAMS, scan_yaml)
    assert "clean.unit is 'mile'" in text
    assert f"Change clean.unit in {scan_yaml}" in text


@pytest.mark.parametrize("content", ["clean: mm\n", "- a list\n", "clean: {unit: [\n", ""])
def test_scan_file_that_is_no_mapping(tmp_path, content):
    scan_yaml = tmp_path / "scan.yaml"
    scan_yaml.write_text(content)
    assert str(scan_yaml) in refusal(PARAMS, scan_yaml)


def test_missing_file(tmp_path):
    assert "can't be read" in refusal(tmp_path / "none.yaml")
