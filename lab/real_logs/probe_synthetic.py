"""Tries the first cut that `scan2cut probe` designs on synthetic truths, beside a vertical cut.

    python -m lab.real_logs.probe_synthetic SCAN [TRUTHS]     SCAN: run up to precut; 6 truths without a number

Materials are drawn from what is expected of the scan's material. Each gives a synthetic log of both motions, with the
model error and noise that the fit expects. Each log is fitted alone, and the saving of slicing computed with the fit is
compared with that of the truth. Results go to build/probe_synthetic.json after every truth; a second call goes on.
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from disect_sim.many import force_of, simulate_many
from pipelines.project import find_project
from pipelines.scans.cuts import Design, design
from stages.calibrate.material.fit import fit_material
from stages.calibrate.material.likelihood import MODEL_ERROR, NOISE_N
from stages.calibrate.prediction import recorded
from stages.calibrate.problem import RecordedCut, pose_problem
from stages.optimize.first_cuts import FirstCut
from stages.optimize.search import Measured
from stages.optimize.slicing_cut import SlicingCut

RESULTS = Path("build/probe_synthetic.json")
CANDIDATES = 6
KNOTS_M = 1e-3

Array = NDArray[np.float64]


def model_error(depth: Array, generator: np.random.Generator) -> Array:
    """A drawn model error over depth [m] / mean force, as the fit expects it, shape [sample_count]."""
    knots = np.arange(depth.min(), depth.max() + KNOTS_M, KNOTS_M)
    factor = np.linalg.cholesky(MODEL_ERROR.covariance(knots, knots) + 1e-9 * np.eye(len(knots)))
    return np.interp(depth, knots, factor @ generator.standard_normal(len(knots)))


def synthetic_log(first: FirstCut, cut: SlicingCut, amplitude: float, seed: int) -> RecordedCut:
    """What an arm would record: the truth's force with model error and noise."""
    generator = np.random.default_rng(seed)
    clean = recorded(FirstCut(first.name, measured(first, cut)).table())
    norm = np.linalg.norm(clean.force, axis=1)
    mean = float(norm[norm > 1.0].mean())
    depth = clean.position[:, 1].max() - clean.position[:, 1]
    force = amplitude * clean.force.copy()
    touching = clip_rise(norm)
    for axis in (1, 2):
        wrong = amplitude * mean * model_error(depth, generator)
        force[:, axis] += touching * wrong + NOISE_N * generator.standard_normal(len(depth))
    return RecordedCut(clean.time, clean.position, clean.velocity, force, clean.valid, clean.onset_s)


def clip_rise(norm: Array) -> Array:
    """0 in air, 1 in the fruit."""
    return np.clip(norm / max(1.0, 0.1 * float(norm.max())), 0.0, 1.0)


def measured(first: FirstCut, cut: SlicingCut) -> Measured:
    """The same motion with another material, simulated."""
    (answer,) = simulate_many(cut.cuts(first.motion.variables), of=force_of, processes=1)
    if answer.value is None:
        raise SystemExit(f"{first.name} with a drawn material: {answer.outcome}")
    return Measured(cut, first.motion.variables, answer.value)


def main() -> None:
    """Design, then one truth after the other."""
    scan, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6
    found = design(find_project(), scan, CANDIDATES, lambda share, what: None)
    unknowns, model, least = found.unknowns, found.model, found.least
    params = found.params.calibrate.changed(forecast_from=0.0, draws=1)

    def cut_of(t: Array) -> SlicingCut:
        return SlicingCut(model, (unknowns.material(t),), least.motion.cut.passage, found.params.optimize)

    def saving(t: Array) -> float:
        cut = cut_of(t)
        straight, sliced = (cut.mean_force(each.motion.variables) for each in (found.cuts[0], least))
        return 1.0 - sliced / straight

    done: list[dict[str, float]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    for seed in range(len(done), count):
        truth = np.random.default_rng(seed).standard_normal(len(unknowns))
        row = {"truth": saving(truth), "before": saving(0.0 * truth)}
        for name, first in (("vertical", found.cuts[0]), ("probe", found.ranked[0])):
            log = synthetic_log(first, cut_of(truth), unknowns.amplitude(truth), seed)
            problem = pose_problem(model, log, params)
            fit = fit_material([problem], unknowns, params, scan_dir=None, key="", report=None)
            row[name] = saving(fit.found.t)
        done.append(row)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(done, indent=2) + "\n")
        sys.stderr.write(f"truth {seed}: {row}\n")
    sys.stdout.write(table(done, found))


def table(done: list[dict[str, float]], found: Design) -> str:
    """Expected and found error of the saving."""
    chosen = found.ranked[0].name
    known = {
        "before": found.before,
        "vertical": found.bands[found.cuts[0].name],
        "probe": found.bands[chosen],
    }
    lines = [f"chosen: {chosen}", "| log | expected ± (90 %) | found, root mean square |", "|---|---|---|"]
    for name, band in known.items():
        error = np.array([row[name] - row["truth"] for row in done])
        rms = 100.0 * float(np.sqrt((error**2).mean()))
        lines.append(f"| {name} | {100.0 * band:.1f} points | {rms:.1f} points |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
