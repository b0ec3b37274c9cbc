"""Learns from real logs how cuts, knives and the model's error vary.

    python -m lab.real_logs.learn_variation            prints what follows from the logs, and without each fruit
    python -m lab.real_logs.learn_variation --write    also writes stages/shared/library/variation.json

Needs the real data (lab/notes/real_data.md); cuts that are kept aside are not among it. Three things are learnt:

- the spread of a cut's factor, from pairs of cuts of one fruit, without any model: the factor of a pair is the number
  by which the first cut's force, repeated at the same heights, has to be multiplied for the least mean absolute error
  against the second;
- the spread of the toughness between knives, from pairs of the library's entries of one material by two knives;
- the model error over depth (two standard deviations, lengths, correlations between cuts of one fruit), by the marginal
  likelihood of all logs: every log is fitted, and the fit's linearisation makes its parameters normal.

All have a prior, stated below, which was chosen before looking at the logs. Linearised fits are kept in
build/variation; delete it to fit again.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from disect_sim import KNIVES, MATERIALS, build_model
from lab.real_logs.fit_real_logs import CASES, ROOT, body, recorded
from lab.real_logs.predict_real_logs import BOUNDARIES, UNKNOWN_MATERIAL, params_of
from stages.calibrate.material.fit import best_factor, material_unknowns
from stages.calibrate.material.likelihood import MODEL_ERROR, ModelError, depth_likelihood
from stages.calibrate.material.search import MaterialSearch
from stages.calibrate.material.unknowns import AMPLITUDE
from stages.calibrate.problem import OFFSET, RecordedCut, pose_problem
from stages.shared.library.library import (
    AMPLITUDE_SPREAD,
    CUT_SPREAD,
    FOLDER,
    FRUIT_SPREAD,
    SHARPENED,
    VARIATION_FILE,
    cut_spread,
    cuts_of,
)

RESULTS = ROOT / "build" / "variation"
FRUITS = (("apple", "apple_second"), ("potato", "potato_second"), ("cucumber",), ("real_apple",))
"""Real logs by fruit: two cuts each of one fruit by one knife and one arm, and single ones."""
SLICE_M = 1e-3
KNIFE_PRIOR, KNIFE_PAIRS = 0.3, 4.0
"""Spread between knives expected before any pair of entries, and how many pairs that is worth: a choice."""
PRIOR = {
    "slow": (np.log(0.12), 0.7),
    "slow_length_m": (np.log(0.02), 0.5),
    "slow_again": (0.0, 1.2),
    "fast": (np.log(0.06), 0.7),
    "fast_length_m": (np.log(0.004), 0.5),
    "fast_again": (0.0, 1.2),
}
"""Mean and deviation of the logarithm of each number of the model error; of the logit for the correlations."""

Array = NDArray[np.float64]


def force_over_depth(cut: RecordedCut) -> tuple[Array, Array]:
    """Return depths below first touch [m] and the mean force there [N], over slices of 1 mm."""
    norm = np.linalg.norm(cut.force, axis=1)
    used = cut.valid & (cut.time >= cut.time[np.argmax(norm > 2.0)])
    depth = cut.position[used, 1].max() - cut.position[used, 1]
    slices = (depth / SLICE_M).astype(int)
    count = np.bincount(slices)
    force = np.bincount(slices, norm[used]) / np.maximum(count, 1)
    present = count > 0
    return np.asarray(SLICE_M * (np.flatnonzero(present) + 0.5), np.float64), force[present]


def factor(first: RecordedCut, second: RecordedCut) -> float:
    """Return the factor on the first cut with the least mean absolute error against the second."""
    depth, force = force_over_depth(first)
    other_depth, other = force_over_depth(second)
    return best_factor(np.interp(other_depth, depth, force), other)


def knife_spread() -> tuple[float, int]:
    """Return the spread of the toughness between knives, in logarithms, and the number of pairs of entries."""
    squares = []
    for path in sorted(FOLDER.glob("*.json")):
        entries = [cut for cut in cuts_of(path.stem) if SHARPENED in cut["values"]]
        for a, b in combinations(entries, 2):
            if a["knife"] != b["knife"]:
                (x, x_error), (y, y_error) = a["values"][SHARPENED], b["values"][SHARPENED]
                difference = np.log(x / y) ** 2 - x_error**2 - y_error**2
                squares.append(0.5 * difference - FRUIT_SPREAD**2)
    variance = (KNIFE_PAIRS * KNIFE_PRIOR**2 + sum(squares)) / (KNIFE_PAIRS + len(squares))
    return float(np.sqrt(max(variance, 0.0))), len(squares)


def linearised(name: str) -> dict[str, Array]:
    """Return a log's fit: slices of measured and fitted force [N], their derivatives, heights [m], and the unknowns."""
    saved = RESULTS / f"{name}.npz"
    if not saved.exists():
        case_name = name.removesuffix("_second")
        case, folder = CASES[case_name], RESULTS / case_name
        folder.mkdir(parents=True, exist_ok=True)
        params = params_of(BOUNDARIES[0])
        model = build_model(
            body(case, folder).mesh,
            MATERIALS[case.material],
            KNIVES[case.knife],
            boundary=BOUNDARIES[0],
            damage_law="edge",
        )
        problem = pose_problem(model, recorded(name), params)
        unknowns = material_unknowns(UNKNOWN_MATERIAL, params)
        likelihood = depth_likelihood(problem, problem.contact & problem.valid, params.force_uncertainty_n)
        search = MaterialSearch(name, unknowns, [likelihood], params.shared_iterations)
        while not search.over():
            search.step()
        search.covariance()  # linearises at the end
        fitted = search.present().cuts[0].force[:, likelihood.components[0]]
        count = len(likelihood.slices)
        np.savez(
            saved,
            t=search.t,
            names=np.array(unknowns.names),
            slopes=likelihood.factor @ search.jacobian[:count],
            fitted=likelihood.slices @ fitted,
            measured=likelihood.slices @ problem.measured_force[:, likelihood.components[0]],
            height=likelihood.slices @ problem.height,
            noise=likelihood.noise_n,
        )
        sys.stderr.write(f"{name}: fitted\n")
    with np.load(saved) as table:
        return {key: table[key] for key in table.files}


