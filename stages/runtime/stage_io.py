"""What a stage reads and writes, by artifact name.

Writes go to a scratch directory and are published together when the stage has succeeded,
so that a failing stage leaves the older artifacts as they were.
"""

import io
import json
import os
import time
from collections.abc import Callable, Mapping
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
from stages.runtime.scan_file import ScanFile
from stages.runtime.version import ARTIFACT_FORMAT

# Jobs of a stage in processes: the simulator's own helper, which every stage shares.


_SHARE_VARIABLE = "OMP_NUM_THREADS"
"""Where several scans run at once, their share of the cores; a person may set it too."""


def stage_workers(processes: int) -> Workers:
    """So many processes; 0: one per core that the stage is given, at most SHARE_VARIABLE if that is a number."""
    share = os.environ.get(_SHARE_VARIABLE, "")
    most = int(share) if share.isdigit() and int(share) > 0 else cores_given()
    return Workers(processes or min(most, cores_given()))


# What a stage's files were made from: the file provenance.json that every stage writes beside its results.
#
# It is apart from the results, so that they are the same bytes whenever their content is the same.


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


# What a running stage tells the outside: JSON lines in the file that an environment variable names.
#
# The stage never knows who listens; without the variable, events go nowhere.


EVENTS_VARIABLE = "SCAN2CUT_EVENTS"


def _someone_listens() -> bool:
    """True if events go anywhere; what only people see need not be made otherwise."""
    return bool(os.environ.get(EVENTS_VARIABLE))


def emit(kind: str, **fields: Any) -> None:
    """Append one event; kinds are progress (fraction, message), picture (path) and error (exit_code, message)."""
    path = os.environ.get(EVENTS_VARIABLE)
    if not path:
        return
    line = json.dumps({"kind": kind, "time_s": time.time(), **fields}) + "\n"
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)


SHOW_EVERY_S = 15.0
"""Between two of its pictures; one takes a tenth of a second to draw."""


class StageIO:
    """Reads artifacts of earlier stages, writes those of this one.

    An instance of a stage uses the base's names; they are translated here.
    """

    def __init__(self, scan_dir: Path, scan: ScanFile, stage: str, *, work_key: str = "") -> None:
        self.work_key = work_key
        """Digest of everything the stage depends on; a checkpoint of other work is not resumed."""
        self.scan_dir = scan_dir
        self.scan = scan
        self.stage = stage
        """The stage, or the instance of it, that runs."""
        self._described = STAGES[stage]
        self._written: dict[str, Path] = {}
        self._place = Scratch(scan_dir, stage)
        self._scratch = self._place.path
        self._shown_s = -SHOW_EVERY_S

    def temporary_files(self) -> AbstractContextManager[None]:
        """Within this, temporary files of the stage's process are swept with its scratch directory."""
        return self._place.temporary_files()

    @property
    def scan_path(self) -> Path:
        """The raw scan."""
        return self.scan_dir / self.scan.scan

    def read(self, name: str) -> pl.DataFrame:
        """An earlier stage's table, validated."""
        return read_table(self.scan_dir, self._readable(name))

    def notes(self, name: str) -> dict[str, str]:
        """The notes that an earlier stage left in the table."""
        return read_notes(self.scan_dir, self._readable(name))

    def _readable(self, name: str) -> str:
        """The name here; KeyError if the stage's description does not list it, and DVC would not know."""
        name = self._described.name_of(name)
        if name not in self._described.reads:
            raise KeyError(
                f"{self.stage} reads {name}, which stages/{self._described.code}/description.py lacks"
            )
        return name

    def write(self, name: str, frame: pl.DataFrame, *, notes: Mapping[str, str] | None = None) -> None:
        """One of this stage's tables; notes go into the file's metadata."""
        name = self._described.name_of(name)
        self._written[name] = write_table(self._scratch, name, frame, notes=notes)

    def write_png(self, name: str, picture: bytes | np.ndarray) -> None:
        """One of this stage's pictures: PNG bytes, or 8-bit pixels of shape [height, width, 3 or 4]."""
        png = picture if isinstance(picture, bytes) else encode_png(picture)
        name = self._described.name_of(name)
        self._written[name] = write_picture(self._scratch, name, png)

    def write_plot(self, name: str, csv: str) -> None:
        """One of this stage's small CSV files for `dvc plots`."""
        name = self._described.name_of(name)
        self._written[name] = write_csv(self._scratch, name, csv)

    def folder(self, name: str) -> Path:
        """An empty directory for one of this stage's folders; what is in it at the end is published."""
        name = self._described.name_of(name)
        place = self._scratch / artifact(name, "folder").path
        place.mkdir(parents=True)
        self._written[name] = place
        return place

    def write_metrics(self, name: str, metrics: dict[str, Any]) -> None:
        """This stage's metrics: numbers, flags and short texts, the unit in each key."""
        name = self._described.name_of(name)
        self._written[name] = write_json(self._scratch, name, metrics)

    def progress(self, fraction: float, message: str) -> None:
        """Report how far the stage is, 0 to 1."""
        emit("progress", fraction=min(max(float(fraction), 0.0), 1.0), message=message)

    def show(self, draw: Callable[[], bytes | np.ndarray]) -> None:
        """A picture of how far the stage is, for those who watch; drawn now and then, gone when the stage ends."""
        now = time.monotonic()
        if not _someone_listens() or now - self._shown_s < SHOW_EVERY_S:
            return
        self._shown_s = now
        try:
            picture = draw()
        except Exception:  # noqa: BLE001 -- a look at the work must not end the work
            return
        place = self.scan_dir / LIVE_FILE_NAME
        write_bytes_atomic(place, picture if isinstance(picture, bytes) else encode_png(picture))
        emit("picture", path=str(place.resolve()))

    def write_provenance(self, content: dict[str, Any]) -> None:
        """What the stage's files were made from; the runtime writes it, after all others."""
        name = f"{self.stage}/provenance"
        self._written[name] = write_json(self._scratch, name, content)

    def written(self) -> dict[str, Path]:
        """Where each output lies until it is published, by its path relative to the scan's directory."""
        return {ARTIFACTS[name].path: place for name, place in self._written.items()}

    def missing(self) -> list[str]:
        """Artifacts that the stage's folder describes and its `run` has not written."""
        return [a.name for a in self._described.artifacts if a.name not in self._written]

    def publish(self) -> None:
        """Move everything written to its place."""
        for name, scratch_path in self._written.items():
            final = self.scan_dir / ARTIFACTS[name].path
            final.parent.mkdir(exist_ok=True)
            if final.is_dir():
                os.replace(final, self._scratch / f"replaced-{final.name}")
            os.replace(scratch_path, final)

    def close(self) -> None:
        """Remove the scratch directory and the picture of a stage that runs."""
        self._place.close()
        (self.scan_dir / LIVE_FILE_NAME).unlink(missing_ok=True)


def encode_png(pixels: np.ndarray) -> bytes:
    """A PNG file of 8-bit pixels, shape [height, width, 3]."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels, dtype=np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()
