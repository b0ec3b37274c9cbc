"""Checkpoints: a killed stage goes on where it was, and ends with the same numbers."""

import io
import logging
import pickle
from pathlib import Path
from typing import Any

from stages.runtime.files import write_bytes_atomic

CHECKPOINT_FOLDER = ".checkpoints"
"""In the scan's directory; ignored by git and DVC."""


def remove_checkpoints(scan_dir: Path | None, stage: str) -> None:
    """The stage is done: its checkpoints go, and so do those that a kill left half-written."""
    if scan_dir is None or not (folder := scan_dir / CHECKPOINT_FOLDER).is_dir():
        return
    for pattern in (f"{stage}-*", f".{stage}-*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


_FORMAT = 2
"""Raise it when the content changes its meaning; older checkpoints are then not read."""
_LOG = logging.getLogger(__name__)


class Checkpoint:
    """One file per part of a stage's work, which knows the hash of everything the work depends on."""

    def __init__(self, scan_dir: Path | None, key: str, *, stage: str, part: str) -> None:
        self._key = key
        self._path = None if scan_dir is None else scan_dir / CHECKPOINT_FOLDER / f"{stage}-{part}.pt"

    def load(self) -> dict[str, Any] | None:
        """What was saved; None if there is nothing, nothing whole, or that of other work."""
        content = self._read()
        return None if content is None else content["state"]

    def save(self, state: dict[str, Any]) -> None:
        """Save the state; the file is whole at any time."""
        if self._path is None:
            return
        import torch

        buffer = io.BytesIO()
        torch.save({"torch": str(torch.__version__), "format": _FORMAT, "key": self._key, "state": state}, buffer)
        write_bytes_atomic(self._path, buffer.getvalue())

    def _read(self) -> dict[str, Any] | None:
        if self._path is None or not self._path.is_file():
            return None
        import torch

        try:
            content = torch.load(io.BytesIO(self._path.read_bytes()), weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
            _LOG.warning("%s can't be read (%s): this part starts again.", self._path, error)
            return None
        whole = (
            isinstance(content, dict)
            and content.get("torch") == str(torch.__version__)
            and content.get("format") == _FORMAT
            and content.get("key") == self._key
        )
        return content if whole else None
