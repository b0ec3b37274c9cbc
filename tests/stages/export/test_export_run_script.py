"""What run_cut.py streams, without a robot: the certified joints, the cut's own force limit, the plain file."""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stages.shared.robots.robot import flange_pose, load_robot
from tests.stages.synthetic_cut import PARAMS, certified_folder, motion_table

MOTION = motion_table()
PANDA = load_robot("panda")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return certified_folder(tmp_path_factory.mktemp("panda") / "cut", MOTION, PARAMS)


@pytest.fixture
def stream(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "cut_stream", raising=False)
    return importlib.import_module("cut_stream")


@pytest.fixture
def script(folder, stream, monkeypatch):
    """The module run_cut.py of the folder."""
    for name in ("run_cut", "franka_arm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("run_cut")


@pytest.fixture
def document(folder) -> dict:
    return json.loads((folder / "cut.json").read_text())


def state(pose: list, force_n: float = 0.0) -> SimpleNamespace:
    """The fields of a robot's state that are used."""
    return SimpleNamespace(
        q_d=pose,
        q=pose,
        dq=[0.0] * 7,
        O_T_EE=[0.0] * 16,
        F_T_EE=[0.0] * 16,
        O_F_ext_hat_K=[0.0, 0.0, -force_n, 0.0, 0.0, 0.0],
        tau_ext_hat_filtered=[0.0] * 7,
        time=SimpleNamespace(to_sec=lambda: 0.0),
    )


def started(stream, document, folder):
    """A run whose arm stands exactly at its ready pose."""
    run = stream.Run(None, document, stream.Motion(folder, document, False))
    motion = run.motion
    run.path = [*motion.to_start, *motion.joints[1:], *motion.to_ready[1:]]
    run.first = len(motion.to_start) - 1
    return run


def played(run, *, force_n=lambda step: 0.0, passed=lambda step: 1) -> list:
    """All joints that the run asks for; force and passed cycles by the motion's step."""
    poses, sent = run.onward(), []
    next(poses)
    pose, finished = poses.send((state(run.path[0]), 1))
    while not finished:
        sent.append(pose)
        step = round(run.place) - run.first
        pose, finished = poses.send((state(pose, force_n(step)), passed(step)))
    return [*sent, pose]


def test_the_certified_joints_are_sent_as_they_are(stream, document, folder):
    run = started(stream, document, folder)
    sent = played(run)
    assert run.reason == ""
    assert sent[: stream.GLIDE_SAMPLES] == [run.path[0]] * stream.GLIDE_SAMPLES
    assert sent[stream.GLIDE_SAMPLES :] == run.path
    assert len(run.rows) == len(sent) - 1


def test_a_packet_lost_at_the_cuts_first_step_does_not_keep_the_limit_of_free_motion(
    stream, document, folder
):
    run = started(stream, document, folder)
    first, stop = run.motion.cut_from, run.motion.collision["stop_force_n"]
    pushed = 0.5 * (run.motion.free_force_n + stop)
    assert run.motion.free_force_n < pushed < stop
    sent = played(
        run,
        force_n=lambda step: pushed if step > first + 50 else 0.0,
        passed=lambda step: 2 if step == first - 1 else 1,
    )
    assert run.reason == "" and sent[-1] == run.path[-1]


def test_too_high_a_force_in_free_motion_and_in_the_cut_stops(stream, document, folder):
    for begin, limit in ((-500, "free"), (50, "cut")):
        run = started(stream, document, folder)
        stop = run.motion.free_force_n if limit == "free" else run.motion.collision["stop_force_n"]
        first = run.motion.cut_from
        played(run, force_n=lambda step, at=first + begin, f=1.3 * stop: f if step > at else 0.0)
        assert f"more than {stop:.0f} N" in run.reason
        assert run.place - run.first < first + begin + 1000


def test_plain_file_for_the_client_in_cpp(folder, document, tmp_path):
    line = [sys.executable, folder / "run_cut.py", "--robot", "panda", "--plain", tmp_path / "cut.txt"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    words = (tmp_path / "cut.txt").read_text().splitlines()
    head = {line.split()[0]: line.split()[1:] for line in words[:18]}
    assert {float(v) for v in head["stiffness_nm_rad"]} == {PARAMS.joint_stiffness_nm_rad}
    assert [float(v) for v in head["torque_nm"]] == document["collision"]["cut"]["torque_nm"]
    assert [float(v) for v in head["F_T_E"]] == np.array(document["frames"]["F_T_E"]).T.ravel().tolist()
    rows = np.array([[float(v) for v in line.split()] for line in words[18:-1]])
    assert words[-1] == "end" and len(rows) == int(head["rows"][0])
    exact = np.loadtxt(folder / "motion_1khz.csv", delimiter=",", skiprows=1)[:, 1:]
    first = int(head["first"][0])
    assert np.array_equal(rows[first : first + len(exact)], exact)
    again = subprocess.run(line, capture_output=True, text=True, check=False)
    assert again.returncode == 2 and "REFUSED" in again.stdout, "an older file is not overwritten"


@pytest.mark.parametrize("log", ["air.json", "air_cut/air.json"])
def test_a_log_inside_the_certified_folder_is_refused(folder, tmp_path, log):
    """It would make verify refuse the folder, and the next export would replace it."""
    words = ["--execute", "--robot", "panda", "--host", "127.0.0.1", "--air"]
    for given in (folder / log, Path(log)):
        done = subprocess.run(
            [sys.executable, folder / "run_cut.py", *words, "--log", given],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
        assert (done.returncode, done.stderr) == (2, "")
        assert "would be inside the certified folder" in done.stdout and "Omit --log" in done.stdout


def test_logs_have_a_folder_of_their_own(folder, script, tmp_path):
    scan = tmp_path / "apple"
    inner = scan / "export" / "cut" / "certified"
    inner.mkdir(parents=True)
    assert script.new_log(inner, True).parent == scan / "export" / "cut" / "measured", "a copied export"
    (scan / "scan.yaml").touch()
    log = script.new_log(inner, False)
    assert log.parent == scan / "measured" and log.name.startswith("cut_")
    script.check_log(inner, log, given=False)
    log.touch()
    with pytest.raises(script.RefusalError, match="Give a new file"):
        script.check_log(inner, log, given=False)


def test_stiffness_comes_from_what_the_seal_covers(stream, document):
    """The loads in the certificate are for people: an edit there, which no hash sees, reaches no robot."""
    document["certificate"]["loads"]["joint_stiffness_nm_rad"] = 100.0
    assert stream.stiffness(document) == [PARAMS.joint_stiffness_nm_rad] * 7


def test_checklist_names_the_air_cuts_pose_before_the_cuts(folder, document):
    page = (folder / "CHECKLIST.md").read_text()
    air, cut = (
        ", ".join(f"{v:+.4f}" for v in pose)
        for pose in (document["air_cut"]["start_pose_rad"], document["start_pose_rad"])
    )
    assert air != cut and 0 < page.index("run_cut.py --air") < page.index(air) < page.index(cut)


class FakeArm:
    """An arm whose state follows the commands; `felt` gives the force [N] by number of cycles, Ctrl-C by `pressed`."""

    library = None

    def __init__(self, pose: list, *, felt=lambda cycle: 0.0, pressed=()) -> None:
        self.pose, self.felt, self.pressed, self.cycle, self.calls = pose, felt, pressed, 0, []
        self.edge = [1.0, 0, 0, 0, 0, 1.0, 0, 0, 0, 0, 1.0, 0, 0.0, 0.0, 0.1, 1.0]
        self.load = (0.25, [0.0, 0.0, 0.01], [1e-4] * 9)
        self.robot = self

    @staticmethod
    def errors(_library) -> tuple:
        return (RuntimeError,)

    def read_once(self) -> SimpleNamespace:
        mass, centre, inertia = self.load
        return SimpleNamespace(
            **vars(state(self.pose, self.felt(self.cycle)))
            | {"m_ee": 0.0, "m_load": mass, "F_x_Cload": centre, "I_load": inertia, "F_T_EE": list(self.edge)}
        )

    def nominal_end_effector(self) -> list:
        return [float(row == column) for column in range(4) for row in range(4)]

    def set_end_effector(self, pose: list) -> None:
        self.edge = list(pose)

    def set_load(self, *load) -> None:
        self.load = load

    def __getattr__(self, name):
        if name.startswith(("set_", "automatic_")):
            return lambda *values: self.calls.append((name, values))
        raise AttributeError(name)

    def play(self, poses) -> None:
        next(poses)
        finished = False
        while not finished:
            self.cycle += 1
            if self.cycle in self.pressed:
                os.kill(os.getpid(), signal.SIGINT)
            self.pose, finished = poses.send((self.read_once(), 1))


class Terminal:
    """Answers to the questions; None is Ctrl-C."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)

    def readline(self) -> str:
        answer = self.answers.pop(0) if self.answers else ""
        if answer is None:
            raise KeyboardInterrupt
        return f"{answer}\n"


def executed(script, document, folder, arm, monkeypatch, log, *answers, retrace=None, ready=False) -> int:
    monkeypatch.setattr(script, "connect", lambda *_, **__: arm)
    monkeypatch.setattr(script.sys, "stdin", Terminal("yes", "move", *answers))
    motion = script.Motion(folder, document, False)
    return script.execute(document, motion, "127.0.0.1", log, realtime=False, retrace=retrace, ready=ready)


def in_the_cut(script, document, folder, step: int = 700) -> int:
    """The cycle that is so many milliseconds after the beginning of the cut."""
    motion = script.Motion(folder, document, False)
    return 2000 + len(motion.to_start) + motion.cut_from + step


def test_settings_are_restored_after_the_motion_and_after_a_no(
    script, document, folder, monkeypatch, tmp_path
):
    for answers, code in (((), 0), (None, 2)):
        arm = FakeArm(document["ready_pose_rad"])
        load, edge = arm.load, list(arm.edge)
        if answers is None:
            monkeypatch.setattr(script, "confirm", lambda *_: False)
            with pytest.raises(script.RefusalError, match="Not confirmed"):
                executed(script, document, folder, arm, monkeypatch, tmp_path / "no.json")
        else:
            assert executed(script, document, folder, arm, monkeypatch, tmp_path / "cut.json") == code
        assert arm.load == load and arm.edge == pytest.approx(edge)
        last = dict(arm.calls)
        assert last["set_joint_impedance"] == (script.DEFAULT_STIFFNESS_NM_RAD,)
        assert last["set_collision_behavior"] == ([20.0] * 7, [20.0] * 7, [20.0] * 6, [20.0] * 6)


def test_ctrl_c_stops_along_the_path_and_a_second_one_at_the_question_keeps_the_log(
    script, document, folder, monkeypatch, tmp_path, capsys
):
    press = in_the_cut(script, document, folder)
    arm = FakeArm(document["ready_pose_rad"], pressed=(press,))
    log = tmp_path / "cut.json"
    assert executed(script, document, folder, arm, monkeypatch, log, None) == 3
    said = capsys.readouterr().out
    assert "STOPPED: Ctrl-C was pressed." in said and "()" not in said
    assert f"--retrace {log}" in said and "hand guiding" in said, "a way on after no"
    recorded = json.loads(log.read_text())
    assert recorded["scan2cut"]["ended"] == "Ctrl-C was pressed."
    assert len(recorded["time"]) < press + 800
    # The arm is still there: the log leads back, with the force monitored.
    script.check_robot(document, "panda")
    step = script.stopped_at(log, document, script.Motion(folder, document, False))
    assert (
        executed(script, document, folder, arm, monkeypatch, tmp_path / "b.json", "back", retrace=step) == 3
    )
    assert arm.pose == pytest.approx(document["ready_pose_rad"], abs=1e-9)
    assert "The arm retraced its path to the start." in capsys.readouterr().out
    with pytest.raises(script.RefusalError, match="from where the log ends"):
        executed(script, document, folder, arm, monkeypatch, tmp_path / "c.json", retrace=step)


def test_two_ctrl_c_in_the_motion_stop_at_once_without_a_traceback(
    script, document, folder, monkeypatch, tmp_path
):
    press = in_the_cut(script, document, folder)
    arm = FakeArm(document["ready_pose_rad"], pressed=(press, press + 5))
    assert executed(script, document, folder, arm, monkeypatch, tmp_path / "cut.json") == 3
    assert "twice" in json.loads((tmp_path / "cut.json").read_text())["scan2cut"]["ended"]


def test_the_way_back_is_monitored(script, document, folder, monkeypatch, tmp_path, capsys):
    """The knife catches on the way back: the arm stops again and can be asked again."""
    press = in_the_cut(script, document, folder)
    caught = range(press + 4000, press + 6000)
    arm = FakeArm(
        document["ready_pose_rad"], pressed=(press,), felt=lambda cycle: 90.0 if cycle in caught else 0.0
    )
    log = tmp_path / "cut.json"
    assert executed(script, document, folder, arm, monkeypatch, log, "back", "back") == 3
    said = capsys.readouterr().out
    assert "It stopped again on the way back. The force reached" in said
    assert "The arm retraced its path to the start." in said
    assert arm.pose == pytest.approx(document["ready_pose_rad"], abs=1e-9)


def test_a_knife_that_stands_on_a_stone_may_press_until_it_is_free(
    script, document, folder, monkeypatch, tmp_path, capsys
):
    press = in_the_cut(script, document, folder)
    arm = FakeArm(
        document["ready_pose_rad"], felt=lambda cycle: 90.0 if press < cycle < press + 3500 else 0.0
    )
    assert executed(script, document, folder, arm, monkeypatch, tmp_path / "cut.json", "back") == 3
    said = capsys.readouterr().out
    assert "STOPPED: The force reached" in said and "stopped again" not in said


def test_the_stated_stopping_depth_is_what_the_script_does(script, document, folder, monkeypatch, tmp_path):
    """A stone of 1.25 times the stop force at several places: the knife never goes on farther than certified."""
    loads, stop = document["certificate"]["loads"], document["collision"]["cut"]["stop_force_n"]
    depths = []
    for number, step in enumerate((200, 500, 800, 1200)):
        met = in_the_cut(script, document, folder, step)
        arm = FakeArm(
            document["ready_pose_rad"], felt=lambda cycle, at=met: 1.25 * stop if cycle > at else 0.0
        )
        log = tmp_path / f"{number}.json"
        assert executed(script, document, folder, arm, monkeypatch, log) == 3
        recorded = json.loads(log.read_text())
        heights = flange_pose(PANDA.table, np.array(recorded["q"])) @ np.array(document["frames"]["F_T_E"])
        depths.append(heights[met - 1, 2, 3] - heights[met - 1 :, 2, 3].min())
        assert len(recorded["time"]) - met <= 1000 * loads["stop_time_s"] + 3
    assert 0.5 * loads["stop_depth_m"] < max(depths) <= loads["stop_depth_m"] + 2e-4
    page = (folder / "CHECKLIST.md").read_text()
    assert f"{1000 * loads['stop_depth_m']:.1f} mm deeper" in page


def test_an_arm_elsewhere_is_brought_to_its_ready_pose(script, document, folder, monkeypatch, tmp_path):
    ready = document["ready_pose_rad"]
    arm = FakeArm([q + 0.4 * (-1) ** i for i, q in enumerate(ready)])
    with pytest.raises(script.RefusalError, match="--ready, Desk or hand guiding"):
        executed(script, document, folder, arm, monkeypatch, tmp_path / "cut.json")
    assert executed(script, document, folder, arm, monkeypatch, tmp_path / "ready.json", ready=True) == 0
    assert arm.pose == pytest.approx(ready, abs=1e-12)
    log = json.loads((tmp_path / "ready.json").read_text())
    assert log["scan2cut"]["motion"] == "to_ready"
    speed = np.abs(np.diff(log["q"], axis=0)).max() * 1e3
    assert speed <= 0.2 + 1e-6
