"""Report sections on the robot: joints and their limits, certificate."""

from collections.abc import Sequence
from typing import Any

from pipelines.report.page import Block, Code, Curve, Note, Plot, Section, Table, Tone, number
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.decision import margin_share
from pipelines.report.tables import not_run
from stages.export.load_checks import TORQUE_SHARE
from stages.export.motion_checks import ACCELERATION_SHARE, SPEED_SHARE
from stages.runtime.catalogue import ARTIFACTS

_JOINTS = 7
_SHARE = "fraction of the limit [-]"
_GROUPS = {
    1: "complete files, at rest at both ends",
    2: "limits of joints and edge",
    3: "joint trajectory reproduces the edge motion",
    4: "collisions: board, fruit, fixture, links, base",
    5: "loads and collision thresholds",
    6: "frames, robot and knife",
    7: "hashes",
    8: "independent dynamics (MuJoCo)",
    9: "cut through",
}
"""Titles of the certificate's groups of checks."""


def joints(data: ScanData) -> Section:
    """Build the section on joint position, velocity, acceleration and torque as fractions of their limits."""
    title = "Joints and their limits"
    cut = data.cut
    if not cut:
        return Section("joints", title, [not_run("export")])
    limits, rows = cut["limits"], cut["waypoints"]
    middle = [
        0.5 * (a + b) for a, b in zip(limits["position_low_rad"], limits["position_high_rad"], strict=True)
    ]
    reach = [
        0.5 * (b - a) for a, b in zip(limits["position_low_rad"], limits["position_high_rad"], strict=True)
    ]
    time = [row["time_s"] for row in rows]
    phases = [(p["start_s"], p["phase"]) for p in cut["timing"]["phases"] if p["phase"] != "rest"]

    def plot(
        name: str,
        values: Sequence[Sequence[float]],
        unit: Sequence[float],
        centre: Sequence[float],
        allowed: float = 1.0,
    ) -> Plot:
        curves = [
            Curve(
                f"J{j + 1} (limit {number(float(unit[j]))})",
                [(row[j] - centre[j]) / unit[j] for row in values],
            )
            for j in range(_JOINTS)
        ]
        return Plot(
            name,
            "time [s]",
            _SHARE,
            time,
            curves,
            marks=phases,
            levels=[(allowed, "limit of the certificate"), (-allowed, "")],
        )

    zero = [0.0] * _JOINTS
    blocks: list[Block] = [
        Note(
            f"{cut['robot']['title']}, {len(rows)} waypoints at 100 Hz. Curves are fractions of the robot's limits, of "
            f"which the certificate allows {SPEED_SHARE:g} of the velocity, {ACCELERATION_SHARE:g} of the acceleration "
            f"and {TORQUE_SHARE:g} of the torque."
        ),
        plot(
            "Position relative to the centre of the range [half range in rad]",
            [row["q_rad"] for row in rows],
            reach,
            middle,
        ),
        plot(
            "Velocity [limit in rad/s]",
            [row["dq_rad_s"] for row in rows],
            limits["velocity_rad_s"],
            zero,
            SPEED_SHARE,
        ),
        plot(
            "Acceleration [limit in rad/s²]",
            [row["ddq_rad_s2"] for row in rows],
            limits["acceleration_rad_s2"],
            zero,
            ACCELERATION_SHARE,
        ),
        plot(
            "Torque including the predicted force [limit in N·m]",
            _torques(cut),
            limits["torque_nm"],
            zero,
            TORQUE_SHARE,
        ),
    ]
    return Section("joints", title, blocks)


def _torques(cut: dict[str, Any]) -> list[list[float]]:
    from stages.export.dynamics import waypoint_torques

    return waypoint_torques(cut)


def certificate(data: ScanData) -> Section:
    """Build the section on the certificate: every check with value, limit and margin."""
    title = "Certificate"
    metrics, document = data.metrics("export"), data.cut.get("certificate", {})
    if not metrics:
        return Section("certificate", title, [not_run("export")])
    tone: Tone = "good" if metrics.get("certified") else "bad"
    checks = document.get("checks", [])
    blocks: list[Block] = [
        Note(f"{metrics.get('verdict', '')} {_counts(metrics, checks)}", tone),
        *_groups(checks),
    ]
    loads = document.get("loads", {})
    if loads:
        blocks.append(
            Table(("load", "value"), list(loads.items()), "Expected loads and thresholds to set", folded=True)
        )
    if metrics.get("certified"):
        where = str(metrics.get("path", f"data/scans/{data.scan_id}/{ARTIFACTS['export/cut'].path}"))
        blocks.append(Code(where, "Exported files (described in docs/export.md)"))
    return Section("certificate", title, blocks)


def _counts(metrics: dict[str, Any], checks: Sequence[dict[str, Any]]) -> str:
    """Return the numbers of checks that passed, failed and were not run."""
    failed, skipped = len(metrics.get("failed") or []), sum(check.get("passed") is None for check in checks)
    passed = int(metrics.get("checks") or 0) - failed - skipped
    return f"{passed} checks passed, {failed} failed" + (f", {skipped} not run." if skipped else ".")


def _margin(check: dict[str, Any]) -> float:
    margin = margin_share(check)
    return float("inf") if margin is None else margin


def _groups(checks: Sequence[dict[str, Any]]) -> list[Block]:
    """Return one table per group, tightest checks first; groups with a failed check are expanded."""
    words = {True: "passed", False: "FAILED", None: "not run"}
    header = ("no.", "check", "result", "value", "limit", "unit", "margin", "note")
    blocks: list[Block] = []
    for group in sorted({int(check["number"]) for check in checks}):
        of_group = [check for check in checks if check["number"] == group]
        of_group.sort(key=lambda check: (check["passed"] is not False, _margin(check)))
        rows = [
            (
                check["number"],
                check["name"],
                words[check["passed"]],
                check["value"],
                f"{'' if check['rule'] == '=' else check['rule'] + ' '}{number(check['limit'])}",
                check["unit"],
                check["margin"],
                "; ".join(
                    t for t in (check["note"], "" if check["passed"] else check.get("remedy", "")) if t
                ),
            )
            for check in of_group
        ]
        failed = sum(check["passed"] is False for check in of_group)
        title = f"{group}: {_GROUPS.get(group, 'other')}, {len(rows)} checks" + (
            f", {failed} FAILED" if failed else ""
        )
        blocks.append(Table(header, rows, title, folded=not failed))
    return blocks
