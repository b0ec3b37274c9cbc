"""What DVC and the flow need to know of the stage replay."""

from stages.replay.artifacts import ARTIFACTS
from stages.replay.params import ReplayParams
from stages.runtime.describe import Stage
from stages.shared.cut.names import cut_mesh

STAGE = Stage(
    name="replay",
    does="motion → a recording of the cut for the 3D viewers",
    params=ReplayParams,
    artifacts=ARTIFACTS,
    reads=(
        "calibrate/body",
        "transport/parameters",
        "optimize/motion",
        *cut_mesh("precut_half"),
    ),
    key_figure="mean_force_over_time_n",
    timeout_s=3600,
    uses_material=True,
)
