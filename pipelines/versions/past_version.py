"""An earlier version of a scan: what git has of it, with its outputs out of DVC's cache."""

import subprocess
from pathlib import Path

import yaml

from disect_sim.errors import InputError
from pipelines.scans.project import TEMPLATE, Project

COMMAND_TIMEOUT_S = 300


def at_revision(project: Project, scan_id: str, revision: str, scratch: Path) -> Project:
    """A project in `scratch` that holds the scan as it was committed at a git revision.

    Text files (scan.yaml, dvc.lock, metrics) come from git, tables and pictures from DVC's cache where it still has
    them. The user's own files are not touched.
    """
    found = _git(project, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found is None or revision.startswith("-"):
        raise InputError(
            f"compare: git knows no revision {revision!r} here. It must be a commit, tag or branch. See 'git log'."
        )
    commit = found.decode().strip()
    root = scratch / commit[:12] / scan_id
    folder = f"data/scans/{scan_id}"
    listed = _git(
        project, "ls-tree", "-r", "--name-only", "-z", commit, "--", folder, "params.yaml", str(TEMPLATE)
    )
    names = [name for name in (listed or b"").decode().split("\0") if name]
    if f"{folder}/scan.yaml" not in names:
        raise InputError(
            f"compare: the scan {scan_id!r} was not committed at {revision}. Its scan.yaml, dvc.lock and metrics "
            "must be in git (docs/pipeline.md). Commit them, or name a later revision."
        )
    for name in names:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_git(project, "show", f"{commit}:{name}") or b"")
    _link_cached_outputs(project, root, root / folder / "dvc.lock")
    return Project(root)


def _link_cached_outputs(project: Project, root: Path, lock: Path) -> None:
    """Put single files that DVC's cache still has in their place."""
    cache = project.root / ".dvc" / "cache" / "files" / "md5"
    stages = (yaml.safe_load(lock.read_text()) or {}).get("stages", {}) if lock.is_file() else {}
    for stage in stages.values():
        for out in stage.get("outs", []):
            digest, target = str(out.get("md5", "")), root / str(out.get("path", ""))
            source = cache / digest[:2] / digest[2:]
            if source.is_file() and root in target.resolve().parents and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source)


def _git(project: Project, *arguments: str) -> bytes | None:
    """Git's output, None if it refuses."""
    result = subprocess.run(
        ["git", "-C", str(project.root), *arguments],
        capture_output=True,
        check=False,
        timeout=COMMAND_TIMEOUT_S,
    )
    return result.stdout if result.returncode == 0 else None
