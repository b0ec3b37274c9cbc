"""Commands that manage workspaces and scans: init, remove, rename, history."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.terminal import Json, out, print_json, print_note, print_text, scan_ids, this_project
from stages.runtime.errors import EXIT_INTERRUPTED, InputError

_Scan = Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)]


def add_manage_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (init, remove, rename, history):
        app.command()(command)


def init(
    folder: Annotated[Path, typer.Argument(help="New or empty folder.")],
    as_json: Json = False,
) -> None:
    """Make a workspace: a folder for your data, settings, profiles and library of cuts, outside the code."""
    from pipelines.workspace import init_workspace

    project = init_workspace(folder)
    if as_json:
        print_json({"workspace": str(project.root)})
        return
    print_text(out, f"Workspace: {project.root}")
    print_text(
        out,
        "settings.yaml: what differs from the defaults; profiles/: your cell, knife, material and robot; library/: "
        "calibrated cuts; data/: scans.",
    )
    print_text(out, f"Next: cd {folder} && scan2cut run SCAN --log LOG")


def remove(
    scan: _Scan,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a scan with its results; say what goes and what stays, and ask first."""
    from pipelines.scans.manage import dependents, remove_scan

    project = this_project()
    listed = dependents(project, scan)
    for line in listed.lines():
        print_note(line)
    if not yes:
        if not sys.stdin.isatty():
            raise InputError(
                f"{scan!r} was not removed. Without a terminal nobody can be asked. Add --yes to remove it."
            )
        if not typer.confirm(f"Remove {scan}?", err=True):
            print_note("Nothing was removed.")
            raise typer.Exit(EXIT_INTERRUPTED)
    removed = remove_scan(project, scan)
    print_json(removed.as_json()) if as_json else print_text(out, f"Removed {removed.folder}.")


def rename(
    scan: _Scan,
    new: Annotated[str, typer.Argument(help="New id: a-z, 0-9, _ and -.")],
    as_json: Json = False,
) -> None:
    """Give a scan another id; its results stay, except the exported motion, which names the id."""
    from pipelines.scans.manage import rename_scan

    project = this_project()
    again = rename_scan(project, scan, new)
    if as_json:
        print_json({"scan": new, "folder": f"data/scans/{new}", "stages_to_run": list(again)})
        return
    print_text(out, f"Renamed {scan} to {new}.")
    if again:
        print_text(out, f"{', '.join(again)} named the old id; write it again with: scan2cut run {new}")


def history(scan: _Scan, as_json: Json = False) -> None:
    """List the runs and commits of a scan: when, what changed, main figures."""
    from pipelines.versions.history import history_table, scan_history

    rows = scan_history(this_project(), scan)
    if as_json:
        print_json(rows)
    elif rows:
        out.print(history_table(scan, rows))
    else:
        print_text(out, f"No run of {scan} is recorded. Run it with: scan2cut run {scan}")
