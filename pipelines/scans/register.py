"""Register a scan: copy its files, write scan.yaml and dvc.yaml, protect safety limits from outside."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from disect_sim.parameters import MATERIALS
from pipelines.dvc.commands import run_dvc
from pipelines.dvc.pipeline_file import refresh_pipeline_file
from pipelines.dvc.repair import has_results, md5_of_path, recorded_md5
from pipelines.project import Project, known_scans, scan_lock
from pipelines.workspace import resolved_knife
from stages.runtime.errors import InputError, did_you_mean, disk_message, is_not_allowed
from stages.runtime.files import PlainDumper, sha256_of_file, write_bytes_atomic
from stages.runtime.params import SECTIONS, check_section_names, merge_params
from stages.runtime.scan_file import (
    ID_PATTERN,
    IDENTITY_KEYS,
    PARAMS_FILE_NAME,
    SCAN_FILE_NAME,
    check_file_name,
    check_material,
    home_of,
    read_scan_file,
    read_scan_mapping,
)
from stages.shared.input_files import air_name, check_log_size, check_scan_size, check_scan_suffix, log_name

# Parameters that concern the safety of the robot or of this machine.


_LIMITS = {
    "cut": re.compile(r"(max|min)_|.*limit|.*clearance|.*speed|knife"),
    "optimize": re.compile(r"(max|min)_|.*limit|.*clearance|.*overlap|final_"),
    "arm": re.compile(""),
    "export": re.compile(""),
}
"""Section → pattern of parameters that limit the motion; all parameters of arm and export."""
_GUARDS = {
    "clean": re.compile(r"max_(bytes|faces)"),
    "ingest": re.compile(r"max_bytes|allow_pickle"),
}
"""Section → pattern of parameters that protect this machine from untrusted files."""


def reject_from_outside(settings: Mapping[str, Any], source: str) -> None:
    """Raise InputError if settings received by API or with a delivery change a limit; limits are set locally."""
    for section, values in settings.items():
        patterns = [table[section] for table in (_LIMITS, _GUARDS) if section in table]
        keys = values if isinstance(values, Mapping) else {}
        for key in keys:
            if any(pattern.match(str(key)) for pattern in patterns):
                raise InputError(
                    f"{source} sets {section}.{str(key)[:80]}, a limit. Limits can only be set on this machine. Remove "
                    f"it, and if intended use 'scan2cut run SCAN --set {section}.{str(key)[:80]}=VALUE' here."
                )


def changed_limits(params: Mapping[str, Any], scan: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value in params.yaml and value in scan.yaml of each limit that the scan overrides."""
    for section, pattern in _LIMITS.items():
        shipped, overrides = params.get(section) or {}, scan.get(section) or {}
        for key, value in overrides.items():
            if pattern.match(str(key)) and value != shipped.get(key):
                yield f"{section}.{key}", shipped.get(key), value


# Folders of raw files in a scan's directory.


def _same_files(folder: Path, sources: Mapping[str, Path]) -> bool:
    """Return whether the folder contains exactly these files (name in it → source)."""
    stored = [path.name for path in sorted(folder.glob("*"))]
    return stored == sorted(sources) and _holds_only(folder, sources)


def _holds_only(folder: Path, sources: Mapping[str, Path]) -> bool:
    """Return whether every file in the folder is one of these, unchanged."""
    return all(
        path.name in sources and sha256_of_file(path) == sha256_of_file(sources[path.name])
        for path in folder.glob("*")
    )


def _replace_files(folder: Path, sources: Mapping[str, Path]) -> None:
    """Replace the folder's files by these; remove the folder if there are none."""
    scratch = folder.parent / f".scratch-{folder.name}"
    shutil.rmtree(scratch, ignore_errors=True)
    if sources:
        scratch.mkdir()
        for name, source in sources.items():
            shutil.copyfile(source, scratch / name)
    (folder.parent / f"{folder.name}.dvc").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    if sources:
        scratch.replace(folder)


# No-contact runs and further logs.


_AIR_FOLDER = "air"
"""Folder of no-contact runs in the scan's directory."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def air_runs_beside(log: Path) -> list[Path]:
    """Return files named air* with the log's suffix in its folder, e.g. air.json and air2.json beside cut.json."""
    candidates = (path for path in log.parent.glob(f"air*{log.suffix}") if path.is_file())
    return sorted(path for path in candidates if path.name != log.name)


