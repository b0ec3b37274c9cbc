"""Section `optimize` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.optimize.optimisers import OPTIMISERS
from stages.runtime.named import one_of
from stages.runtime.params_base import Positive, StageParams
from stages.shared.cut.params import CutParams
from stages.shared.robots.params import ArmParams, fill_edge_limits


class ConstraintWeight(StageParams):
    """How hard MDMM pulls on one constraint."""

    scale: Positive
    damping: Positive


class OptimizeParams(StageParams):
    """optimize: the slicing motion, its limits and how it is searched for."""

    cut: CutParams
    arm: ArmParams
    mean_over: Literal["time", "depth"]
    """Whether every moment, or every millimetre of the way down, counts the same in the mean force."""
    blade_overlap_m: Annotated[float, Field(ge=0, le=0.1)]
    """How far the blade reaches beyond the fruit at both ends, at all times."""
    max_speed_m_s: Annotated[float, Field(gt=0, le=2)]
    """This and the accelerations: null in params.yaml takes those of arm.robot."""
    max_acceleration_along_m_s2: Annotated[float, Field(gt=0, le=20)]
    max_acceleration_vertical_m_s2: Annotated[float, Field(gt=0, le=20)]
    keyframe_spacing_s: Annotated[float, Field(ge=0.02, le=10)]
    sigma2_s2: Annotated[float, Field(gt=0, le=10)]
    window_s: Annotated[float, Field(ge=0.12, le=1)]
    """Rise and fall of the motion at its ends; below 120 ms a controller refuses it. Null: as arm.robot needs it."""
    final_strokes: Annotated[int, Field(ge=0, le=10)]
    """Strokes along the board after the cut, at most: as many as part the fruit. 0 ends with the cut."""
    final_stroke_s: Annotated[float, Field(ge=0.1, le=5)]
    final_height_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the edge above the board to which they sink; a cut that ends lower stays there."""
    starts: Annotated[int, Field(ge=1, le=20)]
    """The first begins beside the vertical cut, the others are drawn."""
    candidates: Annotated[int, Field(ge=1, le=1000)]
    """Motions that are drawn and simulated once; the starts but the first are the best of them."""
    start_amplitude_m_s: Positive
    """Of the first start; at 0 the descent can't leave the vertical cut, by symmetry."""
    start_amplitude_range_m_s: tuple[Positive, Positive]
    start_frequency_range_rad_s: tuple[Positive, Positive]
    iterations: Annotated[int, Field(ge=1, le=10_000)]
    """Simulations per start."""
    ablation_iterations: Annotated[int, Field(ge=1, le=10_000)]
    """Of the search without constraints, which is only reported."""
    start_radius: Annotated[float, Field(gt=0, le=10)]
    """First length of a step, in the optimiser's units (0.1 m/s, 10 rad/s, a fifth of the descent)."""
    least_radius: Annotated[float, Field(gt=0, le=10)]
    """A start ends as converged when its steps have become shorter than this."""
    least_gain: Annotated[float, Field(ge=0, le=0.1)]
    """A start also ends when the model of the force promises less than this share of the mean force of its next step.

    Less is below the simulation's own error: steps of 3 ms put the force of a sawing cut 0.6 % off (docs/simulator.md).
    0 ends a start only when no step promises anything.
    """
    optimiser: Annotated[str, one_of(OPTIMISERS)]
    """Of MDMM: a key of stages.optimize.optimisers.OPTIMISERS."""
    inner_iterations: Annotated[int, Field(ge=10, le=100_000)]
    """Steps of MDMM between two simulations."""
    multiplier_rate: Annotated[float, Field(ge=0, le=100)]
    constraints: dict[str, ConstraintWeight]
    speed_weight_s2_m2: Annotated[float, Field(ge=0, le=100)]
    """Weight of the mean squared speed beside the mean force over that of the vertical cut."""
    draws: Annotated[int, Field(ge=1, le=100)]
    """Sets of parameters the mean force is averaged over: 1 is the fitted one alone."""
    draw_spread: Annotated[float, Field(ge=0, le=1)]
    processes: Annotated[int, Field(ge=0, le=256)]
    """For starts, candidates and checks; 0 takes every core the stage is given. The result does not depend on it."""
    seed: int

    _limits_of_the_arm = model_validator(mode="before")(fill_edge_limits)
