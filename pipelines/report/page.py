"""What a page is made of. Everything here is plain data; templates/page.html turns it into HTML."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

# Metrics and numbers in words: a key's unit is in its name, so label and value follow from it.


_UNITS = {
    "_m_s2": "m/s²",
    "_m_s": "m/s",
    "_rad_s": "rad/s",
    "_m3": "m³",
    "_m2": "m²",
    "_ns": "N·s",
    "_nm": "N·m",
    "_hz": "Hz",
    "_deg": "°",
    "_rad": "rad",
    "_kg": "kg",
    "_pa": "Pa",
    "_m": "m",
    "_n": "N",
    "_s": "s",
    "_j": "J",
}
"""Endings of keys, longest first, and the unit they stand for."""
MISSING = "–"
_READABLE = {
    "m": (1e3, "mm"),
    "m²": (1e6, "mm²"),
    "m³": (1e6, "cm³"),
    "Pa": (1e-3, "kPa"),
    "J/m^2": (1.0, "J/m²"),
    "kg/m^3": (1.0, "kg/m³"),
}
"""Units of files → factor and unit for people: a fruit is centimetres wide, an edge tenths of a millimetre."""


def label(key: str) -> str:
    """`mean_force_n` → `mean force [N]`."""
    for ending, unit in _UNITS.items():
        if key.endswith(ending):
            return f"{key.removesuffix(ending).replace('_', ' ')} [{unit}]"
    return key.replace("_", " ")


def readable(unit: str) -> tuple[float, str]:
    """What to multiply a value of this unit with, and the unit it then has."""
    return _READABLE.get(unit, (1.0, unit))


def labelled(key: str, value: Any) -> tuple[str, Any]:
    """A metric for people: `board_margin_m`, 0.0015 → `board margin [mm]`, 1.5."""
    text = label(key)
    unit = text.rpartition("[")[2].removesuffix("]") if text.endswith("]") else ""
    factor, better = readable(unit)
    if better == unit or not _are_numbers(value):
        return text, value
    scaled = [factor * item for item in value] if isinstance(value, list | tuple) else factor * value
    return text.replace(f"[{unit}]", f"[{better}]"), scaled


def _are_numbers(value: Any) -> bool:
    items = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(item, int | float) and not isinstance(item, bool) for item in items)


def number(value: Any) -> str:
    """A value as a person wants to read it: four digits for fractions, whole numbers whole."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "not finite"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {number(item)}" for key, item in value.items()) or MISSING
    if isinstance(value, list | tuple):
        return ", ".join(number(item) for item in value) or MISSING
    return str(value)


def percent(value: Any) -> str:
    """A share of one, in percent."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return f"{100.0 * value:.1f} %" if usable else MISSING


def unseen(fit: Mapping[str, Any]) -> str:
    """How far the fit was off where it had not looked, from calibrate's metrics."""
    if fit.get("nmae_next_cut") is not None:
        return f"the next cut was predicted {percent(fit['nmae_next_cut'])} off"
    if fit.get("nmae_forecast") is not None:
        return f"the end of the cut was forecast {percent(fit['nmae_forecast'])} off"
    if fit.get("nmae_held_out") is not None:
        return f"{percent(fit['nmae_held_out'])} off where the fit did not look"
    return "not checked against a log"


def saving_band(found: Mapping[str, Any]) -> list[str]:
    """Say where the saving lies and what that rests on; found: metrics of optimize."""
    low, high = found.get("reduction_low"), found.get("reduction_high")
    basis = found.get("reduction_rests_on")
    if low is None or high is None:
        return [f"The saving has no band. It rests on: {basis}"] if basis else []
    text = f"90 % of the possible fruits: between {100.0 * low:.0f} and {100.0 * high:.0f} % less"
    outer = found.get("reduction_two_cuts_low"), found.get("reduction_two_cuts_high")
    if outer[0] is not None and outer[1] is not None:
        text += (
            f"; measured on two cuts, each with a factor of its own, {100.0 * outer[0]:.0f} to "
            f"{100.0 * outer[1]:.0f} %"
        )
    return [f"{text}. It rests on: {basis}" if basis else text]


_DIGITS = 6
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
    return float(f"{value:.{_DIGITS}g}")


# Putting blocks into one self-contained HTML file.


_HERE = Path(__file__).parent
_TEMPLATES, _ASSETS = _HERE / "templates", _HERE / "assets"


def render_page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The page; all text is escaped by the template, styles and scripts are ours and stand in the page itself."""
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=subtitle,
            sections=sections,
            styles=asset("uplot.min.css") + asset("page.css"),
            scripts=asset("uplot.min.js") + "\n" + asset("page.js"),
        )
    )


@cache
def environment() -> Environment:
    """Jinja with escaping on: scan names and error texts come from outside."""
    return Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


@cache
def asset(name: str) -> str:
    """A style or script of ours or of a library."""
    return (_ASSETS / name).read_text(encoding="utf-8")
