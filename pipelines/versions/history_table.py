"""Versions of the dataset and their differences as tables for people."""

from collections.abc import Sequence

from rich.table import Table

from pipelines.versions.history import Changes, Version


def versions_table(versions: Sequence[Version]) -> Table:
    """One row per version."""
    table = Table("version", "date", "scans", "what")
    for version in versions:
        table.add_row(version.name, version.date, str(version.scans), version.subject)
    return table


def changes_table(changes: Changes) -> Table:
    """One row per scan that differs, the parameters of all scans first."""
    table = Table("scan", "", "what changed", title=f"from {changes.old} to {changes.new}")
    if changes.params:
        table.add_row("all", "params.yaml", "\n".join(changes.params))
    for scan in changes.scans:
        lines = [f"raw file {name}" for name in scan.raw]
        lines += [f"setting {text}" for text in scan.settings]
        lines += [f"outputs of {', '.join(scan.stages)}"] if scan.stages else []
        lines += list(scan.metrics)
        table.add_row(scan.scan, scan.kind, "\n".join(lines))
    if not changes.params and not changes.scans:
        table.add_row("", "", "nothing")
    return table
