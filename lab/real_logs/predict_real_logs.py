"""Fits the material to real cuts and predicts cuts it has not seen, for the tables of lab/notes/prediction.md.

    python -m lab.real_logs.predict_real_logs [CASE ...]     apple, apple_second, potato, potato_second, cucumber,
                                                             real_apple, prism; default all
    python -m lab.real_logs.predict_real_logs --table        prints the table of what has been done

Needs the real data (lab/notes/real_data.md). There is no scan of those fruits: the bodies are primitives, scaled to the
log's contact height. Each case is done under every boundary with the priors of a material without any cut in the
library, and, where the shipped library has other cuts of its material, with those. Results go to build/predictions; a
finished case is left alone until its file is deleted.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from disect_sim import KNIVES, MATERIALS, build_model
from disect_sim.many import force_of, simulate_many
from disect_sim.model import Model
from lab.real_logs.fit_real_logs import CASES, ROOT, Case, body, recorded
from stages.calibrate.calibrate_report import bound_table, parameter_table
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.fit import (
    MaterialFit,
    best_amplitude,
    fit_material,
    material_unknowns,
    repeated_profile,
)
from stages.calibrate.material.likelihood import MODEL_ERROR
from stages.calibrate.material.posterior import (
    Posterior,
    before_any_log,
    draw_table,
    posterior_table,
    what_the_log_says,
)
from stages.calibrate.material.unknowns import MaterialUnknowns
from stages.calibrate.prediction import Prediction, band
from stages.calibrate.problem import Problem, errors, pose_problem
from stages.runtime.params import load_params
from stages.shared.library.library import cuts_of

RESULTS = ROOT / "build" / "predictions"
OTHER_CUT = {
    "apple": "apple_second",
    "apple_second": "apple",
    "potato": "potato_second",
    "potato_second": "potato",
}
"""Cut → the other cut of the same fruit: each is predicted from the other."""
CASE_NAMES = (*OTHER_CUT, "cucumber", "real_apple", "prism")
UNKNOWN_MATERIAL = "a material without cuts in the library"
ENTRIES = {
    "apple": "panda_apple",
    "potato": "panda_potato",
    "cucumber": "panda_cucumber",
    "real_apple": "paper_apple",
}
"""Names of the shipped entries that lab.real_logs.write_library makes of these cases."""
OTHER_SHAPE = Case("potato", "kitchen", "cyl", 0.05, 0.022, 0.0125)
"""What the prism's fit is asked for too: a half cylinder of the same material."""
FINER = 0.6
"""Edge lengths of the second mesh of that shape, over those of the first."""
PRIOR_DRAWS = 40
"""Possible fruits and cuts that are simulated for the band before any log."""
BOUNDARIES = ("guided", "held")
"""The first is the shipped one; its fits are kept as tables too."""


def params_of(boundary: str) -> CalibrateParams:
    """The shipped settings with the edge law, at the steps of the other real fits."""
    shipped = load_params(ROOT / "params.yaml").calibrate
    cut = {"damage_law": "edge", "boundary": boundary, "dt_s": 0.004}
    return shipped.changed(**cut, fit="material", rate_hz=250.0)


def case_of(name: str) -> Case:
    """Body and knife of a cut; a second cut has those of the first."""
    return CASES[name.removesuffix("_second")]


def nmae(problem: Problem, profile: np.ndarray) -> float:
    """Mean absolute error over the mean measured force, in contact [-]."""
    use = problem.contact & problem.valid
    return errors(profile, problem.measured, use, problem.mean_force).nmae


