"""What DVC and the flow need to know of the stage calibrate."""

from typing import Annotated, Literal

from pydantic import Field

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
from stages.shared.cut_description import SPRING_ROW, CutParams, cut_mesh

_ARTIFACTS = (
    table(
        "calibrate/parameters",
        [
            *SPRING_ROW,
            Column("gradient_norm", "f64", "-", "what is left of the loss's gradient in the spring's values"),
            Column(
                "touched_ns", "f64", "N·s", "impulse that the spring's edges got from the knife; 0: no data"
            ),
        ],
        meaning="fitted parameters in the rows of precut/springs; nominal ones if the scan has no log",
    ),
    table(
        "calibrate/bounds",
        [
            Column("name", "str", "", "spring parameter"),
            Column("surface", "bool", "", "true for the skin's springs, false for the others"),
            Column("low", "f64", "see calibrate/parameters", "lower bound"),
            Column("high", "f64", "see calibrate/parameters", "upper bound"),
        ],
        meaning="the ranges inside which the spring parameters are sought",
    ),
    table(
        "calibrate/scalars",
        [
            Column("name", "str", "", "parameter that all springs share; surface_ is the skin's"),
            Column("value", "f64", "see unit", "fitted; after the first phase if springs differ in it now"),
            Column("unit", "str", "", "of value, low, high and standard_error"),
            Column("low", "f64", "see unit", "lower bound"),
            Column("high", "f64", "see unit", "upper bound"),
            Column("at_bound", "bool", "", "true if the value ran into a bound"),
            Column("standard_error", "f64", "see unit", "from residual and sensitivity, linear estimate"),
            Column("identifiable", "bool", "", "true if two standard errors are below 10 % of the value"),
        ],
        meaning="parameters fitted for all springs at once, and the motion's height offset; no rows without a log",
    ),
    table(
        "calibrate/posterior",
        [
            Column("name", "str", "", "unknown of the material; toughness_by_depth_k varies the toughness"),
            Column("unit", "str", "", "of the values; layers are in standard deviations of what is usual"),
            Column("expected", "f64", "see unit", "before the log: median"),
            Column("expected_low", "f64", "see unit", "5 % of such cuts are below"),
            Column("expected_high", "f64", "see unit", "5 % are above"),
            Column("value", "f64", "see unit", "after the log: most probable"),
            Column("low", "f64", "see unit", "with 5 % probability it is below"),
            Column("high", "f64", "see unit", "with 5 % above"),
            Column("deviation", "f64", "-", "standard deviation after the log over that before it"),
            Column("cuts", "i64", "-", "calibrated cuts of the material in the library"),
            Column("learned", "str", "", "what the log added, in words"),
        ],
        meaning="the material before and after the log; no rows without a log or with fit: springs",
    ),
    table(
        "calibrate/left_over",
        [
            Column("draw", "i64", "-", "as in calibrate/draws; -1 for the fitted material"),
            Column("height_m", "f64", "m", "of the edge above the board, ascending"),
            Column(
                "factor",
                "f64",
                "-",
                "force read in the next cut over the simulated one there, smooth over height",
            ),
            Column("deviation", "f64", "-", "standard deviation of what is left, over the mean force"),
        ],
        meaning="what the fit of the material leaves of its logs and the next cut has again; no rows without a log",
    ),
    table(
        "calibrate/draws",
        [
            Column("draw", "i64", "-", "number of the possible material"),
            Column("name", "str", "", "parameter"),
            Column(
                "relative_depth",
                "f64",
                "-",
                "0 at the top, 1 at the bottom; a single row holds at every depth",
            ),
            Column("factor", "f64", "-", "its value there over the fitted one; between two rows linear"),
        ],
        meaning="possible materials, drawn from the posterior; no rows without one",
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
            Column("iteration", "i64", "-", "number of the point in its chain after burn-in, from 1"),
            Column("name", "str", "", "unknown, as in calibrate/posterior"),
            Column("value", "f64", "see unit", "sampled"),
            Column("unit", "str", "", "of value"),
            Column("standard", "f64", "-", "the same as a number that is standard normal before the log"),
        ],
        meaning="points of a sampled posterior; no rows with posterior: laplace",
    ),
    table(
        "calibrate/band",
        [
            Column("time_s", "f64", "s", "time in the clock of ingest/force, contact only"),
            Column("measured_n", "f64", "N", "as in calibrate/profile"),
            Column("low_n", "f64", "N", "with 5 % probability the force is below"),
            Column("high_n", "f64", "N", "with 5 % above"),
        ],
        meaning="what a sampled posterior expects of the cut it was fitted to; no rows with posterior: laplace",
    ),
    table(
        "calibrate/spring_posterior",
        [
            Column("spring", "i64", "-", "row of calibrate/parameters, from 0"),
            Column("name", "str", "", "parameter that differs from spring to spring"),
            Column("value", "f64", "see unit", "fitted"),
            Column("low", "f64", "see unit", "with 5 % probability it is below"),
            Column("high", "f64", "see unit", "with 5 % above"),
            Column("unit", "str", "", "of value, low and high"),
            Column(
                "left", "f64", "-", "share of the variance before the log that is left; 1: it says nothing"
            ),
        ],
        meaning="what the log says about each spring, linear estimate around the fit; no rows with fit: material",
    ),
    table(
        "calibrate/body",
        [
            Column("name", "str", "", "young_pa, poisson, density_kg_m3 or retardation_s"),
            Column("value", "f64", "see unit", "fitted, or as calibrate.start has it"),
            Column("unit", "str", "", "of value"),
        ],
        meaning="what the simulation of the first cut had in place of its material's values; often no rows",
    ),
    table(
        "calibrate/history",
        [
            Column("step", "i64", "-", "iteration, counted through all phases"),
            Column("phase", "str", "", "shared, shared 2, ... (other starts), individual"),
            Column("iteration", "i64", "-", "iteration of the phase"),
            Column("gradients", "i64", "-", "simulations with a gradient in the phase so far"),
            Column("simulations", "i64", "-", "all simulations in the phase so far"),
            Column("loss", "f64", "-", "at the point reached"),
            Column("best_loss", "f64", "-", "at the best point of the phase so far"),
            Column("nmae", "f64", "-", "of the best point, over the training samples in contact"),
            Column("gradient_norm", "f64", "-", "of the loss in the free numbers"),
            Column("failed", "bool", "", "true if a simulation of the iteration did not finish"),
        ],
        meaning="the fit, iteration by iteration",
    ),
    table(
        "calibrate/profile",
        [
            Column("time_s", "f64", "s", "time in the clock of ingest/force"),
            Column("height_m", "f64", "m", "knife's edge above the board, aligned with the scan"),
            Column("measured_n", "f64", "N", "norm of the low-passed measured force"),
            Column("simulated_n", "f64", "N", "norm of the low-passed simulated force, fitted parameters"),
            Column("shared_n", "f64", "N", "the same after the first phase"),
            Column("residual_n", "f64", "N", "simulated_n less measured_n"),
            Column("contact", "bool", "", "true where errors are reported: valid, from contact onset on"),
            Column("held_out", "bool", "", "true where the fit did not look"),
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
        meaning="the fit's history for `dvc plots`",
    ),
    metrics(
        "calibrate", "outcome with its remedy, errors of the fit, what was fitted, springs that were touched"
    ),
    picture(
        "calibrate", "measured and simulated force, residual, history, and the parameters on the cut surface"
    ),
)


