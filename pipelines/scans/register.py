"""Registering a scan: its directory, its files, its scan.yaml and its dvc.yaml."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipelines.dvc.commands import run_dvc
from pipelines.dvc.pipeline_file import refresh_pipeline_file
from pipelines.dvc.repair import has_results, md5_of_path, recorded_md5
from pipelines.project import Project, known_scans, scan_lock
from stages.runtime.errors import InputError, disk_message, is_not_allowed
from stages.runtime.files import PlainDumper, sha256_of_file, write_bytes_atomic
from stages.runtime.params import SECTIONS, check_section_names, merge_params
from stages.runtime.scan_file import (
    ID_PATTERN,
    IDENTITY_KEYS,
    PARAMS_FILE_NAME,
    SCAN_FILE_NAME,
    check_file_name,
    check_material,
    read_scan_file,
    read_scan_mapping,
)
from stages.shared.input_files import air_name, check_log_size, log_name
from stages.shared.scan_header import check_scan_size, check_scan_suffix

# Parameters on which the safety of the robot and of this machine rests: who may set them, and which a scan changes.


_LIMITS = {
    "cut": re.compile(r"(max|min)_|.*limit|.*clearance|.*speed"),
    "optimize": re.compile(r"(max|min)_|.*limit|.*clearance|.*overlap|final_"),
    "arm": re.compile(""),
    "export": re.compile(""),
}
"""Section → the parameters that keep arm, knife and people apart; everything of arm and export does."""
_GUARDS = {
    "clean": re.compile(r"max_(bytes|faces)"),
    "ingest": re.compile(r"max_bytes|allow_pickle"),
}
"""Section → the parameters that protect this machine against files."""


def reject_from_outside(settings: Mapping[str, Any], source: str) -> None:
    """InputError if settings that come by API or with a delivery touch a limit; people set these at this machine."""
    for section, values in settings.items():
        patterns = [table[section] for table in (_LIMITS, _GUARDS) if section in table]
        keys = values if isinstance(values, Mapping) else {}
        for key in keys:
            if any(pattern.match(str(key)) for pattern in patterns):
                raise InputError(
                    f"{source} sets {section}.{str(key)[:80]}, a limit. Limits are set at this machine only. Take it "
                    f"out, and use 'scan2cut run SCAN --set {section}.{str(key)[:80]}=VALUE' here if it is meant."
                )


def changed_limits(params: Mapping[str, Any], scan: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, value of params.yaml and value of scan.yaml, where a scan overrides a limit."""
    for section, pattern in _LIMITS.items():
        shipped, own = params.get(section) or {}, scan.get(section) or {}
        for key, value in own.items():
            if pattern.match(str(key)) and value != shipped.get(key):
                yield f"{section}.{key}", shipped.get(key), value


# A folder of raw files in a scan's directory, put in place as a whole.


def _same_files(folder: Path, wanted: Mapping[str, Path]) -> bool:
    """True if the folder holds exactly these files (name in it → source)."""
    stored = [path.name for path in sorted(folder.glob("*"))]
    return stored == sorted(wanted) and _holds_only(folder, wanted)


def _holds_only(folder: Path, wanted: Mapping[str, Path]) -> bool:
    """True if everything in the folder is among these files, unchanged."""
    return all(
        path.name in wanted and sha256_of_file(path) == sha256_of_file(wanted[path.name])
        for path in folder.glob("*")
    )


def _put_in_place(folder: Path, wanted: Mapping[str, Path]) -> None:
    """Put the files in place of those that are there; none removes the folder."""
    scratch = folder.parent / f".scratch-{folder.name}"
    shutil.rmtree(scratch, ignore_errors=True)
    if wanted:
        scratch.mkdir()
        for name, source in wanted.items():
            shutil.copyfile(source, scratch / name)
    (folder.parent / f"{folder.name}.dvc").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    if wanted:
        scratch.replace(folder)


# No-contact runs that belong to a force log: found beside it, kept together in the scan's directory air/.


_AIR_FOLDER = "air"
"""In the scan's directory."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def air_runs_beside(log: Path) -> list[Path]:
    """Files called air* with the log's ending, in its directory: air.json, air2.json beside cut.json."""
    found = (path for path in log.parent.glob(f"air*{log.suffix}") if path.is_file())
    return sorted(path for path in found if path.name != log.name)


def check_air_runs(sources: Sequence[Path]) -> None:
    """Refuse what can't be read."""
    for source in sources:
        if not source.is_file():
            raise InputError(f"{source} is not a file that can be read. Give the path of a no-contact run.")


