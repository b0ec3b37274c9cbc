"""Serve a simulated FR3 or Panda on this machine, so that an export can be executed without an arm.

The first call creates build/arm/server (franka-sim) and build/arm/client (pylibfranka, panda-python) with pip, in
environments of their own: franka-sim pins a NumPy that panda-python rejects. The arm is built from the robot's data
file and stands at its ready pose. It feels no force unless `stone` or `fruit` is given; `fruit` replays the force of a
scan's certified cut, optionally with parameters multiplied by factors. `cpp` also compiles the C++ client as
build/arm/stream_cut for the Panda: the headers of libfranka 0.9 are in panda-python's source archive on PyPI, the
library in its wheel.
"""

import hashlib
import io
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pip._internal.models.index import PyPI

from disect_sim.parameters import MATERIALS
from stages.export.cell import cell_of
from stages.export.mujoco_check import arm_xml
from stages.replay.replay import record
from stages.runtime.artifacts import read_table
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.runtime.scan_file import SCAN_FILE_NAME, read_scan_file
from stages.shared.cut import of_material, read_cut_mesh, read_second_cut_values
from stages.shared.robots.robot import FOLDER, load_robot


def write_fruit(file: Path, scan_dir: Path, params_yaml: Path, factors: dict[str, float]) -> Path:
    """Joints of the arm and the force on the knife, base frame, one row per millisecond of the cut."""
    folder = scan_dir / "export" / "cut" / "certified"
    if not (folder / "cut.json").is_file():
        raise InputError(
            f"{scan_dir} has no certified motion. --fruit needs one. Run scan2cut run on that scan."
        )
    motion = pl.read_parquet(folder / "motion.parquet")
    document = json.loads((folder / "cut.json").read_text(encoding="utf-8"))
    pose = np.array(document["frames"]["O_T_C"])
    start = next(round(1000 * p["start_s"]) for p in document["timing"]["phases"] if p["phase"] == "cut")
    joints = np.loadtxt(folder / "joint_1khz.csv", delimiter=",", skiprows=1)[:, 1:]
    force = motion["force_n"].to_numpy() if not factors else _felt(scan_dir, params_yaml, motion, factors)
    rows = {
        "joints_rad": joints[start : start + len(motion)],
        "force_n": force @ pose[:3, :3].T,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({name: values.tolist() for name, values in rows.items()}), encoding="utf-8")
    return file


def _felt(
    scan_dir: Path, params_yaml: Path, motion: pl.DataFrame, factors: dict[str, float]
) -> NDArray[np.float64]:
    """Force on the knife [N], shape [n, 3], in a fruit whose parameters are the fitted ones times the factors."""

    def read(name: str) -> pl.DataFrame:
        return read_table(scan_dir, name)

    values = read_second_cut_values(read)
    unknown = sorted(set(factors) - set(values))
    if unknown:
        raise InputError(
            f"There is no parameter {', '.join(unknown)}. It must be one of {', '.join(values)}."
        )
    cut = record(
        read_cut_mesh(read, "precut_half"),
        MATERIALS[read_scan_file(scan_dir).material],
        motion,
        of_material(values, factors),
        load_params(params_yaml, scan_dir / SCAN_FILE_NAME).replay,
    ).result
    if not cut.outcome.ok:
        raise InputError(f"The cut of that fruit ended early: {cut.outcome}. Give factors nearer to 1.")
    time = motion["time_s"].to_numpy()
    steps = cut.step_time[1:] + time[0]
    return np.stack([np.interp(time, steps, column) for column in cut.force.T], axis=1)


_ROOT = Path(__file__).parents[2]
_BUILD = _ROOT / "build" / "arm"
_PACKAGES = {"server": ["franka-sim==1.1.7"], "client": ["pylibfranka==0.21.3", "panda-python==1.1.1"]}
_ARMS = ("fr3", "panda")
_HEADERS = (
    "panda-python",
    "panda_python-0.7.1.tar.gz",
    "6531a3e10e8ec58c6526cd1c041889c4e6046bbcca250c57b33b9287484cd108",
)
"""Package, archive that has libfranka 0.9.2's headers, and its sha256. pip does not get it without building it."""
_INCLUDE = "libfranka/include/"
STREAM_CUT = _ROOT / "stages" / "export" / "stream_cut.cpp"
_PORT = 1337
"""libfranka knows no other."""
NO_STONE = (-1.0, 0.0)
"""Height [m] and force [N] of a stone that the arm never meets."""
_SETTLE_S = 1.0
"""Until the server is done with the connection that asked whether it is there."""
_SIMULATED = Path(__file__).with_name("simulated_arm.py")


def _model(name: str) -> str:
    """The arm of the data file as franka-sim wants it: its names, rotor inertia, and the flange as the end effector."""
    robot = load_robot(name)
    xml = arm_xml(robot, cell_of(load_params(_ROOT / "params.yaml").export))
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


def server_command(python: Path, name: str, place: Path, *felt: float | Path) -> list[str]:
    """What starts the server; `_felt` are height [m], force [N], reflex [N] and fruit of simulated_arm.py."""
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.xml").write_text(_model(name), encoding="utf-8")
    return [
        str(python),
        str(_SIMULATED),
        str(place / f"{name}.xml"),
        str(FOLDER / f"{name}.json"),
        *map(str, felt),
    ]


