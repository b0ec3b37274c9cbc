"""Predicts the next cut of synthetic fruits from one, two and three logs, beside the mean of those logs.

    python -m lab.real_logs.predict_next [FRUITS]     8 fruits without a number; results in build/predict_next.json

The motion is that of the real apple's log. Materials are drawn from the prior of a fruit without cuts in the library;
every cut has a factor and a model error over depth of its own, with the sizes learnt from real cuts, and the noise
the fit expects. The fourth cut is predicted. A second call goes on. Needs the real data (lab/notes/real_data.md).
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from disect_sim import KNIVES, MATERIALS, build_model
from disect_sim.many import force_of, simulate_many
from lab.real_logs.fit_real_logs import CASES, body, recorded
from lab.real_logs.predict_real_logs import BOUNDARIES, UNKNOWN_MATERIAL, nmae, params_of
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.fit import fit_material, material_unknowns, repeated_profile
from stages.calibrate.material.likelihood import MODEL_ERROR, NOISE_N
from stages.calibrate.material.unknowns import MaterialUnknowns
from stages.calibrate.prediction import Prediction, band
from stages.calibrate.problem import Problem, RecordedCut, pose_problem
from stages.shared.library.library import CUT_SPREAD, SCALE_SPREAD

RESULTS = Path("build/predict_next.json")
CASE = "apple"
KNOWN = (1, 2, 3)
KNOTS_M = 1e-3

Array = NDArray[np.float64]


def errors_over_depth(depth: Array, cuts: int, generator: np.random.Generator) -> Array:
    """Model errors / mean force of the cuts of one fruit over depth [m], shape [cuts, sample_count]."""
    knots = np.arange(depth.min(), depth.max() + KNOTS_M, KNOTS_M)
    every = np.tile(knots, cuts)
    cut = np.repeat(np.arange(cuts), len(knots))
    covariance = MODEL_ERROR.covariance(every, every, cut[:, None] == cut)
    drawn = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(every))) @ generator.standard_normal(len(every))
    return np.array([np.interp(depth, knots, each) for each in drawn.reshape(cuts, -1)])


def logs_of_a_fruit(problem: Problem, unknowns: MaterialUnknowns, seed: int) -> list[RecordedCut]:
    """The logs of four cuts of a drawn fruit, all by the problem's motion."""
    generator = np.random.default_rng(seed)
    truth = np.concatenate(
        [generator.standard_normal(len(unknowns.prior)), np.zeros(len(unknowns) - len(unknowns.prior))]
    )
    (answer,) = simulate_many([problem.cut(unknowns.values(truth))], of=force_of, processes=1)
    if answer.value is None:
        raise SystemExit(f"fruit {seed}: {answer.outcome}")
    real = recorded(CASE)
    clean = np.stack(
        [np.interp(real.time, problem.time, each, left=0.0, right=0.0) for each in answer.value.T], axis=1
    )
    norm = np.linalg.norm(clean, axis=1)
    inside = np.clip(norm / max(1.0, 0.1 * norm.max()), 0.0, 1.0)
    mean = float(norm[norm > 1.0].mean())
    scale = np.exp(SCALE_SPREAD * generator.standard_normal())
    logs = []
    for wrong in errors_over_depth(-real.position[:, 1], KNOWN[-1] + 1, generator):
        factor = scale * np.exp(CUT_SPREAD * generator.standard_normal())
        force = factor * clean
        force[:, 1] += factor * mean * inside * wrong + NOISE_N * generator.standard_normal(len(wrong))
        use = real.time <= problem.time[-1]
        logs.append(
            RecordedCut(
                real.time[use],
                real.position[use],
                real.velocity[use],
                force[use],
                real.valid[use],
                real.onset_s,
            )
        )
    return logs


def predicted(problems: list[Problem], last: Problem, params: CalibrateParams) -> dict[str, float]:
    """Errors of the last cut predicted from the others, by the fit and by their mean; share inside the 90 % band."""
    unknowns = material_unknowns(UNKNOWN_MATERIAL, params, cuts=len(problems))
    fit = fit_material(problems, unknowns, params, scan_dir=None, key="", report=None)
    drawn_t = fit.posterior.draws(params.draws, params.seed)
    tried = [unknowns.next_cut(t, len(problems)) for t in (fit.posterior.mean, *drawn_t)]
    answers = simulate_many([last.cut(values) for values in tried], of=force_of)
    pairs = [(left, answer) for left, answer in zip(fit.left_over, answers, strict=True) if answer.outcome.ok]
    expected, *drawn = (left.at(last.height) * last.profile(answer) for left, answer in pairs)
    shown = Prediction(
        last,
        expected,
        *band(last, expected, drawn, fit.left_over[0], cuts=len(problems)),
        {},
        len(drawn),
    )
    repeated = np.mean([repeated_profile(each, last.height) for each in problems], axis=0)
    return {
        "model": nmae(last, expected),
        "mean": nmae(last, repeated),
        "coverage": shown.coverage,
        "band": shown.half_width,
    }


def main() -> None:
    """One fruit after the other, then the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    params = params_of(BOUNDARIES[0]).changed(knife=CASES[CASE].knife, forecast_from=0.0)
    folder = RESULTS.parent / "predict_next"
    folder.mkdir(parents=True, exist_ok=True)
    mesh = body(CASES[CASE], folder).mesh
    model = build_model(
        mesh, MATERIALS[CASE], KNIVES[CASES[CASE].knife], boundary=BOUNDARIES[0], damage_law="edge"
    )
    problem = pose_problem(model, recorded(CASE), params)
    unknowns = material_unknowns(UNKNOWN_MATERIAL, params)
    done: list[dict[str, dict[str, float]]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    for seed in range(len(done), count):
        posed = [pose_problem(model, log, params) for log in logs_of_a_fruit(problem, unknowns, seed)]
        done.append({str(known): predicted(posed[:known], posed[-1], params) for known in KNOWN})
        RESULTS.write_text(json.dumps(done, indent=2) + "\n")
        sys.stderr.write(f"fruit {seed}: {done[-1]}\n")
    sys.stdout.write(table(done))


def table(done: list[dict[str, dict[str, float]]]) -> str:
    """Mean error of both and the coverage, over the fruits."""
    lines = ["| logs | model | mean of the logs | coverage | band |", "|---|---|---|---|---|"]
    for known in KNOWN:
        rows = [each[str(known)] for each in done]
        cells = (
            f"{100 * np.mean([row[key] for row in rows]):.1f} %" for key in ("model", "mean", "coverage")
        )
        lines.append(
            f"| {known} | {' | '.join(cells)} | ± {100 * np.mean([row['band'] for row in rows]):.0f} % |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
