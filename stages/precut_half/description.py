"""Description of the stage precut_half, the second instance of precut."""

from stages.precut.description import PrecutParams
from stages.runtime.describe import Instance


class PrecutHalfParams(PrecutParams):
    """precut_half: as precut, but always by a plane, because DVC tracks the surface file of the first cut only."""

    surface_file: None = None


STAGE = Instance(
    name="precut_half",
    of="precut",
    reads={"tetrahedralize": "tetrahedralize_half", "clean": "halve"},
    does="mesh of the second cut → two parts joined by springs along the cut",
    params=PrecutHalfParams,
)
