"""The size of a log is looked at before anything of it is read."""

from pathlib import Path

from disect_sim.errors import InputError


def check_log_size(path: Path, max_bytes: int, name: str) -> None:
    """Refuse an empty file and one that is too large."""
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{name} is empty. A log must hold the samples of one cut. Record it again.")
    if size > max_bytes:
        raise InputError(
            f"{name} has {size / 1e6:.0f} MB. At most {max_bytes / 1e6:.0f} MB are read. Cut the log to the time of "
            "one cut, or raise ingest.max_bytes."
        )
