"""Real cuts: fitted, and the second cut of the same fruit predicted, beside the paper's fits.

    python -m scripts.experiments.real_logs

The fits are those of `python -m scripts.predict_real_logs`, kept in build/predictions; what is not there is fitted
first. Needs the real data (docs/real_data.md).
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scripts.experiments.kept import Kept
from scripts.experiments.page import command, table, write_figure
from scripts.fit_real_logs import CASES
from scripts.predict_real_logs import BOUNDARIES, done, params_of
from scripts.predict_real_logs import run as predict
from stages.shared.pictures.figure import new_figure
from stages.shared.pictures.preview import CUT, FRUIT, SCAN, TEXT

NAME = "real_logs"
PAPERS = {"apple": 0.083, "banana": 0.160, "cucumber": 0.050}
"""NMAE of the paper's fits."""
COLUMNS = {
    "fit": "fitted",
    "forecast": "rest of the cut, from its first 45 %",
    "hold": "last force held",
    "second": "second cut, predicted",
    "repeat": "first cut repeated",
}


@dataclass(frozen=True)
class Size:
    """Which cuts, and how coarse."""

    cuts: tuple[str, ...] = ("apple", "cucumber", "potato")
    coarse: bool = False


COARSE = Size(("apple",), coarse=True)
"""For a test: a mesh and steps that are too coarse to mean anything."""


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:
    """Every cut under the shipped boundary."""
    boundary = BOUNDARIES[0]
    if not size.coarse:
        return {name: done(name, boundary) for name in size.cuts}

    def work(name: str) -> dict[str, Any]:
        case = replace(CASES[name], edge_m=0.04, cut_edge_m=0.03)
        params = params_of(boundary).changed(dt_s=0.01, rate_hz=100.0, shared_iterations=1)
        return predict(name, boundary, case, params, kept.folder)

    return {name: kept.once(name, size, partial(work, name)) for name in size.cuts}


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    rows = []
    for name in dict.fromkeys([*PAPERS, *found]):
        ours = found.get(name, {})
        cells = [f"{100 * ours[key]:.1f} %" if key in ours else "–" for key in COLUMNS]
        rows.append([name, *cells, f"{100 * PAPERS[name]:.1f} %" if name in PAPERS else "–"])
    return table(["cut", *COLUMNS.values(), "the paper's fit"], rows) + (
        "\n\nMean absolute error over the mean measured force, in contact. There is no public log of the banana."
    )


def draw(found: dict[str, Any], folder: Path) -> None:
    """Ours and the paper's as bars."""
    figure, canvas = new_figure((6.4, 3.4))
    axis = figure.subplots()
    names = list(dict.fromkeys([*PAPERS, *found]))
    shown = {
        "fitted": [found.get(name, {}).get("fit", np.nan) for name in names],
        "second cut, predicted": [found.get(name, {}).get("second", np.nan) for name in names],
        "the paper's fit": [PAPERS.get(name, np.nan) for name in names],
    }
    for i, ((label, values), colour) in enumerate(zip(shown.items(), (FRUIT, CUT, SCAN), strict=True)):
        axis.bar(np.arange(len(names)) + 0.27 * (i - 1), values, 0.25, color=colour, label=label)
    axis.set_xticks(range(len(names)), names)
    axis.set(ylabel="NMAE")
    axis.set_title("real cuts", color=TEXT, fontsize=10)
    axis.legend(frameon=False, fontsize=8)
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
