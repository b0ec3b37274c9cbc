"""The same predictions with every damage law, for the table of lab/notes/prediction.md.

    python -m lab.real_logs.compare_laws [CASE ...]     apple and potato without arguments

The first cut is fitted and the second predicted; the first 45 % of contact are fitted and the rest forecast. Laws whose
springs give way by themselves have the fit that belongs to them, shared values by L-BFGS from the start of params.yaml
(a parameter that means something else under the law starts at its default); the edge law has the fit of the material.
All under the shipped boundary. Needs the real data (lab/notes/real_data.md). Results go to build/laws; a finished row
is left alone until its file is deleted.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from disect_sim import KNIVES, MATERIALS, build_model
from disect_sim.laws import DAMAGE_LAWS
from disect_sim.model import Model
from lab.real_logs.fit_real_logs import CASES, ROOT, body, recorded
from lab.real_logs.predict_real_logs import BOUNDARIES, OTHER_CUT, nmae, params_of
from lab.real_logs.predict_real_logs import RESULTS as PREDICTIONS
from stages.calibrate.calibration import calibrate
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.fit import best_amplitude
from stages.calibrate.problem import OFFSET, errors, pose_problem

RESULTS = ROOT / "build" / "laws"
BOUNDARY = BOUNDARIES[0]
KEYS = ("fit", "forecast", "second", "second_scaled")


def of_springs(name: str, model: Model, params: CalibrateParams) -> dict[str, float]:
    """Errors of a law of springs with shared values."""
    cut, other = recorded(name), pose_problem(model, recorded(OTHER_CUT[name]), params)
    whole = calibrate(model, cut, params)
    problem, use = whole.problem, whole.problem.contact & whole.problem.valid
    time = problem.time[use]
    until = time[0] + params.forecast_from * (time[-1] - time[0])
    begun = calibrate(model, replace(cut, valid=cut.valid & (cut.time <= until)), params)
    rest = use & (problem.time > until)
    forecast, _ = problem.run(begun.values, differentiable=False)
    second, _ = other.run({k: v for k, v in whole.values.items() if k != OFFSET}, differentiable=False)
    return {
        "fit": nmae(problem, whole.simulated),
        "forecast": errors(forecast, problem.measured, rest, float(problem.measured[rest].mean())).nmae,
        "second": nmae(other, second),
        "second_scaled": nmae(other, best_amplitude(other, second) * second),
    }


def row(name: str, law: str, path: Path) -> dict[str, float]:
    """The errors of one law, computed or read."""
    if law == "edge":
        return dict(json.loads((PREDICTIONS / name / f"{BOUNDARY}.json").read_text()))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        (PREDICTIONS / name).mkdir(parents=True, exist_ok=True)
        case = CASES[name]
        mesh = body(case, PREDICTIONS / name).mesh
        model = build_model(
            mesh, MATERIALS[case.material], KNIVES[case.knife], boundary=BOUNDARY, damage_law=law
        )
        params = params_of(BOUNDARY)
        start = params.start | {key: info.default for key, info in DAMAGE_LAWS[law].parameters.items()}
        params = params.changed(
            damage_law=law, fit="springs", individual_iterations=0, hold_out_fraction=0.0, start=start
        )
        path.write_text(json.dumps(of_springs(name, model, params), indent=2) + "\n")
    return dict(json.loads(path.read_text()))


def main() -> None:
    """Print the table; what is missing is computed first."""
    lines = [f"| cut | law | {' | '.join(KEYS)} |", "|" + "---|" * (len(KEYS) + 2)]
    for name in sys.argv[1:] or ("apple", "potato"):
        for law in DAMAGE_LAWS:
            found = row(name, law, RESULTS / f"{name}_{law}.json")
            cells = [f"{100.0 * float(np.asarray(found[key])):.1f} %" for key in KEYS]
            lines.append(f"| {name} | {law} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
