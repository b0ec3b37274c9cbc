"""A simulated Franka arm that implements Franka's protocol, with a contact force on the knife.

    python simulated_arm.py MODEL.xml ROBOT.json [HEIGHT_M FORCE_N [FRUIT.json]]

Requires a Python with franka-sim, which enforces the robot's limits on every command but measures no force. Here the
measured force is FORCE_N upwards while the end effector is below HEIGHT_M, with a little bias and noise. The robot
stops by itself when the force exceeds a threshold of set_collision_behavior; joint torques are not compared. With
FRUIT.json the force is the one that pipelines/arm/serve_arm.py wrote, looked up by the commanded step
(pipelines/arm/felt_fruit.py).
It listens on 127.0.0.1 only, and ends with the process that started it.

The simulation waits for the client: the next state is sent after the last one was answered, and the arm advances 1 ms
per state, so that a busy computer makes the motion slower but not different. It does not test whether a computer keeps
1 kHz.

franka-sim implements version 10 of the protocol (FR3). A Panda uses version 5: commands and motion results have other
numbers, the state is in double precision without accelerometers, and streamed commands have no flag for torques.
"""

import ctypes
import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
import types
from pathlib import Path

os.environ["FR3_MJCF"] = sys.argv[1]
ROBOT = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
HEIGHT_M, FORCE_N = (float(value) for value in [*sys.argv[3:5], *("-1", "0")[len(sys.argv) - 3 :]])
FRUIT = json.loads(Path(sys.argv[5]).read_text(encoding="utf-8")) if len(sys.argv) > 5 else None
HOST = "127.0.0.1"
_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""
if sys.platform == "linux":  # a killed parent leaves no server behind
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

import numpy as np  # noqa: E402
from felt_fruit import Fruits, Reflex  # noqa: E402
from franka_sim import franka_protocol, mujoco_franka_sim, robot_state, run_server  # noqa: E402
from franka_sim.franka_sim_server import FrankaSimServer as Server  # noqa: E402
from franka_sim.limits import checker, tables  # noqa: E402
from franka_sim.server import state_stream  # noqa: E402

_CARTESIAN_REFLEX = 7
"""Index among libfranka's errors."""
_HEIGHT = 14
"""Index of the end effector's height in O_T_EE."""
_PANDA_VERSION = 5
_PANDA_COMMANDS = (0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 12)
"""Command numbers, in the order of version 10."""
_PANDA_MOVE_ENDS = (0, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9)
"""Motion results, in the order of version 10, which has two more for the FR3's safety functions."""
_HEADER = 12
"""Length of a message header [bytes]."""
STATE_NUMBERS, ACCELEROMETERS = 284, 36
"""Count of state values before the accelerometers, and of the accelerometers."""
PATIENCE_S, GLANCE_S, IDLE_S = 0.5, 2e-4, 0.05
"""Timeout for an answer (libfranka gives up after 1 s without a state), polling interval, and step of an idle arm."""
ticks = threading.Semaphore(0)
"""Released once per state sent."""
servers: list[Server] = []
reflex = Reflex()
_client_version: list[int] = []
"""Protocol version of the client."""
pack, start = robot_state.RobotState.pack_state, Server.__init__
receive, respond, answered = Server.receive_message, Server.send_response, Server._drain_gate
send = Server._send_tcp


def remembered(self: Server, *args: object, **options: object) -> None:
    """Initialise the server and keep a reference, so that its robot can stop."""
    if ROBOT["name"] == "panda":
        options["protocol_version"] = _PANDA_VERSION
    start(self, *args, **options | {"host": HOST})
    if ROBOT["name"] == "panda":
        self.library_version = _PANDA_VERSION
    servers.append(self)


def _noting_the_version(self: Server, client: socket.socket) -> tuple:
    """Receive a message; record the client's protocol version from the first one."""
    header, payload = receive(self, client)
    if header.command == franka_protocol.Command.kConnect:
        _client_version[:] = struct.unpack("<H", payload[:2])
    if header.command == franka_protocol.Command.kSetCollisionBehavior:
        reflex.set(payload)
    return header, payload


def _reject_other_versions(self: Server, client: socket.socket, **answer: object) -> None:
    """Respond to a client; reject one with another protocol version."""
    if _client_version != [self.library_version]:
        answer["status"] = franka_protocol.ConnectStatus.kIncompatibleLibraryVersion
    respond(self, client, **answer)


