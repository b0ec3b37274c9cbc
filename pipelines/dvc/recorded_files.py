"""Do files still have the content that DVC recorded? Hashed anew, because DVC trusts times, sizes and its own cache.

DVC believes a write-protected cache entry without looking, so a damaged one would come back as a good result.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from disect_sim.errors import InputError
from pipelines.dvc.cache import cache_dir, cached_file
from pipelines.dvc.lock_file import recorded_stages
from pipelines.scans.project import Project
from stages.runtime.scan_file import read_scan_file
from stages.runtime.yaml_file import read_mapping

DIRECTORY_MARK = ".dir"
"""DVC's ending for the hash of a directory."""


@dataclass(frozen=True)
class Recorded:
    """One output as dvc.lock describes it."""

    path: Path
    md5: str


def recorded_outputs(project: Project, scan_id: str, stage: str) -> list[Recorded]:
    """The stage's outputs with their recorded hashes; none if the stage is not in dvc.lock."""
    recorded = recorded_stages(project.scan_dir(scan_id)).get(stage, {})
    return [Recorded(project.root / out["path"], out["md5"]) for out in recorded.get("outs", [])]


def damaged(recorded: Iterable[Recorded]) -> list[Recorded]:
    """Those whose content is another than the recorded one, or which are missing."""
    return [item for item in recorded if md5_of_path(item.path) != item.md5]


def md5_of_path(path: Path) -> str | None:
    """DVC's hash of a file or of a directory; None if there is nothing."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()
    if not path.is_dir():
        return None
    entries = [
        {"md5": md5_of_path(file), "relpath": file.relative_to(path).as_posix()}
        for file in path.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    listing = json.dumps(sorted(entries, key=lambda entry: str(entry["relpath"])), sort_keys=True)
    return hashlib.md5(listing.encode()).hexdigest() + DIRECTORY_MARK


def discard(project: Project, items: Iterable[Recorded]) -> None:
    """Remove damaged files, and their copies in DVC's cache where those are damaged too."""
    cache = cache_dir(project)
    for item in items:
        if item.path.is_dir():
            for file in sorted(item.path.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
        else:
            item.path.unlink(missing_ok=True)
        _discard_cached(cache, item.md5)


def _discard_cached(cache: Path, md5: str) -> None:
    copy = cached_file(cache, md5)
    if not copy.is_file():
        return
    if md5_of_path(copy) != md5.removesuffix(DIRECTORY_MARK):
        copy.unlink()
    elif md5.endswith(DIRECTORY_MARK):
        for entry in json.loads(copy.read_text(encoding="utf-8")):
            _discard_cached(cache, entry["md5"])


def recorded_md5(raw: Path) -> str | None:
    """The hash in the raw file's .dvc file; None if it is not under DVC or that file is damaged."""
    note = raw.with_name(raw.name + ".dvc")
    try:
        return str(read_mapping(note)["outs"][0]["md5"])
    except (InputError, KeyError, IndexError, TypeError):
        return None


def check_raw_files(project: Project, scan_id: str) -> None:
    """Refuse a scan whose raw files are not those that were registered: nothing is computed from damaged data."""
    scan_dir = project.scan_dir(scan_id)
    scan = read_scan_file(scan_dir)
    for name in sorted({scan.scan, scan.force_log, scan.cut_surface, scan.air_runs, scan.further_logs}):
        raw = scan_dir / name
        expected = recorded_md5(raw)
        if expected is not None and md5_of_path(raw) != expected:
            shown = raw.relative_to(project.root)
            state = "has changed since it was registered" if raw.exists() else "is missing"
            raise InputError(
                f"{shown} {state}. Results must come from the registered file. Get it back with 'dvc checkout "
                f"{shown}.dvc', or register the new one with 'scan2cut run FILE --id {scan_id} --replace'."
            )
