"""The hands of a stage: what it reads and writes, by artifact name.

Writes go to a scratch directory and are published together when the stage has succeeded,
so that a failing stage leaves the older artifacts as they were.
"""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stages.runtime.artifacts import (
    Provenance,
    artifact,
    read_table,
    write_csv,
    write_json,
    write_picture,
    write_table,
)
from stages.runtime.catalogue import ARTIFACTS, artifacts_of, name_in
from stages.runtime.events import emit
from stages.runtime.scan_file import ScanFile
from stages.runtime.scratch import Scratch


class StageIO:
    """Reads artifacts of earlier stages, writes those of this one.

    An instance of a stage (catalogue.INSTANCES) uses the base's names; they are translated here.
    """

    def __init__(self, scan_dir: Path, scan: ScanFile, provenance: Provenance) -> None:
        self.scan_dir = scan_dir
        self.scan = scan
        self._provenance = provenance
        self._written: dict[str, Path] = {}
        self._place = Scratch(scan_dir, provenance.stage)
        self._scratch = self._place.path

    @property
    def stage(self) -> str:
        """The stage, or the instance of it, that runs."""
        return self._provenance.stage

    @property
    def scan_path(self) -> Path:
        """The raw scan."""
        return self.scan_dir / self.scan.scan

    def read(self, name: str) -> pl.DataFrame:
        """An earlier stage's table, validated."""
        return read_table(self.scan_dir, name_in(self.stage, name))

    def write(self, name: str, frame: pl.DataFrame, *, notes: Mapping[str, str] | None = None) -> None:
        """One of this stage's tables; notes go into the file's metadata."""
        name = name_in(self.stage, name)
        self._written[name] = write_table(
            self._scratch, name, frame, provenance=self._provenance, notes=notes
        )

    def write_png(self, name: str, picture: bytes | np.ndarray) -> None:
        """One of this stage's pictures: PNG bytes, or 8-bit pixels of shape [height, width, 3 or 4]."""
        png = picture if isinstance(picture, bytes) else _encode_png(picture)
        name = name_in(self.stage, name)
        self._written[name] = write_picture(self._scratch, name, png)

    def write_plot(self, name: str, csv: str) -> None:
        """One of this stage's small CSV files for `dvc plots`."""
        name = name_in(self.stage, name)
        self._written[name] = write_csv(self._scratch, name, csv)

    def folder(self, name: str) -> Path:
        """An empty directory for one of this stage's folders; what is in it at the end is published."""
        name = name_in(self.stage, name)
        place = self._scratch / artifact(name, "folder").path
        place.mkdir(parents=True)
        self._written[name] = place
        return place

    def write_metrics(self, name: str, metrics: dict[str, Any]) -> None:
        """This stage's metrics: numbers, flags and short texts, the unit in each key."""
        name = name_in(self.stage, name)
        self._written[name] = write_json(self._scratch, name, metrics)

    def progress(self, fraction: float, message: str) -> None:
        """Tell whoever watches how far the stage is, 0 to 1."""
        emit("progress", fraction=min(max(float(fraction), 0.0), 1.0), message=message)

    def missing(self) -> list[str]:
        """Artifacts that the catalogue promises and this stage has not written."""
        return [a.name for a in artifacts_of(self.stage) if a.name not in self._written]

    def publish(self) -> None:
        """Move everything written to its place."""
        for name, scratch_path in self._written.items():
            final = self.scan_dir / ARTIFACTS[name].path
            final.parent.mkdir(exist_ok=True)
            if final.is_dir():
                os.replace(final, self._scratch / f"replaced-{final.name}")
            os.replace(scratch_path, final)

    def close(self) -> None:
        """Remove the scratch directory."""
        self._place.close()


def _encode_png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels, dtype=np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()
