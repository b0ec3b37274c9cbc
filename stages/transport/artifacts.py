"""What the stage transport writes."""

from dataclasses import replace

from stages.runtime.describe import Column, metrics, picture, table
from stages.shared.cut.spring_columns import SPRING_ROW

ARTIFACTS = (
    table(
        "transport/parameters",
        [
            replace(
                column,
                meaning="true for skin; false for flesh that the first cut laid bare",
            )
            if column.name == "surface"
            else column
            for column in SPRING_ROW
        ],
        meaning="parameters of the second cut's springs, in the rows of precut_half/springs",
    ),
    table(
        "transport/plan",
        [
            Column("target", "i32", "index", "row of precut_half/springs"),
            Column("source", "i32", "index", "row of precut/springs"),
            Column("weight", "f64", "-", "share of the source in the target's values; sums to 1 per target"),
        ],
        meaning="which springs of the first cut the values come from, in order of target and source",
    ),
    metrics(
        "transport",
        "cost, marginal errors and method of the plan, spread that it keeps, and the force beside that of averages",
    ),
    picture("transport", "both cut surfaces in matching colours, and parameters before and after"),
)
