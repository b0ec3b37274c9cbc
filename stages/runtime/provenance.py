"""What a stage's files were made from: the file provenance.json that every stage writes beside its results.

It is apart from the results, so that they are the same bytes whenever their content is the same.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disect_sim.errors import InputError
from stages.runtime.describe import provenance as provenance_artifact
from stages.runtime.hashing import sha256_of_path, sha256_of_value
from stages.runtime.params_base import StageParams
from stages.runtime.version import ARTIFACT_FORMAT


@dataclass(frozen=True)
class Provenance:
    """What one stage read and wrote."""

    stage: str
    inputs: dict[str, str]
    """Path relative to the scan's directory → sha256 when it was read."""
    outputs: dict[str, str]
    """Path relative to the scan's directory → sha256 when it was written."""


def provenance_content(
    stage: str,
    params: StageParams,
    digests: Mapping[str, str],
    outputs: Mapping[str, Path],
    *,
    own_folder: Path,
) -> dict[str, Any]:
    """The content of provenance.json.

    Args:
        stage: The stage that ran.
        params: Its parameters.
        digests: sha256 of every dependency by its path relative to the project.
        outputs: Where each output lies now, by its path relative to the scan's directory.
        own_folder: The scan's directory relative to the project.
    """
    inputs, code = {}, {}
    for path, digest in digests.items():
        if Path(path).is_relative_to(own_folder):
            inputs[Path(path).relative_to(own_folder).as_posix()] = digest
        else:
            code[path] = digest
    return {
        "stage": stage,
        "format": ARTIFACT_FORMAT,
        "params": params.model_dump(mode="json"),
        "inputs_sha256": inputs,
        "outputs_sha256": {path: sha256_of_path(place) for path, place in outputs.items()},
        "code_sha256": sha256_of_value(code),
    }


def read_provenance(scan_dir: Path, stage: str) -> Provenance:
    """What the stage recorded; InputError if the file is missing or not as the runtime writes it."""
    path = scan_dir / provenance_artifact(stage).path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Provenance(
            str(content["stage"]), _digests(content["inputs_sha256"]), _digests(content["outputs_sha256"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} can't be read ({type(error).__name__}: {error}). It must say what the files of {stage} were made "
            "from. Run the stage again."
        ) from error


def _digests(value: Any) -> dict[str, str]:
    return {str(path): str(digest) for path, digest in value.items()}
