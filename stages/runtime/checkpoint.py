"""Checkpoints: a killed stage goes on where it was, and ends with the same numbers."""

import hashlib
import io
import logging
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stages.runtime.describe import StageParams
from stages.runtime.files import sha256_of_path, write_bytes_atomic

if TYPE_CHECKING:
    from disect_sim.model import Model

_SHARED_CODE = (Path(__file__).parents[2] / "disect_sim", Path(__file__).parents[1] / "shared")
"""Code behind a fit or a search beside the stage's own."""


def work_key(model: "Model", data: Iterable[NDArray], params: StageParams, own_code: Path) -> str:
    """Hex digest of mesh, material, data, parameters, code (own_code, SHARED_CODE) and torch's version."""
    import torch  # loads in seconds; only long searches need it

    digest = hashlib.sha256()
    for part in (*vars(model.mesh).values(), *data):
        digest.update(np.ascontiguousarray(part).tobytes())
    for text in (repr(model.material), params.model_dump_json(), torch.__version__):
        digest.update(text.encode())
    for folder in (own_code, *_SHARED_CODE):
        digest.update(sha256_of_path(folder).encode())
    return digest.hexdigest()


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
        torch.save({"format": _FORMAT, "key": self._key, "state": state}, buffer)
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
            isinstance(content, dict) and content.get("format") == _FORMAT and content.get("key") == self._key
        )
        return content if whole else None
