"""Input and output of a stage: artifacts by name, provenance, progress events, worker processes.

Writes go to a scratch directory and are published together when the stage has succeeded, so that a failing stage leaves
the existing artifacts unchanged.
"""

import io
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from disect_sim.processes import Workers, cores_given
from stages.runtime.artifacts import (
    artifact,
    read_notes,
    read_table,
    write_csv,
    write_json,
    write_picture,
    write_table,
)
from stages.runtime.catalogue import ARTIFACTS, STAGES
from stages.runtime.describe import StageParams
from stages.runtime.describe import provenance as provenance_artifact
from stages.runtime.errors import InputError
from stages.runtime.files import LIVE_FILE_NAME, Scratch, sha256_of_path, sha256_of_value, write_bytes_atomic
from stages.runtime.scan_file import ScanFile, home_of
from stages.runtime.version import ARTIFACT_FORMAT

_SHARE_VARIABLE = "OMP_NUM_THREADS"
"""Cores per scan when several run in parallel; the user may set it too."""


def stage_workers(processes: int) -> Workers:
    """Return a pool of this many processes; 0: one per available core, limited by OMP_NUM_THREADS."""
    share = os.environ.get(_SHARE_VARIABLE, "")
    most = int(share) if share.isdigit() and int(share) > 0 else cores_given()
    return Workers(processes or min(most, cores_given()))


# Provenance. It is a separate file, so that results with equal content have equal bytes.


@dataclass(frozen=True)
class Provenance:
    """Hashes of the files that one stage read and wrote."""

    stage: str
    inputs: dict[str, str]
    """Path relative to the scan's directory → sha256 when read."""
    outputs: dict[str, str]
    """Path relative to the scan's directory → sha256 when written."""


def provenance_content(
    stage: str,
    params: StageParams,
    digests: Mapping[str, str],
    outputs: Mapping[str, Path],
    *,
    own_folders: Sequence[Path],
) -> dict[str, Any]:
    """Return the content of provenance.json.

    Args:
        stage: The stage that ran.
        params: Its parameters.
        digests: sha256 of every dependency by path relative to the project.
        outputs: Current location of each output by path relative to the scan's directory.
        own_folders: The scan's directory relative to the project, and for a slice that of the fruit.
    """
    inputs, code = {}, {}
    for path, digest in digests.items():
        own = next((folder for folder in own_folders if Path(path).is_relative_to(folder)), None)
        if own is not None:
            inputs[Path(path).relative_to(own).as_posix()] = digest
        else:
            code[path] = digest
    return {
        "stage": stage,
        "format": ARTIFACT_FORMAT,
        "params": params.model_dump(mode="json"),
        "inputs_sha256": inputs,
        "outputs_sha256": {path: sha256_of_path(location) for path, location in outputs.items()},
        "code_sha256": sha256_of_value(code),
    }


def read_provenance(scan_dir: Path, stage: str) -> Provenance:
    """Read a stage's provenance; raise InputError if the file is missing or invalid."""
    name = provenance_artifact(stage).path
    path = home_of(scan_dir, name) / name
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Provenance(
            str(content["stage"]), _digests(content["inputs_sha256"]), _digests(content["outputs_sha256"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} can't be read ({type(error).__name__}: {error}). It must contain the hashes of the inputs and "
            f"outputs of {stage}. Rerun the stage."
        ) from error


def _digests(value: Any) -> dict[str, str]:
    return {str(path): str(digest) for path, digest in value.items()}


# Progress events: JSON lines in the file named by an environment variable; discarded if it is not set.


EVENTS_VARIABLE = "SCAN2CUT_EVENTS"


def _has_listener() -> bool:
    """Return whether events are recorded."""
    return bool(os.environ.get(EVENTS_VARIABLE))


def emit(kind: str, **fields: Any) -> None:
    """Append one event; kinds are progress (fraction, message), picture (path) and error (exit_code, message)."""
    path = os.environ.get(EVENTS_VARIABLE)
    if not path:
        return
    line = json.dumps({"kind": kind, "time_s": time.time(), **fields}) + "\n"
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)


_SHOW_EVERY_S = 15.0
"""Least time between two live pictures; drawing one takes 0.1 s."""


