"""What DVC and the flow need to know of the stage precut_half."""

from stages.precut_half.params import PrecutHalfParams
from stages.runtime.describe import Instance

STAGE = Instance(
    name="precut_half",
    of="precut",
    reads={"tetrahedralize": "tetrahedralize_half"},
    does="the second cut's mesh → two bodies joined by cutting springs",
    params=PrecutHalfParams,
)