def _stored_air_runs(sources: Sequence[Path]) -> dict[str, Path]:
    """Name in air/ → source: its own name, or a number where names repeat or hold odd characters."""
    names = [source.name for source in sources]
    if len(set(names)) == len(names) and all(_SAFE_NAME.fullmatch(name) for name in names):
        return dict(zip(names, sources, strict=True))
    return {f"{i:03}{source.suffix.lower()}": source for i, source in enumerate(sources, start=1)}


# Logs of further cuts of a scan's fruit, each with its no-contact runs, kept together in further_logs/.


_FURTHER_FOLDER = "further_logs"
"""In the scan's directory."""


def _check_different(logs: Sequence[Path]) -> None:
    """Refuse a log that is given twice: one cut would count as two."""
    seen: dict[str, Path] = {}
    for log in filter(Path.is_file, logs):
        digest = sha256_of_file(log)
        if digest in seen:
            raise InputError(
                f"{log} is the same log as {seen[digest]}. Every --log is a cut of its own, or one cut would count "
                "twice. Give it once."
            )
        seen[digest] = log


def _stored_further_logs(logs: Sequence[Path]) -> dict[str, Path]:
    """Name in further_logs/ → source: the second cut's log, its no-contact runs, and so on."""
    out: dict[str, Path] = {}
    for number, log in enumerate(logs, start=2):
        if not log.is_file():
            raise InputError(f"{log} is not a file that can be read. Give the path of a force log.")
        out[log_name(number, log.suffix.lower())] = log
        beside = _stored_air_runs(air_runs_beside(log))
        out |= {air_name(number, name): source for name, source in beside.items()}
    return out


_DEFAULT_MATERIAL = "apple"
REGISTERING = ".registering"
"""Name of the lock that keeps two registrations apart; no scan can be called so."""
_CUT_MESH_FOLDER = "precut"
"""Of a scan's directory, where its cut mesh lies."""
_SCRATCH_PREFIX = ".scratch-register-"
"""Of the folder, among the scans, into which new files are copied first."""
_RESERVED_SUFFIXES = {".dvc", ".yaml", ".yml", ".lock"}
"""Names that DVC or this project use for other things."""


class PlaceError(InputError):
    """The project's own folders may not be written, so nothing has begun; the files themselves may be good."""


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    scan: Path
    log: Path | None = None
    surface: Path | None = None
    """A mesh that replaces the cutting plane."""
    scan_id: str | None = None
    material: str | None = None
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Stage → parameter → value, merged over earlier overrides of the same scan."""
    reset: bool = False
    """Forget earlier overrides."""
    replace: bool = False
    """Put a different file in the place of the one registered under this id."""
    further: tuple[Path, ...] = ()
    """Logs of further cuts of the same fruit, each with its no-contact runs (air*) beside it."""
    air: tuple[Path, ...] = ()
    """No-contact runs of the log's motion; none takes the files called air* beside the log."""


def scan_id_of(scan: Path) -> str:
    """The file's name without its ending, in characters that are safe everywhere."""
    scan_id = re.sub(r"[^a-z0-9_-]+", "-", scan.stem.lower()).strip("-_")[:64]
    return _checked_id(scan_id, f"The name of {scan}")


def _checked_id(scan_id: str, source: str) -> str:
    if not ID_PATTERN.fullmatch(scan_id):
        raise InputError(
            f"{source} gives the scan id {scan_id!r}. An id is 1 to 64 of a-z, 0-9, _ and -, and starts with "
            "a letter or digit. Give one with --id."
        )
    return scan_id


def registered_scan(project: Project, scan: str) -> tuple[Path, str | None]:
    """The raw file and the id for what the user called a scan.

    That may be an id that is known, the directory of its scan or of its cut mesh (data/scans/<id>/precut), or a file.
    """
    try:
        place = Path(scan).resolve()
    except (OSError, RuntimeError):  # a loop of links is the place of no scan
        return Path(scan), None
    for known in project.scan_ids():
        folder = project.scan_dir(known)
        if scan == known or place in (folder.resolve(), (folder / _CUT_MESH_FOLDER).resolve()):
            return folder / read_scan_file(folder).scan, known
    return Path(scan), None


def known_raw_file(project: Project, scan_id: str) -> Path:
    """The raw file of a scan that is registered; InputError if it is not."""
    known_scans(project, [scan_id])
    folder = project.scan_dir(scan_id)
    return folder / read_scan_file(folder).scan


def register_scan(project: Project, request: Request) -> str:
    """Make or update data/scans/<id>/ and return the id. Nothing is changed if anything is refused."""
    try:
        with scan_lock(project, REGISTERING, lambda: None):
            return _register(project, request)
    except OSError as error:
        if is_not_allowed(error):
            raise PlaceError(disk_message(error) or str(error)) from error
        raise


