"""`scan2cut push`, `pull` and `reproduce`: send and fetch recorded results; recompute them in a clone and compare."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.dvc.clone import Source, fetch_inputs, make_clone, raw_addresses, text_files, write_text_files
from pipelines.dvc.commands import cache_dir, cached_file, run_dvc
from pipelines.dvc.pipeline_file import StageEntry, read_template, refresh_pipeline_file, stage_address
from pipelines.dvc.repair import damaged, recorded_outputs, recorded_stages
from pipelines.dvc.stage import bring_up_to_date
from pipelines.project import Project, known_scans
from pipelines.versions.history import NOW, configures_remote, needed_objects, tags
from stages.runtime.errors import InputError
from stages.runtime.scan_file import read_scan_file

# Pull. Plain `dvc pull` and `dvc checkout` fail if a scan's dvc.yaml lists stages that never ran: a scan that was only
# registered, killed in a stage, or committed while it ran.


_AT_ONCE = 50
"""Scans per dvc command: starting dvc takes a second, and command lines have a maximum length."""


def pull(
    project: Project,
    scan_ids: list[str],
    say: Callable[[str], None] = lambda message: None,
    *,
    local: bool = False,
) -> list[str]:
    """Pull the raw files and recorded outputs of these (default: all) scans; return their DVC addresses.

    With `local` use only the local cache: `dvc checkout` instead of `dvc pull`.
    """
    command = "checkout" if local else "pull"
    chosen = known_scans(project, scan_ids)
    pulled: list[str] = []
    for first in range(0, len(chosen), _AT_ONCE):
        addresses = [a for scan_id in chosen[first : first + _AT_ONCE] for a in _recorded(project, scan_id)]
        if addresses:
            say(f"Pulling {len(addresses)} artifacts of {', '.join(chosen[first : first + _AT_ONCE])}")
            run_dvc(project, command, *addresses)
        pulled += addresses
    return pulled


def _recorded(project: Project, scan_id: str) -> Iterator[str]:
    """Yield the DVC addresses of the scan's raw files and of its stages that have run."""
    read_scan_file(project.scan_dir(scan_id))  # rejects a named pipe, on which DVC would wait forever
    refresh_pipeline_file(project, scan_id)
    recorded = recorded_stages(project.scan_dir(scan_id))
    yield from raw_addresses(project, scan_id)
    for entry in read_template(project.template):
        if entry.name in recorded:
            yield stage_address(project, scan_id, entry.name)


# Push. `dvc push --all-tags` reads each tag's own configuration and silently skips a tag made before the remote was
# committed.


@dataclass(frozen=True)
class _Pushed:
    """What the remote holds of one version of the dataset."""

    version: str
    objects: int
    """Files that the version records."""
    missing: tuple[str, ...]
    """Paths of those that are not in the remote, because this machine's cache does not have them either."""
    knows_remote: bool
    """False if a clone at this version has no default remote and must be told it."""


def push(project: Project, say: Callable[[str], None] = lambda message: None) -> list[_Pushed]:
    """Send everything that the work tree or any tag records to the DVC remote, then ask the remote for each of it."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc_data.hashfile.hash_info import HashInfo

    versions = {NOW: needed_objects(project), **{tag: needed_objects(project, tag) for tag in tags(project)}}
    wanted = {md5 for objects in versions.values() for md5 in objects}
    say(f"{len(wanted)} objects in {len(versions)} versions")
    try:
        with Repo(str(project.root)) as repo:
            repo.cloud.get_remote()
            cache = cache_dir(project)
            here = {md5 for md5 in wanted if cached_file(cache, md5).is_file()}
            done = repo.cloud.push([HashInfo("md5", md5) for md5 in sorted(here)])
            say(f"{len(done.transferred)} objects sent")
            there = repo.cloud.get_remote_odb()
            found = {md5 for md5 in wanted if there.exists(md5)}
    except DvcException as error:
        raise InputError(
            f"push: {error}. The data need a default DVC remote that can be reached. Add it with `dvc remote add "
            "--default lab PLACE` and commit .dvc/config."
        ) from error
    return [
        _Pushed(
            version,
            len(objects),
            tuple(sorted(path for md5, path in objects.items() if md5 not in found)),
            version == NOW or configures_remote(project, version),
        )
        for version, objects in versions.items()
    ]


# Reproduce.


SAME, DIFFERENT, _NEVER = "same bytes", "DIFFERENT", "never run"


@dataclass(frozen=True)
class _Verdict:
    """Verdict on one stage of one scan."""

    scan: str
    stage: str
    verdict: str
    differing: tuple[str, ...] = ()
    """Names of the outputs that differ."""


def reproduce(
    project: Project, scan_ids: list[str], say: Callable[[str], None] = lambda message: None
) -> Iterator[_Verdict]:
    """Recompute every recorded stage of these scans in a clone and yield a verdict on each.

    Each stage starts from the recorded outputs of its upstream stages, so that a difference is reported at its origin.
    """
    chosen = known_scans(project, scan_ids)
    with _clone(project) as clone:
        for scan_id in chosen:
            for entry in read_template(project.template):
                say(f"{scan_id}: {entry.name}")
                yield _verdict(project, clone, scan_id, entry)


def _verdict(project: Project, clone: Project, scan_id: str, entry: StageEntry) -> _Verdict:
    recorded = recorded_outputs(project, scan_id, entry.name)
    if not recorded:
        return _Verdict(scan_id, entry.name, _NEVER)
    write_text_files(clone, scan_id, text_files(project, scan_id))
    fetch_inputs(clone, scan_id, entry)
    bring_up_to_date(clone, scan_id, entry, force=True)
    recomputed = [replace(item, path=clone.root / item.path.relative_to(project.root)) for item in recorded]
    names = tuple(item.path.name for item in damaged(recomputed))
    return _Verdict(scan_id, entry.name, DIFFERENT if names else SAME, names)


@contextmanager
def _clone(project: Project) -> Iterator[Project]:
    """Yield a clone of the last commit whose DVC remote is this project's cache."""
    with TemporaryDirectory(prefix="scan2cut-reproduce-") as folder:
        source = Source(str(project.root), "HEAD", str(cache_dir(project)))
        clone = Project(Path(folder) / "clone")
        make_clone(source, clone.root)
        yield clone
