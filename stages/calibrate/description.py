"""What DVC and the flow need to know of the stage calibrate."""

from stages.calibrate.artifacts import ARTIFACTS
from stages.calibrate.params import CalibrateParams
from stages.runtime.describe import Stage
from stages.shared.cut.names import cut_mesh

STAGE = Stage(
    name="calibrate",
    does="force log → parameters of every spring that reproduce it; without a log the nominal ones",
    params=CalibrateParams,
    artifacts=ARTIFACTS,
    reads=(
        *cut_mesh("precut"),
        "ingest/force",
        "ingest/further",
    ),
    key_figure="nmae",
    timeout_s=14400,
    uses_material=True,
    uses_library=True,
)
