"""The table of what cleaning did."""

from dataclasses import dataclass, field

import polars as pl


@dataclass
class RepairLog:
    """Steps in the order they were taken."""

    rows: list[tuple[str, int, int, str]] = field(default_factory=list)
    """Step, count before, count after, note."""

    def add(self, step: str, before: int, after: int, note: str = "") -> None:
        """Add a step."""
        self.rows.append((step, int(before), int(after), note))

    def extend(self, other: "RepairLog") -> None:
        """Add the steps of another log."""
        self.rows.extend(other.rows)

    def table(self) -> pl.DataFrame:
        """The artifact clean/repairs."""
        return pl.DataFrame(
            self.rows,
            schema={"step": pl.String, "before": pl.Int64, "after": pl.Int64, "note": pl.String},
            orient="row",
        )
