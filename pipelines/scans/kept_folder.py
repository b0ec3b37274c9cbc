"""A folder of raw files in a scan's directory, put in place as a whole."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from stages.runtime.hashing import sha256_of_file


def same_files(folder: Path, wanted: Mapping[str, Path]) -> bool:
    """True if the folder holds exactly these files (name in it → source)."""
    stored = [path.name for path in sorted(folder.glob("*"))]
    return stored == sorted(wanted) and holds_only(folder, wanted)


def holds_only(folder: Path, wanted: Mapping[str, Path]) -> bool:
    """True if everything in the folder is among these files, unchanged."""
    return all(
        path.name in wanted and sha256_of_file(path) == sha256_of_file(wanted[path.name])
        for path in folder.glob("*")
    )


def put_in_place(folder: Path, wanted: Mapping[str, Path]) -> None:
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
