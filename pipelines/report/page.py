"""Format metrics for people, describe a page as blocks (tables, plots, notes) and render it as one HTML file."""

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipelines.dvc.stage import StageReport

# Metrics as text: the unit is the suffix of the key.


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
"""Suffixes of keys, longest first, and their units."""
MISSING = "–"
_READABLE = {
    "m": (1e3, "mm"),
    "m²": (1e6, "mm²"),
    "m³": (1e6, "cm³"),
    "Pa": (1e-3, "kPa"),
    "J/m^2": (1.0, "J/m²"),
    "kg/m^3": (1.0, "kg/m³"),
}
"""SI unit → factor and unit in which it is shown."""


_SHARE = re.compile(r"(?:^|_)(?:nmae|reduction|fraction)(?:_|$)")
"""Keys of shares, which are shown in percent."""


def label(key: str) -> str:
    """Return a metric's name and the unit in which it is shown: `mean_force_n` → `mean force [N]`."""
    name, unit, _ = _parts(key)
    return f"{name} [{unit}]" if unit else name


def readable(unit: str) -> tuple[float, str]:
    """Return the factor and the unit in which values of an SI unit are shown."""
    return _READABLE.get(unit, (1.0, unit))


def labelled(key: str, value: Any) -> tuple[str, Any]:
    """Return a metric's label and its value in that unit: `board_margin_m`, 0.0015 → `board margin [mm]`, 1.5."""
    _, _, factor = _parts(key)
    if isinstance(value, str):
        return key.replace("_", " "), value
    if isinstance(value, list | tuple):
        return label(key), [_scaled(item, factor) for item in value]
    return label(key), _scaled(value, factor)


def figure(key: str, value: Any) -> str:
    """Return a metric as text with its unit: `volume_m3`, 1.63e-4 → `volume 163 cm³`; `–` if it is missing."""
    name, unit, factor = _parts(key)
    if value is None or isinstance(value, str):
        return value or MISSING
    if not _is_number(value) or not math.isfinite(value):
        return f"{name}: {number(value)}"
    if "reduction" in key:
        subject = " ".join(name.replace("reduction", "").split()) or "mean force"
        percentage = 100.0 * abs(value)
        rounded = f"{percentage:.0f}" if percentage >= 10.0 else f"{percentage:.2g}"
        return f"{subject} {rounded} % {'lower' if value >= 0.0 else 'higher'}"
    if isinstance(value, int) and not unit:
        return f"{value:,} {name}"
    return f"{name} {_brief(factor * value)} {unit}".rstrip()


def _parts(key: str) -> tuple[str, str, float]:
    """Return name, unit shown and factor from the stored value: `volume_m3` → `volume`, `cm³`, 1e6."""
    if _SHARE.search(key):
        return key.replace("_fraction", "").replace("nmae", "mean error").replace("_", " "), "%", 100.0
    for suffix, unit in _UNITS.items():
        if key.endswith(suffix):
            factor, shown = readable(unit)
            return key.removesuffix(suffix).replace("_", " "), shown, factor
    return key.replace("_", " "), "", 1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _scaled(value: Any, factor: float) -> Any:
    return factor * value if factor != 1.0 and _is_number(value) else value


def _brief(value: float) -> str:
    """Return the number with two digits below 10, three below 1000, and whole above."""
    if abs(value) < 10.0:
        return f"{value:.2g}"
    return f"{value:.3g}" if abs(value) < 1000.0 else f"{value:,.0f}"


def number(value: Any) -> str:
    """Return a value as text with four significant digits; integers in full."""
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
    """Return a share (0 to 1) in percent with one decimal."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return f"{100.0 * value:.1f} %" if usable else MISSING


def unseen(fit: Mapping[str, Any]) -> str:
    """Return the error on data the fit has not seen, from calibrate's metrics."""
    if fit.get("nmae_next_cut") is not None:
        return f"prediction error on the next cut {percent(fit['nmae_next_cut'])}"
    if fit.get("nmae_forecast") is not None:
        return f"forecast error at the end of the cut {percent(fit['nmae_forecast'])}"
    if fit.get("nmae_held_out") is not None:
        return f"error on held-out samples {percent(fit['nmae_held_out'])}"
    return "not validated on a log"


def saving_band(motion: Mapping[str, Any]) -> list[str]:
    """Return the 90 % interval of the saving and its basis, from optimize's metrics."""
    low, high = motion.get("reduction_low"), motion.get("reduction_high")
    basis = motion.get("reduction_rests_on")
    if low is None or high is None:
        return [f"No interval of the saving. Basis: {basis}"] if basis else []
    text = f"90 % interval of the saving: {100.0 * low:.0f} to {100.0 * high:.0f} %"
    outer = motion.get("reduction_two_cuts_low"), motion.get("reduction_two_cuts_high")
    if outer[0] is not None and outer[1] is not None:
        text += (
            f"; from two measured cuts with separate scale factors: {100.0 * outer[0]:.0f} to "
            f"{100.0 * outer[1]:.0f} %"
        )
    return [f"{text}. Basis: {basis}" if basis else text]


_DIGITS = 6
"""Significant digits of plotted numbers; limits the size of the file."""
Tone = Literal["good", "warning", "bad", "plain"]


