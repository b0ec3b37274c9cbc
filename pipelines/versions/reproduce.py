"""`scan2cut reproduce`: does every stage give the recorded bytes again? Computed in a clone, the results untouched.

A stage that draws random numbers it gives no seed for (meta `random: true` in the template) can't; it is named, and
its recorded result is taken from the cache for the stages after it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from disect_sim.errors import InputError
from pipelines.dvc.clone import Source, described, fetch_inputs, make_clone, take_over
from pipelines.dvc.recorded_files import cache_dir, damaged, recorded_outputs
from pipelines.dvc.stage import bring_up_to_date
from pipelines.dvc.template import StageEntry, read_template
from pipelines.scans.project import Project

SAME, RANDOM, DIFFERENT, NEVER = "same bytes", "random, restored from cache", "DIFFERENT", "never run"


@dataclass(frozen=True)
class Verdict:
    """Of one stage of one scan."""

    scan: str
    stage: str
    verdict: str
    differing: tuple[str, ...] = ()
    """Names of the outputs with other bytes."""


def reproduce(
    project: Project, scan_ids: list[str], tell: Callable[[str], None] = lambda sentence: None
) -> Iterator[Verdict]:
    """Compute every recorded stage of these scans again, one after the other."""
    unknown = sorted(set(scan_ids) - set(project.scan_ids()))
    if unknown:
        raise InputError(
            f"There is no scan {unknown[0]!r}. Registered are: {', '.join(project.scan_ids()) or 'none'}."
        )
    with _clone(project) as clone:
        for scan_id in scan_ids or project.scan_ids():
            for entry in read_template(project.template):
                tell(f"{scan_id}: {entry.name}")
                yield _verdict(project, clone, scan_id, entry)


def _verdict(project: Project, clone: Project, scan_id: str, entry: StageEntry) -> Verdict:
    recorded = recorded_outputs(project, scan_id, entry.name)
    if not recorded:
        return Verdict(scan_id, entry.name, NEVER)
    if entry.random:
        return Verdict(scan_id, entry.name, RANDOM)
    take_over(clone, scan_id, described(project, scan_id))
    fetch_inputs(clone, scan_id, entry)
    bring_up_to_date(clone, scan_id, entry, force=True)
    expected = {item.path.relative_to(project.root): item.md5 for item in recorded}
    here = [
        type(item)(clone.root / path, md5)
        for (path, md5), item in zip(expected.items(), recorded, strict=True)
    ]
    names = tuple(item.path.name for item in damaged(here))
    return Verdict(scan_id, entry.name, DIFFERENT if names else SAME, names)


@contextmanager
def _clone(project: Project) -> Iterator[Project]:
    """A clone of the last commit whose DVC remote is this project's own cache."""
    with TemporaryDirectory(prefix="scan2cut-reproduce-") as folder:
        source = Source(str(project.root), "HEAD", str(cache_dir(project)))
        clone = Project(Path(folder) / "clone")
        make_clone(source, clone.root)
        yield clone
