"""stream_cut.cpp: compiled where libfranka's headers are, and run on a simulated Panda with libfranka 0.9.2.

    SCAN2CUT_ARM=build/arm python -m pytest tests/stages/export/test_export_client_cpp.py

fetches the headers from PyPI; with SCAN2CUT_LIBFRANKA=<folder that has include/franka> it is only compiled.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.arm.serve_arm import _STREAM_CUT, _client_in_cpp, headers
from stages.ingest.log_file import read_log
from stages.runtime.params import load_params
from stages.shared.robots.robot import load_robot
from tests.stages.simulated_arm import NEEDS_ARM, PLACE, arm
from tests.stages.synthetic_cut import PARAMS, ROOT, certified_folder, motion_table

HEADERS = [
    Path(os.environ.get("SCAN2CUT_LIBFRANKA", "/usr/local")) / "include",
    PLACE / "libfranka" / "include",
    Path("/usr/include"),
]
"""Where libfranka's may be."""
BOARD_M = PARAMS.board_position_m[2]


def on_the_arm(test):
    """Runs only where a simulated arm is."""
    for mark in NEEDS_ARM:
        test = mark(test)
    return test


def test_it_compiles_with_the_headers_of_libfranka():
    if "SCAN2CUT_ARM" in os.environ:
        headers(PLACE)
    places = [place for place in HEADERS if (place / "franka" / "robot.h").is_file()]
    if not places or not shutil.which("g++"):
        pytest.skip("no g++, or no franka/robot.h in SCAN2CUT_LIBFRANKA/include, /usr/local or /usr")
    line = ["g++", "-std=c++14", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{places[0]}"]
    done = subprocess.run([*line, _STREAM_CUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def program() -> Path:
    return _client_in_cpp(PLACE)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> dict[str, Path]:
    """The plain files of the air cut and of the cut."""
    place = tmp_path_factory.mktemp("panda")
    folder = certified_folder(place / "cut", motion_table(), PARAMS)
    files = {}
    for which, arguments in (("air", ["--air"]), ("cut", [])):
        files[which] = place / f"{which}.txt"
        line = [sys.executable, folder / "run_cut.py", *arguments, "--robot", "panda"]
        subprocess.run([*line, "--plain", files[which]], capture_output=True, check=True)
    return files


def run(
    program: Path, file: Path, log: Path, *, answer: str = "move\n", realtime: bool = False
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, "127.0.0.1", file, log, *([] if realtime else ["--no-realtime"])],
        input=answer,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@on_the_arm
def test_air_cut_and_cut_run_to_their_ends_and_are_recorded(program, plain, tmp_path):
    params = load_params(ROOT / "params.yaml").ingest.changed(board_height_m=BOARD_M)
    with arm(tmp_path, "panda", height_m=BOARD_M + 0.03, force_n=30.0):
        for which, lowest in (("air", 0.001 + PARAMS.air_cut_lift_m), ("cut", 0.001)):
            log = tmp_path / f"{which}.json"
            done = run(program, plain[which], log)
            assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
            assert done.stdout.endswith("Motion finished.\n")
            recorded = json.loads(log.read_text())
            assert recorded["scan2cut"]["ended"] == "finished"
            assert recorded["scan2cut"]["simulated"] is True
            assert recorded["q"][-1] == pytest.approx(load_robot("panda").ready_pose_rad, abs=5e-3)
            heights = np.array(recorded["O_T_EE"])[:, 14] - BOARD_M
            assert heights.min() == pytest.approx(lowest, abs=2e-3)
            found = read_log(log, params)
            assert len(found.time_s) == len(recorded["time"])


@on_the_arm
def test_a_stone_in_the_fruit_and_a_reflex_stop_it(program, plain, tmp_path):
    for force_n, reflex_n, reason in (
        (90.0, np.inf, "The force reached"),
        (200.0, 100.0, "cartesian_reflex"),
    ):
        with arm(tmp_path, "panda", height_m=BOARD_M + 0.03, force_n=force_n, reflex_n=reflex_n):
            log = tmp_path / f"{force_n:.0f}.json"
            done = run(program, plain["cut"], log)
            assert done.returncode == 3 and "NOT FINISHED" in done.stdout, done.stdout + done.stderr
            recorded = json.loads(log.read_text())
            assert reason in done.stdout and reason in recorded["scan2cut"]["ended"]
            # It felt the stone at 30 mm and never came near the board. A reflex may come before the state that set it
            # off, so that the last one in the log is a cycle older: 0.25 mm at most.
            assert 0.012 < min(pose[14] for pose in recorded["O_T_EE"]) - BOARD_M < 0.0303


@on_the_arm
def test_refusals_are_sentences(program, plain, tmp_path):
    def refused(words: str, file: Path = plain["air"], name: str = "a.json", **options) -> bool:
        done = run(program, file, tmp_path / name, **options)
        return done.returncode == 2 and done.stdout.count("REFUSED: ") == 1 and words in done.stdout

    assert refused("no robot answers at 127.0.0.1")
    if not Path("/sys/kernel/realtime").exists():
        assert refused("has no real-time kernel", realtime=True)
    (tmp_path / "old.json").write_text("{}")
    assert refused("exists. Name a new file", name="old.json")
    (tmp_path / "half.txt").write_text("\n".join(plain["air"].read_text().splitlines()[:100]))
    assert refused("is incomplete", tmp_path / "half.txt")
    (tmp_path / "other.txt").write_text(plain["air"].read_text().replace("mass_kg", "weight"))
    assert refused("'weight' where mass_kg belongs", tmp_path / "other.txt")
    with arm(tmp_path, "panda"):
        assert refused("not confirmed", answer="no\n")
    with arm(tmp_path, "fr3"):
        assert refused("no robot answers at 127.0.0.1")
    assert (tmp_path / "old.json").read_text() == "{}" and not (tmp_path / "a.json").exists()
