"""The same real cut fitted on two meshes and from two starts: does the prediction depend on either?

    python -m lab.real_logs.fit_twice [apple|potato]

Needs the real data (lab/notes/real_data.md).
Prints, for every fit, the mean difference of the predicted second cut from the
first fit's, and the saving of one sawing motion against the vertical cut. Each fit is kept in build/fit_twice; delete a
file there to make it anew.
"""

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from disect_sim import KNIVES, MATERIALS, build_model
from disect_sim.many import force_of, simulate_many
from lab.real_logs.fit_real_logs import CASES, ROOT, body, recorded
from lab.real_logs.predict_real_logs import BOUNDARIES, ENTRIES, OTHER_CUT, params_of
from stages.calibrate.material.fit import left_for_next, material_unknowns
from stages.calibrate.material.likelihood import depth_likelihood
from stages.calibrate.material.search import MaterialSearch
from stages.calibrate.problem import Problem, RecordedCut, pose_problem
from stages.runtime.checkpoint import Checkpoint
from stages.shared.fitting import run_to_end

RESULTS = ROOT / "build" / "fit_twice"
FINER = 0.7
"""Edge lengths of the second mesh over those of the first."""
STARTS = {"expected": 0, "drawn": 1}
"""From what is expected of the material, or from numbers drawn from it with this seed."""
STROKE_M, STROKES_HZ = 0.012, 1.5
"""Of the sawing motion: the blade is drawn so far to and fro, so often."""


def sawing(cut: RecordedCut) -> RecordedCut:
    """The same descent with a blade that is drawn to and fro."""
    since = np.clip(cut.time - cut.onset_s, 0.0, None)
    turn = 2.0 * np.pi * STROKES_HZ
    position, velocity = cut.position.copy(), cut.velocity.copy()
    position[:, 2] = 0.5 * STROKE_M * (1.0 - np.cos(turn * since))
    velocity[:, 2] = 0.5 * STROKE_M * turn * np.sin(turn * since)
    return replace(cut, position=position, velocity=velocity)


def fit(name: str, scale: float, seed: int) -> dict[str, Any]:
    """One fit: its error, the second cut's force that it predicts [N], over height [m], and the sawing's saving [-]."""
    case = CASES[name]
    case = replace(case, edge_m=scale * case.edge_m, cut_edge_m=scale * case.cut_edge_m)
    params = params_of(BOUNDARIES[0])
    folder = RESULTS / f"{name}_mesh_{scale:g}"
    folder.mkdir(parents=True, exist_ok=True)
    mesh = body(case, folder).mesh
    model = build_model(
        mesh,
        MATERIALS[case.material],
        KNIVES[case.knife],
        boundary=params.cut.boundary,
        damage_law=params.cut.damage_law,
    )
    problem, second = (pose_problem(model, recorded(each), params) for each in (name, OTHER_CUT[name]))
    saw = pose_problem(model, sawing(recorded(name)), params)
    unknowns = material_unknowns(case.material, params, leave_out=[ENTRIES[name]])
    likelihood = depth_likelihood(problem, problem.contact & problem.valid, params.force_uncertainty_n)
    search = MaterialSearch("material", unknowns, [likelihood], params.shared_iterations)
    if seed:
        sizes = len(unknowns.prior)
        search.t[:sizes] = np.random.default_rng(seed).standard_normal(sizes)
    found = run_to_end(search, Checkpoint(None, "", stage="calibrate", part="material")).found()
    values = unknowns.next_cut(found.t, 1)
    answers = simulate_many([each.cut(values) for each in (second, problem, saw)], of=force_of)
    profile, vertical, sawn = (
        each.profile(answer) for each, answer in zip((second, problem, saw), answers, strict=True)
    )
    left = left_for_next([likelihood], unknowns, found.t, found.profiles)
    use = second.contact & second.valid
    return {
        "tets": model.tet_count,
        "cost": float(search.present().cost),
        "iterations": len(found.history),
        "sizes": unknowns.sizes(found.t),
        "height_m": second.height[use].tolist(),
        "predicted_n": (left.at(second.height) * profile)[use].tolist(),
        "saving": 1.0 - mean_over_depth(saw, sawn) / mean_over_depth(problem, vertical),
    }


def mean_over_depth(problem: Problem, profile: np.ndarray) -> float:
    """Mean force per depth from contact on [N]."""
    use = problem.contact & problem.valid
    height, force = problem.height[use], profile[use]
    return float(np.trapezoid(force, -height) / (height[0] - height[-1]))


def kept(name: str, scale: float, start: str) -> dict[str, Any]:
    """The fit, from its file if there is one."""
    path = RESULTS / f"{name}_{scale:g}_{start}.json"
    if not path.exists():
        RESULTS.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(fit(name, scale, STARTS[start]), indent=2) + "\n")
    out: dict[str, Any] = json.loads(path.read_text())
    return out


def main() -> None:
    """Print the table."""
    name = sys.argv[1] if len(sys.argv) > 1 else "apple"
    first: dict[str, Any] | None = None
    sys.stdout.write("| mesh | start | minus log-probability | second cut differs by | sawing saves |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    for scale in (1.0, FINER):
        for start in STARTS:
            found = kept(name, scale, start)
            first = first or found
            reference = np.interp(found["height_m"], first["height_m"][::-1], first["predicted_n"][::-1])
            differs = np.abs(np.asarray(found["predicted_n"]) - reference).mean() / reference.mean()
            sys.stdout.write(
                f"| {found['tets']} tets | {start} | {0.5 * found['cost']:.2f} | {100 * differs:.1f} % | "
                f"{100 * found['saving']:.1f} % |\n"
            )


if __name__ == "__main__":
    main()