def check_air_runs(sources: Sequence[Path]) -> None:
    """Reject no-contact runs that are not readable files."""
    for source in sources:
        if not source.is_file():
            raise InputError(f"{source} is not a readable file. Give the path of a no-contact run.")


def _stored_air_runs(sources: Sequence[Path]) -> dict[str, Path]:
    """Return name in air/ → source; files are numbered if names repeat or have unsafe characters."""
    names = [source.name for source in sources]
    if len(set(names)) == len(names) and all(_SAFE_NAME.fullmatch(name) for name in names):
        return dict(zip(names, sources, strict=True))
    return {f"{i:03}{source.suffix.lower()}": source for i, source in enumerate(sources, start=1)}


_FURTHER_FOLDER = "further_logs"
"""Folder of the logs of further cuts, with their no-contact runs, in the scan's directory."""


def _check_different(logs: Sequence[Path]) -> None:
    """Reject a log that is given twice."""
    seen: dict[str, Path] = {}
    for log in filter(Path.is_file, logs):
        digest = sha256_of_file(log)
        if digest in seen:
            raise InputError(
                f"{log} is the same log as {seen[digest]}. Each --log must be a different cut. Give it once."
            )
        seen[digest] = log


def _stored_further_logs(logs: Sequence[Path]) -> dict[str, Path]:
    """Return name in further_logs/ → source: logs from the second cut on, each with its no-contact runs."""
    sources: dict[str, Path] = {}
    for number, log in enumerate(logs, start=2):
        if not log.is_file():
            raise InputError(f"{log} is not a readable file. Give the path of a force log.")
        sources[log_name(number, log.suffix.lower())] = log
        beside = _stored_air_runs(air_runs_beside(log))
        sources |= {air_name(number, name): source for name, source in beside.items()}
    return sources


# Registration.


_DEFAULT_MATERIAL = "apple"


def assumed_material(source: Path) -> str:
    """Return the material whose name is in the scan's file name, else apple; the run says that it is assumed."""
    return next((name for name in MATERIALS if name in source.stem.lower()), _DEFAULT_MATERIAL)


REGISTERING = ".registering"
"""Name of the lock of registrations; not a valid scan id."""
_CUT_MESH_FOLDER = "precut"
"""Folder of the cut mesh in a scan's directory."""
SCRATCH_PREFIX = ".scratch-register-"
"""Prefix of the folder into which new files are copied first."""
_RESERVED_SUFFIXES = {".dvc", ".yaml", ".yml", ".lock"}
"""Suffixes used by DVC or this project."""


class PlaceError(InputError):
    """The project's folders are not writable; nothing was started, and the given files may be valid."""


@dataclass(frozen=True)
class Request:
    """Request to register and run a scan."""

    scan: Path
    log: Path | None = None
    surface: Path | None = None
    """Mesh to cut along instead of the plane."""
    scan_id: str | None = None
    material: str | None = None
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Stage → parameter → value; merged over earlier overrides of the scan."""
    reset: bool = False
    """Discard earlier overrides."""
    replace: bool = False
    """Replace the file registered under this id."""
    further: tuple[Path, ...] = ()
    """Logs of further cuts of the same fruit, each with its no-contact runs (air*) in the same folder."""
    air: tuple[Path, ...] = ()
    """No-contact runs with the log's motion; if empty, files named air* beside the log."""


def scan_id_of(scan: Path) -> str:
    """Return a scan id made from the file name."""
    scan_id = re.sub(r"[^a-z0-9_-]+", "-", scan.stem.lower()).strip("-_")[:64]
    return checked_id(scan_id, f"The name of {scan}")


def checked_id(scan_id: str, source: str) -> str:
    """Return the id; raise InputError if it has other characters than an id may have."""
    if not ID_PATTERN.fullmatch(scan_id):
        raise InputError(
            f"{source} gives the scan id {scan_id!r}. An id must have 1 to 64 characters of a-z, 0-9, _ and -, and "
            "start with a letter or digit. Set one with --id."
        )
    return scan_id


def registered_scan(project: Project, scan: str) -> tuple[Path, str | None]:
    """Return raw file and id (None for a new scan) of a scan argument.

    The argument is a registered id, the directory of a scan or of its cut mesh (data/scans/<id>/precut), or a file.
    """
    try:
        path = Path(scan).resolve()
    except (OSError, RuntimeError):  # symlink loop
        return Path(scan), None
    for scan_id in project.scan_ids():
        folder = project.scan_dir(scan_id)
        if scan == scan_id or path in (folder.resolve(), (folder / _CUT_MESH_FOLDER).resolve()):
            return known_raw_file(project, scan_id), scan_id
    if not path.exists() and not path.suffix and did_you_mean(scan, project.scan_ids()):
        raise InputError(
            f"{scan[:80]} is not a readable file, and there is no scan of this name."
            f"{did_you_mean(scan, project.scan_ids())} Give the path of a scan, or a registered id (scan2cut list)."
        )
    return Path(scan), None


