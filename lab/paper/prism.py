"""The paper's potato block, cut by LS-DYNA: its force by iterative BayesSim, SGLD, shared and individual springs.

    python -m lab.paper.prism

Not synthetic: the force comes from another program. Needs the real data (lab/notes/real_data.md) and the extra `bayes`.
A killed run goes on where it was (build/experiments).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from numpy.typing import NDArray
from scipy.special import ndtri

from disect_sim import KNIVES, MATERIALS, build_model, cut_by_plane
from disect_sim.cut_mesh import box_mesh
from disect_sim.many import force_of, simulate_many
from disect_sim.model import Model
from lab.paper.kept import FOLDER, ROOT, Kept
from lab.paper.page import PAGE, PICTURES, table, write_figure, write_part
from lab.real_logs.fit_real_logs import COMMON, SKIN, recorded
from lab.real_logs.real_data import real_file
from stages.calibrate.calibration import calibrate
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.fit import material_unknowns
from stages.calibrate.material.likelihood import depth_likelihood
from stages.calibrate.material.sampled import MaterialTarget, material_target
from stages.calibrate.material.search import MaterialSearch
from stages.calibrate.material.unknowns import MaterialUnknowns, Uniform
from stages.calibrate.problem import Problem, pose_problem
from stages.calibrate.samplers.sampling import Sampling, diagnose, sample
from stages.runtime.params import load_params
from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, new_figure

NAME = "prism"
MESH = ("meshes", "ansys_prism_5mm.stl")
BEFORE = "before"
"""What the prior alone expects."""
LABELS = {
    BEFORE: "before the log",
    "sgld": "SGLD",
    "bayessim": "BayesSim, 1 round",
    "bayessim, 6 rounds": "BayesSim, 6 rounds",
}
PAPERS = {"bayessim, 6 rounds": "26.9 N", "sgld": "4.7 N", "individual": "3.1 N"}
"""On the paper's apple."""
OUTERMOST = 2.0
"""A value nearer to its bound than this many standard deviations of the prior starts there instead."""
LEVELS = (0.05, 0.25, 0.75, 0.95)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    """How fine and how long."""

    cells: tuple[int, int, int] = (3, 5, 3)
    """Of the block; an odd number across the cut keeps nodes off its plane."""
    dt_s: float = 0.008
    rate_hz: float = 125.0
    shared: int = 12
    individual: int = 30
    curves: int = 24
    """Materials of a posterior that are simulated for its forces."""
    settings: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "bayessim": {"simulations": 500, "samples": 500},
            "bayessim, 6 rounds": {"simulations": 500, "rounds": 6, "samples": 500},
            "sgld": {"chains": 4, "burn_in": 60, "samples": 200, "step": 0.4},
        }
    )


COARSE = Size(
    (3, 2, 2), 0.01, 100.0, 2, 1, 4, {"sgld": {"chains": 2, "burn_in": 2, "samples": 4}}
)  # fmt: skip
"""For a test: no extra."""


def block(cells: tuple[int, int, int]) -> Model:
    """The prism: a box, of which the corners in the file say all."""
    shape = trimesh.load_mesh(real_file(*MESH))
    low, high = shape.bounds
    assert np.isclose(shape.volume, np.prod(high - low), rtol=1e-3), "the prism fills its box"
    mesh = cut_by_plane(*box_mesh(tuple(low), tuple(high), cells))
    law, boundary = str(COMMON["damage_law"]), str(COMMON["boundary"])
    return build_model(mesh, MATERIALS["potato"], KNIVES["kitchen"], boundary=boundary, damage_law=law)


def settings(size: Size, **changes: object) -> CalibrateParams:
    """Those of the other real fits of springs, with longer steps; nothing is held out, as in the paper."""
    shipped = load_params(ROOT / "params.yaml").calibrate
    base = COMMON | {
        "dt_s": size.dt_s,
        "rate_hz": size.rate_hz,
        "shared_iterations": size.shared,
        "individual_iterations": size.individual,
        "hold_out_fraction": 0.0,
        "start": shipped.start | SKIN,
        "processes": 1,
    }
    return shipped.changed(**{**base, **changes})


