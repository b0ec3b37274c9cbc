"""The catalogue: every stage and every artifact, collected from the stages' folders.

docs/artifacts.md and pipelines/dvc/scan.dvc.yaml are generated from it (`scan2cut dev artifacts`,
`scan2cut dev pipeline`).
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from importlib import import_module
from pathlib import Path

from stages.runtime.describe import Artifact, Instance, Stage

_STAGES_FOLDER = Path(__file__).parents[1]
_DESCRIPTION = "description"
"""A folder of stages/ with this module is a stage, described by its STAGE."""


def _described() -> dict[str, Stage]:
    described: dict[str, Stage | Instance] = {}
    for path in sorted(_STAGES_FOLDER.glob(f"*/{_DESCRIPTION}.py")):
        name = path.parent.name
        described[name] = import_module(f"stages.{name}.{_DESCRIPTION}").STAGE
        if described[name].name != name:
            raise ValueError(
                f"{path} describes {described[name].name!r}; a stage must have the name of its folder"
            )
    stages = {name: stage for name, stage in described.items() if isinstance(stage, Stage)}
    for name, stage in described.items():
        if isinstance(stage, Instance):
            stages[name] = stage.resolve(stages[stage.of])
    return stages


def _ordered(stages: Mapping[str, Stage]) -> dict[str, Stage]:
    """Return the stages in topological order, ties by name."""
    missing = {name: {read.partition("/")[0] for read in stage.reads} for name, stage in stages.items()}
    ready = [name for name, before in missing.items() if not before]
    heapify(ready)
    ordered: dict[str, Stage] = {}
    while ready:
        name = heappop(ready)
        ordered[name] = stages[name]
        for other, before in missing.items():
            if name in before:
                before.remove(name)
                if not before:
                    heappush(ready, other)
    if len(ordered) != len(stages):
        raise ValueError(
            f"stages that depend on each other or on an unknown stage: {sorted(stages.keys() - ordered)}"
        )
    return ordered


STAGES: dict[str, Stage] = _ordered(_described())
"""All stages by name, in topological order."""

ARTIFACTS: dict[str, Artifact] = {a.name: a for stage in STAGES.values() for a in stage.writes}
"""All artifacts by name, in the order of the stages."""


def artifacts_of(stage: str) -> tuple[Artifact, ...]:
    """Return the artifacts that the stage writes."""
    return STAGES[stage].writes


def readers_of(artifact: Artifact) -> tuple[str, ...]:
    """Return the stages that read the artifact."""
    return tuple(stage.name for stage in STAGES.values() if artifact.name in stage.reads)


def base_of(stage: str) -> str:
    """Return the stage whose code runs: the base of an instance, else the stage itself."""
    return STAGES[stage].code