def known_raw_file(project: Project, scan_id: str) -> Path:
    """Return the raw file of a registered scan; raise InputError if it is not registered."""
    known_scans(project, [scan_id])
    folder = project.scan_dir(scan_id)
    raw = read_scan_file(folder).scan
    return home_of(folder, raw) / raw


def register_scan(project: Project, request: Request) -> str:
    """Create or update data/scans/<id>/ and return the id; if anything is rejected, nothing is changed."""
    try:
        with scan_lock(project, REGISTERING, lambda: None):
            return _register(project, request)
    except OSError as error:
        if is_not_allowed(error):
            raise PlaceError(disk_message(error) or str(error)) from error
        raise


def _register(project: Project, request: Request) -> str:
    scan_id = checked_id(request.scan_id, "--id") if request.scan_id else scan_id_of(request.scan)
    scan_dir = project.scan_dir(scan_id)
    registered = read_scan_mapping(scan_dir / SCAN_FILE_NAME) if scan_id in project.scan_ids() else {}
    if registered.get("fruit"):
        _reject_changes_of_a_slice(request, registered)
        return scan_id
    sections = _sections(
        {} if request.reset else registered, request.overrides, str(scan_dir / SCAN_FILE_NAME)
    )
    if "knife" in sections["cut"]:
        sections["cut"]["knife"] = resolved_knife(project.root, sections["cut"]["knife"])
    params = merge_params(
        project.root / PARAMS_FILE_NAME, sections, overrides_from="this scan's overrides (--set)"
    )
    for mesh in filter(None, (request.scan, request.surface)):
        check_scan_size(str(mesh), _size(mesh), params.clean.max_bytes)
    check_scan_suffix(request.scan, str(request.scan))
    intake = _Intake(scan_dir, replace=request.replace)

    content: dict[str, Any] = {"id": scan_id}
    content["scan"] = intake.stored_name(request.scan, scan_id, registered.get("scan"))
    content["log"] = (
        intake.stored_name(request.log, "log", registered.get("log"), _ANOTHER_LOG)
        if request.log
        else registered.get("log")
    )
    content["force_log"] = content["log"] or content["scan"]
    new_air = _air_runs(request, content["log"])
    has_air = (scan_dir / _AIR_FOLDER).is_dir() if new_air is None else bool(new_air)
    content["air_runs"] = _AIR_FOLDER if has_air else content["scan"]
    new_further = _further_logs(request, scan_dir)
    has_further = (scan_dir / _FURTHER_FOLDER).is_dir() if new_further is None else bool(new_further)
    content["further_logs"] = _FURTHER_FOLDER if has_further else content["scan"]
    if request.surface:
        old_surface = (registered.get("precut") or {}).get("surface_file")
        sections["precut"]["surface_file"] = intake.stored_name(request.surface, "surface", old_surface)
    surface = sections["precut"].get("surface_file")
    if surface:
        check_file_name(str(surface), "precut.surface_file")
    if surface and surface not in intake.new_files and not (scan_dir / surface).is_file():
        raise InputError(
            f"precut.surface_file is {surface!r}, which is not in {scan_dir}. Give the file with --surface FILE."
        )
    content["cut_surface"] = surface or content["scan"]
    if sections["body"].get("regions"):
        sections["body"]["regions"] = [
            _with_file(one, intake, scan_dir) for one in sections["body"]["regions"]
        ]
    content["material"] = request.material or registered.get("material") or assumed_material(request.scan)
    check_material(str(content["material"]))
    for log in filter(None, (request.log, *(new_air or ()), *(new_further or {}).values())):
        check_log_size(log, params.ingest.max_bytes, str(log))
    if new_air is not None and _same_files(scan_dir / _AIR_FOLDER, _stored_air_runs(new_air)):
        new_air = None
    if new_air is not None and (scan_dir / _AIR_FOLDER).is_dir() and not intake.replace:
        raise InputError(
            f"The no-contact runs ({', '.join(path.name for path in new_air) or 'none'}) differ from those already "
            f"registered for scan {scan_id!r}. An id stands for one cut. Choose another --id, or replace them with "
            "--replace."
        )
    _write(project, scan_id, intake.new_files, {**content, **sections})
    if new_air is not None:
        _replace_files(scan_dir / _AIR_FOLDER, _stored_air_runs(new_air))
    if new_further is not None:
        _replace_files(scan_dir / _FURTHER_FOLDER, new_further)
    for name in intake.replaced - set(intake.new_files):
        (scan_dir / name).unlink()
        (scan_dir / f"{name}.dvc").unlink(missing_ok=True)
    return scan_id


