"""Real cuts: fitted, and the second cut of the same fruit predicted, beside the paper's fits.

    python -m lab.paper.real_logs

Reads the fits of `python -m lab.real_logs.predict_real_logs apple potato cucumber` in build/predictions.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab.paper.kept import Kept
from lab.paper.page import command, table, write_figure
from lab.real_logs.predict_real_logs import BOUNDARIES, RESULTS
from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, new_figure

NAME = "real_logs"
PAPERS = {"apple": 0.083, "banana": 0.160, "cucumber": 0.050}
"""NMAE of the paper's fits."""
CUTS = ("apple", "cucumber", "potato")
"""Of which there are logs."""
COLUMNS = {
    "fit": "fitted",
    "forecast": "rest of the cut, from its first 45 %",
    "hold": "last force held",
    "second": "second cut, predicted",
    "repeat": "first cut repeated",
}


@dataclass(frozen=True)
class Size:
    """Where the fits are."""

    results: Path = RESULTS


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:  # noqa: ARG001
    """The fits under the shipped boundary; nothing is kept, they are."""
    paths = {name: size.results / name / f"{BOUNDARIES[0]}.json" for name in CUTS}
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"The fits of {', '.join(missing)} are not in {size.results}. The table needs them. "
            f"Run python -m lab.real_logs.predict_real_logs {' '.join(missing)}."
        )
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items()}


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    rows = []
    for name in dict.fromkeys([*PAPERS, *CUTS]):
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
    names = list(dict.fromkeys([*PAPERS, *CUTS]))
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
