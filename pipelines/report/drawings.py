"""SVG drawings: springs on the cut surface, the knife's path over the fruit, bars of margins.

The markup contains only numbers and texts of this module; external texts are escaped.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape

from pipelines.report.page import number

# Colour maps.


_STEPS = 256
MAP, DATA_MAP = "viridis", "cividis"
"""Colour maps of physical values and of the amount of data."""


@cache
def colour_map(name: str) -> tuple[str, ...]:
    """Return 256 colours as #rrggbb, from low to high."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return tuple(to_hex(colormaps[name](i / (_STEPS - 1))) for i in range(_STEPS))


def rgb(colour: str) -> tuple[int, int, int]:
    """Convert #rrggbb to red, green and blue, 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def colour_of(fraction: float, name: str = MAP) -> str:
    """Return the colour of a fraction from 0 to 1."""
    return colour_map(name)[round(min(max(fraction, 0.0), 1.0) * (_STEPS - 1))]


_MM = 1e3
_WIDTH = 320.0
"""Width of a spring map in drawing units."""
_BAR = 84.0
"""Width of the colour bar with its labels."""
_LOG_FROM = 30.0
"""Positive values that span more than this factor are coloured by their logarithm."""


def spring_map(
    positions: Sequence[Sequence[float]],
    areas: Sequence[float],
    values: Sequence[float],
    *,
    title: str,
    unit: str,
    colours: str = MAP,
) -> str:
    """Draw springs at (z, y) [m] as discs of their area [m²], coloured by value; hovering shows the value."""
    scale = _Scale(values)
    frame = _Frame([p[0] for p in positions], [p[1] for p in positions], _WIDTH)
    discs = []
    for position, area, value in zip(positions, areas, values, strict=True):
        x, y = frame(position[0], position[1])
        radius = max(2.0, 0.7 * frame.factor * math.sqrt(area / math.pi))
        discs.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour_of(scale(value), colours)}">'
            f"<title>z {_MM * position[0]:.1f} mm, y {_MM * position[1]:.1f} mm: "
            f"{number(float(value))} {escape(unit)}</title>"
            "</circle>"
        )
    heading = f"{title} [{unit}]" + (" (log)" if scale.log else "")
    body = "".join(discs) + _bar(scale, frame.height, colours) + frame.axes()
    return _svg(_WIDTH + _BAR + 30, frame.height + 76, heading, f'<g transform="translate(30,26)">{body}</g>')


def knife_path(
    triangles: Iterable[Sequence[Sequence[float]]],
    path: Sequence[Sequence[float]],
    times: Sequence[float],
    *,
    bounds: tuple[float, float] | None,
    blade_m: float | None,
) -> str:
    """Draw the path of the edge's centre (z, y) [m] over the fruit's silhouette, coloured by time [s].

    triangles: faces of the fruit as (z, y) [m]. bounds: range of the edge's centre in which the blade covers the fruit.
    blade_m: length of the blade, drawn at start and end.
    """
    faces = list(triangles)
    half = 0.5 * (blade_m or 0.0)
    ends = [path[0][0] - half, path[0][0] + half, path[-1][0] - half, path[-1][0] + half]
    zs = [p[0] for face in faces for p in face] + [p[0] for p in path] + ends
    ys = [p[1] for face in faces for p in face] + [p[1] for p in path] + [0.0]
    frame = _Frame(zs, ys, 720.0)
    shape = "".join("M" + "L".join(_xy(frame, p) for p in _turned(face)) + "Z" for face in faces)
    parts = [f'<path class="fruit" d="{shape}"/>']
    for z in bounds or ():
        x, _ = frame(z, 0.0)
        parts.append(f'<path class="limit" d="M{x:.1f} 0V{frame.height:.1f}"/>')
    if blade_m:
        for name, position in (("start", path[0]), ("end", path[-1])):
            (x0, y0), (x1, _) = frame(position[0] - half, position[1]), frame(position[0] + half, position[1])
            parts.append(f'<path class="blade {name}" d="M{x0:.1f} {y0:.1f}H{x1:.1f}"/>')
            parts.append(f'<text x="{x1:.1f}" y="{y0 - 4:.1f}" text-anchor="end">blade at the {name}</text>')
    x0, board = frame(min(zs), 0.0)
    parts.append(f'<path class="board" d="M{x0:.1f} {board:.1f}H{frame.width:.1f}"/>')
    scale = _Scale(times)
    for i in range(1, len(path)):
        parts.append(
            f'<path d="M{_xy(frame, path[i - 1])}L{_xy(frame, path[i])}" fill="none" stroke-width="3" '
            f'stroke="{colour_of(scale(times[i]))}"><title>{times[i]:.3f} s: z {_MM * path[i][0]:.1f} mm, '
            f"y {_MM * path[i][1]:.1f} mm</title></path>"
        )
    body = "".join(parts) + _bar(scale, frame.height, MAP) + frame.axes()
    heading = "centre of the edge, coloured by time [s]"
    return _svg(
        frame.width + _BAR + 30, frame.height + 76, heading, f'<g transform="translate(30,26)">{body}</g>'
    )


def margin_bars(margins: Sequence[tuple[str, float]]) -> str:
    """Draw horizontal bars of margins to limits, as shares of the limit; nothing is drawn beyond the limit."""
    full, high = 330.0, 34.0
    parts = []
    for i, (name, margin) in enumerate(margins):
        y = 30.0 + high * i
        length = full * min(max(margin, 0.0), 1.0)
        colour = "#b3261e" if not margin >= 0.0 else "#c77700" if margin < 0.1 else "#2e7d32"
        text = f"{100 * margin:.0f} % left" if margin >= 0.0 else "exceeded"
        parts.append(
            f'<text x="4" y="{y + 10:.0f}">{escape(name)}: {text}</text>'
            f'<rect x="4" y="{y + 14:.0f}" width="{full:.1f}" height="12" fill="none" stroke="{colour}"/>'
            f'<rect x="4" y="{y + 14:.0f}" width="{length:.1f}" height="12" fill="{colour}"/>'
        )
    bottom = 30.0 + high * len(margins)
    return _svg(full + 8, bottom + 2, "Margin to the limit", "".join(parts)).replace(
        "<svg ", '<svg class="bars" ', 1
    )


def standalone(svg: str) -> str:
    """Return the drawing as a standalone file, including the styles of the page."""
    style = (
        "<style>text{font:11px sans-serif;fill:#22262c}.title{font-weight:600}.fruit{fill:#f0d3a6;stroke:#f0d3a6}"
        ".board{stroke:#22262c;stroke-width:2}.limit{stroke:#b3261e;stroke-dasharray:5 4}.blade{stroke:#636b76}</style>"
    )
    opening, end, rest = svg.partition(">")
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'{opening} xmlns="http://www.w3.org/2000/svg"{end}{style}{paper}{rest}'


class _Scale:
    """Map values to fractions of the colour map, logarithmically if they are positive and span decades."""

    def __init__(self, values: Sequence[float]) -> None:
        usable = [v for v in values if math.isfinite(v)] or [0.0]
        self.low, self.high = min(usable), max(usable)
        self.log = self.low > 0.0 and self.high > _LOG_FROM * self.low

    def __call__(self, value: float) -> float:
        if self.high <= self.low or not math.isfinite(value):
            return 0.5
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def at(self, fraction: float) -> float:
        """Return the value at a fraction."""
        if self.log:
            return self.low * (self.high / self.low) ** fraction
        return self.low + fraction * (self.high - self.low)


class _Frame:
    """Map metres to drawing units, y up."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], width: float) -> None:
        margin = 0.04 * max(max(xs) - min(xs), max(ys) - min(ys), 1e-6)
        self._x0, self._y1 = min(xs) - margin, max(ys) + margin
        self.factor = width / (max(xs) + margin - self._x0)
        self.width, self.height = width, self.factor * (self._y1 - min(ys) + margin)
        self._low = self._y1 - self.height / self.factor

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        return self.factor * (x - self._x0), self.factor * (self._y1 - y)

    def axes(self) -> str:
        """Draw the axis labels in millimetres."""
        step = _round_step(min(self.width, 2.0 * self.height) / self.factor / 4.0)
        parts = []
        z = math.ceil(self._x0 / step) * step
        while z <= self._x0 + self.width / self.factor:
            x, _ = self(z, 0.0)
            parts.append(
                f'<text x="{x:.1f}" y="{self.height + 18:.1f}" text-anchor="middle">{_MM * z:.0f}</text>'
            )
            z += step
        y = math.ceil(self._low / step) * step
        while y <= self._y1:
            _, height = self(0.0, y)
            parts.append(f'<text x="-4" y="{height + 4:.1f}" text-anchor="end">{_MM * y:.0f}</text>')
            y += step
        middle = 0.5 * self.width
        parts.append(
            f'<text x="{middle:.0f}" y="{self.height + 42:.0f}" text-anchor="middle">'
            "along the blade, z [mm]; left: height, y [mm]</text>"
        )
        return "".join(parts)


