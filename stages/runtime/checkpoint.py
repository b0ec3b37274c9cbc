"""Checkpoints: a killed stage resumes where it stopped and gives the same result."""

import io
import logging
import pickle
from pathlib import Path
from typing import Any

from stages.runtime.files import write_bytes_atomic

_CHECKPOINT_FOLDER = ".checkpoints"
"""In the scan's directory; ignored by git and DVC."""


def remove_checkpoints(scan_dir: Path | None, stage: str) -> None:
    """Remove the checkpoints of a completed stage, including partial ones left by a kill."""
    if scan_dir is None or not (folder := scan_dir / _CHECKPOINT_FOLDER).is_dir():
        return
    for pattern in (f"{stage}-*", f".{stage}-*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


_FORMAT = 2
"""Raise it when the meaning of the content changes; older checkpoints are then ignored."""
_LOG = logging.getLogger(__name__)


class Checkpoint:
    """Saved state of one part of a stage's work, valid for one hash of everything the work depends on."""

    def __init__(self, scan_dir: Path | None, key: str, *, stage: str, part: str) -> None:
        self._key = key
        self._path = None if scan_dir is None else scan_dir / _CHECKPOINT_FOLDER / f"{stage}-{part}.pt"

    def load(self) -> dict[str, Any] | None:
        """Return the saved state; None if there is none, it is corrupt, or it belongs to other work."""
        content = self._read()
        return None if content is None else content["state"]

    def save(self, state: dict[str, Any]) -> None:
        """Save the state atomically."""
        if self._path is None:
            return
        import torch

        buffer = io.BytesIO()
        torch.save(
            {"torch": str(torch.__version__), "format": _FORMAT, "key": self._key, "state": state}, buffer
        )
        write_bytes_atomic(self._path, buffer.getvalue())

    def _read(self) -> dict[str, Any] | None:
        if self._path is None or not self._path.is_file():
            return None
        import torch

        try:
            content = torch.load(io.BytesIO(self._path.read_bytes()), weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
            _LOG.warning(
                "Can't read checkpoint %s (%s); this part restarts from the beginning.", self._path, error
            )
            return None
        is_valid = (
            isinstance(content, dict)
            and content.get("torch") == str(torch.__version__)
            and content.get("format") == _FORMAT
            and content.get("key") == self._key
        )
        return content if is_valid else None
