"""What DVC and the flow need to know of the stage precut_half."""

from stages.precut.description import PrecutParams
from stages.runtime.describe import Instance


class PrecutHalfParams(PrecutParams):
    """precut_half: as precut, but always by a plane, because DVC tracks the surface file of the first cut only."""

    surface_file: None = None


STAGE = Instance(
    name="precut_half",
    of="precut",
    reads={"tetrahedralize": "tetrahedralize_half"},
    does="the second cut's mesh → two bodies joined by cutting springs",
    params=PrecutHalfParams,
)
