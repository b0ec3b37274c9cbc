"""What DVC and the flow need to know of the stage halve."""

from stages.halve.artifacts import ARTIFACTS
from stages.halve.params import HalveParams
from stages.runtime.describe import Stage

STAGE = Stage(
    name="halve",
    does="one half of the first cut → the body of the second",
    params=HalveParams,
    artifacts=ARTIFACTS,
    reads=(
        "precut/virtual_nodes",
        "precut/half_positive_vertices",
        "precut/half_positive_faces",
        "precut/half_negative_vertices",
        "precut/half_negative_faces",
    ),
    key_figure="volume_m3",
    timeout_s=600,
)
