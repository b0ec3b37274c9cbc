"""Two parameters of the paper's law: their posterior by every method, beside brute force.

    python -m lab.paper.two_parameters

Synthetic truth: sdf_ke 5100 N/m and cut_spring_ke 200 N/m, prior uniform on 500 to 8000 and 100 to 1500, as in the
paper. Needs the extra `bayes`. A killed run goes on where it was (build/experiments).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.paper.kept import FOLDER, Kept
from lab.paper.page import PAGE, PICTURES, table, write_figure, write_part
from lab.paper.scene import PAPER, Scene
from stages.calibrate.material.fit import material_unknowns
from stages.calibrate.material.likelihood import depth_likelihood
from stages.calibrate.material.sampled import MaterialTarget, material_target
from stages.calibrate.material.search import MaterialSearch
from stages.calibrate.problem import pose_problem
from stages.calibrate.samplers.grid import grid_of
from stages.calibrate.samplers.sampling import Sampling, diagnose, sample
from stages.shared.pictures import COLOUR_MAP, TEXT, WARNING, new_figure

NAME = "two_parameters"
NAMES = ("sdf_ke", "cut_spring_ke")
BOUNDS = {"sdf_ke": (500.0, 8000.0), "cut_spring_ke": (100.0, 1500.0)}
TRUTH = np.array([PAPER[name] for name in NAMES])
UNCERTAINTY_N = 0.5
SHOWN = 400
"""Points of a method in the figure."""

Array = NDArray[np.float64]
Settings = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How long every method runs."""

    scene: Scene = field(default_factory=Scene)
    settings: Settings = field(
        default_factory=lambda: {
            "grid": {"simulations": 576, "samples": 2500},
            "bayessim": {"simulations": 500, "samples": 500},
            "npe": {"simulations": 500, "samples": 500},
            "bayessim, 6 rounds": {"simulations": 500, "rounds": 6, "samples": 500},
            "nuts": {"chains": 2, "burn_in": 20, "samples": 60},
            "sgld": {"chains": 4, "burn_in": 60, "samples": 540, "step": 0.4},
        }
    )
    """Short burn-ins: chains start around the most probable point, with Laplace's mass matrix."""


COARSE = Size(
    Scene((3, 2, 2), 0.01, 100.0),
    {"grid": {"simulations": 49, "samples": 100}, "sgld": {"chains": 2, "burn_in": 10, "samples": 20}},
)
"""For a test: no extra, half a minute."""


def posed(size: Size) -> tuple[MaterialTarget, Array, Array]:
    """The posterior, its most probable point and Laplace covariance."""
    scene = size.scene
    model = scene.model()
    params = scene.params(material=list(NAMES), prior="uniform", bounds=BOUNDS, fit="material")
    problem = pose_problem(model, scene.record(model, PAPER), params)
    unknowns = material_unknowns("", params)
    shown = depth_likelihood(problem, problem.contact & problem.valid, UNCERTAINTY_N)
    search = MaterialSearch("material", unknowns, [shown], 20)
    while not search.over():
        search.step()
    target = material_target([problem], unknowns, uncertainty_n=UNCERTAINTY_N)
    return target, search.t, search.covariance()


def run(size: Size, kept: Kept) -> Iterator[dict[str, dict[str, Any]]]:
    """The grid, then every method once; what there is so far after each of them."""
    target, centre, covariance = posed(size)
    sizes = target.unknowns.sizes
    key = repr(size.scene)
    sampling = partial(Sampling, target, centre, covariance, scan_dir=kept.folder, key=key, report=kept.tell)
    brute = sampling(**size.settings["grid"])

    def density() -> dict[str, Any]:
        axes, logs = grid_of(brute)
        return {"axes": axes, "logs": logs, "values": [_along(target, axes, i) for i in range(2)]}

    out = {"density": kept.once("density", (size.scene, brute.simulations), density)}
    for name, settings in size.settings.items():
        job = sampling(**settings)

        def work(name: str = name, job: Sampling = job) -> dict[str, Any]:
            found = sample(name.partition(",")[0], job)
            values = np.array([list(sizes(t).values()) for t in found.flat])
            checks = diagnose(found)
            return {
                "values": np.round(values, 1),
                "rhat": None if np.isnan(checks.rhat).any() else float(checks.rhat.max()),
                "effective": float(checks.effective.min()),
                "gradients": found.gradients,
                "simulations": found.simulations,
            }

        out[name] = kept.once(name, (size.scene, settings), work)
        yield out


