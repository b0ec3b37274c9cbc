"""Where the real scans, logs and meshes are, which are not part of this repository (lab/notes/real_data.md).

The environment variable SCAN2CUT_REAL_DATA names their folder. Scripts and tests ask here and nowhere else.
"""

import os
from pathlib import Path

from stages.runtime.describe import StageParams
from stages.runtime.files import sha256_of_path, sha256_of_value

VARIABLE = "SCAN2CUT_REAL_DATA"
BESIDE = Path(__file__).parents[3] / "shared" / "data"
"""Taken when the variable is not set, if it exists: a folder beside the repository."""


def real_data() -> Path | None:
    """The folder with panda/, forces/, scans/, meshes/ and logs_other/, or None if there is none.

    A variable that names something else than a folder is an error, not "no data": it was set on purpose.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return BESIDE if BESIDE.is_dir() else None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{VARIABLE} is {named!r}, which is no folder. It must name the folder of lab/notes/real_data.md. "
            "Correct or unset it."
        )
    return folder


def real_file(*parts: str) -> Path:
    """A file or folder of the real data, e.g. real_file("panda", "apple"); FileNotFoundError with the remedy."""
    folder, name = real_data(), "/".join(parts)
    if folder is None:
        raise FileNotFoundError(
            f"{name} is needed, and {VARIABLE} is not set. Real data is not part of this repository. "
            f"Set {VARIABLE} to its folder (lab/notes/real_data.md)."
        )
    path = folder.joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(
            f"{name} is not in {folder}, the folder of {VARIABLE}. See lab/notes/real_data.md."
        )
    return path


def lab_key(name: str, params: StageParams, stage: str) -> str:
    """Digest of what a fit or a search of the lab depends on; a checkpoint of other work is not resumed."""
    root = Path(__file__).parents[2]
    code = [sha256_of_path(root / folder) for folder in ("disect_sim", "stages/shared", f"stages/{stage}")]
    return sha256_of_value([name, params.model_dump(mode="json"), code])
