"""A simulated FR3 that speaks Franka's protocol, with something under the knife. Run by the Python that has franka-sim.

    python simulated_arm.py ARM.xml PORT HEIGHT_M FORCE_N

franka-sim enforces Franka's limits on every command but feels nothing. Here the measured force is FORCE_N upwards while
the end effector is below HEIGHT_M, as on a fruit or a stone.
"""

import os
import sys

os.environ["FR3_MJCF"], port, height, force = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])

from franka_sim import robot_state, run_server  # noqa: E402

pack = robot_state.RobotState.pack_state
READY = [0.0, -0.7853981633974483, 0.0, -2.356194490192345, 0.0, 1.5707963267948966, 0.7853981633974483]


def with_force(self: robot_state.RobotState) -> bytes:
    """The state with what the arm exerts: downwards where something is in the way."""
    down = -force if self.state["O_T_EE"][14] < height else 0.0
    self.state["O_F_ext_hat_K"] = [0.0, 0.0, down, 0.0, 0.0, 0.0]
    return pack(self)


robot_state.RobotState.pack_state = with_force
from franka_sim import mujoco_franka_sim  # noqa: E402

mujoco_franka_sim.ARM_INITIAL_Q[:] = READY
sys.argv = ["run_server", "--no-gripper", "--enforce-motion-limits", "--port", port]
run_server.main()
