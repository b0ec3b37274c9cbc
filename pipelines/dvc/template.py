"""The stages as the template lists them: names, files, order, retries."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from disect_sim.errors import InputError
from stages.runtime.yaml_file import read_mapping

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
