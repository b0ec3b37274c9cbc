"""Description of the stage transport: parameters, artifacts, inputs."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from stages.runtime.describe import Column, Stage, StageParams, metrics, picture, table
from stages.shared.cut_description import SPRING_ROW, CutParams, cut_mesh

_ARTIFACTS = (
    table(
        "transport/parameters",
        [
            replace(
                column,
                meaning="true for skin; false for flesh exposed by the first cut",
            )
            if column.name == "surface"
            else column
            for column in SPRING_ROW
        ],
        meaning="parameters of the second cut's springs, rows as in precut_half/springs",
    ),
    table(
        "transport/plan",
        [
            Column("target", "i32", "index", "row of precut_half/springs"),
            Column("source", "i32", "index", "row of precut/springs"),
            Column("weight", "f64", "-", "weight of the source in the target's values; sums to 1 per target"),
        ],
        meaning="transport plan: source springs of each target spring, sorted by target and source",
    ),
    metrics(
        "transport",
        "cost, marginal errors and method of the plan, preserved variation, force compared with averaged parameters",
    ),
    picture("transport", "both cut surfaces in matching colours, parameters before and after transport"),
)


class TransportParams(StageParams):
    """transport: parameters of the first cut's springs, carried over to those of the second."""

    cut: CutParams
    max_exact_springs: Annotated[int, Field(ge=1, le=20_000)] = 4000
    """Larger sets get the entropic plan."""
    entropy: Annotated[float, Field(ge=1e-5, le=1)] = 0.002
    """Regularisation of the entropic plan, in squared widths of the unit box."""
    touched_ns: Annotated[float, Field(ge=0)] = 0.0001
    """A spring that got less impulse from the knife than this was not touched."""
    untouched_weight: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Weight of such a spring beside a touched one of the same area."""
    bare_within_m: Annotated[float, Field(ge=0, le=0.01)] = 0.0015
    """Surface springs this near to the first cut's face are flesh laid bare, not skin."""
    amplitude: Annotated[float, Field(gt=0.05, lt=20)] = 1.0
    """Factor on the toughness of flesh and skin, learnt from executed slices (scan2cut executed SCAN --slice)."""


STAGE = Stage(
    name="transport",
    does="spring parameters of the first cut → spring parameters of the second cut, by optimal transport",
    params=TransportParams,
    artifacts=_ARTIFACTS,
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
