"""A hash of everything a fit depends on: its checkpoint must not serve another one."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from disect_sim.model import Model
from stages.calibrating.recorded_cut import RecordedCut
from stages.params import CalibrateParams
from stages.support.hashing import sha256_of_path

OWN_CODE = Path(__file__).parent
SIMULATOR_CODE = Path(__file__).parents[2] / "disect_sim"


def fit_key(model: Model, cut: RecordedCut, params: CalibrateParams) -> str:
    """Hex digest of mesh, material, log, parameters, code and torch's version."""
    digest = hashlib.sha256()
    for part in (*vars(model.mesh).values(), *vars(cut).values()):
        digest.update(np.ascontiguousarray(part).tobytes())
    for text in (repr(model.material), params.model_dump_json(), torch.__version__):
        digest.update(text.encode())
    for folder in (OWN_CODE, SIMULATOR_CODE):
        digest.update(sha256_of_path(folder).encode())
    return digest.hexdigest()
