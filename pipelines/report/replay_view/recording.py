"""The recording that the stage replay wrote, ready for a viewer."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from disect_sim.errors import InputError
from pipelines.report.scan_data import ScanData
from pipelines.scans.project import Project

TABLES = ("frames", "faces", "vertices", "springs")


@dataclass(frozen=True)
class ReplayRecording:
    """Tables of the stage replay; vertices and springs hold one frame after the other."""

    scan_id: str
    frames: pl.DataFrame
    faces: pl.DataFrame
    vertices: pl.DataFrame
    springs: pl.DataFrame
    metrics: dict[str, Any]
    cut: dict[str, Any]
    """cut.json of the export; empty without one."""

    def of_frame(self, table: pl.DataFrame, frame: int) -> pl.DataFrame:
        """The rows of one frame."""
        count = len(table) // len(self.frames)
        return table.slice(frame * count, count)


def read_recording(project: Project, scan_id: str) -> ReplayRecording:
    """Read it; InputError if the stage has not run."""
    data = ScanData(project, scan_id)
    found = {name: data.table(f"replay/{name}") for name in TABLES}
    metrics = data.metrics("replay")
    missing = [name for name, table in found.items() if table is None]
    if missing or not metrics:
        why = f" {data.problems[0]}" if data.problems else ""
        raise InputError(
            f"The scan {scan_id!r} has no recording of its cut.{why} The stage replay writes it. "
            "Run 'scan2cut run SCAN' to its end first."
        )
    tables = {name: table for name, table in found.items() if table is not None}
    return ReplayRecording(scan_id, metrics=metrics, cut=data.cut, **tables)
