"""What DVC and the flow need to know of the stage precut."""

from stages.precut.artifacts import ARTIFACTS
from stages.precut.params import PrecutParams
from stages.runtime.describe import Stage

STAGE = Stage(
    name="precut",
    does="mesh → two bodies joined by cutting springs",
    params=PrecutParams,
    artifacts=ARTIFACTS,
    reads=(
        "tetrahedralize/nodes",
        "tetrahedralize/tets",
    ),
    key_figure="springs",
    timeout_s=1800,
    files=("cut_surface",),
)
