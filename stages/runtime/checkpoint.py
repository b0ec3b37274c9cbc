"""Checkpoints: a killed stage goes on where it was, and ends with the same numbers."""

import io
import logging
import pickle
from pathlib import Path
from typing import Any

import torch

from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.checkpoint_files import FOLDER, remove_checkpoints

__all__ = ["FOLDER", "Checkpoint", "remove_checkpoints"]

FORMAT = 2
"""Raise it when the content changes its meaning; older checkpoints are then not read."""
_LOG = logging.getLogger(__name__)


class Checkpoint:
    """One file per part of a stage's work, which knows the hash of everything the work depends on."""

    def __init__(self, scan_dir: Path | None, key: str, *, stage: str, part: str) -> None:
        self._key = key
        self._path = None if scan_dir is None else scan_dir / FOLDER / f"{stage}-{part}.pt"

    def load(self) -> dict[str, Any] | None:
        """What was saved; None if there is nothing, nothing whole, or that of other work."""
        content = self._read()
        return None if content is None else content["state"]

    def save(self, state: dict[str, Any]) -> None:
        """Save the state; the file is whole at any time."""
        if self._path is None:
            return
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, "key": self._key, "state": state}, buffer)
        write_bytes_atomic(self._path, buffer.getvalue())

    def _read(self) -> dict[str, Any] | None:
        if self._path is None or not self._path.is_file():
            return None
        try:
            content = torch.load(io.BytesIO(self._path.read_bytes()), weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
            _LOG.warning("%s can't be read (%s): this part starts again.", self._path, error)
            return None
        whole = (
            isinstance(content, dict) and content.get("format") == FORMAT and content.get("key") == self._key
        )
        return content if whole else None
