"""Fits the KTH sawing runs of the first day and predicts strokes that were left out, for lab/notes/kth_sawing.md.

    python -m lab.real_logs.fit_kth [RUN ...] [--picture]     all 21 runs without arguments, e.g. 01 12

Every run is fitted with each law of lab/real_logs/sawing_model.py. First all strokes with the first prior: shares,
tilt, stiffness. Then in three folds (strokes 0, 3, …; 1, 4, …; 2, 5, …) without the strokes of the fold, which are
predicted from the motion; the prior of the run is then that of the *other* runs' first fits. So no stroke is predicted
by anything that has seen it, except the first sample of a run, the springs' initial load. Results go to build/kth; a
finished run is left alone until the code changes. Needs the real data (lab/notes/real_data.md).
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.real_logs.real_data import real_file
from lab.real_logs.sawing_model import (
    CORRELATION_S,
    LAWS,
    STEP_S,
    Array,
    Prior,
    SawingFit,
    SawingRun,
    edge_frame,
    fit_run,
    law_force,
    pooled_prior,
)
from stages.ingest.log_file import read_log
from stages.runtime.files import sha256_of_file, sha256_of_value
from stages.runtime.params import load_params
from stages.shared.fitting import low_pass

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "kth"
PICTURE = ROOT / "lab" / "notes" / "pictures" / "kth_sawing.png"
RUNS = tuple(f"{number:02d}" for number in range(1, 22))
BEST = "a+m+e"
REPEAT = "repeat"
CUTOFF_HZ = 5.0
"""Low-pass of force and position: strokes take 2 to 8 s."""
REVERSAL_M = 0.002
"""A reversal is a turn of the stroke by more than this."""
FOLDS = 3
SLIDING_M_S, STICK_M, SMOOTH_S = 0.002, 0.004, 0.25
"""Sliding: the edge, by measured force and fitted stiffness and smoothed over SMOOTH_S, moves faster than this, and the
knife has moved on by more than the stick of 2 to 4 mm that the data's own evaluation found."""
CENTRES = np.array([0.66, 0.93, 1.25, 1.70, 2.3, 3.5, 4.9, 7.7])
EDGES = np.concatenate([[0.5], np.sqrt(CENTRES[1:] * CENTRES[:-1]), [12.0]])
"""Bins of the slice-push ratio; beyond the last one the edge does not penetrate."""
BOOTSTRAPS = 2000


def load_run(name: str) -> SawingRun:
    """Read a run of the KTH data through ingest's reader; force and motion low-passed and sampled every STEP_S."""
    folder = real_file("kth_sawing")
    rows = [line.split(";") for line in (folder / "runs.csv").read_text().splitlines()[1:]]
    food = {row[0]: row[-1].strip() for row in rows}[name]
    log = read_log(folder / name / "forces.txt", load_params(ROOT / "params.yaml").ingest)
    if log.force_n is None or log.position_m is None:
        raise ValueError(f"run {name} has no force or no position")
    smooth = low_pass(log.time_s, np.column_stack([log.position_m[:, 1:], log.force_n[:, 1:]]), CUTOFF_HZ)
    time = np.arange(log.time_s[0], log.time_s[-1], STEP_S)
    y, z, force_y, force_z = (np.interp(time, log.time_s, column) for column in smooth.T)
    return SawingRun(
        name=name,
        food=food,
        time_s=time - time[0],
        knife_m=np.column_stack([y - y[0], z[0] - z]),
        force_n=np.column_stack([-force_y, force_z]),
        stroke=strokes_of(y),
    )


def strokes_of(y: Array) -> NDArray[np.int64]:
    """Return the number of the stroke of every sample; strokes end where the motion along y turns."""
    from scipy.signal import find_peaks

    turns = [find_peaks(sign * y, prominence=REVERSAL_M)[0] for sign in (1.0, -1.0)]
    return np.asarray(np.searchsorted(np.sort(np.concatenate(turns)), np.arange(len(y))), np.int64)


@dataclass(frozen=True)
class RunResult:
    """One run with its fits."""

    run: SawingRun
    first: dict[str, SawingFit]
    """Fits of all strokes, by law."""
    held_out: dict[str, Array]
    """Force of every stroke as predicted without it [N], shape [n, 2], by law and baseline; NaN where there is none."""


