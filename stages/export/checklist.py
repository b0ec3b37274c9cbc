"""The operator's page: what to check by hand before the knife moves."""

import numpy as np
from numpy.typing import NDArray

from stages.export.demand import Demand
from stages.shared.robots.robot import Robot


def air_cut(robot: Robot) -> str:
    """How the air cut is run."""
    if robot.control.run_script:
        return f"`python run_cut.py --air --execute --robot {robot.name} --host ADDRESS`"
    return " or ".join(f"air_cut/{file} with {client}" for file, client in robot.control.clients.items())


def settings(robot: Robot) -> str:
    """Who sets load, stiffness and thresholds."""
    if robot.control.run_script:
        return "No end effector in Desk: the run script sends"
    return "By hand, before each of the two motions:"


def checklist(
    demand: Demand, *, scan_id: str, start: NDArray[np.float64], air_start: NDArray[np.float64]
) -> str:
    """One page of Markdown; start poses of cut and air cut [rad]."""
    cell, params, robot = demand.cell, demand.params, demand.robot
    board = ", ".join(f"{1000 * v:.1f}" for v in params.board_position_m)
    edge = ", ".join(f"{1000 * v:.1f}" for v in params.edge_offset_m)
    com = ", ".join(f"{1000 * v:.1f}" for v in params.tool_com_m)
    pose, air_pose, ready = (
        ", ".join(f"{v:+.4f}" for v in joints) for joints in (start, air_start, robot.ready_pose_rad)
    )
    peak = float(np.linalg.norm(demand.cut.force, axis=1).max())
    return f"""# Before the knife moves: {scan_id}

**A knife cell is not a power-and-force-limited application.** The robot's force limits do not protect anyone from a
blade. The certificate in cut.json covers this motion in this cell; it is no risk assessment and does not replace one
(ISO 10218, ISO/TS 15066). A stop may leave the knife in the fruit: plan how to free it.

## The cell
- [ ] A risk assessment for this cell exists, and someone responsible has signed it.
- [ ] Fence or light curtain closed; nobody within reach while the robot is enabled.
- [ ] Emergency stop in hand, tested today.
- [ ] The robot is a {robot.title} ({robot.name}). This export is for no other.
- [ ] The board's top is at (x, y, z) = ({board}) mm in the base frame at the cut, blade direction
      {params.blade_yaw_deg:g}° from the base's x axis. Measured, not guessed: 2 mm of error in height cuts the board.
- [ ] Board clamped, level within 0.2 mm over the blade's length. Nothing else under the arm.

## The knife
- [ ] Edge centre at ({edge}) mm from the flange, blade {1000 * cell.blade_length_m:.0f} mm long, direction
      {params.blade_angle_deg:g}° in the flange's x-y plane. Clamped; does not move when pulled by hand (gloves on).
- [ ] {settings(robot)} load ({cell.tool_mass_kg:g} kg, centre of mass ({com}) mm from the flange), stiffness
      ({params.joint_stiffness_nm_rad:g} Nm/rad, or as near as the arm offers) and the collision thresholds of cut.json,
      apart for air cut and cut.
- [ ] Predicted peak force {peak:.0f} N; {demand.parting.remains()} after the cut.

## The rehearsal
- [ ] `python run_cut.py` (dry run) ends with "All checks passed".
- [ ] Robot at its ready pose, by its own controls or by hand guiding: [{ready}] rad. The files lead from there to the
      start and back.
- [ ] **Fruit off the board**, blade guard on if there is one: the air cut, {air_cut(robot)}.
      It is the same motion {1000 * params.air_cut_lift_m:.0f} mm higher; it starts at [{air_pose}] rad. Record it:
      it is the tare of the force signal. Look at the gap to the board at the lowest point.
- [ ] Sounds, cables and gaps as expected. Only then the fruit, held from outside the fence, and the cut. It starts at
      [{pose}] rad.

## Afterwards
- [ ] The log is kept: `scan2cut executed` compares it with the prediction.
- [ ] Knife retracted, robot disabled, blade guard on, before the fence opens.
"""
