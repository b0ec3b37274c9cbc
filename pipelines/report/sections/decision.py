"""Go or no go: what the certificate decided, and how near its limits the motion is."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.report.blocks import Block, Drawing, Figures, Note, Table
from pipelines.report.drawings import share_bars
from pipelines.report.scan_data import ScanData
from pipelines.report.words import number, percent, unseen

SHOWN = 5
NEVER_RUN = "Computed, never run on an arm: rehearse it with the air cut."
PARTED = "share of the cut that is parted"


def decision(data: ScanData) -> list[Block]:
    """GO or NO-GO with the reason, the figures behind it, and the tightest margins as bars."""
    export = data.metrics("export")
    if not export:
        return []
    checks = data.cut.get("certificate", {}).get("checks", [])
    blocks: list[Block] = [_go(export)]
    figures = _figures(data, checks)
    if figures:
        blocks.append(Figures(figures))
    used = tightest(checks)
    if used:
        rows = [
            (check["name"], check["value"], check["limit"], check["unit"], share) for check, share in used
        ]
        header = ("check", "value", "limit", "unit", "used of the limit")
        caption = "The five checks with the least room; 100 % is the limit."
        bars = share_bars([(check["name"], share) for check, share in used])
        blocks.append(Drawing(bars, caption, Table(header, rows), wide=True))
    return blocks


def tightest(
    checks: Sequence[Mapping[str, Any]], count: int = SHOWN
) -> list[tuple[Mapping[str, Any], float]]:
    """The checks that use most of their limits, and how much [-]; more than 1 is beyond."""
    shares = [(check, share) for check in checks if (share := used_share(check)) is not None]
    return sorted(shares, key=lambda pair: -pair[1])[:count]


def used_share(check: Mapping[str, Any]) -> float | None:
    """How much of its limit a measured check uses; None where there is no limit to use."""
    value, limit, rule = check.get("value"), check.get("limit"), check.get("rule")
    if not (isinstance(value, int | float) and isinstance(limit, int | float)) or limit <= 0.0:
        return None
    if rule == "<=":
        return max(0.0, value / limit)
    if rule == ">=":
        return limit / value if value > 0.0 else float("inf")
    return None


def _go(export: Mapping[str, Any]) -> Note:
    verdict = str(export.get("verdict", ""))
    if export.get("certified"):
        return Note(f"GO. {verdict} {NEVER_RUN}", "good")
    return Note(f"NO-GO. {verdict} There are no files for the robot.", "bad")


def _figures(data: ScanData, checks: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    export, fit = data.metrics("export"), data.metrics("calibrate")
    items: list[tuple[str, str, str]] = []
    if export.get("cut_fraction") is not None:
        left = next((str(check["note"]) for check in checks if check["name"] == PARTED), "")
        items.append(("cut through, simulated", percent(export["cut_fraction"]), left))
    if export.get("peak_force_n") is not None:
        remark = f"predicted; {unseen(fit)}"
        items.append(("peak force", f"{number(export['peak_force_n'])} N", remark))
    if export.get("deflection_m") is not None:
        remark = "at the stated joint stiffness"
        if export.get("end_lift_m") is not None:
            remark += f"; at the end of the cut the force holds it {1e3 * export['end_lift_m']:.1f} mm above its path"
        items.append(("edge gives way", f"{1e3 * export['deflection_m']:.1f} mm", remark))
    return items
