"""What DVC and the flow need to know of the stage transport."""

from stages.runtime.describe import Stage
from stages.shared.cut.names import cut_mesh
from stages.transport.artifacts import ARTIFACTS
from stages.transport.params import TransportParams

STAGE = Stage(
    name="transport",
    does="parameters of the first cut's springs → those of the second, by optimal transport",
    params=TransportParams,
    artifacts=ARTIFACTS,
    reads=(
        "calibrate/parameters",
        "calibrate/bounds",
        "calibrate/body",
        "halve/cut_face",
        *cut_mesh("precut_half"),
    ),
    key_figure="cost",
    timeout_s=1800,
    uses_material=True,
)