def run(size: Size, kept: Kept) -> Iterator[dict[str, dict[str, Any]]]:
    """Fits of springs, then the posteriors of the shared values; what there is so far after each of them."""
    model, params = block(size.cells), settings(size)
    problem = pose_problem(model, recorded(NAME), params)
    use = problem.contact & problem.valid
    key = repr((size.cells, size.dt_s, size.rate_hz))

    def springs() -> dict[str, Any]:
        found = calibrate(
            model, recorded(NAME), params, scan_dir=kept.folder / "springs", key=f"{key} {size}"
        )
        sought = {name: float(found.reference_values[name]) for name in params.shared}
        return {
            "values": sought,
            "shared": found.reference_simulated[use],
            "individual": found.simulated[use],
            "gradients": found.gradients,
            "springs": model.spring_count,
            "time": problem.time[use] - problem.onset_s,
            "measured": problem.measured[use],
        }

    out = {"springs": kept.once("springs", (key, size.shared, size.individual), springs)}
    free = settings(size, fit="material", prior="uniform", material=list(params.shared))
    unknowns = material_unknowns("", free)
    target = material_target([problem], unknowns, uncertainty_n=free.force_uncertainty_n, summary="profile")

    def before() -> dict[str, Any]:
        prior = np.random.default_rng(7).standard_normal((size.curves, len(unknowns)))
        return {"curves": _curves(problem, unknowns, prior)[:, use]}

    out[BEFORE] = kept.once(BEFORE, (key, size.curves), before)
    yield out
    where: dict[str, Any] = {"scan_dir": kept.folder, "key": key, "report": kept.tell}
    for name, how in size.settings.items():

        def work(name: str = name, how: dict[str, Any] = how) -> dict[str, Any]:
            centre, covariance = np.zeros(len(unknowns)), np.eye(len(unknowns))
            if name == "sgld":
                centre, covariance = _around(problem, unknowns, out["springs"]["values"], free)
            return _posterior(name, Sampling(target, centre, covariance, **where, **how), size.curves)

        of = (key, how, size.curves, out["springs"]["values"] if name == "sgld" else "")
        out[name] = kept.once(name, of, work)
        yield out


def _around(
    problem: Problem, unknowns: MaterialUnknowns, values: dict[str, float], params: CalibrateParams
) -> tuple[Array, Array]:
    """The most probable point near the shared fit, and Laplace's covariance there."""
    shown = depth_likelihood(problem, problem.contact & problem.valid, params.force_uncertainty_n)
    search = MaterialSearch(NAME, unknowns, [shown], params.shared_iterations)
    for i, (name, prior) in enumerate(unknowns.prior.items()):
        assert isinstance(prior, Uniform)
        share = (values[name] - prior.low) / (prior.high - prior.low)
        search.t[i] = np.clip(ndtri(share), -OUTERMOST, OUTERMOST)
    while not search.over():
        search.step()
    return search.t, search.covariance()


def _posterior(name: str, job: Sampling, curves: int) -> dict[str, Any]:
    found, target = sample(name.split(",")[0], job), job.target
    assert isinstance(target, MaterialTarget)
    problem = target.slices[0].problem
    use = problem.contact & problem.valid
    chosen = np.random.default_rng(8).choice(len(found.flat), min(curves, len(found.flat)), False)
    checks = diagnose(found)
    return {
        "curves": _curves(problem, target.unknowns, found.flat[chosen])[:, use],
        "rhat": None if np.isnan(checks.rhat).any() else float(checks.rhat.max()),
        "effective": float(checks.effective.min()),
        "gradients": found.gradients,
        "simulations": found.simulations,
    }


