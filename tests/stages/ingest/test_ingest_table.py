"""The table of log formats: every line has its file, a new one is one file and one line, content decides."""

import sys
import types
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from pipelines.many import inbox
from stages.ingest import formats
from stages.ingest.log_file import LogFile, RobotLog, read_log
from stages.runtime.errors import InputError
from stages.shared.input_files import LOG_FORMATS, LOG_SUFFIXES, _LogFormat
from tests.stages.force_logs import PARAMS, synthetic_cut, write_recording


def test_every_file_is_in_the_table_and_every_line_has_its_file():
    files = {path.stem for path in Path(formats.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == set(LOG_FORMATS)
    for name in LOG_FORMATS:
        module = import_module(f"stages.ingest.formats.{name}")
        assert callable(module.recognises) and callable(module.read)


def test_an_inbox_takes_every_suffix_of_the_table():
    assert inbox.LOG_SUFFIXES == LOG_SUFFIXES


@pytest.mark.parametrize("suffix", sorted(LOG_SUFFIXES - {".pkl", ".pickle"}))
def test_the_name_of_a_file_does_not_decide(tmp_path, suffix):
    path = write_recording(tmp_path / f"cut{suffix}", synthetic_cut())
    assert read_log(path, PARAMS).source_format == "control-server JSON"


def test_a_format_is_a_file_and_a_line(tmp_path, monkeypatch):
    def recognises(file: LogFile) -> bool:
        return file.start.startswith(b"UR5 ")

    def read(file: LogFile, params) -> RobotLog:
        return RobotLog("UR5", np.array([float(t) for t in file.text.split()[1:]]), "t", "s")

    module = types.SimpleNamespace(recognises=recognises, read=read)
    monkeypatch.setitem(sys.modules, "stages.ingest.formats.ur5", module)
    path = tmp_path / "cut.ur5"
    path.write_text("UR5 0.0 0.5 1.0")
    with pytest.raises(
        InputError, match=r"unknown format.*libfranka CSV; CSV, Parquet or NPZ with ingest\.columns\."
    ):
        read_log(path, PARAMS)
    monkeypatch.setitem(LOG_FORMATS, "ur5", _LogFormat("a UR5's log", (".ur5",)))
    assert read_log(path, PARAMS).time_s.tolist() == [0.0, 0.5, 1.0]