def repeated(run: SawingRun) -> Array:
    """Predict every stroke by the previous one of its direction (the next for the first two), stretched in time."""
    count = int(run.stroke.max()) + 1
    predicted = np.full(run.force_n.shape, np.nan)
    for k in range(count):
        other = k - 2 if k >= 2 else k + 2
        if other < count:
            of_k, known = run.stroke == k, run.force_n[run.stroke == other]
            phase = np.linspace(0.0, 1.0, int(of_k.sum()))
            predicted[of_k] = np.column_stack(
                [np.interp(phase, np.linspace(0.0, 1.0, len(known)), column) for column in known.T]
            )
    return predicted


def predict_strokes(run: SawingRun, law: str, prior: Prior) -> Array:
    """Return the force of every stroke as predicted by a fit without it [N], shape [n, 2]."""
    strokes = np.arange(int(run.stroke.max()) + 1)
    predicted = np.full(run.force_n.shape, np.nan)
    for fold in range(min(FOLDS, len(strokes))):
        left_out = strokes[strokes % FOLDS == fold]
        fit = fit_run(run, law, prior, [int(k) for k in left_out])
        of_fold = np.isin(run.stroke, left_out)
        predicted[of_fold] = fit.predicted_n[of_fold]
    return predicted


def _cached(name: str, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if path.exists():
        content = json.loads(path.read_text())
        if content["key"] == key:
            return dict(content["result"])
    RESULTS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"key": key, "result": compute()}))
    return dict(json.loads(path.read_text())["result"])


def _first_fit(run: SawingRun, law: str, key: str) -> SawingFit:
    def compute() -> dict[str, Any]:
        found = vars(fit_run(run, law))
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()
        }

    stored = _cached(f"first_{law}_{run.name}", key, compute)
    arrays = {name: np.array(value) for name, value in stored.items() if isinstance(value, list)}
    return SawingFit(law=law, objective=float(stored["objective"]), **arrays)


def fit_all(names: Sequence[str]) -> dict[str, RunResult]:
    """Fit all runs and predict the strokes of the named ones; what is missing in build/kth is computed."""
    code = [sha256_of_file(Path(__file__).with_name(file)) for file in ("sawing_model.py", "fit_kth.py")]
    runs = {name: load_run(name) for name in RUNS}
    keys = {
        name: sha256_of_value([code, run.force_n.tolist(), run.knife_m.tolist()])
        for name, run in runs.items()
    }
    first = {law: {name: _first_fit(runs[name], law, keys[name]) for name in RUNS} for law in LAWS}
    results = {}
    for name in names:
        run = runs[name]
        held_out = {REPEAT: repeated(run)}
        for law in LAWS:
            others = [n for n in RUNS if n != name]
            alike = [n for n in others if runs[n].food == run.food]

            def compute(
                run: SawingRun = run, law: str = law, others: list[str] = others, alike: list[str] = alike
            ) -> Any:
                prior = pooled_prior([first[law][n] for n in others], [first[law][n] for n in alike])
                return {"predicted": predict_strokes(run, law, prior).tolist()}

            stored = _cached(f"held_out_{law}_{name}", sha256_of_value(sorted(keys.values())), compute)
            held_out[law] = np.array(stored["predicted"])
        results[name] = RunResult(run, {law: first[law][name] for law in LAWS}, held_out)
    return results


# Errors on strokes that were left out.


def stroke_errors(result: RunResult, law: str, *, sliding: bool = False) -> Array:
    """Return mean |error| / mean |F| of each stroke for |F|, along, down and the vector; shape [stroke_count, 4]."""
    run, rows = result.run, []
    use = edge_motion(result)[1] if sliding else np.ones(len(run.time_s), bool)
    use[0] = False
    for k in range(int(run.stroke.max()) + 1):
        of_k = (run.stroke == k) & use
        measured, predicted = run.force_n[of_k], result.held_out[law][of_k]
        if len(measured) < 3:
            rows.append(np.full(4, np.nan))
            continue
        norm, error = np.linalg.norm(measured, axis=1), predicted - measured
        size = np.abs(np.linalg.norm(predicted, axis=1) - norm).mean()
        each = [size, *np.abs(error).mean(axis=0), np.linalg.norm(error, axis=1).mean()]
        rows.append(np.array(each) / norm.mean())
    return np.array(rows)


