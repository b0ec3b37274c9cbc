"""A stage that shows itself while it runs."""

import json

import numpy as np
import pytest

from stages.runtime import stage_io
from stages.runtime.files import LIVE_FILE_NAME
from stages.runtime.scan_file import ScanFile
from stages.runtime.stage_io import EVENTS_VARIABLE, StageIO

PICTURE = np.zeros((4, 6, 3), np.uint8)


@pytest.fixture
def io(tmp_path):
    raw = {"id": "apple", "scan": "apple.ply", "material": "apple"}
    given = {name: raw.get(name) for name in ScanFile.__dataclass_fields__}
    return StageIO(tmp_path, ScanFile(**given), "clean")


def test_nobody_listens_so_nothing_is_drawn(io, monkeypatch):
    monkeypatch.delenv(EVENTS_VARIABLE, raising=False)
    io.show(lambda: pytest.fail("it was drawn"))
    assert not (io.scan_dir / LIVE_FILE_NAME).exists()


def test_shown_now_and_then_and_gone_with_the_stage(io, monkeypatch, tmp_path):
    events = tmp_path / "events.jsonl"
    monkeypatch.setenv(EVENTS_VARIABLE, str(events))
    place = io.scan_dir / LIVE_FILE_NAME
    io.show(lambda: PICTURE)
    first = place.read_bytes()
    assert first.startswith(b"\x89PNG")
    io.show(lambda: pytest.fail("too soon"))
    monkeypatch.setattr(stage_io, "_SHOW_EVERY_S", 0.0)
    io.show(lambda: b"another")
    assert place.read_bytes() == b"another"
    seen = [json.loads(line) for line in events.read_text().splitlines()]
    assert [(event["kind"], event["path"]) for event in seen] == [("picture", str(place.resolve()))] * 2
    io.close()
    assert not place.exists()


def test_a_picture_that_can_not_be_drawn_does_not_end_the_stage(io, monkeypatch, tmp_path):
    monkeypatch.setenv(EVENTS_VARIABLE, str(tmp_path / "events.jsonl"))

    def broken():
        raise ValueError("no axes")

    io.show(broken)
    assert not (io.scan_dir / LIVE_FILE_NAME).exists()
