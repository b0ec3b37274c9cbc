"""Commands that show results (report, view, compare), and the work behind `sample` and `validate`."""

import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.cli.terminal import Json, out, print_json, print_text, scan_ids, this_project
from pipelines.project import Project
from stages.runtime.artifacts import (
    PNG_SIGNATURE,
    PREFIX,
    check_csv_header,
    read_metadata,
    read_metrics,
    read_table_file,
)
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.describe import Artifact, provenance
from stages.runtime.errors import EXIT_BAD_INPUT, InputError
from stages.runtime.files import quiet_stderr, sha256_of_file, write_bytes_atomic
from stages.runtime.scan_file import PARAMS_FILE_NAME
from stages.runtime.stage_io import read_provenance


def inspect(
    file: Annotated[Path, typer.Argument(help="Scan or force log.")],
    air: Annotated[
        list[Path] | None,
        typer.Option(help="Log of the same motion without contact; by default air*.json beside the log."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Write a picture of a log's force to this PNG file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at a scan or a force log before a run: content, all problems, and the settings that solve them.

    Exit code 0 if it can be used, with the printed settings where there are any; 2 if not.
    """
    from pipelines.scans.register import air_runs_beside
    from stages.clean.clean import inspect_scan
    from stages.ingest.inspection import inspect_log
    from stages.runtime.params import load_params
    from stages.shared.input_files import CLOUD_SUFFIXES, MESH_SUFFIXES

    params = load_params(this_project().root / PARAMS_FILE_NAME)
    if file.suffix.lower() in MESH_SUFFIXES + CLOUD_SUFFIXES:
        scan = inspect_scan(file, params.clean)
        stage, facts, problems, settings = "clean", list(scan.facts), scan.problems, dict(scan.settings)
        usable = not problems or bool(settings)
    else:
        airs = air_runs_beside(file) if air is None else air
        log = inspect_log(file, params.ingest, {path.name: path for path in airs})
        stage, facts, problems, settings = (
            "ingest",
            [("format", log.format), *log.facts],
            log.problems,
            dict(log.settings),
        )
        usable = log.readable
        if picture is not None and log.picture is not None:
            write_bytes_atomic(picture, log.picture)
    lines = [f"--set '{stage}.{key}={_setting(value)}'" for key, value in settings.items()]
    if as_json:
        print_json(
            {
                "file": str(file),
                "usable": usable,
                "facts": dict(facts),
                "problems": list(problems),
                "set": lines,
            }
        )
    else:
        table = Table(show_header=False)
        for name, text in facts:
            table.add_row(name, text)
        out.print(table)
        for problem in problems:
            print_text(out, problem)
        if lines:
            how = "Check the size; it could be read with:" if stage == "clean" else "It can be read with:"
            print_text(out, f"{how}\n  {' '.join(lines)}")
    if not usable:
        raise typer.Exit(EXIT_BAD_INPUT)


def list_scans(as_json: Json = False) -> None:
    """List the registered scans: material, logs, last run, saving, verdict. Reads results only; see also `status`."""
    from pipelines.report.page import figure
    from pipelines.report.scan_data import ScanData

    project = this_project()
    rows = []
    for scan_id in project.scan_ids():
        data = ScanData(project, scan_id)
        content, export = data.scan_yaml, data.metrics("export")
        ended = {True: "completed", False: "failed", None: "no run recorded"}[data.run.ok]
        rows.append(
            {
                "scan": scan_id,
                "material": content.get("material"),
                "log": content.get("log"),
                "last_run": f"{data.run.finished or ''} {ended}".strip(),
                "reduction": data.metrics("optimize").get("reduction"),
                "outcome": export.get("outcome"),
            }
        )
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_text(out, "No scans registered. Register one with: scan2cut run FILE")
        return
    table = Table("scan", "material", "force log", "last run", "saving", "motion")
    for row in rows:
        saving = figure("reduction", row["reduction"])
        table.add_row(
            row["scan"],
            row["material"],
            row["log"] or "none",
            row["last_run"],
            saving,
            row["outcome"] or "none",
        )
    out.print(table)


def _setting(value: Any) -> str:
    """Return a setting as YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_setting(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)


def write_sample(project: Project, folder: Path) -> list[Path]:
    """Copy the bundled sample into the folder; never overwrite a file with different content."""
    sources = (
        sorted(path for path in project.sample_dir.glob("*") if path.is_file() and path.suffix != ".py")
        if project.sample_dir.is_dir()
        else []
    )
    if not sources:
        raise InputError(
            f"{project.sample_dir} contains no sample. The sample is part of the repository. Restore it with git."
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. The sample is written to a folder. Choose another name.")
    targets = [folder / source.name for source in sources]
    for source, target in zip(sources, targets, strict=True):
        if target.exists() and sha256_of_file(target) != sha256_of_file(source):
            raise InputError(
                f"{target} exists with different content. Nothing was written. Choose another folder."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            if not target.exists():
                write_bytes_atomic(target, source.read_bytes())
    except OSError as error:
        raise InputError(
            f"Can't write to {folder} ({error.strerror or error}). The folder must be writable. Choose another."
        ) from error
    return targets


@dataclass(frozen=True)
class _Validated:
    """A valid artifact file."""

    artifact: Artifact
    rows: int | None
    metadata: dict[str, str]


def validate_file(path: Path) -> _Validated:
    """Validate the file against the catalogue; raise InputError with the violated rule."""
    if not path.is_file():
        raise InputError(
            f"{path} is not a file. Give the path of an artifact, e.g. data/scans/<id>/clean/faces.parquet."
        )
    with quiet_stderr():  # a panic of polars on a damaged file prints a trace of its own
        return _validated(path)


def _validated(path: Path) -> _Validated:
    metadata = read_metadata(path) if path.suffix == ".parquet" else {}
    ours = {key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)}
    artifact = _artifact_of(path, ours)
    _check_recorded(path, artifact)
    rows = None
    if artifact.kind == "table":
        rows = read_table_file(path, artifact).height
    elif artifact.kind == "metrics":
        read_metrics(path)
    elif artifact.kind == "provenance":
        read_provenance(path.absolute().parents[1], artifact.producer)
    elif artifact.kind == "plot":
        text = path.read_text(encoding="utf-8")
        check_csv_header(artifact, text, str(path))
        rows = text.count("\n") - 1
    elif not path.read_bytes().startswith(PNG_SIGNATURE):
        raise InputError(f"{path} is not a PNG image. Rerun the stage {artifact.producer}.")
    return _Validated(artifact, rows, ours)


def _check_recorded(path: Path, artifact: Artifact) -> None:
    """Compare the file's sha256 with the recorded one, if it is in its scan's directory; Parquet has no checksum."""
    scan_dir = path.absolute().parents[1]
    in_place = path.absolute() == scan_dir / artifact.path and artifact.kind != "provenance"
    if not in_place or not (scan_dir / provenance(artifact.producer).path).is_file():
        return
    recorded = read_provenance(scan_dir, artifact.producer).outputs.get(artifact.path)
    if recorded is not None and recorded != sha256_of_file(path):
        raise InputError(
            f"{path} has changed since {artifact.producer} wrote it (its sha256 differs from provenance.json). An "
            "artifact must not be modified. Rerun the stage, or restore the file with 'dvc checkout'."
        )


def _artifact_of(path: Path, metadata: dict[str, str]) -> Artifact:
    by_path = {artifact.path: artifact for artifact in ARTIFACTS.values()}
    name = metadata.get("artifact")
    artifact = ARTIFACTS.get(name) if name else by_path.get("/".join(path.absolute().parts[-2:]))
    if artifact is None:
        raise InputError(
            f"{path} is {'named ' + name if name else 'not named like an artifact'}. It must be an artifact of the "
            "catalogue. See 'scan2cut stages' or 'scan2cut dev artifacts'."
        )
    return artifact


_Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")]


def add_show_commands(app: typer.Typer) -> None:
    """Add `inspect`, `list`, `report`, `view` and `compare` to the command line."""
    app.command("list")(list_scans)
    for command in (inspect, report, view, compare):
        app.command()(command)


def report(
    scan: Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)],
    open_page: _Open = False,
) -> None:
    """Rebuild report.html of a scan: all results of its last run on one page."""
    from pipelines.report.build import build_report

    _done(build_report(this_project(), scan), open_page)


def view(
    scan: Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)],
    open_page: _Open = True,
    rrd: Annotated[
        Path | None, typer.Option(help="Write a Rerun recording instead; requires the extra 'rerun'.")
    ] = None,
    usd: Annotated[
        Path | None, typer.Option(help="Write an animated USD file instead; requires the extra 'usd'.")
    ] = None,
) -> None:
    """Show the optimised cut in 3D, with the arm, in the browser."""
    from pipelines.report.viewer import build_viewer, read_recording

    project = this_project()
    if rrd is not None:
        from pipelines.report.viewer import write_rrd

        _done(write_rrd(read_recording(project, scan), rrd), False)
    if usd is not None:
        from pipelines.report.viewer import write_usd

        _done(write_usd(read_recording(project, scan), usd), False)
    if rrd is None and usd is None:
        _done(build_viewer(project, scan), open_page)


def compare(
    runs: Annotated[list[str], typer.Argument(help="Scan ids, or SCAN@REVISION for a git revision.")],
    html: Annotated[Path, typer.Option(help="Output file.")] = Path("compare.html"),
    open_page: _Open = False,
) -> None:
    """Compare runs side by side: results, fitted parameters, settings, times, force curves."""
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
        out.print("No browser available to open the page.")
