"""Keeping a stage's older outputs until the new ones are there.

DVC deletes a stage's outputs before it runs the command. Marking them `persist` would prevent that, but
also switch off DVC's run cache, so the flow holds on to them with hard links instead.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KEPT_PREFIX = ".kept-"


@contextmanager
def kept_outputs(scan_dir: Path, stage: str, outputs: Sequence[Path]) -> Iterator[None]:
    """Within the block the outputs may vanish; if the block fails, those that did are put back.

    The caller holds the scan's lock, so what is found here on entry was left by a run that was killed.
    """
    shelter = scan_dir / f"{KEPT_PREFIX}{stage}"
    _restore(scan_dir, shelter)
    _keep(outputs, scan_dir, shelter)
    try:
        yield
    except BaseException:
        _restore(scan_dir, shelter)
        raise
    shutil.rmtree(shelter, ignore_errors=True)


def _keep(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    folders = [path for output in outputs if output.is_dir() for path in output.rglob("*")]
    for output in [*outputs, *folders]:
        if not output.is_file():
            continue
        copy = shelter / output.relative_to(scan_dir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(output, copy)
        except OSError:
            shutil.copy2(output, copy)


def _restore(scan_dir: Path, shelter: Path) -> None:
    for copy in list(shelter.rglob("*")):
        place = scan_dir / copy.relative_to(shelter)
        if copy.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(copy, place)
    shutil.rmtree(shelter, ignore_errors=True)