def _reject_changes_of_a_slice(request: Request, registered: Mapping[str, Any]) -> None:
    """Reject a log, surface, material or settings for a slice, which has those of its fruit."""
    fruit = registered["fruit"]
    given = (request.log, request.surface, request.material, request.further, request.air)
    if any(given) or any(request.overrides.values()) or request.reset or request.replace:
        raise InputError(
            f"{registered['id']} is slice {registered['slice_number']} of {fruit}. A slice has the log, the material "
            f"and the settings of its fruit. Change them with 'scan2cut run {fruit}', then plan the slices again with "
            f"'scan2cut slice {fruit}'."
        )


def track_raw_files(project: Project, scan_id: str) -> None:
    """Track new raw files with DVC; called after the first run, so that rejected files are not cached."""
    scan_dir = project.scan_dir(scan_id)
    scan = read_scan_file(scan_dir)
    if scan.fruit is not None:
        return  # the raw files of a slice are the fruit's
    raw_names = (scan.scan, scan.log, scan.cut_surface, scan.air_runs, scan.further_logs)
    regions = (read_scan_mapping(scan_dir / SCAN_FILE_NAME).get("body") or {}).get("regions") or ()
    names = {name for name in (*raw_names, *(one.get("file") for one in regions)) if name}
    paths = [
        str((scan_dir / n).relative_to(project.root)) for n in names if recorded_md5(scan_dir / n) is None
    ]
    if not paths:
        return
    for path in paths:
        (project.root / f"{path}.dvc").unlink(
            missing_ok=True
        )  # exists only if a power cut left it incomplete
    run_dvc(project, "add", *sorted(paths))


def forget_scan(project: Project, scan_id: str) -> None:
    """Remove a scan without results; keep it if any stage has succeeded."""
    scan_dir = project.scan_dir(scan_id)
    with scan_lock(project, REGISTERING, lambda: None):
        if not has_results(scan_dir):
            shutil.rmtree(scan_dir, ignore_errors=True)


def check_not_replaced(project: Project, scan_id: str, digest: str) -> None:
    """Raise InputError if another command has replaced the scan's file since; `digest` is its former sha256."""
    stored = known_raw_file(project, scan_id)
    if sha256_of_file(stored) != digest:
        raise InputError(
            f"{stored} was replaced by another command during this run, so the results belong to the other file. An "
            "id stands for one scan. Run it again, or choose another --id."
        )


def _air_runs(request: Request, log: str | None) -> list[Path] | None:
    """Return the no-contact runs to store; None to keep the stored ones."""
    if request.air and log is None:
        raise InputError(
            "--air is given, but the scan has no log. No-contact runs belong to a log. Give it with --log."
        )
    if request.air or request.log:
        air_runs = list(request.air) or air_runs_beside(request.log or Path())
        check_air_runs(air_runs)
        return air_runs
    return None


def _further_logs(request: Request, scan_dir: Path) -> dict[str, Path] | None:
    """Return the further logs to store by name; None to keep the stored ones."""
    folder = scan_dir / _FURTHER_FOLDER
    if not request.further:
        return {} if request.replace and request.log and folder.is_dir() else None
    _check_different([log for log in (request.log, *request.further) if log is not None])
    sources = _stored_further_logs(request.further)
    if _same_files(folder, sources):
        return None
    if not _holds_only(folder, sources) and not request.replace:
        raise InputError(
            f"The further logs ({', '.join(path.name for path in request.further)}) differ from those already "
            f"registered for scan {scan_dir.name!r}. New cuts may only be appended in order. Give all of them, or "
            "replace the old ones with --replace."
        )
    return sources


_ANOTHER_SCAN = "An id stands for one scan. Choose another --id, or replace the old file with --replace."
_ANOTHER_LOG = (
    "The first --log of a scan is the cut it is fitted to. For another cut of the same fruit give both logs, the known "
    "one first; to fit this one instead, add --replace; for another fruit, give its scan and --id."
)


