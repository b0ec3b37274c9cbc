"""Franka arms behind one interface: pylibfranka (FR3) and panda-python (Panda).

Plain Python, copied beside run_cut.py into every certified export.
"""

import importlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

from cut_stream import RefusalError

SETTLE_READINGS = 500
"""Cycles after which the state shows a new setting."""
IDENTITY = [float(row == column) for column in range(4) for row in range(4)]
_UNFILTERED_HZ = 1000.0
"""Cut-off frequency from which libfranka's low-pass is off: the certified file is sent unchanged."""

Poses = Generator[Any, Any, None]
"""Receives the state and the number of cycles passed; yields joints [rad] and a flag for the last."""


class _Pylibfranka:
    """An FR3 through pylibfranka."""

    module, package = "pylibfranka", "pylibfranka"

    @staticmethod
    def errors(library: Any) -> tuple:
        """Return the exceptions of the library; an unknown protocol version of the robot is not a RuntimeError."""
        return (RuntimeError, library.FrankaException)

    def __init__(self, library: Any, host: str, *, realtime: bool) -> None:
        self.library = library
        config = library.RealtimeConfig.kEnforce if realtime else library.RealtimeConfig.kIgnore
        self.robot = library.Robot(host, config)

    def nominal_end_effector(self) -> list:
        """Return F_T_NE, which Desk sets; column-major."""
        return list(self.robot.read_once().F_T_NE)

    def set_end_effector(self, pose: list) -> None:
        """Set NE_T_EE, column-major."""
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


class _PandaPython:
    """A Panda through libfranka 0.9 of panda-python."""

    module, package = "panda_py.libfranka", "panda-python"

    @staticmethod
    def errors(_library: Any) -> tuple:
        """Return the exceptions of the library."""
        return (RuntimeError,)

    def __init__(self, library: Any, host: str, *, realtime: bool) -> None:
        self.library = library
        config = library.RealtimeConfig.kEnforce if realtime else library.RealtimeConfig.kIgnore
        self.robot = library.Robot(host, config)

    def nominal_end_effector(self) -> list:
        """Return F_T_NE, column-major: the end effector's pose with NE_T_EE = 1; the state lacks it."""
        self.set_end_effector(IDENTITY)
        for _ in range(SETTLE_READINGS):
            state = self.robot.read_once()
        return list(state.F_T_EE)

    def set_end_effector(self, pose: list) -> None:
        """Set NE_T_EE, column-major."""
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
            cutoff_frequency=_UNFILTERED_HZ,
        )


ARMS: dict[str, Any] = {arm.package: arm for arm in (_Pylibfranka, _PandaPython)}
"""Arm classes by the name in cut.json, robot / control / run_script."""


def connect(name: str, host: str, *, realtime: bool) -> Any:
    """Connect to the arm at this address; raise RefusalError if the library or the robot is missing."""
    arm = ARMS[name]
    if realtime and not _has_realtime_kernel():
        raise RefusalError(
            "This computer has no real-time kernel (/sys/kernel/realtime is not 1). A real robot needs "
            "one. Install it; use --no-realtime for a simulated robot."
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
            f"No robot that {arm.package} supports answers at {host} ({error}). Check {check}."
        ) from error


def _has_realtime_kernel() -> bool:
    """Return True if the kernel is a real-time kernel, by libfranka's criterion."""
    try:
        return Path("/sys/kernel/realtime").read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False


def cycles(period: Any) -> int:
    """Return the number of control cycles of 1 ms; a lost packet makes it more than one."""
    return max(1, round(1000 * period.to_sec()))