def edge_motion(result: RunResult) -> tuple[Array, NDArray[np.bool_], Array]:
    """Return slice-push ratio, sliding samples and force in the edge's frame (t along the motion, n).

    The edge's motion is the measured one minus measured force / fitted stiffness. The ratio is infinite where the edge
    does not penetrate.
    """
    run, values = result.run, result.first[BEST].values
    frame = edge_frame(values[:1])[0]
    force = (run.force_n - values[7:9]) @ frame.T
    edge = run.knife_m @ frame.T - force / np.exp(values[3:5])
    span = max(int(SMOOTH_S / STEP_S), 1)
    velocity = np.gradient(edge, run.time_s, axis=0)
    velocity = np.column_stack([np.convolve(column, np.ones(span) / span, "same") for column in velocity.T])
    along, into = np.abs(velocity[:, 0]), np.maximum(velocity[:, 1], 1e-9)
    direction = np.where(run.forward[run.stroke], 1.0, -1.0)
    begin = np.searchsorted(run.stroke, run.stroke)
    travel = direction * (run.knife_m[:, 0] - run.knife_m[begin, 0])
    sliding = (direction * velocity[:, 0] > SLIDING_M_S) & (travel > STICK_M) & (force[:, 1] > 0.5)
    return along / into, sliding, np.column_stack([direction * force[:, 0], force[:, 1]])


# Ft / Fn over the slice-push ratio.


@dataclass(frozen=True)
class RatioBin:
    """Mean over runs in one bin of the slice-push ratio."""

    xi: float
    """Mean; infinite where the edge does not penetrate."""
    runs: int
    measured: float
    error: float
    """Standard error over runs."""
    model: float
    """Of the strip model, strokes left out."""


def ratio_bins(results: Mapping[str, RunResult], forward: bool | None) -> list[RatioBin]:
    """Return Ft / Fn in nine bins, for one direction of the stroke or for both (None)."""
    cells: list[list[tuple[float, float, float]]] = [[] for _ in range(len(EDGES))]
    for result in results.values():
        run = result.run
        xi, sliding, force = edge_motion(result)
        values = result.first[BEST].values
        predicted = (result.held_out[BEST] - values[7:9]) @ edge_frame(values[:1])[0].T
        predicted[:, 0] *= np.where(run.forward[run.stroke], 1.0, -1.0)
        if forward is not None:
            sliding = sliding & (run.forward[run.stroke] == forward)
        place = np.searchsorted(EDGES, xi) - 1
        for k, cell in enumerate(cells):
            of_bin = sliding & (place == k)
            if of_bin.sum() * STEP_S >= 0.15:  # as long as the low-pass; shorter ones are one reading
                t, n = force[of_bin].sum(axis=0)
                model_t, model_n = predicted[of_bin].sum(axis=0)
                cell.append((float(np.exp(np.log(xi[of_bin]).mean())), t / n, model_t / max(model_n, 1e-9)))
    bins = []
    for k, cell in enumerate(cells):
        if len(cell) < 3:
            continue
        table = np.array(cell)
        last = k == len(cells) - 1
        xi_mean = np.inf if last else float(np.exp(np.log(table[:, 0]).mean()))
        error = float(table[:, 1].std(ddof=1) / np.sqrt(len(table)))
        bins.append(
            RatioBin(xi_mean, len(table), float(table[:, 1].mean()), error, float(table[:, 2].mean()))
        )
    return bins


def law_ratio(shares: Array, xi: float) -> float:
    """Return Ft / Fn of the law; without penetration its lower bound m / e."""
    if np.isinf(xi):
        return float(shares[1] / shares[2]) if shares[2] > 0.0 else np.inf
    along, across = law_force(shares, np.array(xi))
    return float(along / across)


def pooled_shares(fits: Sequence[SawingFit]) -> Array:
    """Return a, m, e at the mean log-ratios of the fits."""
    logs = np.array([np.log(fit.shares[:2] / fit.shares[2]) for fit in fits]).mean(axis=0)
    weight = np.exp(np.append(logs, 0.0))
    return np.asarray(weight / weight.sum())


def bootstrap(items: Sequence[Any], statistic: Callable[[list[Any]], Any]) -> Array:
    """Return 5 and 95 % quantiles of a statistic over resampled runs, shape [2, ...]."""
    generator = np.random.default_rng(0)
    draws = [
        statistic([items[i] for i in generator.integers(0, len(items), len(items))])
        for _ in range(BOOTSTRAPS)
    ]
    return np.quantile(np.array(draws), [0.05, 0.95], axis=0)


def log_likelihoods(results: Mapping[str, RunResult], law: str) -> Array:
    """Return the tempered log-likelihood of each run's left-out strokes; shape [run_count].

    Errors relative to the run's force are normal with a spread per component that the *other* runs' errors give.
    """
    scaled = []
    for result in results.values():
        scale = np.sqrt((result.run.force_n**2).sum(axis=1).mean())
        scaled.append((result.held_out[law] - result.run.force_n)[1:] / scale)
    values = []
    for i, own in enumerate(scaled):
        others = np.concatenate([each for j, each in enumerate(scaled) if j != i])
        variance = (others**2).mean(axis=0)
        each = -0.5 * own**2 / variance - 0.5 * np.log(variance)
        values.append(each.sum() * STEP_S / (2.0 * CORRELATION_S))
    return np.array(values)


