"""Picture of the stage `transport`: which springs correspond, and their parameters before and after."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, draw_springs, new_figure, pixels_of
from stages.transport.plan import Comparison, Flags, Floats, Plan, SpringSet, Values

_SIZE_INCHES = (16.0, 8.5)
_SHOWN_PARAMETERS = 2
"""Number of parameters shown: those that vary most."""


def transport_picture(
    source: SpringSet,
    target: SpringSet,
    plan: Plan,
    *,
    before: Values,
    after: Values,
    touched: Flags | None,
    comparison: Comparison,
) -> NDArray[np.uint8]:
    """Draw the picture; 8-bit pixels, shape [height, width, 3]; untouched springs of the first cut are hollow."""
    figure, canvas = new_figure(_SIZE_INCHES)
    top, bottom = figure.subfigures(2, 1)
    axes = top.subplots(1, 4)
    colours = _position_colours(source.in_unit_box)
    draw_springs(axes[0], source.position_m, source.area_m2, colours, "first cut, coloured by position")
    title = "second cut, in the colours of its sources"
    draw_springs(axes[1], target.position_m, target.area_m2, plan.weights @ colours, title)
    axes[0].set(ylabel="height [mm]")
    _draw_ways(axes[2], source, target, plan)
    _draw_forces(axes[3], comparison)
    maps = bottom.subplots(1, 2 * _SHOWN_PARAMETERS)
    for index, name in enumerate(_most_varied(before)[:_SHOWN_PARAMETERS]):
        limits = (float(before[name].min()), float(before[name].max()))
        pair = maps[2 * index : 2 * index + 2]
        dots = draw_springs(
            pair[0],
            source.position_m,
            source.area_m2,
            before[name],
            f"{name}, first cut",
            full=touched,
            limits=limits,
        )
        draw_springs(
            pair[1], target.position_m, target.area_m2, after[name], f"{name}, second cut", limits=limits
        )
        bottom.colorbar(dots, ax=list(pair), orientation="horizontal", pad=0.1, shrink=0.6)
    return pixels_of(canvas)


def _position_colours(position: Floats) -> Floats:
    """Return colours, shape [spring_count, 3]: red grows along the blade, blue with height, in the unit box."""
    along, up = position.T
    return np.stack([0.15 + 0.8 * along, 0.75 - 0.5 * np.abs(up - along), 0.15 + 0.8 * up], axis=1)


def _draw_ways(axis: Any, source: SpringSet, target: SpringSet, plan: Plan) -> None:
    """Draw lines in the unit box from each target to its sources, width proportional to the share."""
    start, end = source.in_unit_box, target.in_unit_box
    shares = plan.weights.tocoo()
    for row, column, share in zip(shares.row, shares.col, shares.data, strict=True):
        way = np.stack([start[column], end[row]])
        axis.plot(*way.T, color=CUT, lw=0.3 + 1.2 * share, alpha=0.6, zorder=1)
    axis.scatter(*start.T, s=7, color=SCAN, label="first cut", zorder=2)
    axis.scatter(*end.T, s=7, color=FRUIT, label="second cut", zorder=3)
    axis.set_aspect("equal")
    axis.set(xlabel="along the blade, unit box", ylabel="height, unit box")
    axis.set_title(f"the {plan.method} plan, rms distance {np.sqrt(plan.cost):.3f}", color=TEXT, fontsize=9)
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)


def _draw_forces(axis: Any, comparison: Comparison) -> None:
    axis.plot(
        comparison.time_s, comparison.transported_n, color=FRUIT, lw=2.0, label="transported parameters"
    )
    axis.plot(comparison.time_s, comparison.averaged_n, color=TEXT, lw=1.0, label="average parameters")
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]", ylim=(0.0, None))
    nmae = comparison.nmae
    difference = "" if nmae is None else f", {100 * nmae:.1f} % apart"
    axis.set_title(f"vertical second cut{difference}", color=TEXT, fontsize=9)
    axis.legend(frameon=False, fontsize=8)


def _most_varied(values: Values) -> list[str]:
    """Return names in order of their spread relative to their mean; constants keep their order, at the end."""
    spread = {name: float(np.std(v) / max(abs(float(np.mean(v))), 1e-300)) for name, v in values.items()}
    return sorted(values, key=lambda name: -spread[name])
