"""Remove and rename registered scans; nothing else of the project changes, and the library keeps its entries."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from pipelines.dvc.commands import CommandError, run_git
from pipelines.dvc.pipeline_file import is_slice, refresh_pipeline_file, slice_scans
from pipelines.dvc.repair import LOCK_FILE_NAME, recorded_stages
from pipelines.project import Project, known_scans, lock_holder, scan_lock
from pipelines.report.build import build_report
from pipelines.scans.cuts import library_cuts
from pipelines.scans.register import REGISTERING, SCRATCH_PREFIX, checked_id, scan_file_text
from stages.runtime.errors import InputError
from stages.runtime.files import PlainDumper, read_mapping, write_bytes_atomic
from stages.runtime.scan_file import SCAN_FILE_NAME, read_scan_mapping

_BY_PEOPLE = ("measured", "executed", "predictions")
"""Folders in a scan's directory that no run makes again."""


@dataclass(frozen=True)
class _Dependents:
    """Everything that would go with a scan, and what would stay."""

    scan: str
    folder: str
    """Relative to the project."""
    stages: tuple[str, ...]
    """Stages with results."""
    size_bytes: int
    by_people: tuple[str, ...]
    """Files of measurements and comparisons, which no run makes again; relative to the project."""
    library: tuple[str, ...]
    """Entries of the library that were fitted to its log; they stay."""
    committed: bool
    """Whether git has the scan's small files, so that it can be restored."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return what goes and what stays, as lines of text."""
        lines = [
            f"Goes: {self.folder} ({self.size_bytes / 1e6:.1f} MB, results of {len(self.stages)} stages, with report "
            "and exported motion)."
        ]
        if self.by_people:
            lines.append(f"Goes, and no run makes it again: {', '.join(self.by_people)}.")
        if self.library:
            lines.append(
                f"Stays: library entry {', '.join(self.library)} (scan2cut library remove NAME removes it)."
            )
        lines.append("Stays: DVC's cache until `dvc gc`, the run history in the dashboard, all other scans.")
        lines.append(
            f"Restore it with: git checkout -- {self.folder} && scan2cut pull {self.scan} --local"
            if self.committed
            else "It is not in git: only the original scan and log can bring it back."
        )
        return lines


def dependents(project: Project, scan_id: str) -> _Dependents:
    """Return what removing the scan would delete and keep; raise InputError if it is not registered."""
    known_scans(project, [scan_id])
    folder = project.scan_dir(scan_id)
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    by_people = [path for path in files if path.relative_to(folder).parts[0] in _BY_PEOPLE]
    relative = folder.relative_to(project.root)
    return _Dependents(
        scan_id,
        str(relative),
        _stages(folder),
        sum(path.stat().st_size for path in files),
        tuple(sorted(str(path.relative_to(project.root)) for path in by_people)),
        tuple(cut["name"] for _, cut in library_cuts(project) if cut["name"] == scan_id),
        _committed(project, relative / SCAN_FILE_NAME),
    )


def _reject_with_slices(project: Project, scan_id: str, what: str) -> None:
    """Reject a fruit whose slices read its results."""
    slices = slice_scans(project, scan_id)
    if slices:
        raise InputError(
            f"{scan_id} has {len(slices)} slices, which read its results: {', '.join(slices)}. A fruit can't be {what} "
            "while it has slices. Remove them first with 'scan2cut remove'."
        )


def remove_scan(project: Project, scan_id: str) -> _Dependents:
    """Delete the scan's directory and return what it held; reject it while a run or slices are using the scan."""
    listed = dependents(project, scan_id)
    _reject_with_slices(project, scan_id, "removed")
    with _alone(project, scan_id, "removed"):
        folder = project.scan_dir(scan_id)
        if folder.is_symlink():
            folder.unlink()
        else:
            # Out of sight at once, so that a kill leaves no half of a scan; registering removes an abandoned one.
            doomed = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=project.scans_dir))
            os.replace(folder, doomed / scan_id)
            shutil.rmtree(doomed, ignore_errors=True)
    _forget_state(project, scan_id)
    return listed


