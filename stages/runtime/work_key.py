"""A hash of everything a long piece of work depends on: its checkpoint must not serve another one."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.model import Model
from stages.runtime.hashing import sha256_of_path
from stages.runtime.params_base import StageParams

SHARED_CODE = (Path(__file__).parents[2] / "disect_sim", Path(__file__).parents[1] / "shared")
"""Code behind a fit or a search beside the stage's own."""


def work_key(model: Model, data: Iterable[NDArray], params: StageParams, own_code: Path) -> str:
    """Hex digest of mesh, material, data, parameters, code (own_code, SHARED_CODE) and torch's version."""
    digest = hashlib.sha256()
    for part in (*vars(model.mesh).values(), *data):
        digest.update(np.ascontiguousarray(part).tobytes())
    for text in (repr(model.material), params.model_dump_json(), torch.__version__):
        digest.update(text.encode())
    for folder in (own_code, *SHARED_CODE):
        digest.update(sha256_of_path(folder).encode())
    return digest.hexdigest()
