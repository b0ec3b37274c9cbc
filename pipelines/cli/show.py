"""The commands for looking: report, view, compare. The command line adds them to its own."""

import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.terminal import out, print_text, scan_ids, this_project
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
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_file, write_bytes_atomic
from stages.runtime.stage_io import read_provenance

# Handing out the bundled sample.


def write_sample(project: Project, folder: Path) -> list[Path]:
    """Copy the bundled sample into the folder; an existing file with other content is never overwritten."""
    sources = (
        sorted(path for path in project.sample_dir.glob("*") if path.is_file() and path.suffix != ".py")
        if project.sample_dir.is_dir()
        else []
    )
    if not sources:
        raise InputError(
            f"{project.sample_dir} holds no sample. It is part of the repository. Restore it with git."
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. The sample needs a folder. Give another name.")
    targets = [folder / source.name for source in sources]
    for source, target in zip(sources, targets, strict=True):
        if target.exists() and sha256_of_file(target) != sha256_of_file(source):
            raise InputError(
                f"{target} exists and is a different file. Nothing was written. Give another folder."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            if not target.exists():
                write_bytes_atomic(target, source.read_bytes())
    except OSError as error:
        raise InputError(
            f"{folder} can't be written ({error.strerror or error}). The sample needs a folder of yours. Give another."
        ) from error
    return targets


# Checking any file against the contract of the artifact it claims to be.


@dataclass(frozen=True)
class _Validated:
    """A file that keeps its contract."""

    artifact: Artifact
    rows: int | None
    metadata: dict[str, str]


def validate_file(path: Path) -> _Validated:
    """Check the file; InputError says which rule it breaks."""
    if not path.is_file():
        raise InputError(
            f"{path} is not a file. Give the path of an artifact, e.g. data/scans/<id>/clean/faces.parquet."
        )
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
        raise InputError(f"{path} is not a PNG picture. Run the stage {artifact.producer} again.")
    return _Validated(artifact, rows, ours)


def _check_recorded(path: Path, artifact: Artifact) -> None:
    """Compare the bytes with what the stage recorded, if the file lies in its place: Parquet has no checksum."""
    scan_dir = path.absolute().parents[1]
    in_place = path.absolute() == scan_dir / artifact.path and artifact.kind != "provenance"
    if not in_place or not (scan_dir / provenance(artifact.producer).path).is_file():
        return
    recorded = read_provenance(scan_dir, artifact.producer).outputs.get(artifact.path)
    if recorded is not None and recorded != sha256_of_file(path):
        raise InputError(
            f"{path} does not hold what {artifact.producer} wrote (another sha256 than in its provenance.json). An "
            "artifact must not change after its stage. Run the stage again, or 'dvc checkout' the file."
        )


def _artifact_of(path: Path, metadata: dict[str, str]) -> Artifact:
    by_path = {artifact.path: artifact for artifact in ARTIFACTS.values()}
    name = metadata.get("artifact")
    found = ARTIFACTS.get(name) if name else by_path.get("/".join(path.absolute().parts[-2:]))
    if found is None:
        raise InputError(
            f"{path} is {'called ' + name if name else 'not named like an artifact'}. It must be an artifact "
            "of the catalogue. Known files are listed by 'scan2cut stages' and by 'scan2cut dev artifacts'."
        )
    return found


_Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")]


def add_show_commands(app: typer.Typer) -> None:
    """Add them."""
    for command in (report, view, compare):
        app.command()(command)


def report(
    scan: Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)],
    open_page: _Open = False,
) -> None:
    """Build report.html of a scan again: everything its last run decided, on one page."""
    from pipelines.report.build import build_report

    _done(build_report(this_project(), scan), open_page)


def view(
    scan: Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)],
    open_page: _Open = True,
    rrd: Annotated[
        Path | None, typer.Option(help="Write a Rerun recording instead; needs the extra rerun.")
    ] = None,
    usd: Annotated[
        Path | None, typer.Option(help="Write an animated USD file instead; needs the extra usd.")
    ] = None,
) -> None:
    """Open the 3D replay of the optimised cut."""
    from pipelines.report.replay_view import build_replay, read_recording

    project = this_project()
    if rrd is not None:
        from pipelines.report.replay_view import write_rrd

        _done(write_rrd(read_recording(project, scan), rrd), False)
    if usd is not None:
        from pipelines.report.replay_view import write_usd

        _done(write_usd(read_recording(project, scan), usd), False)
    if rrd is None and usd is None:
        _done(build_replay(project, scan), open_page)


def compare(
    runs: Annotated[list[str], typer.Argument(help="Scan ids, or SCAN@REVISION for an earlier version.")],
    html: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("compare.html"),
    open_page: _Open = False,
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
