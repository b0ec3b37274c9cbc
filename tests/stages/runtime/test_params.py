"""params.yaml is checked: every fault gives key path, rule and remedy."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from disect_sim.errors import InputError
from stages.runtime.params import STAGE_SECTIONS, load_params

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


def test_shipped_params_name_every_key():
    """Values live only in params.yaml, so that a person finds every one of them there."""
    content = yaml.safe_load(PARAMS.read_text())
    params = load_params(PARAMS)
    assert list(content) == list(STAGE_SECTIONS)
    for section in STAGE_SECTIONS:
        assert set(content[section]) == set(type(getattr(params, section)).model_fields)


def test_unknown_key(edited):
    text = refusal(edited("clean", "target_edge_mm", 4))
    assert "clean.target_edge_mm is not a known parameter" in text
    assert "target_edge_m" in text.split("Known here")[1]


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
