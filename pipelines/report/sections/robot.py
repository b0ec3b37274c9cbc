"""The robot's part: joints against limits, the certificate."""

from collections.abc import Sequence
from typing import Any

from pipelines.report.page import Block, Code, Curve, Note, Plot, Section, Table, Tone, number
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.summary import used_share
from pipelines.report.tables import not_run, preview
from stages.runtime.catalogue import ARTIFACTS

_JOINTS = 7
_SHARE = "share of the limit [-]"
_GROUPS = {
    1: "whole files, rest at both ends",
    2: "limits of the joints and of the edge",
    3: "joints against the wanted edge",
    4: "space: board, fruit, fixture, links, base",
    5: "loads and collision thresholds",
    6: "frames, robot and knife",
    7: "hashes",
    8: "independent replay",
    9: "it cuts the fruit",
}
"""What the numbers of the certificate's checks stand for."""


def joints(data: ScanData) -> Section:
    """Joint position, velocity, acceleration and torque, each as a share of its limit."""
    title = "Joints against their limits"
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
        name: str, values: Sequence[Sequence[float]], unit: Sequence[float], centre: Sequence[float]
    ) -> Plot:
        curves = [
            Curve(
                f"J{j + 1} (limit {number(float(unit[j]))})",
                [(row[j] - centre[j]) / unit[j] for row in values],
            )
            for j in range(_JOINTS)
        ]
        return Plot(name, "time [s]", _SHARE, time, curves, marks=phases, levels=[(1.0, "limit"), (-1.0, "")])

    zero = [0.0] * _JOINTS
    blocks: list[Block] = [
        Note(
            f"{cut['robot']['title']}, {len(rows)} waypoints at 100 Hz. Curves are shares of the robot's own limits; "
            "the certificate allows less (0.5 of the speed, 0.6 of the acceleration, 0.7 of the torque)."
        ),
        plot(
            "Position, from the middle of the range [half ranges, rad]",
            [row["q_rad"] for row in rows],
            reach,
            middle,
        ),
        plot(
            "Velocity [of the limit in rad/s]",
            [row["dq_rad_s"] for row in rows],
            limits["velocity_rad_s"],
            zero,
        ),
        plot(
            "Acceleration [of the limit in rad/s²]",
            [row["ddq_rad_s2"] for row in rows],
            limits["acceleration_rad_s2"],
            zero,
        ),
        plot(
            "Torque with the predicted force [of the limit in N·m]", _torques(cut), limits["torque_nm"], zero
        ),
        *preview(data, "export"),
    ]
    return Section("joints", title, blocks)


def _torques(cut: dict[str, Any]) -> list[list[float]]:
    from stages.export.dynamics import waypoint_torques

    return waypoint_torques(cut)


def certificate(data: ScanData) -> Section:
    """Every check with value, limit and margin."""
    title = "The certificate"
    metrics, document = data.metrics("export"), data.cut.get("certificate", {})
    if not metrics:
        return Section("certificate", title, [not_run("export")])
    tone: Tone = "good" if metrics.get("certified") else "bad"
    blocks: list[Block] = [Note(str(metrics.get("verdict", "")), tone), *_groups(document.get("checks", []))]
    loads = document.get("loads", {})
    if loads:
        blocks.append(
            Table(("load", "value"), list(loads.items()), "Loads to expect, thresholds to set", folded=True)
        )
    if metrics.get("certified"):
        where = str(metrics.get("path", f"data/scans/{data.scan_id}/{ARTIFACTS['export/cut'].path}"))
        blocks.append(Code(where, "The files; what each is: docs/export.md"))
    return Section("certificate", title, blocks)


def _groups(checks: Sequence[dict[str, Any]]) -> list[Block]:
    """The checks by their number, the tightest first; a group opens by itself if one of it failed."""
    words = {True: "passed", False: "FAILED", None: "not run"}
    header = ("no.", "check", "result", "value", "limit", "unit", "margin", "note")
    blocks: list[Block] = []
    for group in sorted({int(check["number"]) for check in checks}):
        of_group = [check for check in checks if check["number"] == group]
        of_group.sort(key=lambda check: (check["passed"] is not False, -(used_share(check) or 0.0)))
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
