"""Reading YAML: a text is parsed once, and nobody can change what another gets."""

import yaml

from stages.runtime.files import parse_yaml, read_mapping


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
