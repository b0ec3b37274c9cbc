"""Checking any file against the contract of the artifact it claims to be."""

from dataclasses import dataclass
from pathlib import Path

from disect_sim.errors import InputError
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
from stages.runtime.hashing import sha256_of_file
from stages.runtime.provenance import read_provenance


@dataclass(frozen=True)
class Validated:
    """A file that keeps its contract."""

    artifact: Artifact
    rows: int | None
    metadata: dict[str, str]


def validate_file(path: Path) -> Validated:
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
    return Validated(artifact, rows, ours)


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
            "of the catalogue. Known files are listed by 'scan2cut stages' and in docs/artifacts.md."
        )
    return found
