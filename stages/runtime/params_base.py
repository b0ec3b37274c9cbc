"""What every section of params.yaml obeys, and the number types that sections share."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

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
