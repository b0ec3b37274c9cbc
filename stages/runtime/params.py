"""Load and validate params.yaml: one section per stage, and sections shared by several stages.

All values are in params.yaml; a scan's scan.yaml may override them. The section of a stage's instance contains only the
values that differ from its base.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stages.runtime.catalogue import STAGES
from stages.runtime.describe import SharedSection, Stage, StageParams
from stages.runtime.errors import InputError, did_you_mean
from stages.runtime.files import read_mapping
from stages.runtime.scan_file import IDENTITY_KEYS, read_scan_mapping

SHARED: dict[str, type[SharedSection]] = {
    name: model for stage in STAGES.values() for name, model in stage.params.shared_sections().items()
}
"""Sections shared by several stages."""
SECTIONS: tuple[str, ...] = (*SHARED, *STAGES)
"""All sections: shared ones, then one per stage."""
_PLAIN_RULES = {
    "tuple_type": "must be a list, e.g. [1, 2]",
    "list_type": "must be a list, e.g. [1, 2]",
    "dict_type": "must be a mapping, e.g. {name: 1}",
    "model_type": "must be a mapping, e.g. {name: 1}",
    "too_long": "the list has too many values",
    "too_short": "the list has too few values",
}
"""Replacements of pydantic's messages that use Python terms."""
_SHOWN_CHARACTERS = 120
"""Maximum length of a value in a message."""


@dataclass(frozen=True)
class Params:
    """All validated sections; `params.clean` is the section of the stage clean, including its shared sections."""

    sections: Mapping[str, StageParams]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.sections[name]
        except KeyError:
            raise AttributeError(f"params.yaml has no section {name!r}") from None

    def __iter__(self) -> Iterator[tuple[str, StageParams]]:
        return iter(self.sections.items())


def load_params(params_yaml: Path, scan_yaml: Path | None = None) -> Params:
    """Read params.yaml, merge the scan's overrides over it, and validate the result.

    Raises InputError with key path, rule and remedy for the first invalid value.
    """
    overrides = read_scan_mapping(scan_yaml) if scan_yaml else {}
    return merge_params(params_yaml, overrides, overrides_from=str(scan_yaml))


def merge_params(params_yaml: Path, overrides: Mapping[str, Any], *, overrides_from: str) -> Params:
    """Like load_params, with overrides that are not in a file yet; `overrides_from` names them in errors.

    The same content is validated once per process.
    """
    shipped = read_mapping(params_yaml)
    content = repr((shipped, overrides))
    last = _VALIDATED.get((params_yaml, overrides_from))
    if last is None or last[0] != content:
        last = content, _validated(_Values(params_yaml, shipped, overrides, overrides_from))
        _VALIDATED[params_yaml, overrides_from] = last
    return last[1]


_VALIDATED: dict[tuple[Path, str], tuple[str, Params]] = {}
"""File and source of the overrides → their content and the validated parameters."""


def _validated(values: "_Values") -> Params:
    values.check_sections()
    shared = {name: values.validated(model, (name,)) for name, model in SHARED.items()}
    per_stage = {
        name: values.validated(stage.params, _own_sections(stage), shared) for name, stage in STAGES.items()
    }
    return Params({**shared, **per_stage})


def check_section_names(names: Sequence[Any], source: str) -> None:
    """Reject unknown sections."""
    for name in names:
        if name not in SECTIONS:
            raise InputError(
                f"{source}: {str(name)[:80]!r} is not a known section.{did_you_mean(str(name), SECTIONS)} Known "
                f"sections: {', '.join(SECTIONS)}. Correct or remove it."
            )


def _own_sections(stage: Stage) -> tuple[str, ...]:
    return tuple(name for name in stage.sections if name not in SHARED)


