"""A simulated FR3 that speaks Franka's protocol, with something under the knife. Run by the Python that has franka-sim.

    python simulated_arm.py ARM.xml PORT HEIGHT_M FORCE_N [REFLEX_N]

franka-sim enforces Franka's limits on every command but feels nothing. Here the measured force is FORCE_N upwards while
the end effector is below HEIGHT_M, as on a fruit or a stone, with a little bias and noise. At REFLEX_N the robot stops
itself once, as it does when a collision threshold is exceeded.
"""

import os
import random
import sys
import threading

os.environ["FR3_MJCF"], PORT = sys.argv[1:3]
HEIGHT_M, FORCE_N, REFLEX_N = (float(value) for value in [*sys.argv[3:], "inf"][:3])

from franka_sim import franka_sim_server, mujoco_franka_sim, robot_state, run_server  # noqa: E402

READY = [0.0, -0.7853981633974483, 0.0, -2.356194490192345, 0.0, 1.5707963267948966, 0.7853981633974483]
CARTESIAN_REFLEX = 7
"""Its place among libfranka's errors."""
DOWN = 14
"""Height of the end effector in O_T_EE."""
servers: list[franka_sim_server.FrankaSimServer] = []
tripped: list[bool] = []
pack, start = robot_state.RobotState.pack_state, franka_sim_server.FrankaSimServer.__init__


def remembered(self: franka_sim_server.FrankaSimServer, *args: object, **options: object) -> None:
    """The server, kept so that its robot can stop itself."""
    start(self, *args, **options)
    servers.append(self)


def with_force(self: robot_state.RobotState) -> bytes:
    """The state with what the arm exerts: downwards where something is in the way."""
    down = FORCE_N if self.state["O_T_EE"][DOWN] < HEIGHT_M else 0.0
    idle = [random.gauss(0.3, 0.1) for _ in range(3)]
    self.state["O_F_ext_hat_K"] = [idle[0], idle[1], idle[2] - down, 0.0, 0.0, 0.0]
    if down >= REFLEX_N and not tripped:
        tripped.append(True)
        threading.Thread(target=servers[-1]._abort_with_error, args=(CARTESIAN_REFLEX, "reflex")).start()
    return pack(self)


franka_sim_server.FrankaSimServer.__init__ = remembered
robot_state.RobotState.pack_state = with_force
mujoco_franka_sim.ARM_INITIAL_Q[:] = READY
sys.argv = ["run_server", "--no-gripper", "--enforce-motion-limits", "--port", PORT]
run_server.main()