def _curves(problem: Problem, unknowns: MaterialUnknowns, points: Array) -> Array:
    """Profiles of the points whose simulations finish [N], shape [finished_count, sample_count]."""
    runs = [problem.cut(unknowns.values(t)) for t in points]
    answers = simulate_many(runs, of=force_of, processes=1)
    return np.round([problem.profile(a) for a in answers if a.value is not None and a.outcome.ok], 3)


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    springs = found["springs"]
    measured = np.array(springs["measured"])
    rows = [[f"constant force, {measured.mean():.1f} N", *_errors(measured, measured.mean()), *["–"] * 6]]
    for name, result in found.items():
        if name == "springs":
            continue
        rhat = result.get("rhat")
        rows.append(
            [
                LABELS[name], *_errors(measured, np.array(result["curves"])),
                "–" if rhat is None else f"{rhat:.2f}",
                f"{result['effective']:.0f}" if "effective" in result else "–",
                result.get("gradients", 0), result.get("simulations", len(result["curves"])),
                f"{result['cpu_s']:.0f}", PAPERS.get(name, "–"),
            ]
        )  # fmt: skip
    for name in ("shared", "individual"):
        last = [springs["gradients"], 0, f"{springs['cpu_s']:.0f}"] if name == "individual" else ["–"] * 3
        rows.append(
            [
                f"{name}, L-BFGS",
                *_errors(measured, np.array(springs[name])),
                "–",
                "–",
                *last,
                PAPERS.get(name, "–"),
            ]
        )
    head = [
        "method", "mean curve off", "single curves off", "measured inside 90 % of the curves", "R-hat",
        "effective points", "gradients", "simulations", "CPU s", "the paper's, its apple",
    ]  # fmt: skip
    return table(head, rows) + (
        f"\n\nMean absolute errors over the contact; {len(springs['values'])} shared values, {springs['springs']} "
        "springs. Gradients and time of the individual fit include those of the shared one, which it starts from."
    )


def _errors(measured: Array, curves: Array | float) -> tuple[str, str, str]:
    """Of the mean curve, of the single ones, and the share of the log between their 5 and 95 % quantiles."""
    if np.ndim(curves) < 2:
        return f"{np.abs(curves - measured).mean():.1f} N", "–", "–"
    many = np.asarray(curves)
    low, high = np.quantile(many, (LEVELS[0], LEVELS[-1]), axis=0)
    inside = f"{100 * ((measured >= low) & (measured <= high)).mean():.0f} %"
    one = np.abs(many - measured).mean()
    return f"{np.abs(many.mean(axis=0) - measured).mean():.1f} N", f"{one:.1f} N", inside


def draw(found: dict[str, Any], folder: Path) -> None:
    """The force that each posterior expects (half and 90 % of its curves), and the fits."""
    springs = found["springs"]
    posteriors = [name for name in found if name != "springs"]
    figure, canvas = new_figure((3.6 * (len(posteriors) + 1), 3.6))
    axes = figure.subplots(1, len(posteriors) + 1, sharey=True)
    for axis, name in zip(axes, posteriors, strict=False):
        curves = np.array(found[name]["curves"])
        low, lower, upper, high = np.quantile(curves, LEVELS, axis=0)
        for a, b, shade in ((low, high, 0.25), (lower, upper, 0.45)):
            axis.fill_between(springs["time"], a, b, color=FRUIT, alpha=shade, lw=0)
        axis.plot(springs["time"], np.median(curves, axis=0), color=CUT, lw=1.0)
        axis.set_title(LABELS[name], color=TEXT, fontsize=10)
    for name, colour in (("shared", SCAN), ("individual", FRUIT)):
        axes[-1].plot(springs["time"], springs[name], color=colour, label=name)
    axes[-1].set_title("L-BFGS", color=TEXT, fontsize=10)
    for axis in axes:
        axis.plot(springs["time"], springs["measured"], color=TEXT, lw=1.2, label="LS-DYNA")
        axis.set(xlabel="time after contact [s]", ylim=(0.0, 1.6 * max(springs["measured"])))
    axes[0].set_ylabel("force on the knife [N]")
    axes[-1].legend(frameon=False, fontsize=8)
    write_figure(NAME, canvas, folder)


def main(size: Size = Size(), page: Path = PAGE, folder: Path = FOLDER, pictures: Path = PICTURES) -> None:  # noqa: B008
    """Run what is not done; table and figure after every posterior, with the names of those that are missing."""
    try:
        for found in run(size, Kept(NAME, folder)):
            missing = [name for name in size.settings if name not in found]
            rest = f" Not there yet: {', '.join(missing)}; the command goes on with it." if missing else ""
            draw(found, pictures)
            write_part(NAME, text_of(found) + rest, page)
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
