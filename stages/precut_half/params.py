"""Section `precut_half` of params.yaml."""

from stages.precut.params import PrecutParams


class PrecutHalfParams(PrecutParams):
    """precut_half: as precut, but always by a plane, because DVC tracks the surface file of the first cut only."""

    surface_file: None = None
