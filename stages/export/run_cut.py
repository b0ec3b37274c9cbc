"""Run a certified cut on a Franka arm. Without --execute nothing moves and nothing is contacted.

    python run_cut.py                                     check hashes and certificate, show the motion
    python run_cut.py --execute --robot NAME --host IP    the cut, after questions
    python run_cut.py --air --execute ...                 the same motion in the air; run this first, fruit removed

Needs Python 3.10 or newer; --execute also needs pylibfranka and a real-time kernel, and a robot that pylibfranka speaks
to (cut.json, robot / control / run_script). Other robots play joint_1khz.csv or joint_trajectory.* with the clients
named there, after a dry run of this script. The part that moves the arm was written from libfranka's interface and has
not been run on hardware: rehearse it with the air cut.
"""

import argparse
import csv
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

START_TOLERANCE_RAD = 0.005
STILL_RAD_S = 0.01
GLIDE_SAMPLES = 2000
"""5 mrad in 2 s with a quintic step: 0.005 rad/s and 0.008 rad/s² at most."""


class RefusalError(Exception):
    """A reason not to move."""


def say(text: str) -> None:
    """To the terminal."""
    sys.stdout.write(text + "\n")


def check_files(folder: Path) -> dict:
    """The document, if certificate and all hashes hold."""
    document = json.loads((folder / "cut.json").read_text(encoding="utf-8"))
    certificate = document.pop("certificate", None)
    if not certificate or certificate.get("certified") is not True:
        raise RefusalError("cut.json holds no certificate that says certified. Export again.")
    content = json.dumps(document, sort_keys=True, allow_nan=False).encode()
    if hashlib.sha256(content).hexdigest() != certificate["content_sha256"]:
        raise RefusalError("cut.json was changed after it was certified. Export again.")
    for name, digest in document["siblings_sha256"].items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise RefusalError(f"{name} is missing or was changed after it was certified. Export again.")
    document["certificate"] = certificate
    return document


def read_joints(folder: Path, air: bool) -> list:
    """Joint angles [rad], one row of seven per millisecond."""
    path = folder / "air_cut" / "joint_1khz.csv" if air else folder / "joint_1khz.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    return [[float(value) for value in row[1:]] for row in rows[1:]]


def check_robot(document: dict, name: str) -> None:
    """Refuse a robot this motion was not made for."""
    if name != document["robot"]["name"]:
        raise RefusalError(
            f"This cut was certified for {document['robot']['name']}, not for {name}. Export it for {name}."
        )


def check_script(document: dict) -> None:
    """Refuse a robot that this script can't move."""
    robot = document["robot"]
    if robot["control"]["run_script"] is not True:
        ways = ", or ".join(f"{file} with {client}" for file, client in robot["control"]["clients"].items())
        raise RefusalError(f"pylibfranka does not speak to a {robot['title']}. Play {ways}.")


def check_server(document: dict, version: int) -> None:
    """Refuse when the connected controller belongs to another kind of robot."""
    robot = document["robot"]
    low, high = robot["control"]["server_versions"]
    if version < low or (high is not None and version > high):
        raise RefusalError(
            f"The robot at this address has server version {version}, a {robot['title']} has "
            f"{low} {'or later' if high is None else f'to {high}'}. Check --host."
        )


def check_start(start: list, joints: list, speeds: list) -> None:
    """Refuse unless the robot rests at the start pose."""
    for number, (wanted, found, speed) in enumerate(zip(start, joints, speeds, strict=True), 1):
        if not abs(found - wanted) <= START_TOLERANCE_RAD:
            raise RefusalError(
                f"Joint {number} is at {found:.4f} rad; the motion starts at {wanted:.4f}. It must be within "
                f"{START_TOLERANCE_RAD} rad. Bring the arm there by hand guiding."
            )
        if not abs(speed) <= STILL_RAD_S:
            raise RefusalError(f"Joint {number} moves at {speed:.3f} rad/s. The arm must rest. Wait.")


def confirm(question: str, answer: str) -> None:
    """Ask; anything but the answer refuses."""
    say(question)
    if input(f"Type {answer} to go on: ").strip() != answer:
        raise RefusalError("Not confirmed.")


def describe(document: dict, joints: list, air: bool) -> None:
    """What would happen."""
    loads = document["certificate"]["loads"]
    say(document["warning"])
    say(f"{'Air cut' if air else 'CUT'} of {document['scan']} for {document['robot']['title']}")
    say(f"{len(joints)} samples, {(len(joints) - 1) / 1000:.2f} s; start pose {joints[0]}")
    say(
        f"Predicted peak force {loads['peak_force_n']:.0f} N, deflection {1000 * loads['deflection_m']:.1f} mm"
    )
    say(document["certificate"]["verdict"])


def execute(document: dict, joints: list, host: str, air: bool) -> None:
    """Glide to the exact start, then stream the joints at 1 kHz."""
    import pylibfranka as franka

    robot: Any = franka.Robot(host)
    check_server(document, robot.server_version())
    state = robot.read_once()
    check_start(joints[0], list(state.q_d), list(state.dq))
    loads = document["certificate"]["loads"]
    torque = [max(10.0, value) for value in loads["collision_torque_thresholds_nm"]]
    force = [max(10.0, value) for value in loads["collision_force_thresholds_n"]] + [10.0] * 3
    robot.set_collision_behavior(torque, torque, force, force)
    robot.set_joint_impedance([loads["joint_stiffness_nm_rad"]] * 7)
    confirm(
        "The fruit is OFF the board." if air else "The air cut ran well and the fruit is in place.", "yes"
    )
    confirm("Nobody is within reach; the stop button is in hand.", "move")
    check_start(joints[0], list(robot.read_once().q_d), list(robot.read_once().dq))
    control = robot.start_joint_position_control(franka.ControllerMode.JointImpedance)
    first, _ = control.readOnce()
    stream = [*glide(list(first.q_d), joints[0]), *joints]
    step, elapsed = 0, 0.0
    while True:
        command = franka.JointPositions(stream[step])
        command.motion_finished = step == len(stream) - 1
        control.writeOnce(command)
        if command.motion_finished:
            return
        _, period = control.readOnce()
        elapsed += period.to_sec()
        step = min(max(step + 1, round(elapsed * 1000)), len(stream) - 1)


def glide(found: list, start: list) -> list:
    """Samples from where the arm is, within the start tolerance, to where the motion starts; rest at both ends."""
    shares = [s**3 * (10.0 + s * (6.0 * s - 15.0)) for s in (k / GLIDE_SAMPLES for k in range(GLIDE_SAMPLES))]
    return [[a + s * (b - a) for a, b in zip(found, start, strict=True)] for s in shares]


def main() -> int:
    """Exit code 0 if all went well, 2 if refused."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--air", action="store_true", help="the motion in the air")
    parser.add_argument("--execute", action="store_true", help="move the robot")
    parser.add_argument("--robot", help="the robot at that address; must be the one of cut.json")
    parser.add_argument("--host", help="address of the robot")
    options = parser.parse_args()
    folder = Path(__file__).resolve().parent
    try:
        document = check_files(folder)
        if options.robot:
            check_robot(document, options.robot)
        joints = read_joints(folder, options.air)
        describe(document, joints, options.air)
        if not options.execute:
            say("All checks passed. Dry run: nothing was moved.")
            return 0
        if not (options.robot and options.host):
            raise RefusalError("--execute needs --robot and --host.")
        check_script(document)
        execute(document, joints, options.host, options.air)
    except (RefusalError, OSError, ValueError, KeyError) as reason:
        say(f"REFUSED: {reason}")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
