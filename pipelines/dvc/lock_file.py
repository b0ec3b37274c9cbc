"""A scan's dvc.lock: what DVC recorded of the stages that have run."""

from pathlib import Path
from typing import Any

from stages.runtime.yaml_file import read_mapping

LOCK_FILE_NAME = "dvc.lock"


def has_results(scan_dir: Path) -> bool:
    """True if a stage of the scan has ever succeeded."""
    return (scan_dir / LOCK_FILE_NAME).exists()


def recorded_stages(scan_dir: Path) -> dict[str, Any]:
    """Stage → its recorded command, deps, params and outs; empty if nothing has run."""
    stages = read_mapping(scan_dir / LOCK_FILE_NAME).get("stages") if has_results(scan_dir) else None
    return stages if isinstance(stages, dict) else {}