def _register(project: Project, request: Request) -> str:
    scan_id = _checked_id(request.scan_id, "--id") if request.scan_id else scan_id_of(request.scan)
    scan_dir = project.scan_dir(scan_id)
    known = read_scan_mapping(scan_dir / SCAN_FILE_NAME) if scan_id in project.scan_ids() else {}
    sections = _sections({} if request.reset else known, request.overrides, str(scan_dir / SCAN_FILE_NAME))
    params = merge_params(
        project.root / PARAMS_FILE_NAME, sections, overrides_from="this scan's overrides (--set)"
    )
    for mesh in filter(None, (request.scan, request.surface)):
        check_scan_size(str(mesh), _size(mesh), params.clean.max_bytes)
    check_scan_suffix(request.scan, str(request.scan))
    intake = _Intake(scan_dir, replace=request.replace)

    content: dict[str, Any] = {"id": scan_id}
    content["scan"] = intake.stored_name(request.scan, scan_id, known.get("scan"))
    content["log"] = (
        intake.stored_name(request.log, "log", known.get("log")) if request.log else known.get("log")
    )
    content["force_log"] = content["log"] or content["scan"]
    new_air = _air_runs(request, content["log"])
    has_air = (scan_dir / _AIR_FOLDER).is_dir() if new_air is None else bool(new_air)
    content["air_runs"] = _AIR_FOLDER if has_air else content["scan"]
    new_further = _further_logs(request, scan_dir)
    has_further = (scan_dir / _FURTHER_FOLDER).is_dir() if new_further is None else bool(new_further)
    content["further_logs"] = _FURTHER_FOLDER if has_further else content["scan"]
    if request.surface:
        old_surface = (known.get("precut") or {}).get("surface_file")
        sections["precut"]["surface_file"] = intake.stored_name(request.surface, "surface", old_surface)
    surface = sections["precut"].get("surface_file")
    if surface:
        check_file_name(str(surface), "precut.surface_file")
    if surface and surface not in intake.new_files and not (scan_dir / surface).is_file():
        raise InputError(
            f"precut.surface_file is {surface!r}, which {scan_dir} does not hold. Use --surface FILE."
        )
    content["cut_surface"] = surface or content["scan"]
    content["material"] = request.material or known.get("material") or _DEFAULT_MATERIAL
    check_material(str(content["material"]))
    for log in filter(None, (request.log, *(new_air or ()), *(new_further or {}).values())):
        check_log_size(log, params.ingest.max_bytes, str(log))
    if new_air is not None and _same_files(scan_dir / _AIR_FOLDER, _stored_air_runs(new_air)):
        new_air = None
    if new_air is not None and (scan_dir / _AIR_FOLDER).is_dir() and not intake.replace:
        raise InputError(
            f"The no-contact runs ({', '.join(path.name for path in new_air) or 'none'}) differ from those already "
            f"registered for scan {scan_id!r}. One id stands for one cut. Give another name with --id, or replace "
            "the old ones with --replace."
        )
    _write(project, scan_id, intake.new_files, {**content, **sections})
    if new_air is not None:
        _put_in_place(scan_dir / _AIR_FOLDER, _stored_air_runs(new_air))
    if new_further is not None:
        _put_in_place(scan_dir / _FURTHER_FOLDER, new_further)
    for name in intake.replaced - set(intake.new_files):
        (scan_dir / name).unlink()
        (scan_dir / f"{name}.dvc").unlink(missing_ok=True)
    return scan_id


def track_raw_files(project: Project, scan_id: str) -> None:
    """Put those raw files under DVC that are not yet: after the first run, so that no refused file is cached."""
    scan_dir = project.scan_dir(scan_id)
    scan = read_scan_file(scan_dir)
    kept = (scan.scan, scan.log, scan.cut_surface, scan.air_runs, scan.further_logs)
    names = {name for name in kept if name}
    paths = [
        str((scan_dir / n).relative_to(project.root)) for n in names if recorded_md5(scan_dir / n) is None
    ]
    if not paths:
        return
    for path in paths:
        (project.root / f"{path}.dvc").unlink(
            missing_ok=True
        )  # there only if a power cut left it half-written
    run_dvc(project, "add", *sorted(paths))


def forget_scan(project: Project, scan_id: str) -> None:
    """Remove a scan of which no stage has ever succeeded; a scan with results is left alone."""
    scan_dir = project.scan_dir(scan_id)
    with scan_lock(project, REGISTERING, lambda: None):
        if not has_results(scan_dir):
            shutil.rmtree(scan_dir, ignore_errors=True)


