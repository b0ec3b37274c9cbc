"""Description of the stage optimize: parameters, artifacts, inputs."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

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
from stages.shared.cut_description import CutParams, cut_mesh
from stages.shared.robots.robot import ArmParams, fill_edge_limits

OPTIMISERS = {
    "adamax": "stages.optimize.descent:Adamax",
    "adam": "stages.optimize.descent:Adam",
}
"""By the name used in params.yaml: a class with `step(gradient, rate)`, which returns what to add to the variables."""


_ARTIFACTS = (
    table(
        "optimize/motion",
        [
            Column("time_s", "f64", "s", "time from the start of the cut, one row per millisecond"),
            Column("position_m", "array[f64,3]", "m", "centre of the edge in the cutting frame"),
            Column("velocity_m_s", "array[f64,3]", "m/s", "velocity, zero in the first and last row"),
            Column(
                "acceleration_m_s2",
                "array[f64,3]",
                "m/s²",
                "acceleration, zero in the first and last row",
            ),
            Column("force_n", "array[f64,3]", "N", "predicted force on the knife"),
            Column("pitch_rad", "f64", "rad", "angle of the holder about x, of a knife that turns", True),
            Column("torque_nm", "array[f64,3]", "N m", "predicted torque about the centre of the edge", True),
        ],
        meaning="optimised cut with the final draw along the board, from rest to rest",
    ),
    table(
        "optimize/profile",
        [
            Column("time_s", "f64", "s", "time from the start of the cut"),
            Column("vertical_n", "f64", "N", "norm of the force of the vertical cut"),
            Column("optimized_n", "f64", "N", "norm of the force of the optimised cut"),
            Column("vertical_force_n", "array[f64,3]", "N", "force of the vertical cut on the knife"),
            Column("optimized_force_n", "array[f64,3]", "N", "force of the optimised cut on the knife"),
            Column("vertical_position_m", "array[f64,3]", "m", "centre of the edge, vertical cut"),
            Column("optimized_position_m", "array[f64,3]", "m", "centre of the edge, optimised cut"),
        ],
        meaning="whole optimised motion and vertical cut of the same total duration and end height",
    ),
    table(
        "optimize/keyframes",
        [
            Column("time_s", "f64", "s", "time of the keyframe"),
            Column("amplitude_m_s", "f64", "m/s", "sawing speed before blending with neighbours"),
            Column("frequency_rad_s", "f64", "rad/s", "sawing frequency before blending"),
            Column("velocity_y_m_s", "f64", "m/s", "vertical velocity before blending"),
            Column("pitch_rate_rad_s", "f64", "rad/s", "pitch rate before blending, if it rocks", True),
        ],
        meaning="parameters of the optimised motion (SlicingMotion of disect_sim)",
    ),
    table(
        "optimize/history",
        [
            Column("start", "str", "", "vertical, drawn 1, ..., or unconstrained (ablation)"),
            Column("iteration", "i64", "-", "number of the simulation in this start, from 1"),
            Column("objective", "f64", "-", "mean force over the vertical cut's, plus the speed term"),
            Column("mean_force_n", "f64", "N", "mean norm of the force; NaN if the cut did not finish"),
            Column("radius", "f64", "-", "trust radius in the search's units"),
            Column("feasible", "bool", "", "true if all constraints hold within their tolerances"),
            Column("better", "bool", "", "true if it is the best of its start so far"),
            Column("end_height_residual_m", "f64", "m", "deviation from the required end height"),
            Column("lateral_residual_m", "f64", "m", "length of fruit not covered by the blade"),
            Column("speed_residual_m_s", "f64", "m/s", "excess of the speed over its limit"),
            Column(
                "acceleration_along_residual_m_s2",
                "f64",
                "m/s²",
                "excess of the acceleration along the blade",
            ),
            Column(
                "acceleration_vertical_residual_m_s2", "f64", "m/s²", "excess of the vertical acceleration"
            ),
            Column("board_residual_m", "f64", "m", "depth of the edge below its end height"),
            Column("pitch_residual_rad", "f64", "rad", "excess of the inclination over its limit", True),
            Column("fixture_residual_m", "f64", "m", "fixture too close to the board", True),
            Column("on_board_residual_m", "f64", "m", "height of the end that stays on the board", True),
        ],
        meaning="history of the search by simulation",
    ),
    table(
        "optimize/confirmation",
        [
            Column("check", "str", "", "changed setting"),
            Column(
                "mean_force_vertical_n",
                "f64",
                "N",
                "mean force of the vertical cut",
            ),
            Column(
                "mean_force_optimized_n",
                "f64",
                "N",
                "mean force of the optimised cut",
            ),
            Column("reduction", "f64", "-", "reduction of the mean force"),
            Column("peak_force_optimized_n", "f64", "N", "peak force of the optimised motion"),
        ],
        meaning="both motions simulated with a finer mesh, finer steps and other parameters, where both finished",
    ),
    plot(
        "optimize/profile_plot",
        [
            Column("time_s", "f64", "s", "time"),
            Column("vertical_n", "f64", "N", "as in optimize/profile"),
            Column("optimized_n", "f64", "N", "as in optimize/profile"),
        ],
        axes=("time_s", "vertical_n", "optimized_n"),
        meaning="force of both cuts for `dvc plots`",
    ),
    plot(
        "optimize/history_plot",
        [
            Column("start", "str", "", "as in optimize/history"),
            Column("iteration", "i64", "-", "simulation"),
            Column("mean_force_n", "f64", "N", "as in optimize/history"),
        ],
        axes=("iteration", "mean_force_n"),
        meaning="history of the search for `dvc plots`",
    ),
    metrics(
        "optimize",
        "mean forces of both cuts over the whole motion, reduction with its interval and basis, confirmation by finer "
        "simulations, downward force, work, constraint residuals",
    ),
    picture(
        "optimize",
        "force of both cuts, path of the knife over the fruit, search, confirming simulations",
    ),
)


class _ConstraintWeight(StageParams):
    """Weight of one constraint in MDMM."""

    scale: Positive
    damping: Positive


class OptimizeParams(StageParams):
    """optimize: the slicing motion, its limits and how it is searched for."""

    cut: CutParams
    arm: ArmParams
    mean_over: Literal["time", "depth"]
    """Whether the force is averaged over time or over depth."""
    blade_overlap_m: Annotated[float, Field(ge=0, le=0.1)]
    """Minimum reach of the blade beyond the fruit at both ends, at all times."""
    max_speed_m_s: Annotated[float, Field(gt=0, le=2)]
    """This and the accelerations: null in params.yaml takes those of arm.robot."""
    max_acceleration_along_m_s2: Annotated[float, Field(gt=0, le=20)]
    max_acceleration_vertical_m_s2: Annotated[float, Field(gt=0, le=20)]
    duration_s: Annotated[float, Field(ge=0.3, le=60)] | None
    """Duration of the descent, without final strokes; None: height / cut.speed_m_s."""
    keyframe_spacing_s: Annotated[float, Field(ge=0.02, le=10)]
    sigma2_s2: Annotated[float, Field(gt=0, le=10)] = 0.03
    window_s: Annotated[float, Field(ge=0.12, le=1)]
    """Rise and fall of the motion at its ends; below 120 ms a controller rejects it. Null: as arm.robot requires."""
    sawing: bool = True
    """Seek strokes along the blade."""
    rocking: bool = False
    """Seek turns of the knife about x as well, ending with a level edge; what each contributes is reported."""
    max_pitch_deg: Annotated[float, Field(gt=0, le=45)] = 15.0
    """Largest inclination of the edge while rocking."""
    on_board: Literal["tip", "heel"] | None = None
    """End of the edge that stays on the board while rocking."""
    fixture_corner_m: tuple[float, float] = (0.01, 0.17)
    """Height and place along the blade of the fixture's low far corner over the edge's middle, for rocking; the
    certificate checks export.fixture_low_m and fixture_high_m.
    """
    final_strokes: Annotated[int, Field(ge=0, le=10)]
    """Maximum number of strokes along the board after the cut; they end when the fruit is cut through. 0: none."""
    final_stroke_s: Annotated[float, Field(ge=0.1, le=5)]
    final_height_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the edge above the board to which they sink; a cut that ends lower stays there."""
    starts: Annotated[int, Field(ge=1, le=20)]
    """The first begins beside the vertical cut, the others are drawn."""
    candidates: Annotated[int, Field(ge=1, le=1000)]
    """Motions that are drawn and simulated once; the starts but the first are the best of them."""
    start_amplitude_m_s: Positive = 0.02
    """Amplitude of the first start; at 0 the descent can't leave the vertical cut, by symmetry."""
    start_amplitude_range_m_s: tuple[Positive, Positive] = (0.04, 0.15)
    start_frequency_range_rad_s: tuple[Positive, Positive] = (2.0, 24.0)
    iterations: Annotated[int, Field(ge=1, le=10_000)]
    """Simulations per start."""
    first_motion: tuple[Annotated[tuple[float, ...], Field(min_length=3, max_length=4)], ...] = ()
    """Keyframes of a known motion at equal times: amplitude [m/s], frequency [rad/s], vertical velocity over its mean
    and, of a rocking motion, pitch rate [rad/s]. If given, it is the only start.
    """
    ablation_iterations: Annotated[int, Field(ge=0, le=10_000)] = 6
    """Iterations of the search without constraints, which is only reported; 0: none."""
    confirm: bool = True
    """Simulate the result with finer steps, a finer mesh and possible materials: the interval of the saving."""
    start_radius: Annotated[float, Field(gt=0, le=10)] = 0.5
    """First length of a step, in the optimiser's units (0.1 m/s, 10 rad/s, a fifth of the descent)."""
    least_radius: Annotated[float, Field(gt=0, le=10)] = 0.02
    """A start ends as converged when its steps have become shorter than this."""
    least_gain: Annotated[float, Field(ge=0, le=0.1)]
    """A start also ends when the model of the force promises less than this share of the mean force of its next step.

    Less is below the simulation's own error: steps of 3 ms put the force of a sawing cut 0.6 % off (docs/simulator.md).
    0 ends a start only when no step promises anything.
    """
    optimiser: Annotated[str, one_of(OPTIMISERS)] = "adamax"
    """Optimiser of MDMM: a key of stages.optimize.description.OPTIMISERS."""
    inner_iterations: Annotated[int, Field(ge=10, le=100_000)] = 300
    """Steps of MDMM between two simulations."""
    multiplier_rate: Annotated[float, Field(ge=0, le=100)] = 0.1
    constraints: dict[str, _ConstraintWeight]
    speed_weight_s2_m2: Annotated[float, Field(ge=0, le=100)] = 0.1
    """Weight of the mean squared speed beside the mean force over that of the vertical cut."""
    draws: Annotated[int, Field(ge=1, le=100)]
    """Sets of parameters the mean force is averaged over: 1 is the fitted one alone."""
    draw_spread: Annotated[float, Field(ge=0, le=1)] = 0.1
    processes: Annotated[int, Field(ge=0, le=256)]
    """For starts, candidates and checks; 0 takes every core the stage is given. The result does not depend on it."""
    seed: int

    def weight_of(self, rule: str) -> _ConstraintWeight:
        """Return the weight of a rule; rules of rocking have that of the other heights unless given."""
        return self.constraints.get(rule, self.constraints["board_m"])

    _limits_of_the_arm = model_validator(mode="before")(fill_edge_limits)


STAGE = Stage(
    name="optimize",
    does="body of the second cut → slicing motion with the least mean force within the robot's limits",
    params=OptimizeParams,
    artifacts=_ARTIFACTS,
    reads=(
        "tetrahedralize_half/nodes",
        "tetrahedralize_half/tets",
        "calibrate/body",
        "calibrate/draws",
        "calibrate/posterior",
        "calibrate/shares",
        "transport/parameters",
        *cut_mesh("precut_half"),
    ),
    key_figure="reduction",
    timeout_s=14400,
    uses_material=True,
)