class _Intake:
    """Determine which of the given files to copy into the scan's directory."""

    def __init__(self, scan_dir: Path, *, replace: bool) -> None:
        self._scan_dir = scan_dir
        self.replace = replace
        self.new_files: dict[str, Path] = {}
        """Name in the scan's directory → source."""
        self.replaced: set[str] = set()
        """Names of registered files that are replaced."""

    def stored_name(
        self, source: Path, stem: str, registered_name: str | None, rule: str = _ANOTHER_SCAN
    ) -> str:
        """Return the file's name in the scan's directory; the registered one if the content is equal."""
        _size(source)
        digest = sha256_of_file(source)
        registered = self._scan_dir / registered_name if registered_name else None
        if registered and registered.exists():
            if digest == sha256_of_file(registered):
                return registered.name
            if recorded_md5(registered) == md5_of_path(source):
                self.new_files[registered.name] = (
                    source  # the stored copy is corrupt; this is the registered file
                )
                return registered.name
            if not self.replace:
                raise InputError(
                    f"{source} differs from {registered.name}, which is already registered for scan "
                    f"{self._scan_dir.name!r}. {rule}"
                )
            self.replaced.add(registered.name)
        name = stem + _suffix(source)
        self.new_files[name] = source
        return name


def _with_file(region: Mapping[str, Any], intake: _Intake, scan_dir: Path) -> dict[str, Any]:
    """Return a region of `body.regions` with its file's name in the scan's directory, if it has a file, and digest."""
    given = region.get("file")
    if not given:
        return dict(region)
    source = Path(str(given))
    stored = scan_dir / source.name
    if not source.is_file() and stored.is_file():
        source = stored
    name = intake.stored_name(source, source.stem, source.name if stored.exists() else None)
    check_file_name(name, "body.regions: file")
    return {**region, "file": name, "sha256": sha256_of_file(source)}


def _size(source: Path) -> int:
    try:
        if source.is_file():
            return source.stat().st_size
    except OSError:
        pass
    raise InputError(f"{source} is not a readable file. Give the path of an existing file.")


def _suffix(source: Path) -> str:
    suffix = source.suffix.lower()
    if suffix in _RESERVED_SUFFIXES:
        raise InputError(f"{source} has the suffix {suffix}, which is reserved. Give a scan or a log file.")
    return suffix if re.fullmatch(r"\.[a-z0-9]+", suffix) else ""


def _sections(
    registered: Mapping[str, Any], overrides: Mapping[str, Mapping[str, Any]], source: str
) -> dict[str, dict[str, Any]]:
    check_section_names([name for name in registered if name not in IDENTITY_KEYS], source)
    unknown = sorted(set(overrides) - set(SECTIONS))
    if unknown:
        raise InputError(
            f"--set names the section {unknown[0]!r}, which does not exist.{did_you_mean(unknown[0], SECTIONS)} It "
            f"must be one of {', '.join(SECTIONS)}. Write it as section.parameter=value."
        )
    return {name: {**(registered.get(name) or {}), **overrides.get(name, {})} for name in SECTIONS}


def scan_file_text(content: Mapping[str, Any]) -> str:
    """Return the text of a scan's scan.yaml."""
    text = "# Written by scan2cut; sections override params.yaml for this scan.\n"
    return text + yaml.dump(dict(content), Dumper=PlainDumper, sort_keys=False, allow_unicode=True)


def _write(project: Project, scan_id: str, files: Mapping[str, Path], content: Mapping[str, Any]) -> None:
    text = scan_file_text(content)
    project.scans_dir.mkdir(parents=True, exist_ok=True)
    for abandoned in project.scans_dir.glob(f"{SCRATCH_PREFIX}*"):  # left by a killed registration
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=project.scans_dir) as scratch:
        for name, source in files.items():
            shutil.copyfile(source, Path(scratch) / name)
        scan_dir = project.scan_dir(scan_id)
        scan_dir.mkdir(exist_ok=True)
        for name in files:
            (scan_dir / f"{name}.dvc").unlink(missing_ok=True)
            os.replace(Path(scratch) / name, scan_dir / name)
    if (
        not (scan_dir / SCAN_FILE_NAME).exists()
        or (scan_dir / SCAN_FILE_NAME).read_text(encoding="utf-8") != text
    ):
        write_bytes_atomic(scan_dir / SCAN_FILE_NAME, text.encode())
    refresh_pipeline_file(project, scan_id)
