"""Section `transport` of params.yaml."""

from typing import Annotated

from pydantic import Field

from stages.runtime.params_base import StageParams
from stages.shared.cut.params import CutParams


class TransportParams(StageParams):
    """transport: parameters of the first cut's springs, carried over to those of the second."""

    cut: CutParams
    max_exact_springs: Annotated[int, Field(ge=1, le=20_000)]
    """Larger sets get the entropic plan."""
    entropy: Annotated[float, Field(ge=1e-5, le=1)]
    """Of the entropic plan, in squared widths of the unit box."""
    touched_ns: Annotated[float, Field(ge=0)]
    """A spring that got less impulse from the knife than this was not touched."""
    untouched_weight: Annotated[float, Field(gt=0, le=1)]
    """Weight of such a spring beside a touched one of the same area."""
    bare_within_m: Annotated[float, Field(ge=0, le=0.01)]
    """Surface springs this near to the first cut's face are flesh laid bare, not skin."""
