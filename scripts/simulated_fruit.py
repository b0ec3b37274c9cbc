"""What a simulated arm feels in a scan's fruit: the force of the certified motion, or of a fruit with other parameters.

For scripts.serve_arm. Nothing here is measured.
"""

import json
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.errors import InputError
from disect_sim.materials import MATERIALS
from stages.replay.stage import record
from stages.runtime.artifacts import read_table
from stages.runtime.params import load_params
from stages.runtime.scan_file import SCAN_FILE_NAME, read_scan_file
from stages.shared.cut.cut_mesh_tables import read_cut_mesh
from stages.shared.cut.second_cut_values import of_material, read_second_cut_values


def write_fruit(file: Path, scan_dir: Path, params_yaml: Path, factors: dict[str, float]) -> Path:
    """Joints of the arm and the force on the knife, base frame, one row per millisecond of the cut."""
    folder = scan_dir / "export" / "cut" / "certified"
    if not (folder / "cut.json").is_file():
        raise InputError(
            f"{scan_dir} has no certified motion. --fruit needs one. Run scan2cut run on that scan."
        )
    motion = pl.read_parquet(folder / "motion.parquet")
    document = json.loads((folder / "cut.json").read_text(encoding="utf-8"))
    pose = np.array(document["frames"]["O_T_C"])
    start = next(round(1000 * p["start_s"]) for p in document["timing"]["phases"] if p["phase"] == "cut")
    joints = np.loadtxt(folder / "joint_1khz.csv", delimiter=",", skiprows=1)[:, 1:]
    force = motion["force_n"].to_numpy() if not factors else felt(scan_dir, params_yaml, motion, factors)
    rows = {
        "joints_rad": joints[start : start + len(motion)],
        "force_n": force @ pose[:3, :3].T,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({name: values.tolist() for name, values in rows.items()}), encoding="utf-8")
    return file


def felt(
    scan_dir: Path, params_yaml: Path, motion: pl.DataFrame, factors: dict[str, float]
) -> NDArray[np.float64]:
    """Force on the knife [N], shape [n, 3], in a fruit whose parameters are the fitted ones times the factors."""

    def read(name: str) -> pl.DataFrame:
        return read_table(scan_dir, name)

    values = read_second_cut_values(read)
    unknown = sorted(set(factors) - set(values))
    if unknown:
        raise InputError(
            f"There is no parameter {', '.join(unknown)}. It must be one of {', '.join(values)}."
        )
    cut = record(
        read_cut_mesh(read, "precut_half"),
        MATERIALS[read_scan_file(scan_dir).material],
        motion,
        of_material(values, factors),
        load_params(params_yaml, scan_dir / SCAN_FILE_NAME).replay,
    ).result
    if not cut.outcome.ok:
        raise InputError(f"The cut of that fruit ended early: {cut.outcome}. Give factors nearer to 1.")
    time = motion["time_s"].to_numpy()
    steps = cut.step_time[1:] + time[0]
    return np.stack([np.interp(time, steps, column) for column in cut.force.T], axis=1)
