"""One line of the certificate: value, limit, margin."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

AGAIN = "The files are damaged or were changed; export again"
"""The remedy where a file does not say what the stage wrote."""


@dataclass(frozen=True)
class Check:
    """A measured value held against its limit."""

    number: int
    """Of the list in docs/export.md, 1 to 9."""
    name: str
    value: float | str
    limit: float | str
    unit: str
    margin: float | None
    """How far inside the limit, in the same unit; negative outside. None where there is nothing to measure."""
    passed: bool | None
    """None: not verified."""
    note: str = ""
    rule: str = "="
    """How the value must compare with the limit."""
    remedy: str = ""
    """What to do when it fails."""

    def plain(self) -> dict[str, Any]:
        """For JSON, which has no NaN and no infinity."""
        return {
            key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }

    def sentence(self) -> str:
        """For people."""
        wanted = f"must be {self.rule} {_text(self.limit)}" if self.rule != "=" else ""
        remark = "; ".join(part for part in (wanted, self.note) if part)
        found = f"check {self.number}, {self.name}: {_text(self.value)} {self.unit}".rstrip() + f" ({remark})"
        return f"{found}. {self.remedy}" if self.remedy and self.passed is False else found


def at_most(
    number: int, name: str, value: float, limit: float, unit: str, note: str = "", *, remedy: str = ""
) -> Check:
    """Passes up to the limit; NaN never passes."""
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
    """Passes from the limit on; NaN never passes."""
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
    """A yes or no."""
    return Check(number, name, "yes" if passed else "no", "yes", "", None, bool(passed), note, remedy=remedy)


def not_verified(number: int, name: str, note: str) -> Check:
    """Stated openly as not looked at."""
    return Check(number, name, "not run", "-", "", None, None, note)


def otherwise(remedy: str, checks: Iterable[Check]) -> list[Check]:
    """The checks, with this remedy where they have none of their own."""
    return [check if check.remedy else replace(check, remedy=remedy) for check in checks]


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
