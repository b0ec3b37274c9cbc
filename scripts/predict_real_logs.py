"""Fits the material to real cuts and predicts cuts it has not seen, for the tables of docs/prediction.md.

    python -m scripts.predict_real_logs [CASE ...]     apple, potato, cucumber, prism; all without arguments
    python -m scripts.predict_real_logs --table        prints the table of what has been done

Needs the real data (docs/real_data.md). There is no scan of those fruits: the bodies are primitives, scaled to the
log's contact height. Priors are those of a material without any cut in the library. Results go to build/predictions;
a finished case is left alone until its file is deleted.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from disect_sim import KNIVES, MATERIALS, build_model
from disect_sim.model import Model
from scripts.fit_real_logs import CASES, ROOT, body, recorded
from stages.calibrate.material_fit.baselines import best_amplitude, repeated_profile
from stages.calibrate.material_fit.fit import fit_material, material_unknowns
from stages.calibrate.material_fit.left_over import LeftOver
from stages.calibrate.material_fit.posterior import (
    Posterior,
    draw_table,
    posterior_table,
    what_the_log_says,
)
from stages.calibrate.params import CalibrateParams
from stages.calibrate.problem import OFFSET, Problem, pose_problem
from stages.calibrate.report import bound_table, parameter_table
from stages.calibrate.validation import errors
from stages.runtime.params import load_params

RESULTS = ROOT / "build" / "predictions"
SECOND = {"apple": "apple_second", "potato": "potato_second"}
UNKNOWN_MATERIAL = "a material without cuts in the library"
BOUNDARIES = ("guided", "held")
"""The first is the shipped one; its fits are kept as tables too."""


def params_of(boundary: str) -> CalibrateParams:
    """The shipped settings with the edge law, at the steps of the other real fits."""
    shipped = load_params(ROOT / "params.yaml").calibrate
    cut = {"damage_law": "edge", "boundary": boundary, "dt_s": 0.004}
    return shipped.changed(**cut, fit="material", rate_hz=250.0)


def nmae(problem: Problem, profile: np.ndarray) -> float:
    """Mean absolute error over the mean measured force, in contact [-]."""
    use = problem.contact & problem.valid
    return errors(profile, problem.measured, use, problem.mean_force).nmae


def run(name: str, boundary: str) -> dict[str, Any]:
    """Fit one cut, forecast its end from its beginning, predict the second cut where there is one."""
    case, folder = CASES[name], RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    params = params_of(boundary)
    mesh = body(case, folder).mesh
    model = build_model(
        mesh, MATERIALS[case.material], KNIVES[case.knife], boundary=boundary, damage_law="edge"
    )
    problem = pose_problem(model, recorded(name), params)
    cpu = time.process_time()
    unknowns = material_unknowns([mesh], UNKNOWN_MATERIAL, params)
    found = fit_material([problem], unknowns, params, scan_dir=None, key="", report=None)
    unknowns = found.posterior.unknowns
    values = unknowns.values(found.found.t)
    out: dict[str, Any] = {
        "fit": nmae(problem, found.found.profiles[0]),
        "sizes": unknowns.sizes(found.found.t),
        "amplitude": unknowns.amplitude(found.found.t),
        "deviation": dict(zip(unknowns.names, found.posterior.deviation.tolist(), strict=True)),
        "cpu_s": time.process_time() - cpu,
        "simulations": found.found.simulations,
    }
    if boundary == BOUNDARIES[0]:
        _write_fit(folder, model, values, params, found.posterior)
    if found.tail is not None:
        out |= {"forecast": found.tail.nmae, "hold": found.tail.nmae_guess}
    if name in SECOND:
        out |= _second(name, model, problem, values, found.left_over, params)
    return out


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
    name: str,
    model: Model,
    own: Problem,
    values: dict[str, np.ndarray],
    left: LeftOver,
    params: CalibrateParams,
) -> dict[str, float]:
    other = pose_problem(model, recorded(SECOND[name]), params)
    predicted, _ = other.run({k: v for k, v in values.items() if k != OFFSET}, differentiable=False)
    predicted = left.at(other.height) * predicted
    repeated = repeated_profile(own, other.height)

    def scaled(profile: np.ndarray) -> np.ndarray:
        return profile * best_amplitude(other, profile)

    return {
        "second": nmae(other, predicted),
        "second_scaled": nmae(other, scaled(predicted)),
        "repeat": nmae(other, repeated),
        "repeat_scaled": nmae(other, scaled(repeated)),
    }


def table() -> str:
    """What has been done, as a table of docs/prediction.md."""
    keys = ("fit", "forecast", "hold", "second", "repeat", "second_scaled", "repeat_scaled")
    lines = [f"| cut | boundary | {' | '.join(keys)} |", "|" + "---|" * (len(keys) + 2)]
    for path in sorted(path for word in BOUNDARIES for path in RESULTS.glob(f"*/{word}.json")):
        found = json.loads(path.read_text())
        cells = [f"{100 * found[key]:.1f} %" if key in found else "–" for key in keys]
        lines.append(f"| {path.parent.name} | {path.stem} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the named cases, or all, or print the table."""
    if sys.argv[1:] == ["--table"]:
        sys.stdout.write(table() + "\n")
        return
    for boundary in BOUNDARIES:
        for name in sys.argv[1:] or ("apple", "potato", "cucumber", "prism"):
            path: Path = RESULTS / name / f"{boundary}.json"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(run(name, boundary), indent=2) + "\n")
                sys.stderr.write(f"{name} {boundary}: done\n")


if __name__ == "__main__":
    main()
