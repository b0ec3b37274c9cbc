"""Classes with which a stage's folder describes the stage: parameters, columns, artifacts, stage, instance."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import import_module
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

# Names in params.yaml that refer to an entry of a table. They are validated by name and imported on use, so that the
# command line does not import torch or SciPy.


def one_of(names: Iterable[str]) -> AfterValidator:
    """Return a validator for a field `Annotated[str, one_of(TABLE)]` that rejects other names."""
    allowed = tuple(names)

    def check(name: str) -> str:
        if name not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return name

    return AfterValidator(check)


def load_named(address: str) -> Any:
    """Import and return the object at "package.module:name"."""
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


# Parameters.


Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
EdgeLength = Annotated[float, Field(ge=2e-4, le=0.1)]
Vector = tuple[float, float, float]


class StageParams(BaseModel):
    """Base of all sections: no unknown keys, immutable, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def shared_sections(cls) -> dict[str, type["SharedSection"]]:
        """Return the fields that are separate, shared sections, by name."""
        return {
            name: field.annotation
            for name, field in cls.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, SharedSection)
        }

    def changed(self, **values: Any) -> Self:
        """Return a validated copy with changed values; keys not in this section belong to its shared sections."""
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
    """A section shared by several stages, which have it as a field with the section's name."""


# Artifacts.


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
    optional: bool = False
    """Whether a table may lack the column; such columns come last and are no part of the schema's hash."""


@dataclass(frozen=True)
class Artifact:
    """One file (or folder of files) that a stage writes into the scan's directory."""

    name: str
    """<stage>/<file stem>."""
    kind: Kind
    meaning: str
    columns: tuple[Column, ...] = ()
    axes: tuple[str, ...] = ()
    """For a plot: column of the horizontal axis, then the plotted columns."""

    @property
    def path(self) -> str:
        """Return the path relative to the scan's directory data/scans/<id>/."""
        return self.name + SUFFIX[self.kind]

    @property
    def schema(self) -> str:
        """Return a hash of the columns' names, types and units; files with another schema are rejected."""
        columns = [(column.name, column.dtype, column.unit) for column in self.columns if not column.optional]
        return sha256(json.dumps(columns).encode()).hexdigest()[:12]

    @property
    def producer(self) -> str:
        """Return the stage that writes it."""
        return self.name.partition("/")[0]


def table(name: str, columns: Iterable[Column], *, meaning: str) -> Artifact:
    """Describe a Parquet table."""
    return Artifact(name, "table", meaning, tuple(columns))


def metrics(stage: str, meaning: str) -> Artifact:
    """Describe the stage's metrics: numbers, flags and short texts in JSON, which DVC compares between versions."""
    return Artifact(f"{stage}/metrics", "metrics", meaning)


def picture(stage: str, meaning: str) -> Artifact:
    """Describe the stage's picture."""
    return Artifact(f"{stage}/preview", "picture", meaning)


def plot(name: str, columns: Iterable[Column], *, axes: tuple[str, ...], meaning: str) -> Artifact:
    """Describe a CSV file for `dvc plots`: columns in `axes` after the first are plotted over the first."""
    return Artifact(name, "plot", meaning, tuple(columns), axes=axes)


def folder(name: str, meaning: str) -> Artifact:
    """Describe a folder of files in other formats."""
    return Artifact(name, "folder", meaning)


def provenance(stage: str) -> Artifact:
    """Describe the stage's provenance, which the runtime writes."""
    return Artifact(f"{stage}/provenance", "provenance", "sha256 of what the stage read and wrote")


@dataclass(frozen=True)
class Stage:
    """Description of a stage for DVC, the flow and the catalogue; its code is `run` in stages/<name>/<name>.py."""

    name: str
    does: str
    """One line: input → output."""
    params: type[StageParams]
    artifacts: tuple[Artifact, ...]
    """Artifacts that `run` writes."""
    reads: tuple[str, ...]
    """Names of the upstream artifacts it reads."""
    key_figure: str
    """Metric shown for the stage in short tables."""
    timeout_s: float
    files: tuple[str, ...] = ()
    """Keys of scan.yaml that name its input files in the scan's directory."""
    uses_library: bool = False
    """Whether it depends on the library of the scan's material."""
    uses_material: bool = False
    """Whether it depends on the scan's material."""
    retries: int = 2
    base: str = ""
    """For an instance: the stage whose code it runs."""
    renamed: tuple[tuple[str, str], ...] = ()
    """For an instance: (stage that the base reads from, stage that it reads from instead)."""

    @property
    def code(self) -> str:
        """Return the stage whose folder contains the code: itself or its base."""
        return self.base or self.name

    @property
    def writes(self) -> tuple[Artifact, ...]:
        """Return everything in the stage's output folder."""
        return (*self.artifacts, provenance(self.name))

    @property
    def sections(self) -> tuple[str, ...]:
        """Return the sections of params.yaml it depends on; later ones override earlier ones."""
        shared = self.params.shared_sections()
        return (*shared, self.base, self.name) if self.base else (*shared, self.name)

    def name_of(self, name: str) -> str:
        """Return this stage's name of the artifact that its base calls `name`."""
        stage, _, stem = name.partition("/")
        return f"{dict([*self.renamed, (self.code, self.name)]).get(stage, stage)}/{stem}"


@dataclass(frozen=True)
class Instance:
    """A second run of a stage on other inputs, with its own parameters and output folder."""

    name: str
    of: str
    """The stage whose code it runs."""
    reads: Mapping[str, str]
    """Stage that the base reads from → stage that the instance reads from."""
    does: str
    params: type[StageParams] | None = None
    """Parameters, if the instance allows less than its base."""

    def resolve(self, base: Stage) -> Stage:
        """Return the complete stage; everything not given here is taken from the base."""
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
                replace(a, name=stage.name_of(a.name), meaning=f"{a.meaning} (second cut)")
                for a in base.artifacts
            ),
        )
