"""One setting finds the real data; what is missing is said with the name of the setting."""

import pytest

from lab.real_logs import real_data
from lab.real_logs.real_data import VARIABLE
from tests import real_data as for_tests


@pytest.fixture
def nothing_beside(monkeypatch, tmp_path):
    monkeypatch.setattr(real_data, "BESIDE", tmp_path / "not there")
    monkeypatch.delenv(VARIABLE, raising=False)


def test_the_variable_names_the_folder(monkeypatch, tmp_path):
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "apple.ply").write_text("ply")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert real_data.real_data() == tmp_path
    assert real_data.real_file("scans", "apple.ply").read_text() == "ply"


def test_without_the_variable_the_folder_beside_the_repository_serves(monkeypatch, tmp_path, nothing_beside):
    assert real_data.real_data() is None
    monkeypatch.setattr(real_data, "BESIDE", tmp_path)
    assert real_data.real_data() == tmp_path


def test_a_variable_that_names_no_folder_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "typo"))
    with pytest.raises(NotADirectoryError, match=VARIABLE):
        real_data.real_data()


@pytest.mark.parametrize("is_set", [False, True])
def test_a_skipped_test_names_the_variable_and_the_file(monkeypatch, tmp_path, nothing_beside, is_set):
    if is_set:
        monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=rf"panda/apple .*{VARIABLE}.*lab/notes/real_data\.md"):
        for_tests.real_file("panda", "apple")
