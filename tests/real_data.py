"""Real scans, logs and meshes for tests: a test that asks for one is skipped, with the reason, where it is missing."""

from pathlib import Path

import pytest

from lab.real_logs import real_data


def real_file(*parts: str) -> Path:
    """A file or folder of the real data (lab/notes/real_data.md); skips the test if it is missing."""
    try:
        return real_data.real_file(*parts)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