class CalibrateParams(StageParams):
    """calibrate: parameters of the simulator from a recorded cut."""

    cut: CutParams
    fit: Literal["springs", "material"]
    """springs: shared values, then one per spring; material: a few numbers with a prior (the edge law's)."""
    material: tuple[str, ...]
    """Sizes that the fit of the material seeks."""
    layers: Annotated[int, Field(ge=0, le=12)]
    """Modes over depth that its toughness has."""
    forecast_from: Annotated[float, Field(ge=0, le=0.9)]
    """Share of the contact from which the rest is forecast, to validate the fit of the material; 0: not at all."""
    force_uncertainty_n: Positive
    """Of the log's force, beside what the model itself gets wrong."""
    draws: Annotated[int, Field(ge=1, le=1000)]
    """Possible materials that are drawn from the posterior."""
    posterior: Annotated[str, one_of(POSTERIORS)]
    """A key of stages.calibrate.methods.POSTERIORS: how the materials that the log leaves possible are found."""
    prior: Literal["library", "uniform"]
    """library: what earlier cuts lead to expect; uniform: the bounds alone, the paper's."""
    likelihood: Literal["log", "exp_l1"]
    """log: the log's uncertainty and the model's error; exp_l1: the paper's exp(-L1) over 90 numbers."""
    summary: Literal["slices", "profile", "statistics"]
    """What bayessim and npe see: the likelihood's slices, 90 numbers over time, or 15 statistics of these."""
    chains: Annotated[int, Field(ge=1, le=64)]
    samples: Annotated[int, Field(ge=4, le=100_000)]
    """Of every chain after its burn-in."""
    burn_in: Annotated[int, Field(ge=0, le=100_000)]
    sgld_step: Annotated[float, Field(gt=0, le=2)]
    """First step of sgld, in squared Laplace standard deviations; they shrink."""
    gradients: Annotated[int, Field(ge=1)]
    """A chain ends when it has used so many."""
    simulations: Annotated[int, Field(ge=4, le=1_000_000)]
    """Of the grid, and of the first round of bayessim and npe; later rounds have a fifth as many."""
    rounds: Annotated[int, Field(ge=1, le=100)]
    """Of bayessim and npe; more than one: from the posterior of the round before."""
    rate_hz: Annotated[float, Field(ge=50, le=10_000)]
    """Sampling of the compared profiles."""
    low_pass_hz: Positive
    """Cutoff of the zero-phase low-pass that both profiles go through."""
    align: Literal["contact", "recorded"]
    """contact: the knife meets the scan's top at contact onset; recorded: the log's heights are the scan's."""
    offset_range_m: Annotated[float, Field(gt=0, le=0.02)]
    """How far the fit may move the recorded heights."""
    start: dict[str, float]
    """Spring, contact and material parameters at the start; those that are not fitted stay there."""
    bounds: dict[str, tuple[float, float]]
    """Name → [low, high], in place of the simulator's own."""
    shared: tuple[str, ...]
    individual: tuple[str, ...]
    shared_optimiser: Annotated[str, one_of(methods_of("shared"))]
    """A key of stages.calibrate.methods.METHODS."""
    individual_optimiser: Annotated[str, one_of(methods_of("individual"))]
    shared_loss: Annotated[str, one_of(LOSSES)]
    """A key of stages.calibrate.methods.LOSSES."""
    loss: Annotated[str, one_of(LOSSES)]
    """Of the individual phase."""
    shared_iterations: Annotated[int, Field(ge=1, le=10_000)]
    individual_iterations: Annotated[int, Field(ge=0, le=10_000)]
    learning_rate: Annotated[float, Field(gt=0, le=10)]
    smoothness: Annotated[float, Field(ge=0)]
    neighbours: Annotated[int, Field(ge=1, le=50)]
    tolerance: Annotated[float, Field(gt=0, lt=1)]
    patience: Annotated[int, Field(ge=1, le=1000)]
    enough_n: Annotated[float, Field(ge=0, le=100)]
    """Mean error at which the fit of springs ends; 0 never. The fit of the material ends by its own probability."""
    puncture_weight: Annotated[int, Field(ge=1, le=100)]
    """How many times samples within 50 ms of the measured puncture count in the loss."""
    hold_out_fraction: Annotated[float, Field(ge=0, le=0.5)]
    hold_out_block_s: Positive
    starts: Annotated[int, Field(ge=1, le=100)]
    start_spread: Annotated[float, Field(ge=0, le=5)]
    processes: Annotated[int, Field(ge=1, le=256)]
    seed: int


STAGE = Stage(
    name="calibrate",
    does="force log → parameters of every spring that reproduce it; without a log the nominal ones",
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
