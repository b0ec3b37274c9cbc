"""Keeping a stage's older outputs until the new ones are there.

DVC deletes a stage's outputs before it runs the command. Marking them `persist` would prevent that, but
also switch off DVC's run cache, so the flow holds on to them with hard links instead.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KEPT_PREFIX = ".kept-"


@contextmanager
def kept_outputs(
    scan_dir: Path, stage: str, outputs: Sequence[Path], is_recorded: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Within the block the outputs may vanish; if the block fails, those that did are put back.

    The caller holds the scan's lock, so what is found here on entry was left by a run that was killed. `is_recorded`
    says whether dvc.lock knows the outputs that lie there after a failure: new ones that DVC could not record, because
    its cache is full or read-only, give way to the older ones, which it knows.
    """
    shelter = scan_dir / f"{KEPT_PREFIX}{stage}"
    _restore(outputs, scan_dir, shelter)
    _keep(outputs, scan_dir, shelter)
    try:
        yield
    except BaseException:
        if not is_recorded():
            _remove_newer(outputs, scan_dir, shelter)
        _restore(outputs, scan_dir, shelter)
        raise
    shutil.rmtree(shelter, ignore_errors=True)


def kept_stages(scan_dir: Path) -> list[str]:
    """Stages whose older outputs lie aside: those that run, and those that were killed."""
    return [path.name.removeprefix(KEPT_PREFIX) for path in scan_dir.glob(f"{KEPT_PREFIX}*")]


def restore_outputs(scan_dir: Path, stage: str, outputs: Sequence[Path]) -> None:
    """Put back what a killed run of the stage laid aside. The caller holds the scan's lock."""
    _restore(outputs, scan_dir, scan_dir / f"{KEPT_PREFIX}{stage}")


def _keep(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    for path in [path for output in outputs for path in _files(output)]:
        copy = shelter / path.relative_to(scan_dir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, copy)
        except OSError:
            shutil.copy2(path, copy)


def _remove_newer(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    """Remove what lies in the place of kept outputs; where nothing was kept, nothing is removed."""
    for output in outputs:
        if _files(shelter / output.relative_to(scan_dir)):
            for path in _files(output):
                path.unlink()


def _restore(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    for output in outputs:
        kept = {
            scan_dir / copy.relative_to(shelter): copy
            for copy in _files(shelter / output.relative_to(scan_dir))
        }
        if set(_files(output)) - kept.keys():
            continue  # a newer folder: an older certificate must not reappear beside it
        for place, copy in kept.items():
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(copy, place)
    shutil.rmtree(shelter, ignore_errors=True)


def _files(output: Path) -> list[Path]:
    """The output itself, or the files in it if it is a folder."""
    return [path for path in [output, *output.rglob("*")] if path.is_file()]
