"""Checkpoints: a killed stage resumes where it stopped and gives the same result."""

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
"""Code that a fit or search depends on, besides the stage's own."""


def work_key(model: "Model", data: Iterable[NDArray], params: StageParams, own_code: Path) -> str:
    """Return a hash of mesh, material, data, parameters, code (own_code, _SHARED_CODE) and torch's version."""
    import torch  # takes seconds to import; only long searches need it

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
    """Remove the checkpoints of a completed stage, including partial ones left by a kill."""
    if scan_dir is None or not (folder := scan_dir / CHECKPOINT_FOLDER).is_dir():
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
        self._path = None if scan_dir is None else scan_dir / CHECKPOINT_FOLDER / f"{stage}-{part}.pt"

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
        torch.save({"format": _FORMAT, "key": self._key, "state": state}, buffer)
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
            isinstance(content, dict) and content.get("format") == _FORMAT and content.get("key") == self._key
        )
        return content if is_valid else None
