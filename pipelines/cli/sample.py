"""Handing out the bundled sample."""

from pathlib import Path

from disect_sim.errors import InputError
from pipelines.scans.project import Project
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.hashing import sha256_of_file


def write_sample(project: Project, folder: Path) -> list[Path]:
    """Copy the bundled sample into the folder; an existing file with other content is never overwritten."""
    sources = (
        sorted(path for path in project.sample_dir.glob("*") if path.is_file() and path.suffix != ".py")
        if project.sample_dir.is_dir()
        else []
    )
    if not sources:
        raise InputError(
            f"{project.sample_dir} holds no sample. It is part of the repository. Restore it with git."
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. The sample needs a folder. Give another name.")
    targets = [folder / source.name for source in sources]
    for source, target in zip(sources, targets, strict=True):
        if target.exists() and sha256_of_file(target) != sha256_of_file(source):
            raise InputError(
                f"{target} exists and is a different file. Nothing was written. Give another folder."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            if not target.exists():
                write_bytes_atomic(target, source.read_bytes())
    except OSError as error:
        raise InputError(
            f"{folder} can't be written ({error.strerror or error}). The sample needs a folder of yours. Give another."
        ) from error
    return targets
