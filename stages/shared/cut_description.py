"""Section `cut` of params.yaml: knife, boundary, damage law and limits of all simulated cuts; tables of a cut mesh."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from disect_sim.knife import Knife
from disect_sim.laws import DAMAGE_LAWS
from disect_sim.parameters import SPRING_PARAMETERS, parameter_info
from stages.runtime.describe import Column, Positive, SharedSection, one_of
from stages.runtime.errors import InputError
from stages.shared.anatomy import anatomy_names
from stages.shared.knives.knife_file import DescribedKnife, described
from stages.shared.library.library import prior_of

# Columns of a table with the parameters of every cutting spring, one per parameter of the simulator


SPRING_ROW = (
    Column("position_m", "array[f64,2]", "m", "2D position on the cut surface; (z, y) for the plane x = 0"),
    Column("area_m2", "f64", "m²", "tributary area"),
    Column("surface", "bool", "", "true for skin"),
    *(Column(name, "f64", info.unit, info.meaning) for name, info in SPRING_PARAMETERS.items()),
)


INVERTED = "inverted_tets"
"""Note of the table replay/frames: largest number of inverted tets at once, for the certificate."""

BESIDE_M = 2.0e-3
"""Least distance of the blade from a rigid region, beside and above it [m]."""
RIGID = "rigid_tops_m"
"""Note of the table replay/frames: upper outline (z, y) of rigid regions beside the cut plane [m], as JSON."""


# Artifacts of a cut mesh


def cut_mesh(stage: str) -> tuple[str, ...]:
    """Return the tables of the cut mesh that the stage (precut, or an instance of it) writes."""
    return tuple(
        f"{stage}/{table}" for table in ("nodes", "tets", "virtual_nodes", "springs")
    ) + anatomy_names(stage)


class CutParams(SharedSection):
    """cut: knife, boundary, damage law, step, limits and clearances of every simulated cut."""

    knife: str | dict[str, Any]
    """A shipped knife by name, or the description of another."""
    boundary: Literal["held", "guided", "glued", "free"]
    damage_law: Annotated[str, one_of(DAMAGE_LAWS)]
    dt_s: Annotated[float, Field(ge=1e-5, le=0.01)]
    speed_m_s: Annotated[float, Field(gt=0, le=1)]
    """Mean speed of the descent; determines the duration."""
    start_clearance_m: Annotated[float, Field(gt=0, le=0.05)]
    """Height of the knife's edge above the fruit's top at the start."""
    board_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the knife's edge above the board at the end."""
    force_limit_n: Positive
    """Force above which a simulated cut ends as jammed."""
    parameters: dict[str, float]
    """Parameters of the simulator that differ from `nominal_parameters`."""

    @field_validator("knife", mode="before")
    @classmethod
    def _is_a_knife(cls, value: Any) -> Any:
        if not isinstance(value, str | dict):
            raise ValueError("it must be the name of a known knife or a mapping of dimensions")
        try:
            described(value)
        except InputError as error:
            raise ValueError(str(error)) from error
        return value

    def nominal_parameters(self, material: str | None = None) -> dict[str, float]:
        """Return every spring parameter of a material before any log; by default of any fruit.

        The simulator's defaults, replaced by the library's medians, replaced by `parameters`.
        """
        names = SPRING_PARAMETERS
        default = {name: parameter_info(name, damage_law=self.damage_law).default for name in names}
        median = {name: value for name, (value, _) in prior_of(material).items() if name in names}
        return default | median | self.parameters

    @property
    def tool(self) -> DescribedKnife:
        """The knife with its holder."""
        return described(self.knife)

    @property
    def blade(self) -> Knife:
        """The knife's geometry."""
        return self.tool.blade

    @property
    def knife_label(self) -> str:
        """The knife in one line, for notes and messages."""
        if isinstance(self.knife, str) or "name" in self.knife:
            return self.tool.label
        return ", ".join(f"{name} {_short(value)}" for name, value in sorted(self.knife.items()))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def nominal_unless_given(key: str) -> Callable[[Any, ValidationInfo], Any]:
    """Return a validator that fills `key` of a section with the nominal parameters of its cut; given values stay.

    The material is that of the scan, in the validation's context.
    """

    def fill(values: Any, info: ValidationInfo) -> Any:
        material = (info.context or {}).get("material")
        cut = values.get("cut") if isinstance(values, dict) else None
        given = values.get(key, {}) if isinstance(values, dict) else None
        if not isinstance(cut, CutParams) or not isinstance(given, dict):
            return values
        return values | {key: cut.nominal_parameters(material) | given}

    return fill
