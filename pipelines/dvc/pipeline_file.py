"""The pipeline template and a scan's dvc.yaml, which contains the template's text of those stages that have run.

dvc.yaml is a regular file, not a link, because DVC reads it in every git commit (`dvc gc --all-tags`,
`dvc push --all-tags`, `dvc params diff`). Stages that never ran are omitted, because `dvc pull` and `dvc checkout` fail
for outputs missing from dvc.lock; while no stage has run, all are listed. A stage is added when it starts; afterwards
the file lists the stages in dvc.lock. The scan of a slice has the stages from `halve` on; what they read of earlier
stages is the fruit's.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from pipelines.dvc.repair import recorded_stages
from pipelines.project import TEMPLATE, Project
from stages.runtime.errors import InputError, did_you_mean
from stages.runtime.files import read_mapping, write_bytes_atomic
from stages.runtime.scan_file import (
    PIPELINE_FILE_NAME,
    SCAN_FILE_NAME,
    STAGES_OF_A_SLICE,
    read_scan_mapping,
)

_REFERENCE = re.compile(r"\$\{(\w+)\}")
"""Reference that DVC resolves from scan.yaml."""


@dataclass(frozen=True)
class StageEntry:
    """One stage of the template; paths contain references such as ${id}."""

    name: str
    deps: tuple[str, ...]
    params: tuple[tuple[str, tuple[str, ...]], ...]
    """(file, keys) pairs."""
    outs: tuple[str, ...]
    """All outputs including plots; metrics last."""
    metrics: tuple[str, ...]
    retries: int
    timeout_s: float
    key_figure: str | None
    """Metric shown for the stage in short tables."""


def read_template(path: Path) -> tuple[StageEntry, ...]:
    """Return the template's stages in topological order."""
    return _in_order(read_mapping(path)["stages"])


def scan_entries(project: Project, scan_id: str) -> tuple[StageEntry, ...]:
    """Return the stages of one scan in topological order: all of the template, or those of a slice."""
    return _in_order(_scan_template(project, scan_id)["stages"])


def is_slice(project: Project, scan_id: str) -> bool:
    """Return whether the scan is a slice of another one (scan2cut slice)."""
    path = project.scan_dir(scan_id) / SCAN_FILE_NAME
    return path.is_file() and bool(read_mapping(path).get("fruit"))


def slice_scans(project: Project, fruit: str) -> list[str]:
    """Return the ids of all registered slices of a fruit."""
    return [
        scan
        for scan in project.scan_ids()
        if scan.startswith(f"{fruit}-slice-")
        and read_scan_mapping(project.scan_dir(scan) / SCAN_FILE_NAME).get("fruit") == fruit
    ]


def _scan_template(project: Project, scan_id: str) -> dict[str, Any]:
    """Return the content of the template for this scan."""
    content = read_mapping(project.template)
    if not is_slice(project, scan_id):
        return content
    stages = {name: _of_a_slice(content["stages"][name]) for name in STAGES_OF_A_SLICE}
    plots = [one for one in content.get("plots", ()) if str(next(iter(one))).startswith(STAGES_OF_A_SLICE)]
    return {**content, "stages": stages, "plots": plots}


def _of_a_slice(body: dict[str, Any]) -> dict[str, Any]:
    """Return the stage with the fruit's folder in the dependencies that other stages than a slice's write."""

    def moved(dep: str) -> str:
        own = dep.removeprefix("data/scans/${id}/").partition("/")[0] in STAGES_OF_A_SLICE
        return dep if own else dep.replace("data/scans/${id}/", "data/scans/${fruit}/")

    return {**body, "deps": [moved(dep) for dep in body["deps"]]}


def _in_order(stages: Mapping[str, Any]) -> tuple[StageEntry, ...]:
    entries = {name: _entry(name, body) for name, body in stages.items()}
    writer = {path: entry.name for entry in entries.values() for path in entry.outs}
    graph = {entry.name: [writer[dep] for dep in entry.deps if dep in writer] for entry in entries.values()}
    return tuple(entries[name] for name in TopologicalSorter(graph).static_order())


def upstream(entry: StageEntry, entries: Iterable[StageEntry]) -> list[str]:
    """Return the names of the stages whose outputs this one reads."""
    return [other.name for other in entries if set(other.outs) & set(entry.deps)]


def needed_for(stage: str, entries: Iterable[StageEntry]) -> tuple[StageEntry, ...]:
    """Return the stage and all its direct and indirect upstream stages in order; raise InputError if unknown."""
    ordered = tuple(entries)
    names = [entry.name for entry in ordered]
    if stage not in names:
        raise InputError(
            f"--target is {stage[:80]!r}, which is not a stage.{did_you_mean(stage, names)} It must be one of "
            f"{', '.join(names)}. Choose one."
        )
    needed = {stage}
    for entry in reversed(ordered):
        if entry.name in needed:
            needed |= set(upstream(entry, ordered))
    return tuple(entry for entry in ordered if entry.name in needed)


