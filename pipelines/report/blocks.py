"""What a page is made of. Everything here is plain data; templates/page.html turns it into HTML."""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pipelines.report.words import number

DIGITS = 6
"""Significant digits of plotted numbers; more would only make the file larger."""
Tone = Literal["good", "warning", "bad", "plain"]


@dataclass(frozen=True)
class Table:
    """Rows of text under a header."""

    kind: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    folded: bool = False
    """Closed until someone opens it."""

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text."""
        return [[number(value) for value in row] for row in self.rows]


@dataclass(frozen=True)
class Figures:
    """A few numbers in large type: label, value, remark."""

    kind: ClassVar[str] = "figures"
    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Note:
    """A sentence that stands out."""

    kind: ClassVar[str] = "note"
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Code:
    """Something to copy into a terminal."""

    kind: ClassVar[str] = "code"
    text: str
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG, held in the page itself."""

    kind: ClassVar[str] = "picture"
    png: bytes
    caption: str

    @property
    def uri(self) -> str:
        """The picture as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Drawing:
    """An SVG that was made from numbers only, beside the numbers."""

    kind: ClassVar[str] = "drawing"
    svg: str
    caption: str
    data: Table | None = None
    wide: bool = False


@dataclass(frozen=True)
class Curve:
    """One line of a plot."""

    label: str
    values: Sequence[float | None]
    dashed: bool = False
    colour: int | None = None
    """Number of the palette's colour; by default in order."""


@dataclass(frozen=True)
class Plot:
    """Curves over a common x, to zoom and to read off."""

    kind: ClassVar[str] = "plot"
    title: str
    x_label: str
    y_label: str
    x: Sequence[float | None]
    curves: Sequence[Curve]
    marks: Sequence[tuple[float, str]] = ()
    """Vertical lines: x and what happens there."""
    levels: Sequence[tuple[float, str]] = ()
    """Horizontal lines: y and what it stands for, such as a limit."""
    log: bool = False
    bars: bool = False
    """Draw bars from zero, for counts."""
    span_gaps: bool = False
    """Join the samples on both sides of a gap."""
    caption: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script draws."""
        return {
            "x": [_short(v) for v in self.x],
            "x_label": self.x_label,
            "y_label": self.y_label,
            "log": self.log,
            "bars": self.bars,
            "span_gaps": self.span_gaps,
            "marks": [[_short(at), text] for at, text in self.marks],
            "levels": [[_short(at), text] for at, text in self.levels],
            "curves": [
                {
                    "label": curve.label,
                    "dashed": curve.dashed,
                    "colour": i if curve.colour is None else curve.colour,
                    "values": [_short(v) for v in curve.values],
                }
                for i, curve in enumerate(self.curves)
            ],
        }


Block = Table | Figures | Note | Code | Picture | Drawing | Plot


@dataclass
class Section:
    """A part of the page, with a heading that the menu links to."""

    anchor: str
    title: str
    blocks: list[Block] = field(default_factory=list)


def _short(value: float | None) -> float | None:
    """The number with few digits; None (a gap in the curve) where it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")
