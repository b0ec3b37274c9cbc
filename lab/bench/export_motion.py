"""Hold a motion table against the robot's certificate, without a pipeline around it.

    python -m lab.bench.export_motion MOTION.parquet --body data/scans/<id>/halve --out FOLDER [--set robot=fr3 ...]

MOTION.parquet has the columns of optimize/motion. Without --body an ellipsoid 50 mm wide and 60 mm high stands in.
Where the motion comes from is not looked at, so the files are never certified; the last line says whether they would
be. Exit code 1 if not.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import trimesh
import yaml

from stages.export.checks import CUT_FRACTION
from stages.export.demand import Parting
from stages.export.export import export
from stages.export.export_files import Chain
from stages.export.export_picture import export_picture
from stages.runtime.params import load_params

ROOT = Path(__file__).parents[2]
UNKNOWN = "where the motion comes from"
CHAIN_CHECK = 7
PARTED = ("cut fraction of the springs the edge passes", CUT_FRACTION)
"""Not known here: the cut is not simulated."""


def body_of(folder: Path | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Vertices and faces of the body, or of the stand-in."""
    if folder is not None:
        return pl.read_parquet(folder / "vertices.parquet"), pl.read_parquet(folder / "faces.parquet")
    ball = trimesh.creation.icosphere(subdivisions=3)
    vertices = ball.vertices * [0.04, 0.03, 0.025] + [0.0, 0.03, 0.0]
    return (
        pl.DataFrame([pl.Series("position_m", vertices, pl.Array(pl.Float64, 3))]),
        pl.DataFrame([pl.Series("vertices", ball.faces.astype(np.int32), pl.Array(pl.Int32, 3))]),
    )


def main() -> int:
    """Export, print the certificate, write the picture beside the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("motion", type=Path)
    parser.add_argument("--body", type=Path, help="folder with vertices.parquet and faces.parquet")
    parser.add_argument("--out", type=Path, help="new folder for the files [default: a temporary one]")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of export.*")
    options = parser.parse_args()
    changes = {key: yaml.safe_load(value) for key, _, value in (s.partition("=") for s in options.set)}
    params = load_params(ROOT / "params.yaml").export
    params = type(params).model_validate({**params.model_dump(), **changes})
    place = options.out or Path(tempfile.mkdtemp()) / "cut"
    body = body_of(options.body)
    motion = pl.read_parquet(options.motion)
    exported = export(
        place,
        motion,
        body,
        Parting(float("nan"), float("nan"), motion["position_m"].to_numpy()[-1], 0, np.zeros(0)),
        Chain({}, (UNKNOWN,)),
        params,
        knife=params.cut.knife_label,
        scan_id=options.motion.stem,
        force_calibrated=True,
    )
    for check in exported.certificate.checks:
        mark = {True: "  ", False: "! ", None: "? "}[check.passed]
        print(mark + check.sentence())
    others = [
        check.sentence()
        for check in exported.certificate.failed
        if check.number != CHAIN_CHECK and check.name not in PARTED
    ]
    from PIL import Image

    picture = export_picture(exported.folder, exported.demand, exported.certificate)
    Image.fromarray(picture).save(place / "preview.png")
    print(f"{exported.folder}\n{place / 'preview.png'}")
    print(f"Refused: {'; '.join(others)}" if others else "Would be certified with its provenance")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
