"""Read and validate scan.yaml: id, files and material of a scan."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disect_sim.parameters import MATERIALS
from stages.runtime.errors import InputError, did_you_mean
from stages.runtime.files import read_mapping

SCAN_FILE_NAME = "scan.yaml"
PIPELINE_FILE_NAME = "dvc.yaml"
PARAMS_FILE_NAME = "params.yaml"
IDENTITY_KEYS = (
    "id",
    "scan",
    "log",
    "force_log",
    "air_runs",
    "further_logs",
    "cut_surface",
    "material",
    "fruit",
    "slice_number",
)
"""Keys of scan.yaml that are not sections of parameters."""
ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Safe in paths, DVC templates and Prefect names."""
STAGES_OF_A_SLICE = (
    "halve",
    "tetrahedralize_half",
    "precut_half",
    "transport",
    "optimize",
    "replay",
    "export",
)
"""Stages of the scan of a slice; everything before them, from the raw scan to calibrate, is the fruit's."""
_FILE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
"""A file in the scan's directory: no separators, not hidden, no characters special to a shell or DVC."""


@dataclass(frozen=True)
class ScanFile:
    """Identity of a scan, without its parameter overrides."""

    id: str
    """Name of its directory under data/scans/."""
    scan: str
    """File name of the raw scan in the scan's directory."""
    log: str | None
    """File name of the force log in the scan's directory, if one was given."""
    cut_surface: str
    """Mesh file of the cutting surface, or the raw scan if the cut is a plane (DVC has no optional dependencies)."""
    force_log: str
    """The log, or the raw scan if there is none."""
    air_runs: str
    """Directory of the log's no-contact runs, or the raw scan if there are none."""
    further_logs: str
    """Directory of the logs of further cuts, or the raw scan if there are none."""
    material: str
    """A key of disect_sim.parameters.MATERIALS."""
    fruit: str | None = None
    """For a slice: id of the scan of the whole fruit (scan2cut slice)."""
    slice_number: int | None = None
    """For a slice: its number, from 1."""


def read_scan_file(scan_dir: Path) -> ScanFile:
    """Read and validate scan.yaml in the scan's directory."""
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
            f"{path}: id is {content['id'][:80]!r}. It must have 1 to 64 characters of a-z, 0-9, _ and -. Correct it."
        )
    for key in ("scan", "log", "cut_surface", "force_log", "air_runs", "further_logs"):
        if content.get(key) is not None:
            check_file_name(str(content[key]), f"{path}: {key}")
    if content["id"] != scan_dir.resolve().name:
        raise InputError(
            f"{path}: id is {content['id']!r}, but the directory is {scan_dir.resolve().name!r}. "
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
    fruit, number = content.get("fruit"), content.get("slice_number")
    if fruit is not None and not (
        isinstance(fruit, str) and ID_PATTERN.fullmatch(fruit) and isinstance(number, int)
    ):
        raise InputError(
            f"{path}: fruit is {fruit!r} and slice_number {number!r}. They must be the id of a scan and a whole "
            "number. Plan the slices again with 'scan2cut slice'."
        )
    return ScanFile(
        id=content["id"],
        scan=content["scan"],
        log=log,
        cut_surface=content["cut_surface"],
        force_log=force_log,
        air_runs=str(content.get("air_runs", content["scan"])),
        further_logs=str(content.get("further_logs", content["scan"])),
        material=content["material"],
        fruit=fruit,
        slice_number=number,
    )


def home_of(scan_dir: Path, path: str) -> Path:
    """Return the directory of a scan's file: its own, or that of the fruit for what a slice takes from it.

    path: relative to the scan's directory; its first part is the stage.
    """
    if path.partition("/")[0] in STAGES_OF_A_SLICE or not (scan_dir / SCAN_FILE_NAME).is_file():
        return scan_dir
    fruit = read_mapping(scan_dir / SCAN_FILE_NAME).get("fruit")
    return scan_dir.parent / fruit if isinstance(fruit, str) and ID_PATTERN.fullmatch(fruit) else scan_dir


def read_scan_mapping(path: Path) -> dict[str, Any]:
    """Return the content of a scan.yaml; raise InputError for a key that is neither identity nor a section."""
    content = read_mapping(path)
    for key, value in content.items():
        if key not in IDENTITY_KEYS and value is not None and not isinstance(value, dict):
            raise InputError(
                f"{path}: {str(key)[:80]!r} is {str(value)[:80]!r}. Except {', '.join(IDENTITY_KEYS)}, keys must be "
                f"sections of parameters. Write it as '{str(key)[:80]}: {{parameter: value}}' or remove it."
            )
    return content


def check_file_name(name: str, source: str) -> None:
    """Reject a name that is not that of a file in the scan's directory."""
    if not _FILE_NAME_PATTERN.fullmatch(name):
        raise InputError(
            f"{source} is {name[:80]!r}. It must be the name of a file in the scan's directory, with letters, digits, "
            "'.', '_' and '-' only. Register the file with 'scan2cut run'."
        )


def check_material(material: str) -> None:
    """Reject an unknown material."""
    if material not in MATERIALS:
        raise InputError(
            f"Material {material!r} is unknown.{did_you_mean(material, MATERIALS)} It must be one of "
            f"{', '.join(sorted(MATERIALS))}. Choose the closest."
        )
