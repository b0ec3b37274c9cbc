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
"""A folder of stages/ with this module is a stage; its STAGE describes it."""


def _described() -> dict[str, Stage]:
    found: dict[str, Stage | Instance] = {}
    for path in sorted(_STAGES_FOLDER.glob(f"*/{_DESCRIPTION}.py")):
        word = path.parent.name
        found[word] = import_module(f"stages.{word}.{_DESCRIPTION}").STAGE
        if found[word].name != word:
            raise ValueError(f"{path} describes {found[word].name!r}; a stage has the name of its folder")
    stages = {word: stage for word, stage in found.items() if isinstance(stage, Stage)}
    for word, stage in found.items():
        if isinstance(stage, Instance):
            stages[word] = stage.resolve(stages[stage.of])
    return stages


def _ordered(stages: Mapping[str, Stage]) -> dict[str, Stage]:
    """Each stage after those it reads from, otherwise by name."""
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
            f"stages that wait for each other or for no stage: {sorted(stages.keys() - ordered)}"
        )
    return ordered


STAGES: dict[str, Stage] = _ordered(_described())
"""Every stage by name, each after those it reads from."""

ARTIFACTS: dict[str, Artifact] = {a.name: a for stage in STAGES.values() for a in stage.writes}
"""Every artifact by name, in the order in which the stages write them."""


def artifacts_of(stage: str) -> tuple[Artifact, ...]:
    """The artifacts that the stage writes."""
    return STAGES[stage].writes


def readers_of(artifact: Artifact) -> tuple[str, ...]:
    """The stages that read the artifact."""
    return tuple(stage.name for stage in STAGES.values() if artifact.name in stage.reads)


def base_of(stage: str) -> str:
    """The stage whose code runs: the base of an instance, else the stage itself."""
    return STAGES[stage].code