class StageIO:
    """Read artifacts of upstream stages and write those of this stage.

    An instance of a stage uses its base's artifact names; they are translated here.
    """

    def __init__(self, scan_dir: Path, scan: ScanFile, stage: str, *, work_key: str = "") -> None:
        self.work_key = work_key
        """Digest of everything the stage depends on; a checkpoint of other work is not resumed."""
        self.scan_dir = scan_dir
        self.scan = scan
        self.stage = stage
        """Name of the stage or instance that runs."""
        self._described = STAGES[stage]
        self._written: dict[str, Path] = {}
        self._scratch_dir = Scratch(scan_dir, stage)
        self._scratch = self._scratch_dir.path
        self._shown_s = -_SHOW_EVERY_S

    def temporary_files(self) -> AbstractContextManager[None]:
        """Remove temporary files created within this context together with the scratch directory."""
        return self._scratch_dir.temporary_files()

    @property
    def scan_path(self) -> Path:
        """Path of the raw scan."""
        return home_of(self.scan_dir, self.scan.scan) / self.scan.scan

    def read(self, name: str) -> pl.DataFrame:
        """Read and validate a table of an upstream stage."""
        return read_table(self.scan_dir, self._readable(name))

    def notes(self, name: str) -> dict[str, str]:
        """Read the notes in the metadata of an upstream stage's table."""
        return read_notes(self.scan_dir, self._readable(name))

    def _readable(self, name: str) -> str:
        """Translate the name; raise KeyError if the description does not list it as a dependency."""
        name = self._described.name_of(name)
        if name not in self._described.reads:
            raise KeyError(
                f"{self.stage} reads {name}, which stages/{self._described.code}/description.py does not list"
            )
        return name

    def write(self, name: str, frame: pl.DataFrame, *, notes: Mapping[str, str] | None = None) -> None:
        """Write one of this stage's tables; notes are stored in the file's metadata."""
        name = self._described.name_of(name)
        self._written[name] = write_table(self._scratch, name, frame, notes=notes)

    def write_png(self, name: str, picture: bytes | np.ndarray) -> None:
        """Write one of this stage's pictures: PNG bytes, or 8-bit pixels of shape [height, width, 3 or 4]."""
        png = picture if isinstance(picture, bytes) else encode_png(picture)
        name = self._described.name_of(name)
        self._written[name] = write_picture(self._scratch, name, png)

    def write_plot(self, name: str, csv: str) -> None:
        """Write one of this stage's CSV files for `dvc plots`."""
        name = self._described.name_of(name)
        self._written[name] = write_csv(self._scratch, name, csv)

    def folder(self, name: str) -> Path:
        """Return an empty directory for one of this stage's folders; its final content is published."""
        name = self._described.name_of(name)
        path = self._scratch / artifact(name, "folder").path
        path.mkdir(parents=True)
        self._written[name] = path
        return path

    def write_metrics(self, name: str, metrics: dict[str, Any]) -> None:
        """Write this stage's metrics: numbers, flags and short texts, with the unit in each key."""
        name = self._described.name_of(name)
        self._written[name] = write_json(self._scratch, name, metrics)

    def progress(self, fraction: float, message: str) -> None:
        """Report the stage's progress as a fraction, 0 to 1."""
        emit("progress", fraction=min(max(float(fraction), 0.0), 1.0), message=message)

    def show(self, draw: Callable[[], bytes | np.ndarray]) -> None:
        """Update the live picture of the stage, at most every _SHOW_EVERY_S; it is removed when the stage ends."""
        now = time.monotonic()
        if not _has_listener() or now - self._shown_s < _SHOW_EVERY_S:
            return
        self._shown_s = now
        try:
            picture = draw()
        except Exception:  # noqa: BLE001 -- a live picture must not fail the stage
            return
        path = self.scan_dir / LIVE_FILE_NAME
        write_bytes_atomic(path, picture if isinstance(picture, bytes) else encode_png(picture))
        emit("picture", path=str(path.resolve()))

    def write_provenance(self, content: dict[str, Any]) -> None:
        """Write the stage's provenance; called by the runtime after all other files."""
        name = f"{self.stage}/provenance"
        self._written[name] = write_json(self._scratch, name, content)

    def written(self) -> dict[str, Path]:
        """Return the scratch path of each output by path relative to the scan's directory."""
        return {ARTIFACTS[name].path: path for name, path in self._written.items()}

    def missing(self) -> list[str]:
        """Return the described artifacts that `run` has not written."""
        return [a.name for a in self._described.artifacts if a.name not in self._written]

    def publish(self) -> None:
        """Move all written files to their final paths."""
        for name, scratch_path in self._written.items():
            final = self.scan_dir / ARTIFACTS[name].path
            final.parent.mkdir(exist_ok=True)
            if final.is_dir():
                os.replace(final, self._scratch / f"replaced-{final.name}")
            os.replace(scratch_path, final)

    def close(self) -> None:
        """Remove the scratch directory and the live picture."""
        self._scratch_dir.close()
        (self.scan_dir / LIVE_FILE_NAME).unlink(missing_ok=True)


def encode_png(pixels: np.ndarray) -> bytes:
    """Encode 8-bit pixels of shape [height, width, 3] as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels, dtype=np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()
