"""An earlier version of a scan: what git has of it, with its outputs out of DVC's cache."""

from pathlib import Path

from disect_sim.errors import InputError
from pipelines.dvc.cache import cache_dir, cached_file
from pipelines.dvc.commands import CommandError, run_git
from pipelines.dvc.lock_file import recorded_stages
from pipelines.scans.project import TEMPLATE, Project
from stages.runtime.scan_file import PARAMS_FILE_NAME


def at_revision(project: Project, scan_id: str, revision: str, scratch: Path) -> Project:
    """A project in `scratch` that holds the scan as it was committed at a git revision.

    Text files (scan.yaml, dvc.lock, metrics) come from git, tables and pictures from DVC's cache where it still has
    them. The user's own files are not touched.
    """
    try:
        found = run_git(project.root, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    except CommandError as error:
        raise InputError(
            f"compare: git knows no revision {revision!r} here. It must be a commit, tag or branch. See 'git log'."
        ) from error
    commit = found.decode().strip()
    root = scratch / commit[:12] / scan_id
    folder = f"data/scans/{scan_id}"
    wanted = (folder, PARAMS_FILE_NAME, str(TEMPLATE))
    listed = run_git(project.root, "ls-tree", "-r", "--name-only", "-z", commit, "--", *wanted)
    names = [name for name in listed.decode().split("\0") if name]
    if f"{folder}/scan.yaml" not in names:
        raise InputError(
            f"compare: the scan {scan_id!r} was not committed at {revision}. Its scan.yaml, dvc.lock and metrics "
            "must be in git (docs/pipeline.md). Commit them, or name a later revision."
        )
    for name in names:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(run_git(project.root, "show", f"{commit}:./{name}"))
    _link_cached_outputs(project, root, root / folder)
    return Project(root)


def _link_cached_outputs(project: Project, root: Path, scan_dir: Path) -> None:
    """Put single files that DVC's cache still has in their place."""
    outs = [out for stage in recorded_stages(scan_dir).values() for out in stage.get("outs", [])]
    if not outs:
        return
    cache = cache_dir(project)
    for out in outs:
        source, target = cached_file(cache, str(out.get("md5", ""))), root / str(out.get("path", ""))
        if source.is_file() and root in target.resolve().parents and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
