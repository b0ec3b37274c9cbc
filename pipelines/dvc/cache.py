"""DVC's cache of this project, wherever its configuration puts it."""

from pathlib import Path

from pipelines.dvc.commands import run_dvc
from pipelines.scans.project import Project


def cache_dir(project: Project) -> Path:
    """Where DVC keeps this project's data (`cache.dir` of its configuration, or its default)."""
    return project.root / run_dvc(project, "cache", "dir").strip()


def cached_file(cache: Path, md5: str) -> Path:
    """Where the cache has the content with this hash, if it has it."""
    return cache / "files" / "md5" / md5[:2] / md5[2:]
