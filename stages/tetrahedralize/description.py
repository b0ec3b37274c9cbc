"""Description of the stage tetrahedralize: parameters, artifacts, inputs."""

from typing import Annotated

from pydantic import Field

from stages.runtime.describe import Column, EdgeLength, Fraction, Stage, StageParams, metrics, picture, table
from stages.shared.surface import POSITION

_ARTIFACTS = (
    table(
        "tetrahedralize/nodes",
        [POSITION],
        meaning="nodes of the tetrahedral mesh",
    ),
    table(
        "tetrahedralize/tets",
        [
            Column("nodes", "array[i32,4]", "index", "nodes of the tet, positively oriented"),
            Column("volume_m3", "f64", "m³", "volume, > 0"),
            Column(
                "radius_ratio",
                "f64",
                "-",
                "3 × inscribed / circumscribed radius; 1 for a regular tet",
            ),
            Column("min_altitude_m", "f64", "m", "smallest altitude"),
            Column("min_edge_m", "f64", "m", "shortest edge"),
            Column("max_edge_m", "f64", "m", "longest edge"),
        ],
        meaning="tets and their quality",
    ),
    metrics("tetrahedralize", "counts, volume error, quality"),
    picture("tetrahedralize", "mesh, and section at the cut plane coloured by radius ratio"),
)


class TetrahedralizeParams(StageParams):
    """tetrahedralize: from the surface to a tetrahedral mesh, finer near the cut plane."""

    edge_m: EdgeLength
    cut_edge_m: EdgeLength
    cut_band_m: Annotated[float, Field(ge=0, le=1)]
    epsilon_m: Annotated[float, Field(gt=0, le=0.01)]
    threads: Annotated[int, Field(ge=1, le=256)]
    max_volume_error_fraction: Fraction
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """Seed of the mesher's random numbers."""


STAGE = Stage(
    name="tetrahedralize",
    does="surface → tetrahedral mesh, refined near the cut plane",
    params=TetrahedralizeParams,
    artifacts=_ARTIFACTS,
    reads=(
        "clean/vertices",
        "clean/faces",
    ),
    key_figure="tets",
    timeout_s=3600,
    uses_material=True,
)
