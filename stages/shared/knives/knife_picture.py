"""Picture of a described knife: side view with holder and centre of mass, section, and the wedge at the edge."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim.knife import Knife
from stages.shared.knives.knife_file import DescribedKnife
from stages.shared.pictures import new_figure, pixels_of

_STEEL, _LINE, _HOLDER, _MARK = "#c9d1d9", "#30363d", "#e8dcc8", "#c0392b"
_SAMPLES = 201
_ZOOM = 4.0
"""Height of the picture of the wedge, in heights of the wedge."""


@dataclass(frozen=True)
class Mounting:
    """How a cell holds the knife; positions in the edge's frame [m]: x across, y up, z along the blade."""

    fixture_low_m: NDArray[np.float64]
    fixture_high_m: NDArray[np.float64]
    flange_m: NDArray[np.float64]
    """Centre of the flange."""
    com_m: NDArray[np.float64]
    """Centre of mass of knife and fixture."""


def knife_picture(knife: DescribedKnife, mounting: Mounting) -> NDArray[np.uint8]:
    """Draw the knife as it hangs in its cell; 8-bit pixels, shape [height, width, 3]."""
    figure, canvas = new_figure((11.0, 4.8))
    side, section, edge = figure.subplots(1, 3, width_ratios=(4.2, 1.0, 1.2))
    figure.suptitle(f"{knife.name or 'knife'}: {knife.about}" if knife.about else knife.name, fontsize=10)
    _draw_side(side, knife, mounting)
    _draw_section(section, knife.blade)
    _draw_wedge(edge, knife.blade)
    return pixels_of(canvas)


def _outline(blade: Knife) -> NDArray[np.float64]:
    """Return the blade from the side, turned as it is in its holder [m], shape [n, 2]: (z, y) of edge, then spine."""
    half = 0.5 * blade.length_m
    along = np.linspace(-half, half, _SAMPLES)
    z = np.concatenate([along, [half, -half]])
    y = np.concatenate([blade.edge_height_m(along), [blade.height_m, blade.height_m]])
    c, s = np.cos(blade.tilt_rad), np.sin(blade.tilt_rad)
    return np.stack([y * s + z * c, y * c - z * s], axis=1)


def _draw_side(axis: Any, knife: DescribedKnife, mounting: Mounting) -> None:
    blade = knife.blade
    z, y = 1e3 * _outline(blade).T
    low, high = 1e3 * mounting.fixture_low_m, 1e3 * mounting.fixture_high_m
    axis.fill(
        [low[2], high[2], high[2], low[2]],
        [low[1], low[1], high[1], high[1]],
        fc=_HOLDER,
        ec=_LINE,
        lw=0.8,
        label="box of the holder",
    )
    axis.fill(z, y, fc=_STEEL, ec=_LINE, lw=0.8)
    axis.plot(z[:_SAMPLES], y[:_SAMPLES], color=_MARK, lw=1.6, label="edge")
    axis.plot(0.0, 0.0, "+", color=_LINE, ms=9, label="edge's centre")
    flange, com = 1e3 * mounting.flange_m, 1e3 * mounting.com_m
    axis.plot(flange[2], flange[1], "s", color=_LINE, ms=6, label="flange")
    axis.plot(
        com[2], com[1], "o", color=_MARK, ms=7, mfc="white", label=f"centre of mass, {knife.mass_kg:g} kg"
    )
    shape = "" if blade.edge_height_m(np.array([0.5 * blade.length_m])).max() == 0.0 else ", curved edge"
    tilt = f", tilted by {blade.tilt_deg:g}°" if blade.tilt_deg else ""
    axis.set_title(f"from the side: {1e3 * blade.length_m:g} mm long{shape}{tilt}", fontsize=9)
    axis.set(xlabel="z along the blade [mm]", ylabel="y up [mm]", aspect="equal")
    axis.grid(lw=0.3)
    axis.legend(fontsize=7, loc="upper left")


def _profile(blade: Knife) -> NDArray[np.float64]:
    """Return the section [mm], shape [5, 2]: (x, y)."""
    spine, edge = 0.5 * blade.spine_m, 0.5 * blade.edge_m
    corners = [
        [0.0, 0.0], [edge, blade.tip_m], [spine, blade.height_m], [-spine, blade.height_m], [-edge, blade.tip_m]
    ]  # fmt: skip
    return 1e3 * np.array(corners)


def _draw_section(axis: Any, blade: Knife) -> None:
    axis.fill(*_profile(blade).T, fc=_STEEL, ec=_LINE, lw=0.8)
    axis.set_title(
        f"section: {1e3 * blade.height_m:g} mm high,\nspine {1e3 * blade.spine_m:g} mm", fontsize=9
    )
    axis.set(xlabel="x across [mm]", xlim=(-2e3 * blade.spine_m, 2e3 * blade.spine_m))
    axis.grid(lw=0.3)


def _draw_wedge(axis: Any, blade: Knife) -> None:
    tall = _ZOOM * 1e6 * blade.tip_m
    axis.fill(*(1e3 * _profile(blade).T), fc=_STEEL, ec=_LINE, lw=0.8)
    bevel = 2.0 * np.degrees(np.arctan2(0.5 * blade.edge_m, blade.tip_m))
    axis.set_title(f"edge: {1e6 * blade.edge_m:.3g} µm wide,\nbevel {bevel:.3g}°", fontsize=9)
    wide = max(0.5 * tall, 0.8e6 * blade.edge_m)
    axis.set(xlabel="x across [µm]", ylabel="y up [µm]", xlim=(-wide, wide), ylim=(-0.1 * tall, tall))
    axis.grid(lw=0.3)
