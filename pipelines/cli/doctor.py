"""Check this machine for `scan2cut doctor`: versions, libraries, device, disk, project files."""

import ctypes
import ctypes.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from disect_sim.processes import cores_given
from pipelines.dvc.pipeline_file import is_current
from pipelines.project import TEMPLATE, Project
from pipelines.runs.dashboard import use_running_dashboard
from stages.runtime.errors import InputError

_Verdict = Literal["ok", "missing", "outdated", "optional"]
PACKAGES = (
    "scan2cut",
    "dvc",
    "prefect",
    "fastapi",
    "polars",
    "pyarrow",
    "open3d",
    "pytetwild",
    "pyvista",
    "warp-lang",
    "torch",
)
IMPORTS = {
    "open3d": "from stages.shared.surface import open3d; open3d()",
    "pytetwild": "import pytetwild",
    "pyvista": "import pyvista",
    "warp": "import warp",
    "torch": "import torch",
}
_MIN_FREE_GB = 2.0
"""A scan with its artifacts takes tens of MB; below this a few runs fill the disk."""


@dataclass(frozen=True)
class _Finding:
    """One line of the report."""

    part: str
    verdict: _Verdict
    detail: str


def examine(project: Project) -> Iterator[_Finding]:
    """Yield one finding per check; import checks take a few seconds."""
    yield _python()
    yield from (_package(name) for name in PACKAGES)
    yield from (_import(project, name, code) for name, code in IMPORTS.items())
    yield _mesher_seed()
    yield _libusb()
    yield _libgl()
    yield _device(project)
    yield _disk(project)
    yield _program("git", "Install git; DVC needs it.")
    yield _dvc(project)
    yield _pipeline_files(project)
    yield _sample(project)
    yield _dashboard(project)


def _python() -> _Finding:
    good = sys.version_info >= (3, 11)
    text = f"{platform.python_version()} on {platform.platform()}, {cores_given()} cores"
    return _Finding(
        "python", "ok" if good else "missing", text if good else f"{text}; requires 3.11 or newer"
    )


def _package(name: str) -> _Finding:
    try:
        return _Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return _Finding(name, "missing", "not installed; run 'make setup'")


def _import(project: Project, name: str, code: str) -> _Finding:
    """Import in a subprocess: a broken native library can crash its process."""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=project.root, capture_output=True, text=True, check=False
    )
    if result.returncode == 0:
        return _Finding(f"import {name}", "ok", "imported")
    last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
    return _Finding(f"import {name}", "missing", last)


def _mesher_seed() -> _Finding:
    from stages.tetrahedralize.mesher import why_unseeded

    try:
        reason = why_unseeded()
    except (RuntimeError, InputError) as error:
        reason = str(error)
    if not reason:
        return _Finding("mesher seed", "ok", "meshes are reproducible")
    return _Finding(
        "mesher seed",
        "optional",
        f"{reason}. Without a seed every run gives a different mesh. Install a C compiler (gcc), then run "
        "'pip install --no-deps --editable .'",
    )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _libusb() -> _Finding:
    if _loads("libusb-1.0.so.0"):
        return _Finding("libusb", "ok", "system library")
    try:
        return _Finding("libusb", "ok", f"from the package libusb-package {version('libusb-package')}")
    except PackageNotFoundError:
        return _Finding("libusb", "missing", "open3d needs it; run 'make setup' or install libusb-1.0-0")


def _libgl() -> _Finding:
    if _loads("libGL.so.1"):
        return _Finding("libGL", "ok", "system library")
    return _Finding("libGL", "optional", "not found; previews use VTK's software renderer")


def _device(project: Project) -> _Finding:
    """Query the device in a subprocess: Warp may be missing or the driver may crash."""
    code = "from disect_sim.simulation import describe_device; print(describe_device())"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=project.root, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        return _Finding("device", "missing", f"can't query the simulator's device: {last}")
    description = result.stdout.strip().splitlines()[-1]
    return _Finding("device", "optional" if description.startswith("no CUDA") else "ok", description)


def _disk(project: Project) -> _Finding:
    free_gb = shutil.disk_usage(project.root).free / 1e9
    return _Finding(
        "disk", "ok" if free_gb > _MIN_FREE_GB else "missing", f"{free_gb:.0f} GB free at {project.root}"
    )


def _program(name: str, remedy: str) -> _Finding:
    path = shutil.which(name)
    return _Finding(name, "ok" if path else "missing", path or remedy)


def _dvc(project: Project) -> _Finding:
    if (project.root / ".dvc" / "config").exists():
        return _Finding("dvc repository", "ok", f"{len(project.scan_ids())} scans registered")
    return _Finding("dvc repository", "missing", "no .dvc/config; run 'make setup'")


def _pipeline_files(project: Project) -> _Finding:
    """Compare each scan's dvc.yaml with the template; plain `dvc repro` uses it as it is."""
    outdated = [scan_id for scan_id in project.scan_ids() if not is_current(project, scan_id)]
    if not outdated:
        return _Finding("dvc.yaml of scans", "ok", f"all match {TEMPLATE}")
    return _Finding(
        "dvc.yaml of scans",
        "outdated",
        f"{len(outdated)} differ from {TEMPLATE} ({', '.join(outdated[:5])}{', …' if outdated[5:] else ''}); "
        "'scan2cut status' updates them",
    )


def _sample(project: Project) -> _Finding:
    present = project.sample_dir.is_dir() and any(project.sample_dir.iterdir())
    return _Finding("sample", "ok" if present else "missing", str(project.sample_dir))


def _dashboard(project: Project) -> _Finding:
    url = use_running_dashboard(project)
    if url:
        return _Finding("dashboard", "ok", url)
    return _Finding("dashboard", "optional", "not running (optional); start it with 'make dashboard'")