def rename_scan(project: Project, scan_id: str, new_id: str) -> tuple[str, ...]:
    """Give the scan another id; its results stay fresh, except those that name the old folder, which are returned.

    The new directory is complete before the old one goes, so that a kill loses nothing.
    """
    known_scans(project, [scan_id])
    _reject_with_slices(project, scan_id, "renamed")
    if is_slice(project, scan_id):
        raise InputError(
            f"{scan_id} is a slice, which is named after its fruit. It can't be renamed. Remove the slices, rename the "
            "fruit, and slice it again."
        )
    checked_id(new_id, "The new name")
    target = project.scan_dir(new_id)
    if target.exists() or target.is_symlink():
        raise InputError(
            f"{target} exists already. An id stands for one scan. Choose another name, or remove that scan first: "
            f"scan2cut remove {new_id}."
        )
    source = project.scan_dir(scan_id)
    content = {**read_scan_mapping(source / SCAN_FILE_NAME), "id": new_id}
    again: tuple[str, ...] = ()
    with _alone(project, scan_id, "renamed"):
        with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=project.scans_dir) as scratch:
            copy = Path(scratch) / new_id
            shutil.copytree(source, copy, symlinks=True, copy_function=_link)
            write_bytes_atomic(copy / SCAN_FILE_NAME, scan_file_text(content).encode())
            if (copy / LOCK_FILE_NAME).exists():
                old_path = re.compile(rf"data/scans/{re.escape(scan_id)}(?=/|$)")
                lock = _replaced(read_mapping(copy / LOCK_FILE_NAME), old_path, f"data/scans/{new_id}")
                again = tuple(name for name in lock.get("stages", {}) if _names(copy, name, scan_id))
                lock["stages"] = {k: v for k, v in lock.get("stages", {}).items() if k not in again}
                text = yaml.dump(lock, Dumper=PlainDumper, sort_keys=False, allow_unicode=True)
                write_bytes_atomic(copy / LOCK_FILE_NAME, text.encode())
            os.replace(copy, target)
        refresh_pipeline_file(project, new_id)
        shutil.rmtree(source)
    _forget_state(project, scan_id)
    if recorded_stages(target):
        build_report(project, new_id)
    return again


def _names(folder: Path, stage: str, scan_id: str) -> bool:
    """Return whether the stage's metrics name the scan's folder, as those of export do."""
    metrics = folder / stage / "metrics.json"
    return metrics.is_file() and f"data/scans/{scan_id}/" in metrics.read_text(encoding="utf-8")


@contextmanager
def _alone(project: Project, scan_id: str, what: str) -> Iterator[None]:
    """Hold the locks of registering and of the scan; raise InputError if a run has the scan."""
    holder = lock_holder(project, scan_id)
    if holder is not None:
        raise InputError(
            f"A run is using {scan_id!r}{f' (stage {holder})' if holder else ''}. A scan can't be {what} while it "
            "runs. Wait for the run or stop it with Ctrl-C."
        )
    with scan_lock(project, REGISTERING, lambda: None), scan_lock(project, scan_id, lambda: None):
        yield


def _forget_state(project: Project, scan_id: str) -> None:
    """Remove this machine's lock and spare copies of a scan that is gone."""
    for name in ("dvc.lock", "events.jsonl", "lock"):
        (project.state_dir / f"{scan_id}.{name}").unlink(missing_ok=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _replaced(value: Any, old_path: re.Pattern[str], new_path: str) -> Any:
    """Return the content of dvc.lock with other paths in its keys and values."""
    if isinstance(value, dict):
        return {
            _replaced(key, old_path, new_path): _replaced(item, old_path, new_path)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_replaced(item, old_path, new_path) for item in value]
    return old_path.sub(new_path, value) if isinstance(value, str) else value


def _stages(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(recorded_stages(folder))
    except InputError:  # a damaged dvc.lock must not keep a scan from being removed
        return ()


def _committed(project: Project, path: Path) -> bool:
    try:
        return bool(run_git(project.root, "ls-tree", "HEAD", "--", path.as_posix()).strip())
    except (CommandError, OSError):
        return False