@dataclass(frozen=True)
class Table:
    """Table with a header."""

    kind: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    folded: bool = False
    """Collapsed by default."""

    @property
    def cells(self) -> list[list[str]]:
        """Return the rows as text."""
        return [[number(value) for value in row] for row in self.rows]


@dataclass(frozen=True)
class Figures:
    """Key figures in large type: label, value, remark."""

    kind: ClassVar[str] = "figures"
    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Note:
    """Highlighted message."""

    kind: ClassVar[str] = "note"
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Link:
    """Link to a file beside the page."""

    kind: ClassVar[str] = "link"
    target: str
    text: str


@dataclass(frozen=True)
class Code:
    """Command or path to copy."""

    kind: ClassVar[str] = "code"
    text: str
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """PNG image, embedded in the page."""

    kind: ClassVar[str] = "picture"
    png: bytes
    caption: str

    @property
    def uri(self) -> str:
        """Return the picture as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Drawing:
    """SVG drawing, optionally with its data as a table."""

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
    """Index into the palette; by default in order."""
    edge: bool = False
    """Thin line at the edge of a band."""


@dataclass(frozen=True)
class Plot:
    """Interactive plot of curves over a common x."""

    kind: ClassVar[str] = "plot"
    title: str
    x_label: str
    y_label: str
    x: Sequence[float | None]
    curves: Sequence[Curve]
    marks: Sequence[tuple[float, str]] = ()
    """Vertical lines: x and label."""
    levels: Sequence[tuple[float, str]] = ()
    """Horizontal lines: y and label, e.g. a limit."""
    log: bool = False
    bars: bool = False
    """Draw bars from zero."""
    span_gaps: bool = False
    """Connect the samples on both sides of a gap."""
    bands: Sequence[tuple[int, int]] = ()
    """Pairs of curves, upper and lower, with the area between them shaded."""
    wide: bool = False
    caption: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """Return the data for the page's plotting script."""
        return {
            "x": [_short(v) for v in self.x],
            "x_label": self.x_label,
            "y_label": self.y_label,
            "log": self.log,
            "bars": self.bars,
            "span_gaps": self.span_gaps,
            "bands": [list(pair) for pair in self.bands],
            "marks": [[_short(at), text] for at, text in self.marks],
            "levels": [[_short(at), text] for at, text in self.levels],
            "curves": [
                {
                    "label": curve.label,
                    "dashed": curve.dashed,
                    "edge": curve.edge,
                    "colour": i if curve.colour is None else curve.colour,
                    "values": [_short(v) for v in curve.values],
                }
                for i, curve in enumerate(self.curves)
            ],
        }


Block = Table | Figures | Note | Link | Code | Picture | Drawing | Plot


@dataclass
class Section:
    """Section of the page; the menu links to its anchor."""

    anchor: str
    title: str
    blocks: list[Block] = field(default_factory=list)
    folded: bool = False
    """Collapsed until it is opened."""


def _short(value: float | None) -> float | None:
    """Round to `_DIGITS` significant digits; None (a gap in the curve) if not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


# Verdict on a stage and on a run, from metrics: refused certificate, refused cuts, warnings.


_EXPORT = "export"


def refusal(metrics: Mapping[str, Any]) -> str | None:
    """Return the message if the certificate refuses the motion or a simulated cut did not happen; None otherwise."""
    if metrics.get("certified") is False:
        return str(metrics.get("verdict", "not certified"))
    return str(metrics["refused"]) if metrics.get("refused") else None


def refusal_of_run(metrics: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return why the whole run counts as refused, from the metrics by stage; None if it does not.

    The cut that is exported decides. Without an export, it is the last stage whose simulated cut did not happen. A
    certified motion overrides the other cuts: a nominal or vertical cut may fail where the optimised one succeeds.
    """
    export = metrics.get(_EXPORT, {})
    if "certified" in export:
        return refusal(export)
    messages = [f"{stage}: {text}" for stage, figures in metrics.items() if (text := refusal(figures))]
    return messages[-1] if messages else None


def stage_warnings(stage: str, metrics: Mapping[str, Any]) -> list[str]:
    """Return the warnings of a stage and why its simulated cut is refused; the certificate has its own line."""
    refused = [f"Refused: {stage}: {metrics['refused']}"] if metrics.get("refused") else []
    return refused + ([f"Warning: {stage}: {metrics['warning']}"] if metrics.get("warning") else [])


def result_word(report: StageReport) -> str:
    """Return how a stage ended, for tables and the dashboard: e.g. "Completed", "Completed, refused"."""
    if refusal(report.metrics):
        return f"{report.outcome.value}, refused"
    return f"{report.outcome.value}, warning" if report.metrics.get("warning") else report.outcome.value


# Rendering.


_HERE = Path(__file__).parent
_TEMPLATES, _ASSETS = _HERE / "templates", _HERE / "assets"


def render_page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the page as one self-contained HTML file; the template escapes all text."""
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
    """Return the Jinja environment; autoescape is on because scan names and error messages are untrusted."""
    return Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


@cache
def asset(name: str) -> str:
    """Return the text of a style sheet or script."""
    return (_ASSETS / name).read_text(encoding="utf-8")