# What is printed.


def error_tables(results: Mapping[str, RunResult]) -> list[str]:
    """Write errors on left-out strokes per run and pooled."""
    shown = (*LAWS, REPEAT)
    lines = [
        f"| run | food | strokes | tilt | a, m, e | {' | '.join(shown)} |",
        "|" + "---|" * (len(shown) + 5),
    ]
    for name, result in results.items():
        fit = result.first[BEST]
        cells = [_percent(stroke_errors(result, law)[:, 0].mean()) for law in shown]
        shares = ", ".join(f"{share:.2f}" for share in fit.shares)
        count = int(result.run.stroke.max()) + 1
        lines.append(
            f"| {name} | {result.run.food} | {count} | {fit.values[0]:.1f}° | {shares} | {' | '.join(cells)} |"
        )
    groups: dict[str, list[str]] = {"all": list(results)}
    for food in sorted({result.run.food for result in results.values()}):
        groups[food] = [name for name in results if results[name].run.food == food]
    groups["even runs (model chosen on them)"] = [name for name in results if int(name) % 2 == 0]
    groups["odd runs"] = [name for name in results if int(name) % 2 == 1]
    lines += [
        "",
        "| strokes | law | count | \\|F\\| median, mean | along | down | vector |",
        "|" + "---|" * 7,
    ]
    for group, names in groups.items():
        for law in shown:
            if names:
                lines.append(
                    f"| {group} | {law} {_error_cells([stroke_errors(results[n], law) for n in names])}"
                )
    for law in shown:
        sliding = [stroke_errors(result, law, sliding=True) for result in results.values()]
        lines.append(f"| all, sliding phases | {law} {_error_cells(sliding)}")
    inner = [stroke_errors(result, BEST)[1:-1] for result in results.values()]
    lines.append(f"| all, strokes with neighbours on both sides | {BEST} {_error_cells(inner)}")
    with_repeat = [
        stroke_errors(result, BEST)[np.isfinite(stroke_errors(result, REPEAT)[:, 0])]
        for result in results.values()
    ]
    lines.append(f"| all, strokes that repeat predicts | {BEST} {_error_cells(with_repeat)}")
    return lines


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %" if np.isfinite(value) else "–"


def _error_cells(tables: Sequence[Array]) -> str:
    table = np.concatenate(tables)
    table = table[np.isfinite(table[:, 0])]
    if not len(table):
        return "| 0 | – | – | – | – |"
    pairs = zip(np.median(table, axis=0), table.mean(axis=0), strict=True)
    return (
        f"| {len(table)} | " + " | ".join(f"{_percent(low)}, {_percent(mean)}" for low, mean in pairs) + " |"
    )


def ratio_tables(results: Mapping[str, RunResult]) -> list[str]:
    """Write Ft / Fn over the slice-push ratio against the fitted law."""
    shares = pooled_shares([result.first[BEST] for result in results.values()])
    lines = [
        "| stroke | ξ | runs | Ft/Fn | s.e. | law | strip model, left out | law (1,0,0) |",
        "|" + "---|" * 8,
    ]
    counts = []
    for title, forward in (("both", None), ("forward", True), ("backward", False)):
        bins = ratio_bins(results, forward)
        within = [0, 0]
        for each in bins:
            law = law_ratio(shares, each.xi)
            low = law if np.isfinite(each.xi) else min(law, each.measured)  # m / e is a lower bound there
            within[0] += abs(each.measured - low) <= 2.0 * each.error
            within[1] += abs(each.measured - each.model) <= 2.0 * each.error
            xi = "no penetration" if np.isinf(each.xi) else f"{each.xi:.2f}"
            bound = "≥ " if np.isinf(each.xi) else ""
            pure = "∞" if np.isinf(each.xi) else f"{each.xi:.2f}"
            lines.append(
                f"| {title} | {xi} | {each.runs} | {each.measured:.2f} | {each.error:.2f} | {bound}{law:.2f} | "
                f"{each.model:.2f} | {pure} |"
            )
        counts.append(
            f"{title}: law within 2 s.e. in {within[0]} of {len(bins)} bins, strip model in {within[1]} of {len(bins)}"
        )
    return [*lines, "", *counts]


