"""The words in which a stage's folder describes the stage: columns, artifacts, and the stage itself."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import import_module
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

# Names in params.yaml that stand for an entry of a table: checked against it, loaded when it is used.
#
# A table can thus be read by the command line, which must not import torch or SciPy.


def one_of(names: Iterable[str]) -> AfterValidator:
    """For a field `Annotated[str, one_of(TABLE)]`: refuses every other name by a sentence that lists these."""
    known = tuple(names)

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"it must be one of {', '.join(known)}")
        return name

    return AfterValidator(check)


def load_named(place: str) -> Any:
    """What "package.module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


# What every section of params.yaml obeys, and the number types that sections share.


Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
EdgeLength = Annotated[float, Field(ge=2e-4, le=0.1)]
Vector = tuple[float, float, float]


class StageParams(BaseModel):
    """Common rules: nothing unknown, nothing changed after loading, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def shared_sections(cls) -> dict[str, type["SharedSection"]]:
        """Fields that are not of this section but a section of their own, under the field's name."""
        return {
            name: field.annotation
            for name, field in cls.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, SharedSection)
        }

    def changed(self, **values: Any) -> Self:
        """A copy with other values, checked; keys that the section lacks are those of its shared sections."""
        update = {key: value for key, value in values.items() if key in type(self).model_fields}
        for name, model in self.shared_sections().items():
            inner = {
                key: value for key, value in values.items() if key in model.model_fields and key not in update
            }
            update[name] = model.model_validate({**dict(getattr(self, name)), **inner})
            values = {key: value for key, value in values.items() if key not in inner}
        unknown = values.keys() - update.keys()
        if unknown:
            raise KeyError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        return type(self).model_validate({**dict(self), **update})


class SharedSection(StageParams):
    """A section that several stages read: each has it as a field with the section's name."""


Kind = Literal["table", "metrics", "picture", "plot", "folder", "provenance"]

SUFFIX: dict[Kind, str] = {
    "table": ".parquet",
    "metrics": ".json",
    "picture": ".png",
    "plot": ".csv",
    "folder": "",
    "provenance": ".json",
}


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    dtype: str
    """f64, f32, i64, i32, i8, bool, str, or array[<dtype>,<n>] for a fixed-size vector."""
    unit: str
    """SI unit, "-" for a plain number, "index" for a row number of another table, "" for text and flags."""
    meaning: str


@dataclass(frozen=True)
class Artifact:
    """One file (or folder of files) that a stage writes into the scan's directory."""

    name: str
    """<stage>/<file stem>."""
    kind: Kind
    meaning: str
    columns: tuple[Column, ...] = ()
    axes: tuple[str, ...] = ()
    """Of a plot: the column of the horizontal axis, then those that are drawn over it."""

    @property
    def path(self) -> str:
        """Relative to the scan's directory data/scans/<id>/."""
        return self.name + SUFFIX[self.kind]

    @property
    def schema(self) -> str:
        """Changes with the columns' names, types and units; a file of another schema is not read."""
        columns = [(column.name, column.dtype, column.unit) for column in self.columns]
        return sha256(json.dumps(columns).encode()).hexdigest()[:12]

    @property
    def producer(self) -> str:
        """The stage that writes it."""
        return self.name.partition("/")[0]


def table(name: str, columns: Iterable[Column], *, meaning: str) -> Artifact:
    """A Parquet table."""
    return Artifact(name, "table", meaning, tuple(columns))


def metrics(stage: str, meaning: str) -> Artifact:
    """The stage's numbers, flags and short texts, as JSON that DVC compares between versions."""
    return Artifact(f"{stage}/metrics", "metrics", meaning)


def picture(stage: str, meaning: str) -> Artifact:
    """The stage's picture."""
    return Artifact(f"{stage}/preview", "picture", meaning)


def plot(name: str, columns: Iterable[Column], *, axes: tuple[str, ...], meaning: str) -> Artifact:
    """A small CSV file for `dvc plots`: the columns in `axes` after the first are drawn over the first."""
    return Artifact(name, "plot", meaning, tuple(columns), axes=axes)


def folder(name: str, meaning: str) -> Artifact:
    """A folder of files in formats of their own."""
    return Artifact(name, "folder", meaning)


def provenance(stage: str) -> Artifact:
    """What the stage's files were made from; the runtime writes it for every stage."""
    return Artifact(f"{stage}/provenance", "provenance", "sha256 of what the stage read and wrote")


@dataclass(frozen=True)
class Stage:
    """A stage as DVC, the flow and the catalogue see it. What it does is `run` in stages/<name>/<name>.py."""

    name: str
    does: str
    """One line: from what to what."""
    params: type[StageParams]
    artifacts: tuple[Artifact, ...]
    """What `run` writes."""
    reads: tuple[str, ...]
    """Names of the artifacts of earlier stages that it reads."""
    key_figure: str
    """The metric that stands for the stage in short tables."""
    timeout_s: float
    files: tuple[str, ...] = ()
    """Keys of scan.yaml that name the files it reads from the scan's directory."""
    uses_library: bool = False
    """Whether it depends on the calibrated cuts of the scan's material."""
    uses_material: bool = False
    """Whether it depends on the scan's material."""
    retries: int = 2
    base: str = ""
    """Of an instance: the stage whose folder it runs."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Of an instance: (stage that the base reads from, stage that it reads from instead)."""

    @property
    def code(self) -> str:
        """The stage whose folder holds the code: its own, or that of its base."""
        return self.base or self.name

    @property
    def writes(self) -> tuple[Artifact, ...]:
        """Everything in the stage's output folder."""
        return (*self.artifacts, provenance(self.name))

    @property
    def sections(self) -> tuple[str, ...]:
        """Sections of params.yaml that it depends on; later ones override earlier ones."""
        shared = self.params.shared_sections()
        return (*shared, self.base, self.name) if self.base else (*shared, self.name)

    def name_of(self, name: str) -> str:
        """What the artifact that the base calls `name` is called here."""
        stage, _, stem = name.partition("/")
        return f"{dict([*self.renamed, (self.code, self.name)]).get(stage, stage)}/{stem}"


@dataclass(frozen=True)
class Instance:
    """A stage that runs a second time, on other inputs, with parameters and an output folder of its own."""

    name: str
    of: str
    """The stage whose code it runs."""
    reads: Mapping[str, str]
    """Stage that the base reads from → stage that the instance reads from."""
    does: str
    params: type[StageParams] | None = None
    """Where the base's model allows more than the instance can do."""

    def resolve(self, base: Stage) -> Stage:
        """The whole stage: what is not said here is the base's."""
        stage = replace(
            base,
            name=self.name,
            does=self.does,
            base=self.of,
            renamed=tuple(self.reads.items()),
            files=(),
            params=self.params or base.params,
        )
        return replace(
            stage,
            reads=tuple(stage.name_of(name) for name in base.reads),
            artifacts=tuple(
                replace(a, name=stage.name_of(a.name), meaning=f"{a.meaning}; of the second cut")
                for a in base.artifacts
            ),
        )