def negative_log_likelihood(error: ModelError, fruit: Sequence[Mapping[str, Array]]) -> float:
    """Return minus the log marginal likelihood of a fruit's logs under a model error.

    The material is common to its cuts; amplitude and height are each cut's own.
    """
    common = [i for i, n in enumerate(fruit[0]["names"]) if not str(n).startswith((AMPLITUDE, OFFSET))]
    slopes, rest, noise = [], [], []
    for number, log in enumerate(fruit):
        mean, first = log["measured"].mean(), len(common)
        own = np.zeros((len(log["measured"]), first + 2 * len(fruit)))
        own[:, :first] = log["slopes"][:, common]
        amplitude = list(log["names"]).index(AMPLITUDE)
        # The prior of the scale of the reading and that of the cut together.
        own[:, first + 2 * number] = AMPLITUDE_SPREAD * log["fitted"]
        own[:, first + 2 * number + 1] = log["slopes"][:, amplitude + 1]
        t = np.zeros(own.shape[1])
        t[:first] = log["t"][common]
        t[first + 2 * number : first + 2 * number + 2] = log["t"][amplitude : amplitude + 2]
        rest.append((log["measured"] - log["fitted"] + own @ t) / mean)
        slopes.append(own / mean)
        noise.append(np.full(len(own), (float(log["noise"]) / mean) ** 2))
    cut = np.repeat(np.arange(len(fruit)), [len(each) for each in rest])
    height = np.concatenate([log["height"] for log in fruit])
    j = np.concatenate(slopes)
    covariance = (
        j @ j.T + error.covariance(height, height, cut[:, None] == cut) + np.diag(np.concatenate(noise))
    )
    lower = np.linalg.cholesky(covariance)
    white = np.linalg.solve(lower, np.concatenate(rest))
    return float(0.5 * white @ white + np.log(np.diag(lower)).sum())


