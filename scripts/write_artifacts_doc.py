"""Writes docs/artifacts.md, the tables of all stages with columns and units, from the catalogue.

    python -m scripts.write_artifacts_doc

Run it in the project's directory after every change of a table; a test fails while the document is old.
"""

from pathlib import Path

from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.catalogue import ARTIFACTS, INSTANCES, Artifact, base_of

DOCUMENT = Path("docs/artifacts.md")
HEAD = """# Artifacts

Generated from stages/runtime/catalogue.py by `python -m scripts.write_artifacts_doc`; edit the catalogue, not this
file.

Paths are relative to the scan's directory `data/scans/<id>/`. Tables are Parquet; a vector is a fixed-size
array column. Every table carries, in its file metadata under `scan2cut.`, its artifact name, schema version,
units, stage, the sha256 of the stage's parameters and inputs, and the release that wrote it (the exact code
is in `dvc.lock`). Numbers are finite and no value is missing; a reader refuses anything else. Metrics are
one JSON object.
Check a file with `scan2cut validate FILE`.
"""


def document() -> str:
    """The whole text of docs/artifacts.md."""
    parts = [HEAD]
    stage = ""
    for artifact in ARTIFACTS.values():
        if artifact.producer != stage:
            stage = artifact.producer
            parts.append(f"## {stage}\n")
            if stage in INSTANCES:
                parts.append(f"{_instance(stage)}\n")
        parts.append(_section(artifact))
    return "\n".join(parts)


def _section(artifact: Artifact) -> str:
    readers = ", ".join(artifact.consumers) or "people and later stages"
    lines = [
        f"### `{artifact.path}`",
        "",
        f"{artifact.meaning[0].upper()}{artifact.meaning[1:]}. Schema version {artifact.schema_version}. "
        f"Written by {artifact.producer}, read by {readers}.",
        "",
    ]
    if artifact.columns and artifact.producer in INSTANCES:
        base = artifact.path.replace(artifact.producer, base_of(artifact.producer), 1)
        lines += [f"Columns as in `{base}`.", ""]
    elif artifact.columns:
        lines += ["| column | dtype | unit | meaning |", "|---|---|---|---|"]
        lines += [f"| {c.name} | {c.dtype} | {c.unit} | {c.meaning} |" for c in artifact.columns]
        lines.append("")
    return "\n".join(lines)


def _instance(stage: str) -> str:
    renamed = ", ".join(f"{new} in place of {old}" for old, new in INSTANCES[stage].reads.items())
    return f"The stage {base_of(stage)}, run a second time with its own parameters, reading {renamed}."


def main() -> None:
    """Write the file; run in the project's directory."""
    write_bytes_atomic(DOCUMENT, document().encode())


if __name__ == "__main__":
    main()
