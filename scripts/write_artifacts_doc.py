"""Writes docs/artifacts.md, the tables of all stages with columns and units, from the stages' folders.

    python -m scripts.write_artifacts_doc

Run it in the project's directory after every change of a table; a test fails while the document is old.
"""

from pathlib import Path

from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.catalogue import ARTIFACTS, STAGES, base_of, readers_of
from stages.runtime.describe import Artifact

DOCUMENT = Path("docs/artifacts.md")
HEAD = """# Artifacts

Generated from stages/*/artifacts.py by `python -m scripts.write_artifacts_doc`; edit those, not this file.

Paths are relative to the scan's directory `data/scans/<id>/`. Tables are Parquet; a vector is a fixed-size
array column. Every table carries, in its file metadata under `scan2cut.`, its artifact name, schema (a hash of
the columns), units and the format's version. What a stage's files were made from (parameters, inputs, code) is in its
`provenance.json`, apart from them: the same content is the same file. Numbers are finite and no value is missing; a
reader refuses anything else. Metrics are one JSON object.
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
            if STAGES[stage].base:
                parts.append(f"{_instance(stage)}\n")
        parts.append(_section(artifact))
    return "\n".join(parts)


def _section(artifact: Artifact) -> str:
    readers = ", ".join(readers_of(artifact)) or "people"
    lines = [
        f"### `{artifact.path}`",
        "",
        f"{artifact.meaning[0].upper()}{artifact.meaning[1:]}. "
        f"Written by {artifact.producer}, read by {readers}.",
        "",
    ]
    if artifact.columns and STAGES[artifact.producer].base:
        base = artifact.path.replace(artifact.producer, base_of(artifact.producer), 1)
        lines += [f"Columns as in `{base}`.", ""]
    elif artifact.columns:
        lines += ["| column | dtype | unit | meaning |", "|---|---|---|---|"]
        lines += [f"| {c.name} | {c.dtype} | {c.unit} | {c.meaning} |" for c in artifact.columns]
        lines.append("")
    return "\n".join(lines)


def _instance(stage: str) -> str:
    renamed = ", ".join(f"{new} in place of {old}" for old, new in STAGES[stage].renamed)
    return f"The stage {base_of(stage)}, run a second time with its own parameters, reading {renamed}."


def main() -> None:
    """Write the file; run in the project's directory."""
    write_bytes_atomic(DOCUMENT, document().encode())


if __name__ == "__main__":
    main()
