"""Serve a simulated FR3 or Panda on this machine, so that an export can be executed without an arm.

The first call creates build/arm/server (franka-sim) and build/arm/client (pylibfranka, panda-python) with pip, in
environments of their own: franka-sim pins a NumPy that panda-python rejects. The arm is built from the robot's data
file and starts at its ready pose. It measures no force without `stone` or `fruit`; `fruit` applies the simulated force
of a scan's certified cut, optionally with parameters multiplied by factors. `cpp` also compiles the C++ client as
build/arm/stream_cut for the Panda: the headers of libfranka 0.9 are in panda-python's source archive on PyPI, the
library in its wheel.
"""

import hashlib
import io
import json
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


def _write_fruit(file: Path, scan_dir: Path, params_yaml: Path, factors: dict[str, float]) -> Path:
    """Write joint positions and force on the knife (base frame), one row per millisecond, of the cut.

    Of a fruit with a plan of slices: those of every slice.
    """
    slices = sorted(scan_dir.parent.glob(f"{scan_dir.name}-slice-[0-9][0-9]"))
    cuts = [
        _felt_rows(one, params_yaml, factors)
        for one in [*slices, scan_dir]
        if (one == scan_dir and not slices) or (one / _CERTIFIED / "cut.json").is_file()
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(cuts), encoding="utf-8")
    return file


_CERTIFIED = Path("export", "cut", "certified")


def _felt_rows(scan_dir: Path, params_yaml: Path, factors: dict[str, float]) -> dict[str, list[list[float]]]:
    folder = scan_dir / _CERTIFIED
    if not (folder / "cut.json").is_file():
        raise InputError(
            f"{scan_dir} has no certified motion. --fruit requires one. Run 'scan2cut run' on that scan."
        )
    motion = pl.read_parquet(folder / "motion.parquet")
    document = json.loads((folder / "cut.json").read_text(encoding="utf-8"))
    pose = np.array(document["frames"]["O_T_C"])
    start = next(round(1000 * p["start_s"]) for p in document["timing"]["phases"] if p["phase"] == "cut")
    joints = np.loadtxt(folder / "motion_1khz.csv", delimiter=",", skiprows=1)[:, 1:]
    force = motion["force_n"].to_numpy() if not factors else _felt(scan_dir, params_yaml, motion, factors)
    return {
        "joints_rad": joints[start : start + len(motion)].tolist(),
        "force_n": (force @ pose[:3, :3].T).tolist(),
    }


def _felt(
    scan_dir: Path, params_yaml: Path, motion: pl.DataFrame, factors: dict[str, float]
) -> NDArray[np.float64]:
    """Simulate the force on the knife [N], shape [n, 3], with the fitted parameters times the factors."""

    def read(name: str) -> pl.DataFrame:
        return read_table(scan_dir, name)

    values = read_second_cut_values(read)
    unknown = sorted(set(factors) - set(values))
    if unknown:
        raise InputError(
            f"Unknown parameter {', '.join(unknown)}. It must be one of {', '.join(values)}. Choose one."
        )
    cut = record(
        read_cut_mesh(read, "precut_half"),
        MATERIALS[read_scan_file(scan_dir).material],
        motion,
        of_material(values, factors),
        load_params(params_yaml, scan_dir / SCAN_FILE_NAME).replay,
    ).result
    if not cut.outcome.ok:
        raise InputError(
            f"The simulated cut ended early: {cut.outcome}. It must finish. Choose factors closer to 1."
        )
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
"""Package, archive with the headers of libfranka 0.9.2, and its sha256. pip can't download it without building it."""
_INCLUDE = "libfranka/include/"
_STREAM_CUT = _ROOT / "stages" / "export" / "stream_cut.cpp"
_PORT = 1337
"""Fixed in libfranka."""
NO_STONE = (-1.0, 0.0)
"""Height [m] and force [N] that have no effect."""
_SETTLE_S = 1.0
"""Time until the server has closed the connection of the readiness check."""
_SIMULATED = Path(__file__).with_name("simulated_arm.py")


def _model(name: str) -> str:
    """Return the arm's MuJoCo model in franka-sim's format: its names, rotor inertia, flange as end effector."""
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


def _server_command(python: Path, name: str, folder: Path, *felt: float | Path) -> list[str]:
    """Write the model and return the server's command; `felt` are height [m], force [N] and fruit file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.xml").write_text(_model(name), encoding="utf-8")
    return [
        str(python),
        str(_SIMULATED),
        str(folder / f"{name}.xml"),
        str(FOLDER / f"{name}.json"),
        *map(str, felt),
    ]


def environment(which: str) -> Path:
    """Return the Python of build/arm/<which>; create the environment if necessary."""
    folder = _BUILD / which
    python, installed = folder / "bin" / "python", folder / "installed"
    if not installed.exists():
        sys.stdout.write(f"Installing {', '.join(_PACKAGES[which])} in {folder} ...\n")
        sys.stdout.flush()
        lines: tuple[list[str | Path], ...] = (
            [sys.executable, "-m", "venv", folder],
            [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *_PACKAGES[which]],
        )
        for line in lines:
            result = subprocess.run(line, capture_output=True, text=True, check=False)
            if result.returncode:
                raise InputError(
                    f"Can't create {folder}: {' '.join(result.stderr.split())[-300:]} pip must reach PyPI. Try again."
                )
        installed.touch()
    return python


def _archive(package: str, name: str) -> bytes:
    """Download a file of a package from pip's index."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or configured or PyPI.simple_url
    page = f"{index.rstrip('/')}/{package}/"
    try:
        with urllib.request.urlopen(page, timeout=60) as answer:
            links = re.findall(r'href="([^"#]*)', answer.read().decode())
        link_found = next((link for link in links if link.endswith(f"/{name}")), None)
        if link_found is None:
            raise InputError(
                f"{page} has no {name}. That archive contains the headers. Use an index that has it."
            )
        with urllib.request.urlopen(urllib.parse.urljoin(page, link_found), timeout=60) as answer:
            data: bytes = answer.read()
    except OSError as error:
        raise InputError(
            f"Can't download {name} ({error}). pip's index must be reachable. Try again."
        ) from error
    return data


