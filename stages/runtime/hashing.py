"""sha256 of files, directories and values."""

import hashlib
import json
from pathlib import Path
from typing import Any

from disect_sim.errors import InputError


def sha256_of_file(path: Path) -> str:
    """Hex digest of the file's content; InputError if it can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{path} can't be read ({error.strerror or error}). Give a readable file."
        ) from error


def sha256_of_start(path: Path, size: int) -> str:
    """Hex digest of the file's first `size` bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, 1 << 20))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.hexdigest()


def sha256_of_path(path: Path) -> str:
    """Hex digest of a file, or of the names and contents of a directory's files (bytecode left out)."""
    if not path.is_dir():
        return sha256_of_file(path)
    files = (p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return sha256_of_value({str(p.relative_to(path)): sha256_of_file(p) for p in files})


def sha256_of_value(value: Any) -> str:
    """Hex digest of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()
