"""The guard around a stage: dies with its parent, and notices when its inputs change under it."""

import os
import re
from pathlib import Path
from typing import Any

from disect_sim.errors import InputError
from disect_sim.parent_process import end_with_parent
from stages.runtime.hashing import sha256_of_path, sha256_of_value
from stages.runtime.scan_file import PIPELINE_FILE_NAME, SCAN_FILE_NAME
from stages.runtime.yaml_file import read_mapping

PARENT_VARIABLE = "SCAN2CUT_PARENT"
"""Set by a process for those it starts: its own process id."""
_REFERENCE = re.compile(r"\$\{(\w+)\}")


class OrphanError(RuntimeError):
    """Whoever started this process is gone already."""


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere only the present is looked at).

    A killed dvc would otherwise leave the stage running as a second writer beside the next run. The parent may die
    while this process is still importing, so it gives its process id: as `parent`, or in the environment.
    """
    if parent is None:
        parent = int(os.environ.get(PARENT_VARIABLE, os.getppid()))
    if not end_with_parent(parent):
        raise OrphanError(
            f"Process {parent}, which started this one, is gone. A stage must not write behind its run's back, "
            "so nothing was written. Start the run again."
        )


def stage_dependencies(scan_dir: Path, stage: str) -> list[str]:
    """The stage's dependencies as DVC sees them: paths relative to the project."""
    entry = read_mapping(scan_dir / PIPELINE_FILE_NAME).get("stages", {}).get(stage)
    if not isinstance(entry, dict):
        raise InputError(
            f"{scan_dir / PIPELINE_FILE_NAME} has no stage {stage!r}. "
            "It must have the stages of pipelines/dvc/scan.dvc.yaml that run. Write it anew with 'scan2cut run'."
        )
    values = read_mapping(scan_dir / SCAN_FILE_NAME)
    return [_REFERENCE.sub(lambda match: str(values[match[1]]), dep) for dep in entry.get("deps", [])]


def fingerprint(project: Path, dependencies: list[str], params: Any) -> dict[str, str]:
    """sha256 of every dependency and of the parameters."""
    return {
        **{path: sha256_of_path(project / path) for path in dependencies},
        "parameters": sha256_of_value(params),
    }


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What differs between two fingerprints."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
