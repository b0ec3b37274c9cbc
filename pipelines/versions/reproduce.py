"""`scan2cut reproduce`: does every stage give the recorded bytes again? Computed in a clone, the results untouched."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.dvc.cache import cache_dir
from pipelines.dvc.clone import Source, make_clone
from pipelines.dvc.recorded_files import damaged, recorded_outputs
from pipelines.dvc.stage import bring_up_to_date
from pipelines.dvc.template import StageEntry, read_template
from pipelines.dvc.transfer import fetch_inputs, text_files, write_text_files
from pipelines.scans.project import Project, known_scans

SAME, DIFFERENT, NEVER = "same bytes", "DIFFERENT", "never run"


@dataclass(frozen=True)
class Verdict:
    """Of one stage of one scan."""

    scan: str
    stage: str
    verdict: str
    differing: tuple[str, ...] = ()
    """Names of the outputs with other bytes."""


def reproduce(
    project: Project, scan_ids: list[str], say: Callable[[str], None] = lambda sentence: None
) -> Iterator[Verdict]:
    """Compute every recorded stage of these scans again, one after the other.

    Each stage starts from the recorded outputs of those before it, so that a difference is named where it arises.
    """
    chosen = known_scans(project, scan_ids)
    with _clone(project) as clone:
        for scan_id in chosen:
            for entry in read_template(project.template):
                say(f"{scan_id}: {entry.name}")
                yield _verdict(project, clone, scan_id, entry)


def _verdict(project: Project, clone: Project, scan_id: str, entry: StageEntry) -> Verdict:
    recorded = recorded_outputs(project, scan_id, entry.name)
    if not recorded:
        return Verdict(scan_id, entry.name, NEVER)
    write_text_files(clone, scan_id, text_files(project, scan_id))
    fetch_inputs(clone, scan_id, entry)
    bring_up_to_date(clone, scan_id, entry, force=True)
    again = [replace(item, path=clone.root / item.path.relative_to(project.root)) for item in recorded]
    names = tuple(item.path.name for item in damaged(again))
    return Verdict(scan_id, entry.name, DIFFERENT if names else SAME, names)


@contextmanager
def _clone(project: Project) -> Iterator[Project]:
    """A clone of the last commit whose DVC remote is this project's own cache."""
    with TemporaryDirectory(prefix="scan2cut-reproduce-") as folder:
        source = Source(str(project.root), "HEAD", str(cache_dir(project)))
        clone = Project(Path(folder) / "clone")
        make_clone(source, clone.root)
        yield clone
