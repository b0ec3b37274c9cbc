"""What the stage optimize writes."""

from stages.runtime.describe import Column, metrics, picture, plot, table

ARTIFACTS = (
    table(
        "optimize/motion",
        [
            Column("time_s", "f64", "s", "from the start of the cut, exactly one row per millisecond"),
            Column("position_m", "array[f64,3]", "m", "centre of the knife's edge in the cutting frame"),
            Column("velocity_m_s", "array[f64,3]", "m/s", "its velocity, zero in the first and last row"),
            Column(
                "acceleration_m_s2",
                "array[f64,3]",
                "m/s²",
                "its acceleration, zero in the first and last row",
            ),
            Column("force_n", "array[f64,3]", "N", "predicted force on the knife"),
        ],
        meaning="the optimised cut, from rest to rest",
    ),
    table(
        "optimize/profile",
        [
            Column("time_s", "f64", "s", "from the start of the cut"),
            Column("vertical_n", "f64", "N", "norm of the force of the vertical cut"),
            Column("optimized_n", "f64", "N", "norm of the force of the optimised cut"),
            Column("vertical_force_n", "array[f64,3]", "N", "force of the vertical cut on the knife"),
            Column("optimized_force_n", "array[f64,3]", "N", "force of the optimised cut on the knife"),
            Column("vertical_position_m", "array[f64,3]", "m", "centre of the edge, vertical cut"),
            Column("optimized_position_m", "array[f64,3]", "m", "centre of the edge, optimised cut"),
        ],
        meaning="the optimised cut beside the vertical one of the same duration and end height",
    ),
    table(
        "optimize/keyframes",
        [
            Column("time_s", "f64", "s", "of the keyframe"),
            Column("amplitude_m_s", "f64", "m/s", "its sawing speed, before blending with its neighbours"),
            Column("frequency_rad_s", "f64", "rad/s", "its sawing frequency, likewise"),
            Column("velocity_y_m_s", "f64", "m/s", "its vertical velocity, likewise"),
        ],
        meaning="parameters of the optimised motion (SlicingMotion of disect_sim)",
    ),
    table(
        "optimize/history",
        [
            Column("start", "str", "", "vertical, drawn 1, ..., or unconstrained: the ablation"),
            Column("iteration", "i64", "-", "simulation of that start, from 1"),
            Column("objective", "f64", "-", "mean force over the vertical cut's, plus the speed term"),
            Column("mean_force_n", "f64", "N", "mean norm of the force; NaN if the cut did not finish"),
            Column("radius", "f64", "-", "length of the step that was allowed, in the search's units"),
            Column("feasible", "bool", "", "true if every constraint holds within its tolerance"),
            Column("better", "bool", "", "true if it was the best of its start so far"),
            Column("end_height_residual_m", "f64", "m", "distance from the wanted end height"),
            Column("lateral_residual_m", "f64", "m", "by how much the blade uncovers the fruit"),
            Column("speed_residual_m_s", "f64", "m/s", "by how much the speed is too high"),
            Column("acceleration_along_residual_m_s2", "f64", "m/s²", "the same along the blade"),
            Column("acceleration_vertical_residual_m_s2", "f64", "m/s²", "the same vertically"),
            Column("board_residual_m", "f64", "m", "by how much the edge is below its end height"),
        ],
        meaning="the search, simulation by simulation",
    ),
    table(
        "optimize/confirmation",
        [
            Column("check", "str", "", "what was changed"),
            Column("mean_force_vertical_n", "f64", "N", "of the vertical cut; NaN if it did not finish"),
            Column("mean_force_optimized_n", "f64", "N", "of the optimised cut; NaN if it did not finish"),
            Column("reduction", "f64", "-", "share of the mean force that is saved"),
            Column("peak_force_optimized_n", "f64", "N", "largest force of the optimised motion"),
        ],
        meaning="both motions simulated again with a finer mesh, finer steps and other parameters",
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
        meaning="the search for `dvc plots`",
    ),
    metrics(
        "optimize",
        "both mean forces, the reduction, its band and whether it survives finer simulations, pressing down, work, "
        "residuals of the constraints",
    ),
    picture(
        "optimize",
        "both forces, the knife's path over the fruit, the search and the simulations that confirm it",
    ),
)
