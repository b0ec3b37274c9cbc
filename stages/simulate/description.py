"""What DVC and the flow need to know of the stage simulate."""

from stages.runtime.describe import Stage
from stages.shared.cut.names import cut_mesh
from stages.simulate.artifacts import ARTIFACTS
from stages.simulate.params import SimulateParams

STAGE = Stage(
    name="simulate",
    does="two bodies → force on the knife in a nominal straight cut, with default, uncalibrated parameters",
    params=SimulateParams,
    artifacts=ARTIFACTS,
    reads=(*cut_mesh("precut"),),
    key_figure="peak_force_n",
    timeout_s=3600,
    uses_material=True,
)
