"""Section `cut` of params.yaml: the one description of what cuts and how it is simulated."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from disect_sim.knife import Knife, knife_from
from disect_sim.laws import DAMAGE_LAWS
from disect_sim.parameters import SPRING_PARAMETERS
from stages.runtime.describe import Column, Positive, SharedSection, one_of
from stages.runtime.errors import InputError

# Columns that tables of several stages have.


POSITION = Column("position_m", "array[f64,3]", "m", "position in the cutting frame (y up, board y = 0)")
SIDE = Column(
    "side", "i8", "-", "+1 on the positive side of the cut surface (x > 0 for the plane x = 0), else -1"
)


def triangles(meaning: str) -> Column:
    """Three vertices per row."""
    return Column("vertices", "array[i32,3]", "index", meaning)


# Columns of a table with the parameters of every cutting spring, one per parameter of the simulator.


SPRING_ROW = (
    Column("position_m", "array[f64,2]", "m", "2D position on the cut surface; (z, y) for the plane x = 0"),
    Column("area_m2", "f64", "m²", "tributary area"),
    Column("surface", "bool", "", "true for skin"),
    *(Column(name, "f64", info.unit, info.meaning) for name, info in SPRING_PARAMETERS.items()),
)


# Names of the artifacts that make up a cut mesh.


def cut_mesh(stage: str) -> tuple[str, ...]:
    """The tables of the cut mesh that the stage (precut, or an instance of it) writes."""
    return tuple(f"{stage}/{table}" for table in ("nodes", "tets", "virtual_nodes", "springs"))


class CutParams(SharedSection):
    """cut: knife, boundary, damage law, step, limits and clearances of every simulated cut."""

    knife: str | dict[str, float]
    """A known knife by name, or the dimensions of another."""
    boundary: Literal["held", "guided", "glued", "free"]
    damage_law: Annotated[str, one_of(DAMAGE_LAWS)]
    dt_s: Annotated[float, Field(ge=1e-5, le=0.01)]
    speed_m_s: Annotated[float, Field(gt=0, le=1)]
    """Mean speed of the descent: gives the duration."""
    start_clearance_m: Annotated[float, Field(gt=0, le=0.05)]
    """Height of the knife's edge above the fruit's top at the start."""
    board_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the knife's edge above the board at the end."""
    force_limit_n: Positive
    """A simulated cut ends as jammed beyond this."""

    @field_validator("knife", mode="before")
    @classmethod
    def _is_a_knife(cls, value: Any) -> Any:
        if not isinstance(value, str | dict):
            raise ValueError("it must be the name of a known knife or a mapping of dimensions")
        try:
            knife_from(value)
        except InputError as error:
            raise ValueError(str(error)) from error
        return value

    @property
    def blade(self) -> Knife:
        """The knife's geometry."""
        return knife_from(self.knife)

    @property
    def knife_label(self) -> str:
        """The knife in one line, for notes and messages."""
        if isinstance(self.knife, str):
            return self.knife
        return ", ".join(f"{name} {value:g}" for name, value in sorted(self.knife.items()))
