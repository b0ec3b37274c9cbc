"""Where checkpoints lie, and their removal; apart from checkpoint.py, which imports torch."""

from pathlib import Path

FOLDER = ".checkpoints"
"""In the scan's directory; ignored by git and DVC."""


def remove_checkpoints(scan_dir: Path | None, stage: str) -> None:
    """The stage is done: its checkpoints go, and so do those that a kill left half-written."""
    if scan_dir is None or not (folder := scan_dir / FOLDER).is_dir():
        return
    for pattern in (f"{stage}-*", f".{stage}-*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