def _turned(face: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
    """Return the triangle (z, y) counter-clockwise, so that front and back faces fill the same shape."""
    (az, ay), (bz, by), (cz, cy) = face
    return face if (bz - az) * (cy - ay) >= (cz - az) * (by - ay) else (face[0], face[2], face[1])


def _round_step(length: float) -> float:
    power = 10.0 ** math.floor(math.log10(length))
    return next(k * power for k in (1.0, 2.0, 5.0, 10.0) if k * power >= length)


def _bar(scale: _Scale, height: float, colours: str) -> str:
    steps = 32
    cells = "".join(
        f'<rect x="0" y="{height * (1 - (i + 1) / steps):.1f}" width="10" height="{height / steps + 0.5:.1f}" '
        f'fill="{colour_map(colours)[round(255 * (i + 0.5) / steps)]}"/>'
        for i in range(steps)
    )
    texts = "".join(
        f'<text x="14" y="{height * (1 - f) + (10 if f == 1.0 else 0 if f == 0.0 else 4):.1f}">'
        f"{scale.at(f):.4g}</text>"
        for f in (0.0, 0.5, 1.0)
    )
    return f'<g class="bar" transform="translate(BARX,0)">{cells}{texts}</g>'


def _xy(frame: _Frame, point: Sequence[float]) -> str:
    x, y = frame(point[0], point[1])
    return f"{x:.1f} {y:.1f}"


def _svg(width: float, height: float, title: str, body: str) -> str:
    body = body.replace("BARX", f"{width - _BAR - 22:.0f}")
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f'<text class="title" x="4" y="14">{escape(title)}</text>{body}</svg>'
    )