def run(name: str, boundary: str, *, library: bool = False) -> dict[str, Any]:
    """Fit one cut, forecast its end from its beginning, predict the second cut where there is one.

    library: with what the shipped library's other cuts of the material lead to expect.
    """
    case, folder = case_of(name), RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    params = params_of(boundary).changed(knife=case.knife)
    mesh = body(case, folder).mesh
    model = build_model(
        mesh, MATERIALS[case.material], KNIVES[case.knife], boundary=boundary, damage_law="edge"
    )
    problem = pose_problem(model, recorded(name), params)
    cpu = time.process_time()
    material = case.material if library else UNKNOWN_MATERIAL
    unknowns = material_unknowns(material, params, leave_out=[ENTRIES.get(name.removesuffix("_second"), "")])
    found = fit_material([problem], unknowns, params, scan_dir=None, key="", report=None)
    unknowns = found.posterior.unknowns
    values = unknowns.values(found.found.t)
    out: dict[str, Any] = _without_log(problem, unknowns, params) | {
        "fit": nmae(problem, found.found.profiles[0]),
        "sizes": unknowns.sizes(found.found.t),
        "amplitude": unknowns.amplitude(found.found.t),
        "deviation": dict(zip(unknowns.names, found.posterior.deviation.tolist(), strict=True)),
        "cpu_s": time.process_time() - cpu,
        "simulations": found.found.simulations,
    }
    if boundary == BOUNDARIES[0] and not library:
        _write_fit(folder, model, values, params, found.posterior)
    if found.tail is not None:
        tail = found.tail
        out |= {"forecast": tail.nmae, "forecast_model": tail.nmae_model, "forecast_coverage": tail.coverage}
        out |= {"hold": tail.nmae_hold_last, "trend": tail.nmae_trend, "forecast_band": tail.half_width}
    if name in OTHER_CUT:
        out |= _second(name, model, problem, found, params, with_band=boundary == BOUNDARIES[0])
    if name == "prism":
        out["cylinder_meshes"] = _other_shape(unknowns.parameters(found.found.t), params)
    return out


def _without_log(problem: Problem, unknowns: MaterialUnknowns, params: CalibrateParams) -> dict[str, float]:
    """Predict the cut before its log, and return the share of it inside the 90 % band of possible fruits and cuts."""
    draws = before_any_log(unknowns).draws(PRIOR_DRAWS, params.seed)
    answers = simulate_many([problem.cut(unknowns.values(t)) for t in draws], of=force_of)
    random = np.random.default_rng(params.seed)
    curves = []
    for t, answer in zip(draws, answers, strict=True):
        if answer.outcome.ok:
            profile = unknowns.amplitude(t) * problem.profile(answer)
            curves.append(profile + MODEL_ERROR.deviation * profile.mean() * random.standard_normal())
    low, middle, high = np.quantile(curves, (0.05, 0.5, 0.95), axis=0)
    use = problem.contact & problem.valid
    inside = (problem.measured >= low) & (problem.measured <= high)
    return {"no_log": nmae(problem, middle), "no_log_coverage": float(inside[use].mean())}


def _other_shape(sizes: dict[str, float], params: CalibrateParams) -> float:
    """Mean difference of the force predicted for the half cylinder on two meshes, over its mean [-]."""
    profiles = []
    for scale in (1.0, FINER):
        case = replace(
            OTHER_SHAPE, edge_m=scale * OTHER_SHAPE.edge_m, cut_edge_m=scale * OTHER_SHAPE.cut_edge_m
        )
        folder = RESULTS / f"cylinder_{scale:g}"
        folder.mkdir(parents=True, exist_ok=True)
        model = build_model(
            body(case, folder).mesh,
            MATERIALS[case.material],
            KNIVES[case.knife],
            boundary=params.cut.boundary,
            damage_law="edge",
        )
        problem = pose_problem(model, recorded("prism"), params)
        constants = {key: value for key, value in params.start.items() if key != "cut_spring_softness"}
        values = {key: np.asarray(value) for key, value in (constants | sizes).items()}
        profiles.append(problem.run(values, differentiable=False)[0])
    count = min(map(len, profiles))
    first, second = (profile[:count] for profile in profiles)
    return float(np.abs(second - first).mean() / first.mean())


def _write_fit(
    folder: Path, model: Model, values: dict[str, np.ndarray], params: CalibrateParams, posterior: Posterior
) -> None:
    """The fit as tables of the stage calibrate, for optimize_bodies."""
    untouched = np.zeros(model.spring_count)
    table = parameter_table(model, values, gradient_norm=untouched, touched_ns=untouched + 1.0)
    table.write_parquet(folder / "parameters.parquet")
    bound_table(params).write_parquet(folder / "bounds.parquet")
    draw_table(posterior, params.draws, params.seed).write_parquet(folder / "draws.parquet")
    entry = what_the_log_says(posterior_table(posterior))
    (folder / "entry.json").write_text(json.dumps(entry, indent=2) + "\n")


