"""An output that is a folder survives a failed run like a file does."""

import shutil

import pytest

from pipelines.dvc.repair import kept_outputs


def test_folder_comes_back_when_the_stage_fails(tmp_path):
    folder = tmp_path / "export" / "cut"
    inner = folder / "certified" / "air_cut" / "joint_1khz.csv"
    inner.parent.mkdir(parents=True)
    inner.write_text("t,q1\n")
    with pytest.raises(RuntimeError), kept_outputs(tmp_path, "export", [folder]):
        shutil.rmtree(folder)
        raise RuntimeError
    assert inner.read_text() == "t,q1\n"
    with kept_outputs(tmp_path, "export", [folder]):
        shutil.rmtree(folder)
    assert not folder.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["export"]


def test_older_certificate_never_reappears_beside_a_newer_refusal(tmp_path):
    """The run was killed after the stage had published its new folder."""
    folder = tmp_path / "export" / "cut"
    (folder / "certified").mkdir(parents=True)
    (folder / "certified" / "cut.json").write_text("old")
    with pytest.raises(RuntimeError), kept_outputs(tmp_path, "export", [folder]):
        shutil.rmtree(folder)
        (folder / "refused").mkdir(parents=True)
        (folder / "refused" / "REASON.txt").write_text("new")
        raise RuntimeError
    assert [p.name for p in folder.iterdir()] == ["refused"]


def test_measured_log_in_an_export_is_moved_not_deleted(tmp_path):
    """DVC removes the folder before the stage runs; a second log of the same name does not replace the first."""
    folder = tmp_path / "export" / "cut"
    for text in ("first", "second"):
        (folder / "certified" / "air_cut").mkdir(parents=True)
        (folder / "certified" / "cut.json").write_text("{}")
        (folder / "certified" / "air_cut" / "air.json").write_text(text)
        with kept_outputs(tmp_path, "export", [folder]):
            shutil.rmtree(folder)
    logs = {path.name: path.read_text() for path in (tmp_path / "measured").iterdir()}
    assert logs == {"air.json": "first", "air_2.json": "second"}
