"""Reading YAML: a text is parsed once, and nobody can change what another gets."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stages.runtime.files import _FastLoader, _is_shallow, _PlainLoader, parse_yaml, read_mapping

ROOT = Path(__file__).parents[3]
DEEP = {
    "brackets": "'[' * 100_000",
    "braces": "'{a: ' * 50_000",
    "dashes": "'- ' * 50_000",
    "questions": "'? ' * 50_000",
    "indentation": "'\\n'.join(' ' * i + 'a:' for i in range(4000))",
    "a line each": "'[\\n' * 100_000",
}


def test_the_same_text_is_parsed_once_and_every_reader_has_its_own_copy(tmp_path, monkeypatch):
    path = tmp_path / "a.yaml"
    path.write_text("stages: {clean: [1, 2]}\n# only here\n")
    first = read_mapping(path)
    monkeypatch.setattr(yaml, "load", None)
    again = read_mapping(path)
    assert again == first == {"stages": {"clean": [1, 2]}}
    first["stages"]["clean"].append(3)
    assert again["stages"]["clean"] == read_mapping(path)["stages"]["clean"] == [1, 2]


def test_a_changed_file_of_the_same_length_is_read_anew(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("edge_m: 1")
    assert read_mapping(path) == {"edge_m": 1}
    path.write_text("edge_m: 2")
    assert read_mapping(path) == {"edge_m": 2}
    assert parse_yaml("[]") == []


@pytest.mark.parametrize("form", DEEP)
def test_deep_nesting_is_refused_and_does_not_crash_libyaml(form):
    """In a process of its own: libyaml's recursion would end the process."""
    code = f"import yaml; from stages.runtime.files import parse_yaml\ntry: parse_yaml({DEEP[form]})\n"
    code += "except yaml.YAMLError as error: print(error)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.returncode
    assert "nested too deeply" in result.stdout or "while parsing" in result.stdout


@pytest.mark.parametrize("name", ["params.yaml", "dvc.yaml", "pipelines/dvc/scan.dvc.yaml"])
def test_both_loaders_read_the_same(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    shallow = text.replace("*", "")
    assert yaml.load(shallow, Loader=_FastLoader) == yaml.load(shallow, Loader=_PlainLoader)
    assert not _is_shallow("a: *b") and _is_shallow("a: {b: [1e-3, .5e3]}")
    assert parse_yaml("a: {b: [1e-3, .5e3, 1.e+2]}") == {"a": {"b": [1e-3, 500.0, 100.0]}}