def headers(build: Path) -> Path:
    """Return the folder with the headers of libfranka 0.9; download them if necessary."""
    folder, (package, name, digest) = build / "libfranka", _HEADERS
    if not (folder / "installed").exists():
        data = _archive(package, name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise InputError(f"The sha256 of {name} is not {digest}. The download is corrupt. Try again.")
        with tarfile.open(fileobj=io.BytesIO(data)) as opened:
            for member in opened:
                if member.isfile() and _INCLUDE in member.name:
                    member.name = member.name.split(_INCLUDE, 1)[1]
                    opened.extract(member, folder / "include", filter="data")
        (folder / "installed").touch()
    return folder / "include"


def _client_in_cpp(build: Path) -> Path:
    """Compile stream_cut with the library in panda-python's wheel and return the program."""
    libraries = sorted(build.glob("client/lib/python*/site-packages/panda_python.libs/libfranka-*.so.0.9.*"))
    program = build / "stream_cut"
    command = [
        "g++",
        "-std=c++14",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{headers(build)}",
        str(_STREAM_CUT),
    ]
    command += [*map(str, libraries), *(f"-Wl,-rpath,{library.parent}" for library in libraries)]
    try:
        result = subprocess.run([*command, "-o", program], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise InputError("g++ is not installed. --cpp requires it. Install it (apt install g++).") from error
    if result.returncode:
        raise InputError(f"Can't compile {_STREAM_CUT.name}: {result.stderr[-1000:]}")
    return program


def _served() -> bool:
    """Return whether the arm's port is in use."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", _PORT)) == 0


def answers(process: subprocess.Popen) -> bool:
    """Wait until the server accepts clients; return False if it ended."""
    while process.poll() is None:
        if _served():
            time.sleep(_SETTLE_S)
            return process.poll() is None
        time.sleep(0.2)
    return False


def _parse_factors(words: list[str]) -> dict[str, float]:
    """Parse NAME=FACTOR arguments."""
    try:
        return {name: float(factor) for name, factor in (word.split("=") for word in words)}
    except ValueError as error:
        raise InputError(
            f"{' '.join(words)} is invalid. It must be NAME=FACTOR, e.g. cut_spring_ke=1.5."
        ) from error


def serve(
    robot: str, stone: tuple[float, float] = NO_STONE, fruit: Sequence[str] = (), *, cpp: bool = False
) -> int:
    """Serve the arm until Ctrl-C; return the server's exit code.

    stone: height in the base frame [m] below which an upward force [N] acts on the end effector. fruit: scan directory
    and NAME=FACTOR arguments.
    """
    if robot not in _ARMS:
        raise InputError(f"Can't simulate {robot!r}. It must be one of {', '.join(_ARMS)}. Choose one.")
    if cpp and robot != "panda":
        raise InputError("--cpp requires panda: PyPI has no libfranka headers for the FR3. Omit --cpp.")
    if _served():
        raise InputError(
            f"Port {_PORT} is in use. Only one arm can be served on this machine. Stop the other one with Ctrl-C first."
        )
    server, client = environment("server"), environment("client")
    program = _client_in_cpp(_BUILD) if cpp else None
    felt: list[float | Path] = [*stone]
    if fruit:
        scan, *factors = fruit
        file = _BUILD / "fruit.json"
        felt.append(_write_fruit(file, Path(scan), _ROOT / "params.yaml", _parse_factors(factors)))
    command = _server_command(server, robot, _BUILD, *felt)
    log = _BUILD / "server.log"
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    if not answers(process):
        raise InputError(f"The simulated arm ended: {log.read_text(encoding='utf-8')[-1000:]}")
    sys.stdout.write(
        f"Serving a simulated {robot} at 127.0.0.1 (log: {log}). Press Ctrl-C to stop. In another terminal run:\n"
        f"  {client} FOLDER/run_cut.py --air --execute --robot {robot} --host 127.0.0.1 --no-realtime\n"
        "where FOLDER is data/scans/SCAN/export/cut/certified. Omit --air for the actual cut. For a plan of slices:\n"
        f"  {client} data/scans/SCAN/slices/programme/certified/run_slices.py --execute --robot {robot} "
        "--host 127.0.0.1 --no-realtime\n"
    )
    if program:
        sys.stdout.write(
            f"With the C++ client:\n  {client} FOLDER/run_cut.py --air --robot panda --plain air.txt\n"
            f"  {program} 127.0.0.1 air.txt air.json --no-realtime\n"
        )
    sys.stdout.flush()
    return process.wait()