@dataclass(frozen=True)
class _Values:
    """Values of params.yaml and scan.yaml before validation."""

    params_yaml: Path
    shipped: Mapping[str, Any]
    overrides: Mapping[str, Any]
    overrides_from: str

    def check_sections(self) -> None:
        """Reject sections that are missing, unknown or not mappings."""
        check_section_names(list(self.shipped), str(self.params_yaml))
        check_section_names(
            [name for name in self.overrides if name not in IDENTITY_KEYS], self.overrides_from
        )
        for name in SECTIONS:
            if name not in self.shipped:
                raise InputError(
                    f"{self.params_yaml}: {name} is missing. Every section is required. "
                    f"Add {name} to {self.params_yaml}."
                )
            for source, values in (
                (str(self.params_yaml), self.shipped),
                (self.overrides_from, self.overrides),
            ):
                section = values.get(name)
                if section is not None and not isinstance(section, dict):
                    raise InputError(
                        f"{source}: {name} is {shown(section)}. A section must be a mapping of parameters to values. "
                        f"Write it as '{name}: {{key: value}}'."
                    )

    def validated(
        self,
        model: type[StageParams],
        sections: tuple[str, ...],
        shared: Mapping[str, StageParams] | None = None,
    ) -> StageParams:
        """Merge the sections, later ones over earlier ones, and return the validated model."""
        merged: dict[str, Any] = {}
        for section in sections:
            merged = _merged(merged, self.shipped.get(section) or {})
            merged = _merged(merged, self.overrides.get(section) or {})
        self._reject_shared_keys(model, sections[-1], merged)
        given = {name: (shared or {})[name] for name in model.shared_sections()}
        try:
            context = {"material": self.overrides.get("material")}
            checked = model.model_validate({**merged, **given}, context=context)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise InputError(self._message(model, sections, fault)) from error
        self._reject_other_types(sections, merged, checked.model_dump())
        return checked

    def _reject_other_types(
        self, sections: tuple[str, ...], given: Mapping[str, Any], checked: Mapping[str, Any]
    ) -> None:
        """Reject values that validation would convert, such as text or true/false for a number."""
        for key, value in given.items():
            for path, wrong, rule in _other_types(key, value, checked.get(key)):
                where, source = f"{sections[-1]}.{path}", self._source(sections, key)
                raise InputError(
                    f"{source}: {where} is {shown(wrong)}, but must be {rule}. Change {where} in {source}."
                )

    def _reject_shared_keys(self, model: type[StageParams], section: str, merged: Mapping[str, Any]) -> None:
        for shared, shared_model in model.shared_sections().items():
            for key in merged:
                if key == shared or (key in shared_model.model_fields and key not in model.model_fields):
                    where = shared if key == shared else f"{shared}.{key}"
                    raise InputError(
                        f"{self._source((section,), key)}: {section}.{key} is given. This parameter belongs to the "
                        f"shared section {shared}. Write it as {where}."
                    )

    def _source(self, sections: tuple[str, ...], key: int | str) -> str:
        overridden = any(key in (self.overrides.get(section) or {}) for section in sections)
        return self.overrides_from if overridden else str(self.params_yaml)

    def _message(self, model: type[StageParams], sections: tuple[str, ...], fault: ErrorDetails) -> str:
        location = fault["loc"]
        path = ".".join(str(part) for part in (sections[-1], *location))
        source = self._source(sections, location[0] if location else "")
        if fault["type"] == "missing":
            return (
                f"{source}: {path} is missing. Every parameter must have a value. "
                f"Add {path} to {self.params_yaml}."
            )
        if fault["type"] == "extra_forbidden":
            allowed = _allowed_keys(model, location)
            return (
                f"{source}: {path} is not a known parameter.{did_you_mean(str(location[-1]), allowed)} Known "
                f"parameters: {', '.join(allowed)}. Correct or remove it."
            )
        rule = _PLAIN_RULES.get(fault["type"], fault["msg"]).removeprefix("Value error, ").rstrip(".")
        rule = rule.replace("Input should be", "must be").replace("Input should have", "must have")
        rule = rule[0].lower() + rule[1:]
        return f"{source}: {path} is {shown(fault['input'])}, but {rule}. Change {path} in {source}."


def _merged(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge values over base; nested mappings are merged key by key, except one with a name (a knife): it is whole."""
    merged = {**base, **values}
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict) and "name" not in value:
            merged[key] = {**base[key], **value}
    return merged


def _other_types(path: str, given: Any, checked: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield path, value and rule where validation converted between numbers and text or true/false."""
    if isinstance(given, dict) and isinstance(checked, dict):
        for key, value in given.items():
            yield from _other_types(f"{path}.{key}", value, checked.get(key))
    elif isinstance(given, list) and isinstance(checked, list | tuple):
        for index, (value, other) in enumerate(zip(given, checked, strict=False)):
            yield from _other_types(f"{path}.{index}", value, other)
    elif isinstance(checked, bool) and not isinstance(given, bool):
        yield path, given, "true or false"
    elif isinstance(checked, int | float) and not isinstance(checked, bool) and isinstance(given, bool | str):
        yield path, given, "a number without quotes"


def shown(value: Any) -> str:
    """Return the value as text for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _allowed_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        model = annotation
    return [name for name in model.model_fields if name not in SHARED]
