"""What DVC and the flow need to know of the stage clean."""

from stages.clean.artifacts import ARTIFACTS
from stages.clean.params import CleanParams
from stages.runtime.describe import Stage

STAGE = Stage(
    name="clean",
    does="raw scan → watertight surface on the board, y up, cut plane x = 0, in metres",
    params=CleanParams,
    artifacts=ARTIFACTS,
    reads=(),
    key_figure="volume_m3",
    timeout_s=1800,
    files=("scan",),
    uses_material=True,
)
