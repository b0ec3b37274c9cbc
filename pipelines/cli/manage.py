"""Commands that manage workspaces and scans: init, remove, rename, history, plane."""

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.terminal import Json, out, print_json, print_note, print_text, scan_ids, this_project
from stages.runtime.errors import EXIT_INTERRUPTED, InputError

_Scan = Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)]


def add_manage_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (init, remove, rename, history, plane):
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


def plane(
    scan: _Scan,
    port: Annotated[int, typer.Option(help="Port of the page; 0: any free one.")] = 0,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Choose the plane of the first cut by eye, on a page of this machine; save it as --set would.

    Ctrl-C ends it without a change.
    """
    from pipelines.report.plane_page import CutPlane, PlaneServer, read_fruit
    from pipelines.scans.register import Request, known_raw_file, register_scan

    project = this_project()
    fruit = read_fruit(project, scan)

    def save(chosen: CutPlane) -> None:
        overrides = {"clean": {"cut_offset_m": chosen.cut_offset_m, "turn_deg": chosen.turn_deg}}
        register_scan(project, Request(known_raw_file(project, scan), scan_id=scan, overrides=overrides))

    server = PlaneServer(fruit, save, port)
    print_note(f"Choose the plane at {server.url} and press Save there. Ctrl-C ends without a change.")
    if open_page and not webbrowser.open(server.url):
        print_note("No browser available to open the page. Open the address yourself.")
    try:
        server.serve()
    except KeyboardInterrupt:
        print_note("Nothing was changed.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if server.chosen is not None:
        settings = " ".join(f"--set {each}" for each in server.chosen.settings())
        print_text(out, f"Saved for {scan}: {settings}")
        print_text(out, f"Next: scan2cut run {scan}")
