"""A scan's dvc.yaml: the template's text of the stages that have run; of all stages while none has.

A real file, because DVC reads it in every commit of git's history (`dvc gc --all-tags`, `dvc push --all-tags`,
`dvc params diff`), and a link leads nowhere there. Stages that never ran are left out, because `dvc pull` and
`dvc checkout` fail for every output that dvc.lock does not know. A stage is added when its run begins; when that is
over, the file has the stages that dvc.lock records.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from pipelines.dvc.repair import recorded_stages
from pipelines.project import TEMPLATE, Project
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping, write_bytes_atomic
from stages.runtime.scan_file import PIPELINE_FILE_NAME, SCAN_FILE_NAME, read_scan_mapping

# The stages as the template lists them: names, files, order, retries.


_REFERENCE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class StageEntry:
    """One stage of the template; paths still hold ${id} and the like."""

    name: str
    deps: tuple[str, ...]
    params: tuple[tuple[str, tuple[str, ...]], ...]
    """(file, keys) pairs."""
    outs: tuple[str, ...]
    """All outputs, plots included, metrics last."""
    metrics: tuple[str, ...]
    retries: int
    timeout_s: float
    key_figure: str | None
    """The metric that stands for the stage in short tables."""


def read_template(path: Path) -> tuple[StageEntry, ...]:
    """The template's stages in an order in which each comes after those it depends on."""
    entries = {name: _entry(name, body) for name, body in read_mapping(path)["stages"].items()}
    writer = {out: entry.name for entry in entries.values() for out in entry.outs}
    graph = {entry.name: [writer[dep] for dep in entry.deps if dep in writer] for entry in entries.values()}
    return tuple(entries[name] for name in TopologicalSorter(graph).static_order())


def upstream(entry: StageEntry, entries: Iterable[StageEntry]) -> list[str]:
    """Names of the stages whose outputs this one reads."""
    return [other.name for other in entries if set(other.outs) & set(entry.deps)]


def needed_for(stage: str, entries: Iterable[StageEntry]) -> tuple[StageEntry, ...]:
    """The stage and, before it, all stages whose outputs it reads, directly or not; InputError for an unknown one."""
    ordered = tuple(entries)
    names = [entry.name for entry in ordered]
    if stage not in names:
        raise InputError(
            f"--target is {stage[:80]!r}, which is not a stage. Stages are {', '.join(names)}. Name one of them."
        )
    needed = {stage}
    for entry in reversed(ordered):
        if entry.name in needed:
            needed |= set(upstream(entry, ordered))
    return tuple(entry for entry in ordered if entry.name in needed)


def resolve(path: str, scan_yaml: Mapping[str, Any]) -> str:
    """Fill in ${id} and the like from the scan's scan.yaml."""
    return _REFERENCE.sub(lambda match: str(scan_yaml[match[1]]), path)


def _entry(name: str, body: dict[str, Any]) -> StageEntry:
    meta = body.get("meta", {})
    metrics = _paths(body.get("metrics", []))
    return StageEntry(
        name=name,
        deps=_paths(body.get("deps", [])),
        params=tuple((file, tuple(keys)) for item in body.get("params", []) for file, keys in item.items()),
        outs=_paths(body.get("outs", [])) + _paths(body.get("plots", [])) + metrics,
        metrics=metrics,
        retries=int(meta.get("retries", 0)),
        timeout_s=float(meta.get("timeout_s", 3600)),
        key_figure=meta.get("key_figure"),
    )


def _paths(items: list[str | dict[str, Any]]) -> tuple[str, ...]:
    return tuple(item if isinstance(item, str) else next(iter(item)) for item in items)


STAGE = re.compile(r"^  (\w+):\n(?:(?:    .*)?\n)*", re.M)
"""One stage with the empty line after it, as write_template.py writes it."""

_KEY = re.compile(r"\$\{(\w+)\}")
"""What DVC fills in from scan.yaml."""


def stage_address(project: Project, scan_id: str, stage: str) -> str:
    """What DVC calls a stage of the scan."""
    return f"{pipeline_address(project, scan_id)}:{stage}"


def pipeline_address(project: Project, scan_id: str) -> str:
    """What DVC calls all stages of the scan: its dvc.yaml, relative to the project."""
    return str((project.scan_dir(scan_id) / PIPELINE_FILE_NAME).relative_to(project.root))


def is_current(project: Project, scan_id: str) -> bool:
    """True if the scan's dvc.yaml is a real file with the template's text, those stages that have run among its own."""
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    return not path.is_symlink() and _text(path) == _wanted(project, scan_id)


def refresh_pipeline_file(project: Project, scan_id: str) -> str | None:
    """Write the scan's dvc.yaml anew where it differs; returns a sentence if an older one was replaced.

    Stages that are in it stay: one of them may be running.
    """
    _check_keys(project, scan_id)
    if is_current(project, scan_id):
        return None
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    old = _text(path)
    outdated = path.is_symlink() or (old and old != _template_with(project, _names(old)))
    _write(path, _wanted(project, scan_id))
    if not outdated:
        return None
    return f"{pipeline_address(project, scan_id)} was outdated; it has the stages of {TEMPLATE} again."


def _check_keys(project: Project, scan_id: str) -> None:
    """Refuse a scan.yaml without a key that dvc.yaml asks for; DVC would say so in words of its parser."""
    path = project.scan_dir(scan_id) / SCAN_FILE_NAME
    missing = sorted(set(_KEY.findall(_text(project.template))) - read_scan_mapping(path).keys())
    if missing:
        raise InputError(
            f"{path} has no {', '.join(missing)}. Every scan has these keys, as dvc.yaml asks for them. Register the "
            f"scan again with 'scan2cut run {scan_id}'."
        )


@contextmanager
def listed_while_it_runs(project: Project, scan_id: str, stage: str) -> Iterator[None]:
    """Within this, dvc.yaml has the stage; afterwards exactly those that have run. The caller holds the scan's lock."""
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    _write(path, _wanted(project, scan_id, stage))
    try:
        yield
    finally:
        recorded = _recorded(project, scan_id)
        if recorded is not None:
            _write(path, _template_with(project, recorded))


def _wanted(project: Project, scan_id: str, *more: str) -> str:
    """The template's text of the stages that are in the file, of those that have run, and of these."""
    own = _names(_text(project.scan_dir(scan_id) / PIPELINE_FILE_NAME))
    return _template_with(project, own | (_recorded(project, scan_id) or set()) | set(more))


def _recorded(project: Project, scan_id: str) -> set[str] | None:
    """The stages that have run; None if a kill left dvc.lock half-written."""
    try:
        return set(recorded_stages(project.scan_dir(scan_id)))
    except InputError:
        return None


def _template_with(project: Project, names: Collection[str]) -> str:
    """The template with these stages, or all of it if none of them is in it."""
    text = _text(project.template)
    kept = STAGE.sub(lambda found: found[0] if found[1] in names else "", text)
    return kept if _names(kept) else text


def _names(text: str) -> set[str]:
    return {found[1] for found in STAGE.finditer(text)}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _write(path: Path, text: str) -> None:
    if path.is_symlink() or _text(path) != text:
        write_bytes_atomic(path, text.encode())