def _patient(self: Server, answer_deadline: float = 0.0) -> float:
    """Wait until the last state was answered, then advance the arm; return the waiting time [s]."""
    waited = answered(self, max(answer_deadline, time.perf_counter() + PATIENCE_S))
    ticks.release()
    return waited


def _in_step(self: mujoco_franka_sim.MujocoFrankaSim) -> None:
    """Step the arm's physics once per state."""
    while self.running:
        ticks.acquire(timeout=IDLE_S)
        self.step()


fruit = Fruits(FRUIT) if FRUIT else None


def with_force(self: robot_state.RobotState) -> bytes:
    """Pack the state with the measured contact force."""
    height = self.state["O_T_EE"][_HEIGHT]
    push = np.array([0.0, 0.0, FORCE_N if height < HEIGHT_M else 0.0])
    if fruit:
        push = fruit.felt(np.array(self.state["q_d"]))
    exerted = [random.gauss(0.3, 0.1) - float(force) for force in push]
    self.state["O_F_ext_hat_K"] = [*exerted, 0.0, 0.0, 0.0]
    if reflex.trips(np.array(exerted)) and self.state["robot_mode"] == franka_protocol.RobotMode.kMove.value:
        threading.Thread(target=servers[-1]._abort_with_error, args=(_CARTESIAN_REFLEX, "reflex")).start()
    return pack(self)


def _panda_header(data: bytes) -> franka_protocol.MessageHeader:
    """Parse the header of a version 5 command, which has two more commands in between."""
    number, command_id, size = struct.unpack("<III", data)
    command = franka_protocol.Command(_PANDA_COMMANDS.index(number))
    return franka_protocol.MessageHeader(command, command_id, size)


def _panda_answer(self: Server, client: socket.socket, message: bytes) -> None:
    """Send a version 10 answer in the format of version 5."""
    head, (end, *rest) = struct.unpack("<III", message[:_HEADER]), message[_HEADER:]
    if head[0] == franka_protocol.Command.kMove:
        end = _PANDA_MOVE_ENDS[end]
    send(self, client, struct.pack("<III", _PANDA_COMMANDS[head[0]], *head[1:]) + bytes([end, *rest]))


class _PandaState:
    """Packer of the state in the format of version 5."""

    packer = struct.Struct(f"<Q{STATE_NUMBERS}d2B41B41BBd")

    def pack(self, *values: float) -> bytes:
        """Pack the values that a Panda sends."""
        split = 1 + STATE_NUMBERS
        return self.packer.pack(*values[:split], *values[split + ACCELEROMETERS :])


class _PandaCommands(socket.socket):
    """Socket that appends version 10's flag to version 5 commands."""

    def recvfrom(self, size: int, flags: int = 0, /) -> tuple:
        """Receive one command and its sender."""
        data, sender = super().recvfrom(size, flags)
        return data + b"\0", sender


def _be_a_panda() -> None:
    """Use the Panda's message formats and limits instead of the FR3's."""
    franka_protocol.MessageHeader.from_bytes = staticmethod(_panda_header)
    Server._send_tcp = _panda_answer
    robot_state._ROBOT_STATE_PACKER = _PandaState()
    module = types.ModuleType("socket")
    module.__dict__.update(socket.__dict__)
    module.__dict__["socket"] = _PandaCommands
    state_stream.socket = module
    ranges = tuple(zip(ROBOT["position_low_rad"], ROBOT["position_high_rad"], strict=True))
    tables.JOINT_POSITION_LIMITS = checker.JOINT_POSITION_LIMITS = ranges
    # The Panda's velocity limits do not depend on joint positions.
    tables.POSITION_BASED_VELOCITY_LIMITS = tuple((speed, 0.0, 1e6) for speed in ROBOT["velocity_rad_s"])
    checker.MAX_JOINT_ACCELERATION = tuple(ROBOT["acceleration_rad_s2"])
    checker.MAX_JOINT_JERK = tuple(ROBOT["jerk_rad_s3"])


if ROBOT["name"] == "panda":
    _be_a_panda()
Server.__init__ = remembered
Server.receive_message, Server.send_response = _noting_the_version, _reject_other_versions
Server._drain_gate, Server._DRAIN_GATE_TIMEOUT, Server._DRAIN_GATE_YIELD = _patient, PATIENCE_S, GLANCE_S
mujoco_franka_sim.MujocoFrankaSim.run_simulation = _in_step
robot_state.RobotState.pack_state = with_force
mujoco_franka_sim.ARM_INITIAL_Q[:] = ROBOT["ready_pose_rad"]
sys.argv = ["run_server", "--no-gripper", "--enforce-motion-limits"]
run_server.main()