def _along(target: MaterialTarget, axes: list[Array], i: int) -> Array:
    points = np.zeros((len(axes[i]), 2))
    points[:, i] = axes[i]
    return np.array([list(target.unknowns.sizes(t).values())[i] for t in points])


def text_of(found: dict[str, dict[str, Any]]) -> str:
    """The part of the page."""
    rows = []
    grid = np.array(found["grid"]["values"])
    for name, result in found.items():
        if name == "density":
            continue
        values = np.array(result["values"])
        low, high = np.quantile(values, (0.05, 0.95), axis=0)
        inside = "yes" if ((low <= TRUTH) & (high >= TRUTH)).all() else "no"
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        cells = [f"{m:.0f} ± {d:.0f}" for m, d in zip(mean, deviation, strict=True)]
        cost = result["cpu_s"] + (found["density"]["cpu_s"] if name == "grid" else 0.0)
        rhat = "–" if result["rhat"] is None else f"{result['rhat']:.2f}"
        rows.append(
            [
                name, *cells, *(("–",) * 3 if name == "grid" else _beside(values, result["effective"], grid)),
                inside, rhat, f"{result['effective']:.0f}", result["gradients"], result["simulations"],
                f"{cost:.0f}",
            ]
        )  # fmt: skip
    head = [
        "method", "sdf_ke [N/m]", "cut_spring_ke [N/m]", "means off [sd]", "Monte-Carlo error [sd]",
        "sd over the grid's", "truth inside 90 %", "R-hat", "effective points", "gradients", "simulations", "CPU s",
    ]  # fmt: skip
    return table(head, rows) + (
        "\n\nMean ± standard deviation (sd). Off: from the grid's mean, in the grid's sd, both parameters. Truth: 5100 "
        "and 200 N/m. The first to learn from simulations pays for them, the others get the same ones again; time: "
        "that of killed runs counts. The paper's: modes at the truth, burn-in 90 (SGLD) and 50 (HMC)."
    )


def _beside(values: Array, effective: float, grid: Array) -> tuple[str, str, str]:
    """How far the means are from the grid's, their Monte-Carlo error, and deviations over the grid's."""
    wide = grid.std(axis=0)
    off = (values.mean(axis=0) - grid.mean(axis=0)) / wide
    ratio = values.std(axis=0) / wide
    error = np.sqrt(1.0 / effective + 1.0 / len(grid))
    return ", ".join(f"{x:+.2f}" for x in off), f"{error:.2f}", ", ".join(f"{x:.2f}" for x in ratio)


def draw(found: dict[str, dict[str, Any]], folder: Path) -> None:
    """Points of every method over the grid's density."""
    methods = [name for name in found if name not in ("density", "grid")]
    figure, canvas = new_figure((4.0 * len(methods), 3.8))
    axes = np.atleast_1d(figure.subplots(1, len(methods), sharex=True, sharey=True))
    first, second = (np.array(axis) for axis in found["density"]["axes"])
    # The prior is uniform in the values and normal in t: without it, this is the density in the values.
    logs = np.array(found["density"]["logs"]) + 0.5 * (first[:, None] ** 2 + second**2)
    x, y = (np.array(part) for part in found["density"]["values"])
    for axis, name in zip(axes, methods, strict=True):
        axis.contourf(x, y, np.exp(logs - logs.max()).T, 8, cmap=COLOUR_MAP, alpha=0.6)
        values = np.array(found[name]["values"])
        axis.plot(*values[:: max(1, len(values) // SHOWN)].T, ".", ms=3.5, color=TEXT, mew=0)
        axis.plot(*TRUTH, "+", color=WARNING, ms=14, mew=3)
        axis.set_title(name, color=TEXT, fontsize=10)
        axis.set(xlabel="sdf_ke [N/m]", xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
    axes[0].set_ylabel("cut_spring_ke [N/m]")
    write_figure(NAME, canvas, folder)


def main(size: Size = Size(), page: Path = PAGE, folder: Path = FOLDER, pictures: Path = PICTURES) -> None:  # noqa: B008
    """Run what is not done, write table and figure."""
    for found in run(size, Kept(NAME, folder)):
        if len(found) > 2:
            draw(found, pictures)
        write_part(NAME, text_of(found), page, figure=len(found) > 2)


if __name__ == "__main__":
    main()
