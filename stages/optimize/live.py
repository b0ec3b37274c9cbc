"""What a search that still runs can show: the best motion so far, and how the mean force fell."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from stages.optimize.slicing_cut import SlicingCut
from stages.shared.pictures.figure import new_figure, pixels_of
from stages.shared.pictures.preview import FRUIT, TEXT, WARNING

SIZE_INCHES = (11.0, 4.5)
MM = 1e3

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reached:
    """What a descent reports after every simulation."""

    start: str
    simulations: int
    mean_force_n: float
    """Of the motion simulated last."""
    best: Array | None = None
    """Variables of its best motion that keeps every rule; None if there is none yet or none is wanted."""
    best_mean_n: float = np.inf


@dataclass
class SoFar:
    """All descents together."""

    cut: SlicingCut
    vertical_n: float
    """Mean force of the vertical cut."""
    means: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Start → (simulation, mean force [N])."""
    best: Array | None = None
    best_mean_n: float = np.inf

    def add(self, reached: Reached) -> None:
        """Take note of one report."""
        self.means.setdefault(reached.start, []).append((reached.simulations, reached.mean_force_n))
        if reached.best is not None and reached.best_mean_n < self.best_mean_n:
            self.best, self.best_mean_n = reached.best, reached.best_mean_n


def live_picture(so_far: SoFar, silhouette: Array) -> NDArray[np.uint8]:
    """8-bit pixels, shape [height, width, 3]; silhouette: points (z, y) of the fruit [m], shape [n, 2]."""
    figure, canvas = new_figure(SIZE_INCHES)
    left, right = figure.subplots(1, 2)
    hull = MM * silhouette[ConvexHull(silhouette).vertices]
    left.fill(hull[:, 0], hull[:, 1], color=FRUIT, alpha=0.35, lw=0)
    title = "no motion keeps every constraint yet"
    if so_far.best is not None:
        position = so_far.cut.trajectory(so_far.best).position
        left.plot(MM * position[:, 2], MM * position[:, 1], color=TEXT, lw=2)
        title = f"best so far: {so_far.best_mean_n:.2f} N, vertical cut {so_far.vertical_n:.2f} N"
    left.set(xlabel="along the blade, z [mm]", ylabel="height [mm]", aspect="equal")
    left.set_title(title, color=TEXT)
    for name, rows in so_far.means.items():
        right.plot(*zip(*rows, strict=True), marker=".", label=name)
    right.axhline(so_far.vertical_n, color=WARNING, lw=1, ls="--", label="vertical cut")
    right.set(xlabel="simulation", ylabel="mean force [N]")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.legend(frameon=False)
    return pixels_of(canvas)