def resolve(path: str, scan_yaml: Mapping[str, Any]) -> str:
    """Replace references such as ${id} by values of scan.yaml."""
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


_HEAD = f"# The stages of {TEMPLATE} that have run; scan2cut keeps this file current. Don't edit it.\n"


def stage_address(project: Project, scan_id: str, stage: str) -> str:
    """Return DVC's address of a stage of the scan."""
    return f"{pipeline_address(project, scan_id)}:{stage}"


def pipeline_address(project: Project, scan_id: str) -> str:
    """Return DVC's address of all stages of the scan: its dvc.yaml, relative to the project."""
    return str((project.scan_dir(scan_id) / PIPELINE_FILE_NAME).relative_to(project.root))


def is_current(project: Project, scan_id: str) -> bool:
    """Return whether the scan's dvc.yaml is a regular file that matches the template and lists all stages that ran."""
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    text = _text(path)
    return not path.is_symlink() and (text == _text(project.template) or text == _expected(project, scan_id))


def refresh_pipeline_file(project: Project, scan_id: str) -> str | None:
    """Rewrite the scan's dvc.yaml if it differs from the template; return a message if an outdated one was replaced.

    Stages already listed are kept: one of them may be running.
    """
    check_keys(project, scan_id)
    if is_current(project, scan_id):
        return None
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    old = _text(path)
    outdated = path.is_symlink() or (old and old != _template_with(project, scan_id, _stages(path)))
    _write(path, _expected(project, scan_id))
    if not outdated:
        return None
    return f"Updated {pipeline_address(project, scan_id)}, which did not match {TEMPLATE}."


def check_keys(project: Project, scan_id: str) -> None:
    """Reject a scan.yaml without a key that dvc.yaml refers to; DVC's own message would be unclear."""
    path = project.scan_dir(scan_id) / SCAN_FILE_NAME
    missing = sorted(set(_REFERENCE.findall(_text(project.template))) - read_scan_mapping(path).keys())
    if missing:
        raise InputError(
            f"{path} has no {', '.join(missing)}. dvc.yaml requires these keys. Register the scan again with "
            f"'scan2cut run {scan_id}'."
        )


@contextmanager
def listed_while_it_runs(project: Project, scan_id: str, stage: str) -> Iterator[None]:
    """List the stage in dvc.yaml within the block, afterwards only stages that have run. Requires the scan's lock."""
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    _write(path, _expected(project, scan_id, stage))
    try:
        yield
    finally:
        recorded = _recorded(project, scan_id)
        if recorded is not None:
            _write(path, _template_with(project, scan_id, recorded))


def outdated_stages(project: Project, scan_id: str) -> set[str] | None:
    """Return the stages of the scan's dvc.yaml that the template defines otherwise; None if the file can't be used."""
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    if not path.is_symlink() and _text(path) == _text(project.template):
        return set()
    listed = None if path.is_symlink() else _stages(path)
    if not listed:
        return None
    template = _scan_template(project, scan_id)["stages"]
    return {name for name, body in listed.items() if _tracked(template.get(name)) != _tracked(body)}


def _expected(project: Project, scan_id: str, *more: str) -> str:
    """Return the template's text of the stages in the file, of those that have run, and of `more`."""
    listed = set(_stages(project.scan_dir(scan_id) / PIPELINE_FILE_NAME))
    return _template_with(project, scan_id, listed | (_recorded(project, scan_id) or set()) | set(more))


def _recorded(project: Project, scan_id: str) -> set[str] | None:
    """Return the stages that have run; None if dvc.lock is corrupt."""
    try:
        return set(recorded_stages(project.scan_dir(scan_id)))
    except InputError:
        return None


def _template_with(project: Project, scan_id: str, names: Collection[str]) -> str:
    """Return the scan's template reduced to these stages, or all of it if it has none of them."""
    content = _scan_template(project, scan_id)
    stages = {name: body for name, body in content["stages"].items() if name in names}
    if (not stages or len(stages) == len(content["stages"])) and not is_slice(project, scan_id):
        return _text(project.template)
    reduced = {**content, "stages": stages or content["stages"]}
    return _HEAD + yaml.safe_dump(reduced, sort_keys=False, allow_unicode=True, width=120)


def _tracked(body: Any) -> Any:
    """Return what makes a stage stale: everything but its description and the flow's settings."""
    return (
        {key: value for key, value in body.items() if key not in ("desc", "meta")}
        if isinstance(body, dict)
        else body
    )


def _stages(path: Path) -> dict[str, Any]:
    """Return the stages of a dvc.yaml by name; none if it is missing or invalid."""
    try:
        stages = read_mapping(path).get("stages")
    except InputError:
        return {}
    return stages if isinstance(stages, dict) else {}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _write(path: Path, text: str) -> None:
    if path.is_symlink() or _text(path) != text:
        write_bytes_atomic(path, text.encode())