def environment(which: str) -> Path:
    """The Python of build/arm/<which>, made if it is not there."""
    folder = _BUILD / which
    python, whole = folder / "bin" / "python", folder / "installed"
    if not whole.exists():
        sys.stdout.write(f"Installing {', '.join(_PACKAGES[which])} in {folder} ...\n")
        sys.stdout.flush()
        lines: tuple[list[str | Path], ...] = (
            [sys.executable, "-m", "venv", folder],
            [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *_PACKAGES[which]],
        )
        for line in lines:
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            if done.returncode:
                raise InputError(
                    f"{folder} can't be made: {' '.join(done.stderr.split())[-300:]} pip must reach PyPI. Try again."
                )
        whole.touch()
    return python


def _archive(package: str, name: str) -> bytes:
    """A file of a package as pip's index has it."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or configured or PyPI.simple_url
    page = f"{index.rstrip('/')}/{package}/"
    try:
        with urllib.request.urlopen(page, timeout=60) as answer:
            links = re.findall(r'href="([^"#]*)', answer.read().decode())
        found = next((link for link in links if link.endswith(f"/{name}")), None)
        if found is None:
            raise InputError(
                f"{page} has no {name}. The headers are in that archive. Use an index that has it."
            )
        with urllib.request.urlopen(urllib.parse.urljoin(page, found), timeout=60) as answer:
            data: bytes = answer.read()
    except OSError as error:
        raise InputError(
            f"{name} can't be fetched ({error}). pip's index must be in reach. Try again."
        ) from error
    return data


def headers(place: Path) -> Path:
    """The folder with libfranka 0.9's headers, fetched if it is not there."""
    folder, (package, name, digest) = place / "libfranka", _HEADERS
    if not (folder / "installed").exists():
        data = _archive(package, name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise InputError(f"{name} has not the sha256 {digest}. It was damaged on the way. Try again.")
        with tarfile.open(fileobj=io.BytesIO(data)) as opened:
            for member in opened:
                if member.isfile() and _INCLUDE in member.name:
                    member.name = member.name.split(_INCLUDE, 1)[1]
                    opened.extract(member, folder / "include", filter="data")
        (folder / "installed").touch()
    return folder / "include"


def client_in_cpp(place: Path) -> Path:
    """stream_cut, compiled with the library of panda-python's wheel in place/client."""
    libraries = sorted(place.glob("client/lib/python*/site-packages/panda_python.libs/libfranka-*.so.0.9.*"))
    program = place / "stream_cut"
    line = ["g++", "-std=c++14", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{headers(place)}", str(STREAM_CUT)]
    line += [*map(str, libraries), *(f"-Wl,-rpath,{library.parent}" for library in libraries)]
    try:
        done = subprocess.run([*line, "-o", program], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise InputError("g++ is not there. --cpp compiles with it. Install it (apt install g++).") from error
    if done.returncode:
        raise InputError(f"{STREAM_CUT.name} can't be compiled: {done.stderr[-1000:]}")
    return program


def _served() -> bool:
    """Whether anything listens where the arm is to be."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", _PORT)) == 0


def answers(process: subprocess.Popen) -> bool:
    """Wait until the server takes clients; False if it ended."""
    while process.poll() is None:
        if _served():
            time.sleep(_SETTLE_S)
            return process.poll() is None
        time.sleep(0.2)
    return False


def _factors_of(words: list[str]) -> dict[str, float]:
    """Of NAME=FACTOR."""
    try:
        return {name: float(factor) for name, factor in (word.split("=") for word in words)}
    except ValueError as error:
        raise InputError(f"{' '.join(words)} must be NAME=FACTOR, for instance cut_spring_ke=1.5.") from error


def serve(
    robot: str, stone: tuple[float, float] = NO_STONE, fruit: Sequence[str] = (), *, cpp: bool = False
) -> int:
    """Serve the arm until Ctrl-C; return the server's exit code.

    stone: height in the base frame [m] below which the end effector feels a force upwards [N]. fruit: scan directory
    and NAME=FACTOR words.
    """
    if robot not in _ARMS:
        raise InputError(f"{robot!r} can't be simulated. It must be one of {', '.join(_ARMS)}. Choose one.")
    if cpp and robot != "panda":
        raise InputError("--cpp is for panda: PyPI has no headers of the libfranka that an FR3 needs.")
    if _served():
        raise InputError(
            f"Port {_PORT} is in use: another arm is served on this machine. Stop it with Ctrl-C first."
        )
    server, client = environment("server"), environment("client")
    program = client_in_cpp(_BUILD) if cpp else None
    felt: list[float | Path] = [*stone]
    if fruit:
        scan, *factors = fruit
        file = _BUILD / "fruit.json"
        felt += [math.inf, write_fruit(file, Path(scan), _ROOT / "params.yaml", _factors_of(factors))]
    command = server_command(server, robot, _BUILD, *felt)
    log = _BUILD / "server.log"
    with log.open("w", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the server, which then ends by itself
    if not answers(process):
        raise InputError(f"The server ended: {log.read_text(encoding='utf-8')[-1000:]}")
    sys.stdout.write(
        f"A simulated {robot} is served at 127.0.0.1 until Ctrl-C; its log is {log}. In another terminal:\n"
        f"  {client} FOLDER/run_cut.py --air --execute --robot {robot} --host 127.0.0.1 --no-realtime\n"
        "where FOLDER is data/scans/SCAN/export/cut/certified; without --air it is the cut.\n"
    )
    if program:
        sys.stdout.write(
            f"In C++:\n  {client} FOLDER/run_cut.py --air --robot panda --plain air.txt\n"
            f"  {program} 127.0.0.1 air.txt air.json --no-realtime\n"
        )
    sys.stdout.flush()
    return process.wait()
