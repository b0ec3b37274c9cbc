"""Description of the stage calibrate: parameters, artifacts, inputs."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.calibrate.methods import LOSSES, POSTERIORS, methods_of
from stages.runtime.describe import (
    Column,
    Positive,
    Stage,
    StageParams,
    metrics,
    one_of,
    picture,
    plot,
    table,
)
from stages.shared.cut_description import SPRING_ROW, CutParams, cut_mesh, nominal_unless_given
from stages.shared.input_files import ReadingParams

_ARTIFACTS = (
    table(
        "calibrate/parameters",
        [
            *SPRING_ROW,
            Column(
                "gradient_norm", "f64", "-", "norm of the loss's gradient with respect to the spring's values"
            ),
            Column("touched_ns", "f64", "N·s", "impulse of the knife on the spring; 0: no data"),
        ],
        meaning="fitted parameters, rows as in precut/springs; nominal values without a log",
    ),
    table(
        "calibrate/bounds",
        [
            Column("name", "str", "", "spring parameter"),
            Column("surface", "bool", "", "true for springs of the skin"),
            Column("low", "f64", "see calibrate/parameters", "lower bound"),
            Column("high", "f64", "see calibrate/parameters", "upper bound"),
        ],
        meaning="bounds of the spring parameters",
    ),
    table(
        "calibrate/scalars",
        [
            Column("name", "str", "", "parameter shared by all springs; prefix surface_ for the skin"),
            Column(
                "value",
                "f64",
                "see unit",
                "fitted value; after the first phase if it is then fitted per spring",
            ),
            Column("unit", "str", "", "unit of value, low, high and standard_error"),
            Column("low", "f64", "see unit", "lower bound"),
            Column("high", "f64", "see unit", "upper bound"),
            Column("at_bound", "bool", "", "true if the value is at a bound"),
            Column("standard_error", "f64", "see unit", "standard error, linearised"),
            Column("identifiable", "bool", "", "true if 2 standard errors are below 10 % of the value"),
        ],
        meaning="parameters shared by all springs, and the height offset of the log; empty without a log",
    ),
    table(
        "calibrate/posterior",
        [
            Column("name", "str", "", "parameter"),
            Column("unit", "str", "", "unit of the values"),
            Column("expected", "f64", "see unit", "prior median"),
            Column("expected_low", "f64", "see unit", "prior 5 % quantile"),
            Column("expected_high", "f64", "see unit", "prior 95 % quantile"),
            Column("value", "f64", "see unit", "posterior mode"),
            Column("low", "f64", "see unit", "posterior 5 % quantile"),
            Column("high", "f64", "see unit", "posterior 95 % quantile"),
            Column("deviation", "f64", "-", "posterior / prior standard deviation"),
            Column("cuts", "i64", "-", "number of cuts of the material in the library"),
            Column("learned", "str", "", "information gained from the log"),
        ],
        meaning="prior and posterior of the material; empty without a log or with fit: springs",
    ),
    table(
        "calibrate/left_over",
        [
            Column("draw", "i64", "-", "as in calibrate/draws; -1 for the fitted material"),
            Column("height_m", "f64", "m", "height of the edge above the board, ascending"),
            Column(
                "factor",
                "f64",
                "-",
                "predicted measured / simulated force of the next cut at this height",
            ),
            Column("deviation", "f64", "-", "standard deviation of the model discrepancy / mean force"),
        ],
        meaning="model discrepancy carried over to the next cut; empty without a log",
    ),
    table(
        "calibrate/draws",
        [
            Column("draw", "i64", "-", "number of the draw"),
            Column("name", "str", "", "parameter"),
            Column("factor", "f64", "-", "value / fitted value"),
        ],
        meaning="materials drawn from the posterior; empty without a posterior",
    ),
    table(
        "calibrate/shares",
        [
            Column("edge_press", "f64", "-", "press share of the edge toughness"),
            Column("edge_drag", "f64", "-", "drag share of the edge toughness"),
        ],
        meaning="possible shares of the edge toughness, many draws of the posterior; no rows where they are not sought",
    ),
    table(
        "calibrate/samples",
        [
            Column("chain", "i64", "-", "number of the chain, from 1"),
            Column("iteration", "i64", "-", "number of the sample in its chain after burn-in, from 1"),
            Column("name", "str", "", "parameter, as in calibrate/posterior"),
            Column("value", "f64", "see unit", "sampled value"),
            Column("unit", "str", "", "of value"),
            Column("standard", "f64", "-", "the value transformed to a standard normal prior"),
        ],
        meaning="samples of the posterior; empty with posterior: laplace",
    ),
    table(
        "calibrate/band",
        [
            Column("time_s", "f64", "s", "time in the clock of ingest/force, contact only"),
            Column("measured_n", "f64", "N", "as in calibrate/profile"),
            Column("low_n", "f64", "N", "5 % quantile of the force"),
            Column("high_n", "f64", "N", "95 % quantile of the force"),
        ],
        meaning="90 % band of the fitted cut from the sampled posterior; empty with posterior: laplace",
    ),
    table(
        "calibrate/spring_posterior",
        [
            Column("spring", "i64", "-", "row of calibrate/parameters, from 0"),
            Column("name", "str", "", "parameter fitted per spring"),
            Column("value", "f64", "see unit", "fitted value"),
            Column("low", "f64", "see unit", "5 % quantile"),
            Column("high", "f64", "see unit", "95 % quantile"),
            Column("unit", "str", "", "of value, low and high"),
            Column("left", "f64", "-", "posterior / prior variance; 1: the log has no information"),
        ],
        meaning="posterior of each spring, linearised around the fit; empty with fit: material",
    ),
    table(
        "calibrate/body",
        [
            Column("name", "str", "", "young_pa, poisson, density_kg_m3 or retardation_s"),
            Column("value", "f64", "see unit", "fitted, or from calibrate.start"),
            Column("unit", "str", "", "of value"),
        ],
        meaning="body parameters that override those of the material; often empty",
    ),
    table(
        "calibrate/history",
        [
            Column("step", "i64", "-", "iteration over all phases"),
            Column("phase", "str", "", "shared, shared 2, ... (further starts), individual"),
            Column("iteration", "i64", "-", "iteration in the phase"),
            Column("gradients", "i64", "-", "simulations with a gradient in the phase so far"),
            Column("simulations", "i64", "-", "all simulations in the phase so far"),
            Column("loss", "f64", "-", "loss of this iteration"),
            Column("best_loss", "f64", "-", "best loss of the phase so far"),
            Column("nmae", "f64", "-", "NMAE of the best iteration on the training samples in contact"),
            Column("gradient_norm", "f64", "-", "norm of the gradient in the unconstrained parameters"),
            Column("failed", "bool", "", "true if a simulation did not finish"),
        ],
        meaning="history of the fit by iteration",
    ),
    table(
        "calibrate/profile",
        [
            Column("time_s", "f64", "s", "time in the clock of ingest/force"),
            Column("height_m", "f64", "m", "height of the edge above the board, aligned with the scan"),
            Column("measured_n", "f64", "N", "norm of the low-pass filtered measured force"),
            Column(
                "simulated_n",
                "f64",
                "N",
                "norm of the low-pass filtered simulated force with fitted parameters",
            ),
            Column(
                "reference_n",
                "f64",
                "N",
                "simulated force before the fit: with the prior (material) or after the shared phase (springs)",
            ),
            Column("residual_n", "f64", "N", "simulated_n minus measured_n"),
            Column("contact", "bool", "", "true for samples used for errors: valid and after contact onset"),
            Column("held_out", "bool", "", "true for samples held out from the fit"),
        ],
        meaning="measured and simulated force on the knife",
    ),
    plot(
        "calibrate/profile_plot",
        [
            Column("time_s", "f64", "s", "time"),
            Column("measured_n", "f64", "N", "as in calibrate/profile"),
            Column("simulated_n", "f64", "N", "as in calibrate/profile"),
        ],
        axes=("time_s", "measured_n", "simulated_n"),
        meaning="measured and simulated force for `dvc plots`",
    ),
    plot(
        "calibrate/history_plot",
        [
            Column("step", "i64", "-", "iteration"),
            Column("best_loss", "f64", "-", "as in calibrate/history"),
            Column("nmae", "f64", "-", "as in calibrate/history"),
        ],
        axes=("step", "nmae"),
        meaning="history of the fit for `dvc plots`",
    ),
    metrics("calibrate", "kind of the fit, outcome and remedy, errors, fitted parameters, touched springs"),
    picture("calibrate", "measured and simulated force, residual, history, parameters on the cut surface"),
)


class CalibrateParams(StageParams):
    """calibrate: parameters of the simulator from a recorded cut."""

    cut: CutParams
    reading: ReadingParams
    fit: Literal["springs", "material"]
    """springs: shared values, then one per spring; material: a few numbers with a prior (the edge law's)."""
    material: tuple[str, ...]
    """Unknowns of the fit of the material."""
    forecast_from: Annotated[float, Field(ge=0, le=0.9)]
    """Share of the contact from which the rest is forecast, to validate the fit of the material; 0: not at all."""
    force_uncertainty_n: Positive
    """Uncertainty of the log's force, in addition to the model discrepancy."""
    draws: Annotated[int, Field(ge=1, le=1000)]
    """Number of materials drawn from the posterior."""
    posterior: Annotated[str, one_of(POSTERIORS)]
    """Posterior method: a key of stages.calibrate.methods.POSTERIORS."""
    prior: Literal["library", "uniform"]
    """library: prior from earlier cuts; uniform: within the bounds, as in the paper."""
    likelihood: Literal["log", "exp_l1"] = "log"
    """log: the log's uncertainty and the model's error; exp_l1: the paper's exp(-L1) over 90 numbers."""
    summary: Literal["slices", "profile", "statistics"] = "slices"
    """Summary of a log for bayessim and npe: the likelihood's slices, 90 values over time, or 15 statistics of them."""
    chains: Annotated[int, Field(ge=1, le=64)] = 4
    samples: Annotated[int, Field(ge=4, le=100_000)] = 200
    """Samples of every chain after its burn-in."""
    burn_in: Annotated[int, Field(ge=0, le=100_000)] = 100
    sgld_step: Annotated[float, Field(gt=0, le=2)] = 0.2
    """First step of sgld, in squared Laplace standard deviations; they shrink."""
    gradients: Annotated[int, Field(ge=1)] = 4000
    """Maximum number of gradients per chain."""
    simulations: Annotated[int, Field(ge=4, le=1_000_000)] = 500
    """Simulations of the grid, and of the first round of bayessim and npe; later rounds have a fifth as many."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 1
    """Rounds of bayessim and npe; each further round draws from the posterior of the previous one."""
    rate_hz: Annotated[float, Field(ge=50, le=10_000)] = 500.0
    """Sampling rate of the compared profiles."""
    align: Literal["contact", "recorded"]
    """contact: the knife meets the scan's top at contact onset; recorded: the log's heights are the scan's."""
    offset_range_m: Annotated[float, Field(gt=0, le=0.02)]
    """Maximum shift of the recorded heights by the fit."""
    start: dict[str, float] = Field(default_factory=dict)
    """Simulator parameters at the start; those not given are `cut.nominal_parameters`, those not fitted stay."""
    bounds: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Name → [low, high], in place of the simulator's own."""
    shared: tuple[str, ...] = (
        "cut_spring_ke",
        "cut_spring_softness",
        "sdf_ke",
        "sdf_mu",
        "sdf_radius",
        "sdf_tip",
        "surface_cut_spring_ke",
        "surface_cut_spring_softness",
        "surface_sdf_ke",
        "surface_sdf_mu",
        "surface_sdf_radius",
        "surface_sdf_tip",
    )
    individual: tuple[str, ...] = (
        "cut_spring_ke",
        "cut_spring_softness",
        "sdf_ke",
        "sdf_mu",
        "sdf_radius",
        "sdf_tip",
    )
    shared_optimiser: Annotated[str, one_of(methods_of("shared"))] = "lbfgs"
    """A key of stages.calibrate.methods.METHODS."""
    individual_optimiser: Annotated[str, one_of(methods_of("individual"))] = "lbfgs"
    shared_loss: Annotated[str, one_of(LOSSES)] = "pseudo_huber"
    """A key of stages.calibrate.methods.LOSSES."""
    loss: Annotated[str, one_of(LOSSES)] = "pseudo_huber"
    """Loss of the individual phase."""
    shared_iterations: Annotated[int, Field(ge=1, le=10_000)] = 12
    individual_iterations: Annotated[int, Field(ge=0, le=10_000)] = 28
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.1
    smoothness: Annotated[float, Field(ge=0)] = 0.01
    neighbours: Annotated[int, Field(ge=1, le=50)] = 6
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.005
    patience: Annotated[int, Field(ge=1, le=1000)] = 5
    enough_n: Annotated[float, Field(ge=0, le=100)] | None = None
    """Mean error [N] at which the fit of springs ends; 0 never, null at `reading.repeatability_n`."""
    puncture_weight: Annotated[int, Field(ge=1, le=100)] = 4
    """Weight in the loss of samples within 50 ms of the measured puncture."""
    hold_out_fraction: Annotated[float, Field(ge=0, le=0.5)] = 0.2
    hold_out_block_s: Positive = 0.03
    starts: Annotated[int, Field(ge=1, le=100)] = 1
    start_spread: Annotated[float, Field(ge=0, le=5)] = 1.0
    processes: Annotated[int, Field(ge=1, le=256)] = 2
    seed: int = 0

    _nominal = model_validator(mode="before")(nominal_unless_given("start"))


STAGE = Stage(
    name="calibrate",
    does="force log → fitted simulator parameters of every spring; nominal values without a log",
    params=CalibrateParams,
    artifacts=_ARTIFACTS,
    reads=(
        *cut_mesh("precut"),
        "ingest/force",
        "ingest/further",
    ),
    key_figure="nmae",
    timeout_s=14400,
    uses_material=True,
    uses_library=True,
)