def _second(
    name: str, model: Model, own: Problem, found: MaterialFit, params: CalibrateParams, *, with_band: bool
) -> dict[str, float]:
    """The second cut of the fruit, with the share of it inside the 90 % band and the band's half-width."""
    other = pose_problem(model, recorded(OTHER_CUT[name]), params)
    unknowns, posterior, lefts = found.posterior.unknowns, found.posterior, found.left_over
    drawn_t = posterior.draws(params.draws if with_band else 0, params.seed)
    tried = [unknowns.next_cut(t, 1) for t in (posterior.mean, *drawn_t)]
    answers = simulate_many([other.cut(values) for values in tried], of=force_of)
    predicted, *drawn = (
        left.at(other.height) * other.profile(answer) for left, answer in zip(lefts, answers, strict=False)
    )
    repeated = repeated_profile(own, other.height)
    shown = Prediction(other, predicted, *band(other, predicted, drawn, lefts[0]), {}, len(drawn))

    def scaled(profile: np.ndarray) -> np.ndarray:
        return profile * best_amplitude(other, profile)

    return {
        "second": nmae(other, predicted),
        "second_scaled": nmae(other, scaled(predicted)),
        "repeat": nmae(other, repeated),
        "repeat_scaled": nmae(other, scaled(repeated)),
        **({"coverage": shown.coverage, "band": shown.half_width} if with_band else {}),
    }


def table() -> str:
    """What has been done, as a table of lab/notes/prediction.md, and the medians and coverage over the real cuts."""
    keys = (
        "no_log", "no_log_coverage", "fit", "forecast", "forecast_model", "hold", "trend", "forecast_coverage",
        "forecast_band", "second", "repeat", "second_scaled", "repeat_scaled", "coverage", "band",
    )  # fmt: skip
    lines = [f"| cut | boundary | priors | {' | '.join(keys)} |", "|" + "---|" * (len(keys) + 3)]
    real: dict[str, list[float]] = {key: [] for key in keys}
    for name, boundary, library in _jobs(CASE_NAMES):
        path = _path(name, boundary, library)
        if path.exists():
            found = json.loads(path.read_text())
            cells = [f"{100 * found[key]:.1f} %" if key in found else "–" for key in keys]
            priors = "library" if library else "any fruit"
            lines.append(f"| {name} | {boundary} | {priors} | {' | '.join(cells)} |")
            if name != "prism" and boundary == BOUNDARIES[0] and not library:
                for key in keys:
                    real[key] += [found[key]] if key in found else []
    for title, of in (("median", np.median), ("mean", np.mean)):
        cells = [f"{100 * float(of(values)):.1f} %" if values else "–" for values in real.values()]
        lines.append(f"| {title} of the real cuts | {BOUNDARIES[0]} | any fruit | {' | '.join(cells)} |")
    return "\n".join(lines)


def _jobs(names: Sequence[str]) -> list[tuple[str, str, bool]]:
    """Case, boundary, and whether with the library: the shipped boundary only, and only where it has other cuts."""
    jobs = [
        (name, boundary, False)
        for boundary in BOUNDARIES
        for name in names
        if name in ENTRIES or boundary == BOUNDARIES[0]
    ]
    for name in names:
        if any(
            cut["name"] != ENTRIES.get(name.removesuffix("_second"))
            for cut in cuts_of(case_of(name).material)
        ):
            jobs.append((name, BOUNDARIES[0], True))
    return sorted(jobs, key=lambda job: (names.index(job[0]), BOUNDARIES.index(job[1]), job[2]))


def _path(name: str, boundary: str, library: bool) -> Path:
    path: Path = RESULTS / name / f"{boundary}{'_library' if library else ''}.json"
    return path


def main() -> None:
    """Run the named cases, or all, or print the table."""
    if sys.argv[1:] == ["--table"]:
        sys.stdout.write(table() + "\n")
        return
    for name, boundary, library in _jobs(sys.argv[1:] or CASE_NAMES):
        path = _path(name, boundary, library)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(run(name, boundary, library=library), indent=2) + "\n")
            sys.stderr.write(f"{path.relative_to(RESULTS)}: done\n")


if __name__ == "__main__":
    main()
