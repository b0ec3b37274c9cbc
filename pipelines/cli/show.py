"""The commands for looking: report, view, compare. The command line adds them to its own."""

import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.completion import scan_ids
from pipelines.cli.terminal import out, print_text, this_project

Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")]


def add_show_commands(app: typer.Typer) -> None:
    """Add them."""
    for command in (report, view, compare):
        app.command()(command)


def report(
    scan: Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)],
    open_page: Open = False,
) -> None:
    """Build report.html of a scan again: everything its last run decided, on one page."""
    from pipelines.report.build import build_report

    _done(build_report(this_project(), scan), open_page)


def view(
    scan: Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)],
    open_page: Open = True,
    rrd: Annotated[
        Path | None, typer.Option(help="Write a Rerun recording instead; needs the extra rerun.")
    ] = None,
    usd: Annotated[
        Path | None, typer.Option(help="Write an animated USD file instead; needs the extra usd.")
    ] = None,
) -> None:
    """Open the 3D replay of the optimised cut."""
    from pipelines.report.replay_view.page import build_replay
    from pipelines.report.replay_view.recording import read_recording

    project = this_project()
    if rrd is not None:
        from pipelines.report.replay_view.rerun_file import write_rrd

        _done(write_rrd(read_recording(project, scan), rrd), False)
    if usd is not None:
        from pipelines.report.replay_view.usd_file import write_usd

        _done(write_usd(read_recording(project, scan), usd), False)
    if rrd is None and usd is None:
        _done(build_replay(project, scan), open_page)


def compare(
    runs: Annotated[list[str], typer.Argument(help="Scan ids, or SCAN@REVISION for an earlier version.")],
    html: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("compare.html"),
    open_page: Open = False,
) -> None:
    """Put runs side by side: results, fitted parameters, settings, times, force curves."""
    from pipelines.versions.compare import read_runs, terminal_tables, write_compare

    with tempfile.TemporaryDirectory(prefix="scan2cut-compare-") as scratch:
        chosen = read_runs(this_project(), runs, Path(scratch))
        page = write_compare(chosen, html)
        for table in terminal_tables(chosen):
            out.print(table)
        _done(page, open_page)


def _done(path: Path, open_page: bool) -> None:
    print_text(out, str(path))
    if open_page and not webbrowser.open(path.resolve().as_uri()):
        out.print("There is no browser to open it with here.")
