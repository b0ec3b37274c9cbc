"""Section `calibrate` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from stages.calibrate.losses import LOSSES
from stages.calibrate.methods.table import methods_of
from stages.calibrate.samplers.table import POSTERIORS
from stages.runtime.named import one_of
from stages.runtime.params_base import Positive, StageParams
from stages.shared.cut.params import CutParams


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
    """A key of stages.calibrate.samplers.table.POSTERIORS: how the materials that the log leaves possible are found."""
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
    """A key of stages.calibrate.methods.table.METHODS."""
    individual_optimiser: Annotated[str, one_of(methods_of("individual"))]
    shared_loss: Annotated[str, one_of(LOSSES)]
    """A key of stages.calibrate.losses.LOSSES."""
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
