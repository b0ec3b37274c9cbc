"""Are posteriors as wide as they should be? Ranks of known truths among points of their posteriors.

    python -m lab.paper.ranks

Simulation-based calibration (Talts et al. 2018) of the methods that need no simulations of their own for another log:
the grid, and the networks of BayesSim and of the flow. Synthetic cuts of the block: truths from the prior, noise of the
likelihood. If a posterior is right, the truth has any rank with the same probability. Needs the extra `bayes`.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from disect_sim.processes import Workers
from lab.paper.kept import Kept
from lab.paper.page import command, table, write_figure
from lab.paper.scene import PAPER, Scene
from lab.paper.two_parameters import BOUNDS, NAMES, UNCERTAINTY_N
from stages.calibrate.material.fit import material_unknowns
from stages.calibrate.material.sampled import MaterialTarget, material_target
from stages.calibrate.problem import pose_problem
from stages.calibrate.samplers.grid import cells_of, drawn_from
from stages.calibrate.samplers.sampling import RememberedSimulations, Sampling
from stages.shared.pictures import CUT, FRUIT, TEXT, new_figure

NAME = "ranks"
DRAWN = 31
"""Points per truth: 32 ranks, four to each of the BINS."""
BINS = 8
NETWORKS: dict[str, dict[str, Any]] = {
    "bayessim": {"model": "mdn", "num_components": 10},
    "npe": {"model": "maf"},
}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    """How many truths, and how the methods run."""

    scene: Scene = field(default_factory=lambda: Scene((3, 2, 2), 0.01, 100.0))
    truths: int = 96
    side: int = 30
    """Of the grid."""
    simulations: int = 300
    """That the networks learn from."""
    networks: tuple[str, ...] = tuple(NETWORKS)


COARSE = Size(Scene((3, 2, 2), 0.01, 100.0), 12, 8, 60, ())
"""For a test: no extra."""


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:
    """Truths and their logs once; then every method's ranks."""
    scene = size.scene
    model = scene.model()
    params = scene.params(material=list(NAMES), prior="uniform", bounds=BOUNDS, fit="material")
    problem = pose_problem(model, scene.record(model, PAPER), params)
    unknowns = material_unknowns("", params)
    target = material_target([problem], unknowns, uncertainty_n=UNCERTAINTY_N)

    def logs() -> dict[str, Any]:
        truths = np.random.default_rng(21).standard_normal((size.truths, 2))
        clean = _simulated(target, truths, size, kept, "truths")
        done = np.isfinite(clean).all(axis=1)
        noisy = target.noisy(clean[done], np.random.default_rng(22))
        return {"truths": truths[done], "shown": noisy, "lost": int((~done).sum())}

    out = {"logs": kept.once("logs", (scene, size.truths), logs)}
    truths, shown = np.array(out["logs"]["truths"]), np.array(out["logs"]["shown"])
    bare = Sampling(target, np.zeros(2), np.eye(2), chains=1, samples=DRAWN, key=repr(scene))

    def grid() -> dict[str, Any]:
        axes, points = cells_of(replace(bare, simulations=size.side**2))
        clean = _simulated(target, points, size, kept, "grid")
        random, before = np.random.default_rng(23), -0.5 * (points**2).sum(axis=1)
        drawn = []
        for log in shown:
            values = before - 0.5 * ((clean - log) ** 2).sum(axis=1)
            values = np.where(np.isfinite(values), values, -np.inf).reshape(size.side, size.side)
            drawn.append(drawn_from(axes, values, DRAWN, random)[0])
        return {"ranks": _ranks(truths, np.array(drawn)), "simulations": len(points)}

    out["grid"] = kept.once("grid", (scene, size.truths, size.side), grid)
    for name in size.networks:

        def network(name: str = name) -> dict[str, Any]:
            from stages.calibrate.samplers.learnt import learnt_points

            job = replace(bare, simulations=size.simulations, scan_dir=kept.folder)
            drawn, asked = learnt_points(name, job, shown, **NETWORKS[name])
            return {"ranks": _ranks(truths, drawn), "simulations": asked}

        out[name] = kept.once(name, (scene, size.truths, size.simulations), network)
    return out


def _simulated(target: MaterialTarget, points: Array, size: Size, kept: Kept, part: str) -> Array:
    """What the points show without noise; kept while it grows."""
    job = Sampling(target, np.zeros(2), np.eye(2), scan_dir=kept.folder, key=repr((size.scene, len(points))))
    ask = RememberedSimulations(lambda ts: target.summaries(ts, Workers(1)), job.checkpoint(part))
    return ask(points)


def _ranks(truths: Array, drawn: Array) -> NDArray[np.int64]:
    """Points below the truth, of every unknown, shape [truth_count, 2]."""
    return np.asarray((drawn < truths[:, None]).sum(axis=1), np.int64)


def _counts(result: dict[str, Any]) -> list[NDArray[np.int64]]:
    """Truths in every bin of ranks, for both unknowns."""
    width = (DRAWN + 1) // BINS
    return [np.bincount(column // width, minlength=BINS) for column in np.array(result["ranks"]).T]


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    rows = []
    for name, result in found.items():
        if name == "logs":
            continue
        chances = [float(stats.chisquare(counts).pvalue) for counts in _counts(result)]
        ranks = np.array(result["ranks"])
        inside = [100.0 * float(((column > 0) & (column < DRAWN)).mean()) for column in ranks.T]
        rows.append(
            [
                name,
                *(f"{chance:.2g}" for chance in chances),
                *(f"{share:.0f} %" for share in inside),
                result["simulations"],
                f"{result['cpu_s']:.0f}",
            ]
        )
    head = [
        "method", *(f"{name}: chance of such ranks" for name in NAMES),
        *(f"{name}: between the outermost" for name in NAMES), "simulations", "CPU s",
    ]  # fmt: skip
    logs = found["logs"]
    return table(head, rows) + (
        f"\n\n{len(logs['truths'])} truths ({logs['lost']} more did not finish), {DRAWN} points each; chi-squared over "
        f"{BINS} bins. Between the outermost: truths that are neither below nor above all points; "
        f"{100.0 * (DRAWN - 1) / (DRAWN + 1):.0f} % is right."
    )


def draw(found: dict[str, Any], folder: Path) -> None:
    """Histograms; the grey band has 99 % of the counts of a right posterior."""
    methods = [name for name in found if name != "logs"]
    figure, canvas = new_figure((3.4 * len(methods), 4.6))
    axes = np.atleast_2d(figure.subplots(2, len(methods), sharex=True, sharey=True, squeeze=False))
    low, high = stats.binom.interval(0.99, len(found["logs"]["truths"]), 1.0 / BINS)
    for column, name in zip(axes.T, methods, strict=True):
        for axis, counts, unknown, colour in zip(
            column, _counts(found[name]), NAMES, (FRUIT, CUT), strict=True
        ):
            axis.axhspan(low, high, color="#dddddd", lw=0)
            axis.bar(np.arange(BINS) + 0.5, counts, 0.9, color=colour)
            axis.set_xticks([0, BINS], ["lowest", "highest"], fontsize=8)
            axis.set_title(f"{name}: {unknown}", color=TEXT, fontsize=9)
    axes[0, 0].set_ylabel("truths")
    axes[1, 0].set_ylabel("truths")
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
