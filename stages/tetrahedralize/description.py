"""What DVC and the flow need to know of the stage tetrahedralize."""

from stages.runtime.describe import Stage
from stages.tetrahedralize.artifacts import ARTIFACTS
from stages.tetrahedralize.params import TetrahedralizeParams

STAGE = Stage(
    name="tetrahedralize",
    does="surface → tetrahedral mesh, finer near the cut",
    params=TetrahedralizeParams,
    artifacts=ARTIFACTS,
    reads=(
        "clean/vertices",
        "clean/faces",
    ),
    key_figure="tets",
    timeout_s=3600,
    uses_material=True,
)