def model_error(x: Array) -> ModelError:
    """Return the model error of free numbers: logarithms, and logits of the correlations."""
    return ModelError(
        **{n: float(expit(v) if n.endswith("again") else np.exp(v)) for n, v in zip(PRIOR, x, strict=True)}
    )


def learn(fruits: Sequence[Sequence[Mapping[str, Array]]]) -> ModelError:
    """Return the most probable model error given these fruits' logs."""
    mean, deviation = np.array(list(PRIOR.values())).T

    def cost(x: Array) -> float:
        own = sum(negative_log_likelihood(model_error(x), fruit) for fruit in fruits)
        return own + 0.5 * float((((x - mean) / deviation) ** 2).sum())

    starts = [mean + deviation * shift for shift in (0.0, np.array([0.8, 0.5, 0.0, -0.5, 0.0, 0.0]))]
    best = min((minimize(cost, start, method="L-BFGS-B") for start in starts), key=lambda found: found.fun)
    return model_error(best.x)


def _text(error: ModelError) -> str:
    return (
        f"slow {100 * error.slow:.1f} % over {1e3 * error.slow_length_m:.1f} mm (again {error.slow_again:.2f}), fast "
        f"{100 * error.fast:.1f} % over {1e3 * error.fast_length_m:.1f} mm (again {error.fast_again:.2f})"
    )


def main() -> None:
    """Print everything; write it with --write."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    pairs = [fruit for fruit in FRUITS if len(fruit) == 2]
    factors = {f"{a} → {b}": factor(recorded(a), recorded(b)) for a, b in pairs}
    for pair, value in factors.items():
        print(f"{pair:32} {value:.3f}")
    print(
        f"spread of one cut, in logarithms: {cut_spread(list(factors.values())):.3f} (shipped {CUT_SPREAD:.3f})"
    )
    knife, count = knife_spread()
    print(f"spread between knives, in logarithms: {knife:.3f} from {count} pair(s) of entries")
    fruits = [[linearised(name) for name in fruit] for fruit in FRUITS]
    learnt = learn(fruits)
    print(f"model error: {_text(learnt)}")
    for i, names in enumerate(FRUITS):
        others = learn([fruit for k, fruit in enumerate(fruits) if k != i])
        gain = negative_log_likelihood(MODEL_ERROR, fruits[i]) - negative_log_likelihood(others, fruits[i])
        print(f"  without {names[0]:12} {_text(others)}; its log-likelihood against the shipped {gain:+.1f}")
    if "--write" in sys.argv:
        _write(factors, knife, count, learnt)


def _write(factors: Mapping[str, float], knife: float, pairs: int, error: ModelError) -> None:
    source = "eric-heiden/panda-force, vertical cuts of a Franka Panda"
    content: dict[str, Any] = {
        "command": "python -m lab.real_logs.learn_variation --write",
        "cut": {
            "meaning": "force of a second cut over that of the first, same fruit, knife and arm",
            "source": source,
            "factors": {pair: round(value, 4) for pair, value in factors.items()},
        },
        "knife": {
            "meaning": "standard deviation of the edge toughness between knives, in logarithms",
            "source": f"{pairs} pair(s) of library entries by two knives; prior {KNIFE_PRIOR:g} worth {KNIFE_PAIRS:g}",
            "spread": round(knife, 3),
        },
        "model_error": {
            "meaning": "model error / mean force: standard deviations, lengths, correlation between cuts of one fruit",
            "source": f"{source}, and the paper's apple",
            "logs": sum(map(len, FRUITS)),
            "values": {name: round(value, 4) for name, value in vars(error).items()},
        },
    }
    text = json.dumps(content, indent=2, ensure_ascii=False)
    Path(VARIATION_FILE).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
