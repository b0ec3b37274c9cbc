"""The two libraries that run_cut.py moves a Franka arm with, behind one face: pylibfranka (FR3), panda-python (Panda).

Plain Python, copied beside run_cut.py into every certified export.
"""

import importlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

from cut_stream import RefusalError

SETTLE_READINGS = 500
"""The state shows a setting some cycles after it was made."""
IDENTITY = [float(row == column) for column in range(4) for row in range(4)]
UNFILTERED_HZ = 1000.0
"""libfranka's low-pass is off from here on: the certified file is sent as it is."""

Poses = Generator[Any, Any, None]
"""Is sent the state and how many cycles went by; yields joints [rad] and whether they are the last."""


class Pylibfranka:
    """An FR3 through pylibfranka."""

    module, package = "pylibfranka", "pylibfranka"

    @staticmethod
    def errors(library: Any) -> tuple:
        """What the library raises; an unknown version of the robot's protocol is no RuntimeError."""
        return (RuntimeError, library.FrankaException)

    def __init__(self, library: Any, host: str, *, realtime: bool) -> None:
        self.library = library
        config = library.RealtimeConfig.kEnforce if realtime else library.RealtimeConfig.kIgnore
        self.robot = library.Robot(host, config)

    def nominal_end_effector(self) -> list:
        """F_T_NE, which Desk sets; column-major."""
        return list(self.robot.read_once().F_T_NE)

    def set_end_effector(self, pose: list) -> None:
        """NE_T_EE, column-major."""
        self.robot.set_EE(pose)

    def play(self, poses: Poses) -> None:
        """Stream joint positions until the last one."""
        control = self.robot.start_joint_position_control(self.library.ControllerMode.JointImpedance)
        next(poses)
        finished = False
        while not finished:
            state, period = control.readOnce()
            pose, finished = poses.send((state, cycles(period)))
            command = self.library.JointPositions(pose)
            command.motion_finished = finished
            control.writeOnce(command)


class PandaPython:
    """A Panda through the libfranka 0.9 that panda-python brings."""

    module, package = "panda_py.libfranka", "panda-python"

    @staticmethod
    def errors(_library: Any) -> tuple:
        """What the library raises."""
        return (RuntimeError,)

    def __init__(self, library: Any, host: str, *, realtime: bool) -> None:
        self.library = library
        config = library.RealtimeConfig.kEnforce if realtime else library.RealtimeConfig.kIgnore
        self.robot = library.Robot(host, config)

    def nominal_end_effector(self) -> list:
        """F_T_NE, column-major. Its state does not say it: it is where the end effector is when nothing is added."""
        self.set_end_effector(IDENTITY)
        for _ in range(SETTLE_READINGS):
            state = self.robot.read_once()
        return list(state.F_T_EE)

    def set_end_effector(self, pose: list) -> None:
        """NE_T_EE, column-major."""
        self.robot.set_ee(pose)

    def play(self, poses: Poses) -> None:
        """Stream joint positions until the last one."""
        next(poses)

        def answer(state: Any, period: Any) -> Any:
            pose, finished = poses.send((state, cycles(period)))
            command = self.library.JointPositions(pose)
            command.motion_finished = finished
            return command

        self.robot.control_joint_position(
            answer,
            self.library.ControllerMode.kJointImpedance,
            limit_rate=False,
            cutoff_frequency=UNFILTERED_HZ,
        )


ARMS: dict[str, Any] = {arm.package: arm for arm in (Pylibfranka, PandaPython)}
"""By the name in cut.json, robot / control / run_script."""


def connect(name: str, host: str, *, realtime: bool) -> Any:
    """The arm at this address; a sentence if the library or the robot is not there."""
    arm = ARMS[name]
    if realtime and not has_realtime_kernel():
        raise RefusalError(
            "This computer's kernel is no real-time kernel (/sys/kernel/realtime does not say 1). A real robot needs "
            "one. Install it; a simulated robot can be run with --no-realtime."
        )
    try:
        library = importlib.import_module(arm.module)
    except ImportError as error:
        raise RefusalError(
            f"{arm.package} can't be imported ({error}). --execute needs it. Run pip install {arm.package}."
        ) from error
    try:
        return arm(library, host, realtime=realtime)
    except arm.errors(library) as error:
        check = "--host, the cable, FCI in Desk and the robot's system version"
        if not realtime:
            check = (
                "that the simulated robot is served (python -m pipelines.arm.serve_arm) and is the same arm"
            )
        raise RefusalError(
            f"No robot answers at {host} that {arm.package} can speak to ({error}). Check {check}."
        ) from error


def has_realtime_kernel() -> bool:
    """What libfranka asks before it moves anything."""
    try:
        return Path("/sys/kernel/realtime").read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False


def cycles(period: Any) -> int:
    """Of the robot's control, 1 ms each; a lost packet makes it more than one."""
    return max(1, round(1000 * period.to_sec()))
