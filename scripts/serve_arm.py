"""Serve a simulated FR3 or Panda on this machine, so that an export can be run without an arm.

    python -m scripts.serve_arm panda

At first it makes build/arm/server (franka-sim) and build/arm/client (pylibfranka, panda-python) with pip: franka-sim
pins a NumPy that panda-python refuses. Then it serves at 127.0.0.1 until Ctrl-C and says how to run an export on it.
The arm is made from the robot's data file; it stands at its ready pose and feels nothing unless --stone is given.
"""

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from disect_sim.errors import InputError
from stages.export.cell import cell_of
from stages.export.replay import arm_xml
from stages.runtime.params import load_params
from stages.shared.robots.names import FOLDER
from stages.shared.robots.robot import load_robot

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "arm"
PACKAGES = {"server": ["franka-sim==1.1.7"], "client": ["pylibfranka==0.21.3", "panda-python==1.1.1"]}
ARMS = ("fr3", "panda")
SIMULATED = Path(__file__).with_name("simulated_arm.py")


def model(name: str) -> str:
    """The arm of the data file as franka-sim wants it: its names, rotor inertia, and the flange as the end effector."""
    robot = load_robot(name)
    xml = arm_xml(robot, cell_of(load_params(ROOT / "params.yaml").export))
    for before, after in (
        ('"joint', '"fr3_joint'),
        ('"link', '"fr3_link'),
        ('name="fr3_link7"', 'name="wrist"'),
        ("<joint ", '<joint armature="0.6" damping="1" '),
    ):
        xml = xml.replace(before, after)
    light = '<inertial pos="0 0 0" mass="0.001" diaginertia="1e-6 1e-6 1e-6"/>'
    flange = f'<body name="fr3_link7" pos="0 0 {robot.table.flange_m}">{light}</body>'
    return xml.replace('<body name="tool">', flange + '<body name="tool">')


def server_command(python: Path, name: str, place: Path, *felt: float) -> list[str]:
    """What starts the server; `felt` are height [m], force [N] and reflex [N] of simulated_arm.py."""
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.xml").write_text(model(name), encoding="utf-8")
    return [
        str(python),
        str(SIMULATED),
        str(place / f"{name}.xml"),
        str(FOLDER / f"{name}.json"),
        *map(str, felt),
    ]


def environment(which: str) -> Path:
    """The Python of build/arm/<which>, made if it is not there."""
    folder = BUILD / which
    python, whole = folder / "bin" / "python", folder / "installed"
    if not whole.exists():
        sys.stdout.write(f"Installing {', '.join(PACKAGES[which])} in {folder} ...\n")
        sys.stdout.flush()
        for line in (
            [sys.executable, "-m", "venv", folder],
            [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *PACKAGES[which]],
        ):
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            if done.returncode:
                raise InputError(
                    f"{folder} can't be made: {' '.join(done.stderr.split())[-300:]} pip must reach PyPI. Try again."
                )
        whole.touch()
    return python


def main() -> int:
    """Exit code 2 if it can't be started, else the server's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("robot", choices=ARMS)
    parser.add_argument(
        "--stone",
        nargs=2,
        type=float,
        metavar=("HEIGHT_M", "FORCE_N"),
        default=(-1.0, 0.0),
        help="the end effector feels FORCE_N upwards below this height in the base frame",
    )
    options = parser.parse_args()
    try:
        server, client = environment("server"), environment("client")
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(
        f"A simulated {options.robot} is served at 127.0.0.1 until Ctrl-C. In another terminal:\n"
        f"  {client} FOLDER/run_cut.py --air --execute --robot {options.robot} --host 127.0.0.1 --no-realtime\n"
        "where FOLDER is data/scans/SCAN/export/cut/certified; without --air it is the cut.\n"
    )
    sys.stdout.flush()
    command = server_command(server, options.robot, BUILD, *options.stone)
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's, which then ends by itself
    return process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
