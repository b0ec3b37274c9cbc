"""scan.yaml: what a scan is called, which files it has, what it is made of."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disect_sim.parameters import MATERIALS
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping

SCAN_FILE_NAME = "scan.yaml"
PIPELINE_FILE_NAME = "dvc.yaml"
PARAMS_FILE_NAME = "params.yaml"
IDENTITY_KEYS = ("id", "scan", "log", "force_log", "air_runs", "further_logs", "cut_surface", "material")
"""Keys of scan.yaml that are no sections of parameters."""
ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Safe in paths, in DVC's templates and in Prefect's names."""
_FILE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
"""A file of the scan's own directory: no separators, nothing hidden, nothing a shell or DVC would interpret."""


@dataclass(frozen=True)
class ScanFile:
    """The identity of a scan, without its parameter overrides."""

    id: str
    """Name of its directory under data/scans/."""
    scan: str
    """File name of the raw scan in the scan's directory."""
    log: str | None
    """File name of the force log in the scan's directory, if one was given."""
    cut_surface: str
    """Mesh file of the cutting surface; the raw scan itself where the cut is a plane.

    DVC can't have an optional dependency, so precut always depends on this file.
    """
    force_log: str
    """The log, or the raw scan itself where there is none: what ingest depends on."""
    air_runs: str
    """Directory of the log's no-contact runs, or the raw scan itself where there are none."""
    further_logs: str
    """Directory of the logs of further cuts, or the raw scan itself where there are none."""
    material: str
    """A key of disect_sim.parameters.MATERIALS."""


def read_scan_file(scan_dir: Path) -> ScanFile:
    """Read and check scan.yaml in the scan's directory."""
    path = scan_dir / SCAN_FILE_NAME
    content = read_scan_mapping(path)
    for key in ("id", "scan", "cut_surface", "material"):
        if not isinstance(content.get(key), str):
            raise InputError(
                f"{path}: {key} is {content.get(key)!r}. It must be text. "
                "Register the scan again with 'scan2cut run'."
            )
    log = content.get("log")
    if log is not None and not isinstance(log, str):
        raise InputError(f"{path}: log is {log!r}. It must be a file name or null. Correct it.")
    if not ID_PATTERN.fullmatch(content["id"]):
        raise InputError(
            f"{path}: id is {content['id'][:80]!r}. An id is 1 to 64 of a-z, 0-9, _ and -. Correct the id."
        )
    for key in ("scan", "log", "cut_surface", "force_log", "air_runs", "further_logs"):
        if content.get(key) is not None:
            check_file_name(str(content[key]), f"{path}: {key}")
    if content["id"] != scan_dir.resolve().name:
        raise InputError(
            f"{path}: id is {content['id']!r}, but the directory is called {scan_dir.resolve().name!r}. "
            "Both must be the same. Correct the id."
        )
    surface = (content.get("precut") or {}).get("surface_file") or content["scan"]
    if content["cut_surface"] != surface:
        raise InputError(
            f"{path}: cut_surface is {content['cut_surface']!r}, but precut.surface_file is {surface!r}. "
            "Both must name the same file. Set it with 'scan2cut run SCAN --surface FILE'."
        )
    force_log = content.get("force_log", log or content["scan"])
    if force_log != (log or content["scan"]):
        raise InputError(
            f"{path}: force_log is {force_log!r}, but log is {log!r}. Both must name the same file. Set it with "
            "'scan2cut run SCAN --log LOG'."
        )
    check_material(content["material"])
    return ScanFile(
        id=content["id"],
        scan=content["scan"],
        log=log,
        cut_surface=content["cut_surface"],
        force_log=force_log,
        air_runs=str(content.get("air_runs", content["scan"])),
        further_logs=str(content.get("further_logs", content["scan"])),
        material=content["material"],
    )


def read_scan_mapping(path: Path) -> dict[str, Any]:
    """The content of a scan.yaml; InputError if what is no identity is no section of parameters."""
    content = read_mapping(path)
    for key, value in content.items():
        if key not in IDENTITY_KEYS and value is not None and not isinstance(value, dict):
            raise InputError(
                f"{path}: {str(key)[:80]!r} is {str(value)[:80]!r}. Beside {', '.join(IDENTITY_KEYS)} there may only "
                f"be sections of parameters. Write it as '{str(key)[:80]}: {{parameter: value}}' or remove it."
            )
    return content


def check_file_name(name: str, source: str) -> None:
    """Refuse a name that is not that of a file in the scan's own directory."""
    if not _FILE_NAME_PATTERN.fullmatch(name):
        raise InputError(
            f"{source} is {name[:80]!r}. It must name a file in the scan's own directory, in letters, digits, '.', '_' "
            "and '-'. Register the file with 'scan2cut run'."
        )


def check_material(material: str) -> None:
    """Refuse a material without known properties."""
    if material not in MATERIALS:
        raise InputError(
            f"Material {material!r} is unknown. It must be one of {', '.join(sorted(MATERIALS))}. "
            "Choose the closest."
        )
