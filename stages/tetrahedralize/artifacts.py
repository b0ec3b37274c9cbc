"""What the stage tetrahedralize writes."""

from stages.runtime.describe import Column, metrics, picture, table
from stages.shared.columns import POSITION

ARTIFACTS = (
    table(
        "tetrahedralize/nodes",
        [POSITION],
        meaning="nodes of the tetrahedral mesh",
    ),
    table(
        "tetrahedralize/tets",
        [
            Column("nodes", "array[i32,4]", "index", "the tetrahedron's nodes, positively oriented"),
            Column("volume_m3", "f64", "m³", "volume, > 0"),
            Column(
                "radius_ratio",
                "f64",
                "-",
                "3 × inscribed / circumscribed radius; 1 for a regular tetrahedron",
            ),
            Column("min_altitude_m", "f64", "m", "smallest altitude"),
            Column("min_edge_m", "f64", "m", "shortest edge"),
            Column("max_edge_m", "f64", "m", "longest edge"),
        ],
        meaning="tetrahedra and their quality",
    ),
    metrics("tetrahedralize", "counts, volume error, quality and the stable explicit step for the material"),
    picture("tetrahedralize", "the mesh, and opened at the cut plane with the radius ratios"),
)
