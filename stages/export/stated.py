"""What an export was held against, as it is stated in its own files, so that the folder can be checked anywhere."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stages.export.cell import cell_of
from stages.export.demand import Demand, Fruit
from stages.export.export_files import MOTION
from stages.export.motion_table import cut_of
from stages.export.params import ExportParams
from stages.export.parting import Parting
from stages.export.segments import PERIOD_S, EdgeMotion
from stages.shared.inputs.parquet_file import read_parquet
from stages.shared.robots.robot import load_robot


def stated(demand: Demand) -> dict[str, Any]:
    """For cut.json: settings, fruit, and what the simulated cut left whole."""
    fruit, parting = demand.fruit, demand.parting
    return {
        "params": demand.params.model_dump(mode="json"),
        "knife_of_motion": demand.knife_of_motion,
        "fruit": {
            "low_m": fruit.low_m.tolist(),
            "high_m": fruit.high_m.tolist(),
            "section_m": fruit.section.tolist(),
        },
        "parting": {
            "cut_fraction": _plain(parting.cut_fraction),
            "reached_fraction": _plain(parting.reached_fraction),
            "end_position_m": parting.end_position_m.tolist(),
            "springs": parting.springs,
            "whole_heights_m": parting.whole_heights_m.tolist(),
        },
    }


def motion_bytes(cut: EdgeMotion) -> bytes:
    """The optimised motion at 1 kHz with its predicted force, as Parquet."""
    names = ("position_m", "velocity_m_s", "acceleration_m_s2", "force_n")
    columns = (cut.position, cut.velocity, cut.acceleration, cut.force)
    frame = pl.DataFrame(
        [
            pl.Series("time_s", PERIOD_S * np.arange(len(cut)), pl.Float64),
            *(pl.Series(n, c, pl.Array(pl.Float64, 3)) for n, c in zip(names, columns, strict=True)),
        ]
    )
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def demand_of_files(folder: Path, document: dict[str, Any]) -> Demand:
    """The demand as stated in the folder; the robot is the one of this release's data file."""
    said = document["demand"]
    params = ExportParams.model_validate(said["params"])
    fruit, parting = said["fruit"], said["parting"]
    section = np.array(fruit["section_m"], float)
    return Demand(
        robot=load_robot(params.arm.robot),
        cell=cell_of(params),
        params=params,
        cut=cut_of(read_parquet(folder / MOTION)),
        knife_of_motion=said["knife_of_motion"],
        fruit=Fruit(
            np.array(fruit["low_m"], float),
            np.array(fruit["high_m"], float),
            float(section[..., 0].min()),
            float(section[..., 0].max()),
            section,
            np.zeros((0, 3, 2)),
        ),
        parting=Parting(
            _number(parting["cut_fraction"]),
            _number(parting["reached_fraction"]),
            np.array(parting["end_position_m"], float),
            int(parting["springs"]),
            np.array(parting["whole_heights_m"], float),
        ),
        provenance=document["provenance"]["upstream_sha256"],
        broken_links=(),
    )


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
