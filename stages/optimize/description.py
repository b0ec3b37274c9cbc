"""What DVC and the flow need to know of the stage optimize."""

from stages.optimize.artifacts import ARTIFACTS
from stages.optimize.params import OptimizeParams
from stages.runtime.describe import Stage
from stages.shared.cut.names import cut_mesh

STAGE = Stage(
    name="optimize",
    does="second body → the slicing motion with the least mean force under hard constraints",
    params=OptimizeParams,
    artifacts=ARTIFACTS,
    reads=(
        "tetrahedralize_half/nodes",
        "tetrahedralize_half/tets",
        "calibrate/body",
        "calibrate/draws",
        "transport/parameters",
        *cut_mesh("precut_half"),
    ),
    key_figure="reduction",
    timeout_s=14400,
    uses_material=True,
)