def check_not_replaced(project: Project, scan_id: str, digest: str) -> None:
    """Refuse to speak of a scan whose file another command has replaced since; `digest` is its sha256 then."""
    scan_dir = project.scan_dir(scan_id)
    stored = scan_dir / read_scan_file(scan_dir).scan
    if sha256_of_file(stored) != digest:
        raise InputError(
            f"{stored} was replaced by another command while this run worked on it, so its figures would be those of "
            "the other file. One id stands for one scan. Run it again, or give one of them another --id."
        )


def _air_runs(request: Request, log: str | None) -> list[Path] | None:
    """The no-contact runs to store; None if the request says nothing about them."""
    if request.air and log is None:
        raise InputError(
            "--air gives no-contact runs, but the scan has no log. They belong to one. Give it with --log."
        )
    if request.air or request.log:
        found = list(request.air) or air_runs_beside(request.log or Path())
        check_air_runs(found)
        return found
    return None


def _further_logs(request: Request, scan_dir: Path) -> dict[str, Path] | None:
    """The further logs to store, by their names there; None if the request says nothing new about them."""
    folder = scan_dir / _FURTHER_FOLDER
    if not request.further:
        return {} if request.replace and request.log and folder.is_dir() else None
    _check_different([log for log in (request.log, *request.further) if log is not None])
    wanted = _stored_further_logs(request.further)
    if _same_files(folder, wanted):
        return None
    if not _holds_only(folder, wanted) and not request.replace:
        raise InputError(
            f"The further logs ({', '.join(path.name for path in request.further)}) are others than those already "
            f"registered for scan {scan_dir.name!r}. Cuts may be added after the known ones, in the same order. Give "
            "all of them, or replace the old ones with --replace."
        )
    return wanted


class _Intake:
    """Decides which of the given files must be copied into the scan's directory."""

    def __init__(self, scan_dir: Path, *, replace: bool) -> None:
        self._scan_dir = scan_dir
        self.replace = replace
        self.new_files: dict[str, Path] = {}
        """Name in the scan's directory → where to copy it from."""
        self.replaced: set[str] = set()
        """Names of known files that others take the place of."""

    def stored_name(self, source: Path, stem: str, known_name: str | None) -> str:
        """The file's name in the scan's directory; the known one if it has the same content."""
        _size(source)
        digest = sha256_of_file(source)
        known = self._scan_dir / known_name if known_name else None
        if known and known.exists():
            if digest == sha256_of_file(known):
                return known.name
            if recorded_md5(known) == md5_of_path(source):
                self.new_files[known.name] = (
                    source  # the stored copy is damaged, and here is the registered file
                )
                return known.name
            if not self.replace:
                raise InputError(
                    f"{source} differs from {known.name}, which is already registered for scan "
                    f"{self._scan_dir.name!r}. One id stands for one scan. Give another name with --id, or "
                    "replace the old file with --replace."
                )
            self.replaced.add(known.name)
        name = stem + _suffix(source)
        self.new_files[name] = source
        return name


def _size(source: Path) -> int:
    try:
        if source.is_file():
            return source.stat().st_size
    except OSError:
        pass
    raise InputError(f"{source} is not a file that can be read. Give the path of an existing file.")


def _suffix(source: Path) -> str:
    suffix = source.suffix.lower()
    if suffix in _RESERVED_SUFFIXES:
        raise InputError(f"{source} ends in {suffix}, not a scan or a log. Give the measured file.")
    return suffix if re.fullmatch(r"\.[a-z0-9]+", suffix) else ""


def _sections(
    known: Mapping[str, Any], overrides: Mapping[str, Mapping[str, Any]], known_from: str
) -> dict[str, dict[str, Any]]:
    check_section_names([name for name in known if name not in IDENTITY_KEYS], known_from)
    unknown = sorted(set(overrides) - set(SECTIONS))
    if unknown:
        raise InputError(
            f"--set names the stage {unknown[0]!r}, which does not exist. Stages are "
            f"{', '.join(SECTIONS)}. Write it as stage.parameter=value."
        )
    return {name: {**(known.get(name) or {}), **overrides.get(name, {})} for name in SECTIONS}


def _write(project: Project, scan_id: str, files: Mapping[str, Path], content: Mapping[str, Any]) -> None:
    text = "# Written by scan2cut; sections override params.yaml for this scan.\n"
    text += yaml.dump(dict(content), Dumper=PlainDumper, sort_keys=False, allow_unicode=True)
    project.scans_dir.mkdir(parents=True, exist_ok=True)
    for left in project.scans_dir.glob(
        f"{_SCRATCH_PREFIX}*"
    ):  # of a killed registration: this one has the lock
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH_PREFIX, dir=project.scans_dir) as scratch:
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