def share_tables(results: Mapping[str, RunResult]) -> list[str]:
    """Write pooled shares, force relative to a vertical cut, and log-likelihoods."""
    items = list(results.values())
    lines = ["| food | runs | a | m | e |", "|---|---|---|---|---|"]
    for food in ("all", *sorted({each.run.food for each in items})):
        fits = [each.first[BEST] for each in items if food in ("all", each.run.food)]
        low, high = bootstrap(fits, pooled_shares)
        cells = [
            f"{m:.2f} [{a:.2f}, {b:.2f}]" for m, a, b in zip(pooled_shares(fits), low, high, strict=True)
        ]
        lines.append(f"| {food} | {len(fits)} | {' | '.join(cells)} |")
    fits = [each.first[BEST] for each in items]
    lines += ["", "| ξ | Fn / vertical, 5–95 % of the runs | \\|F\\| / vertical |", "|---|---|---|"]
    for xi in (1.0, 2.0, 3.0, 5.0):
        along, across = law_force(np.array([fit.shares for fit in fits]).T, np.full(len(fits), xi))
        cells = []
        for value in (across, np.hypot(along, across)):
            low, middle, high = np.quantile(value, [0.05, 0.5, 0.95])
            cells.append(f"{middle:.2f} [{low:.2f}, {high:.2f}]")
        lines.append(f"| {xi:g} | {cells[0]} | {cells[1]} |")
    lines += ["", "| law | Δ log-likelihood, left-out strokes | objective of the fits |", "|---|---|---|"]
    best = log_likelihoods(results, BEST)
    for law in LAWS:
        difference = log_likelihoods(results, law) - best
        low, high = bootstrap(list(difference), np.sum)
        objective = sum(each.first[law].objective for each in items)
        lines.append(f"| {law} | {difference.sum():.0f} [{low:.0f}, {high:.0f}] | {objective:.0f} |")
    return lines


def draw(results: Mapping[str, RunResult]) -> None:
    """Draw three runs with left-out strokes, and Ft / Fn over the slice-push ratio."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(13, 8), constrained_layout=True)
    for panel, name in zip(panels.flat, ("07", "13", "21"), strict=False):
        run, predicted = results[name].run, results[name].held_out[BEST]
        for k, (color, what) in enumerate((("tab:blue", "along the stroke"), ("tab:orange", "down"))):
            panel.plot(run.time_s, run.force_n[:, k], color=color, label=f"measured, {what}")
            for stroke in range(int(run.stroke.max()) + 1):
                of_stroke = run.stroke == stroke
                label = "predicted, stroke left out" if k == 0 and stroke == 0 else None
                panel.plot(run.time_s[of_stroke], predicted[of_stroke, k], "k--", lw=1.2, label=label)
        for turn in run.time_s[1:][np.diff(run.stroke) > 0]:
            panel.axvline(turn, color="0.85", lw=0.8, zorder=0)
        panel.set(title=f"run {name}, {run.food}", xlabel="time [s]", ylabel="force on the food [N]")
    panels[0, 0].legend(fontsize=8)
    panel, xi = panels[1, 1], np.geomspace(0.4, 12.0, 100)
    for title, forward, mark in (("forward", True, ">"), ("backward", False, "<")):
        bins = [each for each in ratio_bins(results, forward) if np.isfinite(each.xi)]
        where, values = [each.xi for each in bins], [each.measured for each in bins]
        panel.errorbar(
            where, values, [2.0 * each.error for each in bins], fmt=mark, label=f"measured ± 2 s.e., {title}"
        )
    panel.plot(xi, xi, label="laws a and a+m: Ft / Fn = ξ")
    shares = pooled_shares([each.first[BEST] for each in results.values()])
    panel.plot(xi, [law_ratio(shares, x) for x in xi], label=f"law {BEST}, pooled shares")
    panel.set(
        xscale="log", ylim=(0.0, 3.0), xlabel="slice–push ratio ξ", ylabel="Ft / Fn", title="sliding phases"
    )
    panel.legend(fontsize=8)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=80)


def main() -> None:
    """Print the tables; draw the picture where all runs are asked for."""
    names = [name for name in sys.argv[1:] if name != "--picture"]
    unknown = sorted(set(names) - set(RUNS))
    if unknown:
        raise SystemExit(
            f"{unknown[0]} is no run. Runs are {RUNS[0]} to {RUNS[-1]}. Give two digits, e.g. 01."
        )
    results = fit_all(names or RUNS)
    parts = [error_tables(results)]
    if len(results) > 2:
        parts += [ratio_tables(results), share_tables(results)]
    sys.stdout.write("\n\n".join("\n".join(lines) for lines in parts) + "\n")
    if not names or "--picture" in sys.argv:
        draw(results)


if __name__ == "__main__":
    main()
