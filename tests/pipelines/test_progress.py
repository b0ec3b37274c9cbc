"""Progress in a terminal and in a log: stages, shares, time left."""

import io
import time
from types import SimpleNamespace

from rich.console import Console

from pipelines.cli.terminal import ProgressBars
from pipelines.dvc.stage import Outcome, StageReport
from pipelines.runs.progress_lines import Pace, ProgressLines, duration

CALIBRATE = SimpleNamespace(name="calibrate")


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_time_left_follows_from_the_pace():
    pace = Pace(began_s=10.0)
    assert pace.left(20.0) == ""
    pace.reached(0.25, "iteration 5", 40.0)
    assert pace.left_s(40.0) == 90.0
    assert pace.left_s(60.0) == 70.0, "the clock goes on between two reports"
    assert (pace.left_s(1000.0), pace.left(1000.0)) == (0.0, ""), (
        "an estimate that was too short is not repeated"
    )
    pace.reached(1.0, "done", 50.0)
    assert pace.left(50.0) == ""


def test_a_first_moment_is_no_pace():
    pace = Pace(began_s=0.0)
    pace.reached(0.5, "read", 0.1)
    assert pace.left_s(0.1) is None
    pace.reached(0.01, "read", 60.0)
    assert pace.left_s(60.0) is None


def test_durations_as_a_person_says_them():
    assert [duration(s) for s in (0.4, 59.4, 125.0, 3900.0)] == ["0 s", "59 s", "2 min 05 s", "1 h 05 min"]


def test_a_log_says_start_share_estimate_and_end():
    said, clock = [], Clock()
    lines = ProgressLines(said.append, clock=clock)
    lines.wait("prefect", "starting")
    clock.now += 8.0
    lines.still()
    lines.on_start(CALIBRATE)
    assert len(said) == 1, "a stage that turns out to be fresh has one line, its end"
    lines.on_progress("calibrate", 0.0, "read the cut mesh")
    clock.now += 90.0
    lines.on_progress("calibrate", 0.3, "shared 12, NMAE 0.08")
    clock.now += 30.0
    lines.still()
    lines.on_finish(StageReport("calibrate", Outcome.COMPLETED, 301.0, ()))
    lines.still()
    assert said == [
        "prefect: starting; 8 s so far",
        "calibrate: started",
        "calibrate: 30 %, shared 12, NMAE 0.08; 2 min 00 s so far; about 3 min 00 s left",
        "calibrate: Completed, 5 min 01 s",
    ]


def test_where_to_look_is_said_once_a_stage(tmp_path):
    said, shown = [], io.StringIO()
    lines, bars = ProgressLines(said.append), ProgressBars(Console(file=shown, width=200, color_system=None))
    for watcher in (lines, bars):
        for stage in ("calibrate", "calibrate", "optimize"):
            watcher.on_picture(stage, tmp_path / "live.png")
    assert said == [f"{s}: live picture in {tmp_path}/live.png" for s in ("calibrate", "optimize")]
    assert shown.getvalue().count("calibrate: live picture in") == 1


def test_a_silent_stage_is_heard_of_again_and_again():
    said = []
    with ProgressLines(said.append, every_s=0.01) as lines:
        lines.on_start(CALIBRATE)
        lines.on_progress("calibrate", 0.1, "[bracketed]")
        end = time.monotonic() + 60.0
        while len(said) < 4 and time.monotonic() < end:
            time.sleep(0.01)
    count = len(said)
    assert count >= 4 and said[-1].startswith("calibrate: 10 %, [bracketed]; 0 s so far")
    time.sleep(0.05)
    assert len(said) == count, "nothing is said after the end"


def test_bars_show_the_time_left(monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, color_system=None)
    clock = Clock()
    monkeypatch.setattr("pipelines.cli.terminal.time", SimpleNamespace(monotonic=clock))
    with ProgressBars(console) as bars:
        bars.wait("register", "copying")
        bars.on_start(CALIBRATE)
        clock.now += 30.0
        bars.on_progress("calibrate", 0.25, "step 3 of [12]")
        bars._bars.refresh()
        text = shown.getvalue()
        bars.on_finish(StageReport("calibrate", Outcome.COMPLETED, 120.0, ()))
    assert "about 1 min 30 s left" in text and "step 3 of [12]" in text
