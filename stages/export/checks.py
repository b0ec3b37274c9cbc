"""One line of the certificate: value, limit, margin."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

CUT_FRACTION = "cut fraction of the simulated cut"
"""Name of the check that the motion cuts through; the report shows its note."""
AGAIN = "The files are damaged or were changed; export again"
"""Remedy where a file differs from what the stage wrote."""


@dataclass(frozen=True)
class Check:
    """A measured value compared with its limit."""

    number: int
    """Number of the check in docs/export.md, 1 to 9."""
    name: str
    value: float | str
    limit: float | str
    unit: str
    margin: float | None
    """Distance to the limit, in the same unit; negative outside. None if nothing was measured."""
    passed: bool | None
    """None if not verified."""
    note: str = ""
    rule: str = "="
    """Relation of the value to the limit."""
    remedy: str = ""
    """Remedy if it fails."""

    def plain(self) -> dict[str, Any]:
        """Return a JSON-serialisable form, without NaN and infinity."""
        return {
            key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }

    def sentence(self) -> str:
        """Return the check as a message."""
        rule = f"must be {self.rule} {_text(self.limit)}" if self.rule != "=" else ""
        remark = "; ".join(part for part in (rule, self.note) if part)
        message = (
            f"check {self.number}, {self.name}: {_text(self.value)} {self.unit}".rstrip() + f" ({remark})"
        )
        return f"{message}. {self.remedy}" if self.remedy and self.passed is False else message


def at_most(
    number: int, name: str, value: float, limit: float, unit: str, note: str = "", *, remedy: str = ""
) -> Check:
    """Return a check that passes up to the limit; NaN never passes."""
    return Check(
        number,
        name,
        float(value),
        limit,
        unit,
        float(limit - value),
        bool(value <= limit),
        note,
        "<=",
        remedy,
    )


def at_least(
    number: int, name: str, value: float, limit: float, unit: str, note: str = "", *, remedy: str = ""
) -> Check:
    """Return a check that passes from the limit on; NaN never passes."""
    return Check(
        number,
        name,
        float(value),
        limit,
        unit,
        float(value - limit),
        bool(value >= limit),
        note,
        ">=",
        remedy,
    )


def holds(number: int, name: str, passed: bool, note: str, *, remedy: str = "") -> Check:
    """Return a check of a condition."""
    return Check(number, name, "yes" if passed else "no", "yes", "", None, bool(passed), note, remedy=remedy)


def not_verified(number: int, name: str, note: str) -> Check:
    """Return a check that is reported as not verified."""
    return Check(number, name, "not run", "-", "", None, None, note)


def otherwise(remedy: str, checks: Iterable[Check]) -> list[Check]:
    """Return the checks, with this remedy where they have none."""
    return [check if check.remedy else replace(check, remedy=remedy) for check in checks]


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
