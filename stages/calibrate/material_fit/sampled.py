"""The material's posterior by sampling, and the forces that it expects of the cut it was fitted to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from disect_sim.many import force_of, simulate_many
from stages.calibrate.material_fit.likelihood import MODEL_ERROR, NOISE_N
from stages.calibrate.material_fit.target import material_target
from stages.calibrate.material_fit.unknowns import MaterialUnknowns
from stages.calibrate.params import CalibrateParams
from stages.calibrate.problem import Problem
from stages.calibrate.samplers.diagnostics import Diagnostics, diagnose
from stages.calibrate.samplers.sampling import Samples, Sampling, check_installed, sample
from stages.calibrate.samplers.table import POSTERIORS
from stages.shared.library.library import NINETY

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sampled:
    """Points of the posterior and what they expect."""

    method: str
    samples: Samples
    diagnostics: Diagnostics
    low: Array
    """90 % band of the first cut's force: draws, the model's error and the log's [N], shape [sample_count]."""
    high: Array


def check_posterior(params: CalibrateParams) -> None:
    """Refuse methods, priors and likelihoods that do not go together, before anything is simulated."""
    if params.posterior == "laplace":
        if params.likelihood != "log":
            raise InputError(
                f"calibrate.likelihood is {params.likelihood}, which has kinks. Laplace's approximation needs a smooth "
                "one. Set calibrate.posterior to grid, sgld or nuts, or calibrate.likelihood to log."
            )
    elif params.fit != "material":
        raise InputError(
            f"calibrate.posterior is {params.posterior}, but calibrate.fit is {params.fit}. Only a handful of unknowns "
            "can be sampled. Set calibrate.fit to material (for the paper's parameters: with calibrate.prior=uniform)."
        )
    elif params.likelihood != "log" and not POSTERIORS[params.posterior].uses_likelihood:
        raise InputError(
            f"calibrate.likelihood is {params.likelihood}, but calibrate.posterior is {params.posterior}, which learns "
            "from simulations with noise. Set calibrate.likelihood to log, or take grid, sgld or nuts."
        )
    check_installed(params.posterior)


def sample_material(
    problems: Sequence[Problem],
    unknowns: MaterialUnknowns,
    centre: Array,
    covariance: Array,
    params: CalibrateParams,
    *,
    scan_dir: Path | None,
    key: str,
    report: Callable[[float, str], None],
) -> Sampled:
    """Sample around the most probable material by the method in params."""
    target = material_target(
        problems,
        unknowns,
        uncertainty_n=params.force_uncertainty_n,
        likelihood=params.likelihood,
        summary=params.summary,
    )
    found = sample(
        params.posterior,
        Sampling(
            target,
            centre,
            covariance,
            chains=params.chains,
            samples=params.samples,
            burn_in=params.burn_in,
            step=params.sgld_step,
            gradients=params.gradients,
            simulations=params.simulations,
            rounds=params.rounds,
            seed=params.seed,
            processes=params.processes,
            scan_dir=scan_dir,
            key=key,
            report=report,
        ),
    )
    low, high = expected_band(problems[0], unknowns, found.flat, params)
    return Sampled(params.posterior, found, diagnose(found), low, high)


def expected_band(
    problem: Problem, unknowns: MaterialUnknowns, points: Array, params: CalibrateParams
) -> tuple[Array, Array]:
    """Ends of the 90 % band of the first cut's force [N]: spread of some points, the model's and the log's error."""
    chosen = np.random.default_rng([params.seed, 5]).choice(
        len(points), min(params.draws, len(points)), False
    )
    runs = [problem.cut(unknowns.values(t)) for t in points[chosen]]
    answers = simulate_many(runs, of=force_of, processes=params.processes)
    curves = np.array(
        [
            unknowns.amplitude(t) * problem.profile(answer)
            for t, answer in zip(points[chosen], answers, strict=True)
            if answer.value is not None
        ]
    )
    if not len(curves):
        raise InputError(
            f"calibrate: none of {len(runs)} simulations with sampled materials finished. The band of the force needs "
            "some. Lower cut.dt_s, or narrow calibrate.bounds."
        )
    middle = curves.mean(axis=0)
    model = MODEL_ERROR * float(middle[problem.contact].mean())
    half = NINETY * np.sqrt(curves.var(axis=0) + model**2 + max(params.force_uncertainty_n, NOISE_N) ** 2)
    return np.maximum(0.0, middle - half), middle + half
