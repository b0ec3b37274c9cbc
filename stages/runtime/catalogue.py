"""The catalogue of artifacts: the one place that knows paths, columns, units and schema versions.

docs/artifacts.md is generated from it (`python -m scripts.write_artifacts_doc`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["table", "metrics", "picture", "plot", "folder"]


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    dtype: str
    """f64, f32, i64, i32, i8, bool, str, or array[<dtype>,<n>] for a fixed-size vector."""
    unit: str
    """SI unit, "-" for a plain number, "index" for a row number of another table, "" for text and flags."""
    meaning: str


@dataclass(frozen=True)
class Artifact:
    """One file (or folder of files) that a stage writes into the scan's directory."""

    name: str
    """<stage>/<file stem>."""
    path: str
    """Relative to the scan's directory data/scans/<id>/."""
    kind: Kind
    columns: tuple[Column, ...]
    schema_version: int
    """Raise it when a column is added, removed or changes its meaning, dtype or unit."""
    producer: str
    consumers: tuple[str, ...]
    meaning: str


SUFFIX: dict[Kind, str] = {
    "table": ".parquet",
    "metrics": ".json",
    "picture": ".png",
    "plot": ".csv",
    "folder": "",
}


def _table(
    name: str, columns: Iterable[Column], *, meaning: str, consumers: tuple[str, ...] = (), version: int = 1
) -> Artifact:
    return _artifact(name, "table", tuple(columns), meaning, consumers, version)


def _metrics(stage: str, meaning: str) -> Artifact:
    return _artifact(f"{stage}/metrics", "metrics", (), meaning, (), 1)


def _picture(stage: str, meaning: str) -> Artifact:
    return _artifact(f"{stage}/preview", "picture", (), meaning, (), 1)


def _plot(name: str, columns: Iterable[Column], meaning: str) -> Artifact:
    return _artifact(name, "plot", tuple(columns), meaning, (), 1)


def _folder(name: str, meaning: str) -> Artifact:
    return _artifact(name, "folder", (), meaning, (), 1)


def _artifact(
    name: str, kind: Kind, columns: tuple[Column, ...], meaning: str, consumers: tuple[str, ...], version: int
) -> Artifact:
    return Artifact(
        name=name,
        path=name + SUFFIX[kind],
        kind=kind,
        columns=columns,
        schema_version=version,
        producer=name.partition("/")[0],
        consumers=consumers,
        meaning=meaning,
    )


_POSITION = Column("position_m", "array[f64,3]", "m", "position in the cutting frame (y up, board y = 0)")
_SIDE = Column(
    "side", "i8", "-", "+1 on the positive side of the cut surface (x > 0 for the plane x = 0), else -1"
)


def _triangles(meaning: str) -> Column:
    return Column("vertices", "array[i32,3]", "index", meaning)


_CLEAN = (
    _table(
        "clean/vertices",
        [_POSITION],
        meaning="vertices of the repaired, watertight surface in the cutting frame",
        consumers=("tetrahedralize",),
    ),
    _table(
        "clean/faces",
        [_triangles("the triangle's vertices, counter-clockwise seen from outside")],
        meaning="triangles of the repaired surface",
        consumers=("tetrahedralize",),
    ),
    _table(
        "clean/repairs",
        [
            Column("step", "str", "", "what was repaired"),
            Column("before", "i64", "-", "count before the step"),
            Column("after", "i64", "-", "count after the step"),
            Column("note", "str", "", "the rung of the ladder that worked, or why nothing was done"),
        ],
        meaning="what was done to the raw scan, in order",
    ),
    _metrics("clean", "size, volume, area, watertightness and displacement from the raw scan"),
    _picture("clean", "the raw scan with its faults beside the clean surface on the board"),
)

_INGEST = (
    _table(
        "ingest/force",
        [
            Column("time_s", "f64", "s", "time of the sample, from 0"),
            Column(
                "position_m",
                "array[f64,3]",
                "m",
                "measured middle of the edge: y above the board, x and z from the start",
            ),
            Column("velocity_m_s", "array[f64,3]", "m/s", "its velocity, from the low-passed positions"),
            Column("force_n", "array[f64,3]", "N", "force on the knife: raw_n less air_n"),
            Column("force_norm_n", "f64", "N", "norm of force_n"),
            Column("force_filtered_norm_n", "f64", "N", "norm of force_n after the low-pass"),
            Column("air_n", "array[f64,3]", "N", "tare: what the log would read without contact"),
            Column("raw_n", "array[f64,3]", "N", "force on the knife as logged"),
            Column(
                "valid", "bool", "", "false at rest before the descent, and where force or tare are not known"
            ),
            Column("uncertainty_n", "f64", "N", "standard uncertainty of force_filtered_norm_n"),
        ],
        meaning="measured force and motion of the knife in the cutting frame; no rows if the scan has no log",
        consumers=("calibrate",),
    ),
    _metrics("ingest", "samples, rate, contact onset, peak and mean force, tare"),
    _picture("ingest", "raw, air and net force over time and height, with the contact onset"),
)

_TETRAHEDRALIZE = (
    _table(
        "tetrahedralize/nodes",
        [_POSITION],
        meaning="nodes of the tetrahedral mesh",
        consumers=("precut",),
    ),
    _table(
        "tetrahedralize/tets",
        [
            Column("nodes", "array[i32,4]", "index", "the tetrahedron's nodes, positively oriented"),
            Column("volume_m3", "f64", "m³", "volume, > 0"),
            Column(
                "radius_ratio",
                "f64",
                "-",
                "3 × inscribed / circumscribed radius; 1 for a regular tetrahedron",
            ),
            Column("min_altitude_m", "f64", "m", "smallest altitude"),
            Column("min_edge_m", "f64", "m", "shortest edge"),
            Column("max_edge_m", "f64", "m", "longest edge"),
        ],
        meaning="tetrahedra and their quality",
        consumers=("precut",),
    ),
    _metrics("tetrahedralize", "counts, volume error, quality and the stable explicit step for the material"),
    _picture("tetrahedralize", "the mesh, and opened at the cut plane with the radius ratios"),
)


def _half_body(side: str) -> tuple[Artifact, Artifact]:
    return (
        _table(
            f"precut/half_{side}_vertices",
            [_POSITION],
            meaning=f"vertices of the closed {side} half-body",
            consumers=("halve",),
        ),
        _table(
            f"precut/half_{side}_faces",
            [_triangles("the triangle's vertices, counter-clockwise seen from outside")],
            meaning=f"triangles of the closed {side} half-body",
            consumers=("halve",),
        ),
    )


_PRECUT = (
    _table(
        "precut/nodes",
        [
            _POSITION,
            Column("original", "i32", "index", "the row of tetrahedralize/nodes that it copies"),
            Column("ghost", "bool", "", "true if it carries no material, only the far end of cut edges"),
        ],
        meaning="nodes after duplication by the virtual node algorithm",
        consumers=("simulate", "calibrate"),
    ),
    _table(
        "precut/tets",
        [
            Column("nodes", "array[i32,4]", "index", "rows of precut/nodes, positively oriented"),
            Column("fraction", "f64", "-", "material fraction of the tetrahedron's volume, in (0, 1]"),
            _SIDE,
            Column("original", "i32", "index", "the row of tetrahedralize/tets that it copies"),
        ],
        meaning="tetrahedra after duplication, each with the material of one side",
        consumers=("simulate", "calibrate"),
    ),
    _table(
        "precut/virtual_nodes",
        [
            Column(
                "parents", "array[i32,2]", "index", "rows of precut/nodes: the real end, then the ghost end"
            ),
            Column("coordinate", "f64", "-", "c in (0, 1): position = (1 - c) · real + c · ghost"),
            _SIDE,
            Column("position_m", "array[f64,3]", "m", "position on the cut surface"),
        ],
        meaning="points where the cut surface crosses an edge, one per side",
        consumers=("simulate", "calibrate", "halve"),
    ),
    _table(
        "precut/springs",
        [
            Column(
                "virtual_nodes",
                "array[i32,2]",
                "index",
                "rows of precut/virtual_nodes: side +1, then side -1",
            ),
            Column(
                "position_m",
                "array[f64,2]",
                "m",
                "2D position on the cut surface; (z, y) for the plane x = 0",
            ),
            Column("area_m2", "f64", "m²", "tributary area; the column sums to the area of the cut"),
            Column("surface", "bool", "", "true if the crossed edge lies on the outer surface (skin)"),
        ],
        meaning="cutting springs that hold the two sides together",
        consumers=("simulate", "calibrate"),
    ),
    *_half_body("positive"),
    *_half_body("negative"),
    _metrics("precut", "counts, volumes and areas of the two sides, conservation errors, snapped nodes"),
    _picture("precut", "the two half-bodies pulled apart and the springs on the cut surface"),
)

_SIMULATE = (
    _table(
        "simulate/force",
        [
            Column("time_s", "f64", "s", "end of the sampling interval"),
            Column("force_n", "array[f64,3]", "N", "resultant force on the knife, mean over the interval"),
            Column("torque_nm", "array[f64,3]", "N·m", "its torque about the middle of the knife's edge"),
            Column("force_norm_n", "f64", "N", "norm of force_n, what a force log is compared with"),
            Column("contact_area_m2", "f64", "m²", "cut surface that touches the knife, both halves"),
            Column("knife_position_m", "array[f64,3]", "m", "middle of the knife's edge"),
        ],
        meaning="force on the knife during a straight cut with the parameters of params.yaml, not calibrated",
    ),
    _table(
        "simulate/springs",
        [
            Column(
                "remaining_fraction", "f64", "-", "stiffness at the end over stiffness at the start, 0 if cut"
            ),
            Column("stretch_m", "f64", "m", "distance of the spring's two ends at the end"),
        ],
        meaning="cutting springs after the cut, in the rows of precut/springs",
    ),
    _metrics("simulate", "outcome, mean and peak force, share that is cut, and what the integrator did"),
    _picture("simulate", "the halves at four times of the cut above the force on the knife"),
)

_SPRING_VALUES = (
    ("cut_spring_ke", "N/m", "stiffness of the spring before damage, per reference area"),
    ("cut_spring_kd", "N·s/m", "damping of the spring, per reference area"),
    ("cut_spring_softness", "-", "how fast the spring weakens under the knife"),
    ("sdf_ke", "N/m", "stiffness of the knife contact, per reference area"),
    ("sdf_kd", "N·s/m", "damping of the knife contact, per reference area"),
    ("sdf_kf", "m/s", "slip speed at which friction is fully there"),
    ("sdf_mu", "-", "friction coefficient of the knife"),
    ("sdf_stribeck", "-", "static friction coefficient minus sdf_mu"),
    ("sdf_radius", "m", "rounding of the knife"),
    ("sdf_tip", "m", "width over which flank and edge of the knife blend"),
)

_SPRING_ROW = (
    Column("position_m", "array[f64,2]", "m", "2D position on the cut surface; (z, y) for the plane x = 0"),
    Column("area_m2", "f64", "m²", "tributary area"),
    Column("surface", "bool", "", "true for skin"),
    *(Column(name, "f64", unit, meaning) for name, unit, meaning in _SPRING_VALUES),
)

_CALIBRATE = (
    _table(
        "calibrate/parameters",
        [
            *_SPRING_ROW,
            Column("gradient_norm", "f64", "-", "what is left of the loss's gradient in the spring's values"),
            Column(
                "touched_ns", "f64", "N·s", "impulse that the spring's edges got from the knife; 0: no data"
            ),
        ],
        meaning="fitted parameters in the rows of precut/springs; nominal ones if the scan has no log",
        consumers=("transport",),
    ),
    _table(
        "calibrate/bounds",
        [
            Column("name", "str", "", "spring parameter"),
            Column("surface", "bool", "", "true for the skin's springs, false for the others"),
            Column("low", "f64", "see calibrate/parameters", "lower bound"),
            Column("high", "f64", "see calibrate/parameters", "upper bound"),
        ],
        meaning="the ranges inside which the spring parameters are sought",
        consumers=("transport",),
    ),
    _table(
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
    _table(
        "calibrate/body",
        [
            Column("name", "str", "", "young_pa, poisson, density_kg_m3 or retardation_s"),
            Column("value", "f64", "see unit", "fitted, or as calibrate.start has it"),
            Column("unit", "str", "", "of value"),
        ],
        meaning="what the simulation of the first cut had in place of its material's values; often no rows",
        consumers=("transport", "optimize", "replay"),
    ),
    _table(
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
    _table(
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
    _plot(
        "calibrate/profile_plot",
        [
            Column("time_s", "f64", "s", "time"),
            Column("measured_n", "f64", "N", "as in calibrate/profile"),
            Column("simulated_n", "f64", "N", "as in calibrate/profile"),
        ],
        "measured and simulated force for `dvc plots`",
    ),
    _plot(
        "calibrate/history_plot",
        [
            Column("step", "i64", "-", "iteration"),
            Column("best_loss", "f64", "-", "as in calibrate/history"),
            Column("nmae", "f64", "-", "as in calibrate/history"),
        ],
        "the fit's history for `dvc plots`",
    ),
    _metrics(
        "calibrate", "outcome with its remedy, errors of the fit, what was fitted, springs that were touched"
    ),
    _picture(
        "calibrate", "measured and simulated force, residual, history, and the parameters on the cut surface"
    ),
)

_HALVE = (
    _table(
        "halve/vertices",
        [_POSITION],
        meaning="vertices of the half-body in the frame of the second cut",
        consumers=("tetrahedralize_half", "export"),
    ),
    _table(
        "halve/faces",
        [_triangles("the triangle's vertices, counter-clockwise seen from outside")],
        meaning="triangles of the half-body",
        consumers=("tetrahedralize_half", "export"),
    ),
    _table(
        "halve/frame",
        [
            Column(
                "row",
                "array[f64,4]",
                "see meaning",
                "three numbers of the rotation [-], then the translation [m]; the last row is 0, 0, 0, 1",
            )
        ],
        meaning="4x4 matrix that takes points [m] of the first cut's frame to the second's, row by row",
    ),
    _table(
        "halve/cut_face",
        [
            Column("point_m", "array[f64,3]", "m", "a point of the plane, in the second cut's frame"),
            Column("normal", "array[f64,3]", "-", "unit normal that points out of the half"),
            Column("bulge_m", "f64", "m", "largest distance of the first cut's face from the plane"),
        ],
        meaning="the plane of the first cut's face, where the half has bare flesh instead of skin; one row",
        consumers=("transport",),
    ),
    _metrics("halve", "size, volume, area, rest and how much of the half lies on each side of the plane"),
    _picture("halve", "the half as the first cut left it, and on the board with the second cut's plane"),
)

_TRANSPORT = (
    _table(
        "transport/parameters",
        [
            replace(
                column,
                meaning="true for skin; false for flesh that the first cut laid bare",
            )
            if column.name == "surface"
            else column
            for column in _SPRING_ROW
        ],
        meaning="parameters of the second cut's springs, in the rows of precut_half/springs",
        consumers=("optimize", "replay"),
    ),
    _table(
        "transport/plan",
        [
            Column("target", "i32", "index", "row of precut_half/springs"),
            Column("source", "i32", "index", "row of precut/springs"),
            Column("weight", "f64", "-", "share of the source in the target's values; sums to 1 per target"),
        ],
        meaning="which springs of the first cut the values come from, in order of target and source",
    ),
    _metrics(
        "transport",
        "cost, marginal errors and method of the plan, spread that it keeps, and the force beside that of averages",
    ),
    _picture("transport", "both cut surfaces in matching colours, and parameters before and after"),
)


_OPTIMIZE = (
    _table(
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
        consumers=("export", "replay"),
    ),
    _table(
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
    _table(
        "optimize/keyframes",
        [
            Column("time_s", "f64", "s", "of the keyframe"),
            Column("amplitude_m_s", "f64", "m/s", "its sawing speed, before blending with its neighbours"),
            Column("frequency_rad_s", "f64", "rad/s", "its sawing frequency, likewise"),
            Column("velocity_y_m_s", "f64", "m/s", "its vertical velocity, likewise"),
        ],
        meaning="parameters of the optimised motion (SlicingMotion of disect_sim)",
    ),
    _table(
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
    _table(
        "optimize/confirmation",
        [
            Column("check", "str", "", "what was changed"),
            Column("mean_force_vertical_n", "f64", "N", "of the vertical cut; NaN if it did not finish"),
            Column("mean_force_optimized_n", "f64", "N", "of the optimised cut; NaN if it did not finish"),
            Column("reduction", "f64", "-", "share of the mean force that is saved"),
        ],
        meaning="both motions simulated again with a finer mesh, finer steps and other parameters",
    ),
    _plot(
        "optimize/profile_plot",
        [
            Column("time_s", "f64", "s", "time"),
            Column("vertical_n", "f64", "N", "as in optimize/profile"),
            Column("optimized_n", "f64", "N", "as in optimize/profile"),
        ],
        "force of both cuts for `dvc plots`",
    ),
    _plot(
        "optimize/history_plot",
        [
            Column("start", "str", "", "as in optimize/history"),
            Column("iteration", "i64", "-", "simulation"),
            Column("mean_force_n", "f64", "N", "as in optimize/history"),
        ],
        "the search for `dvc plots`",
    ),
    _metrics(
        "optimize",
        "both mean forces, the reduction and whether it survives finer simulations, residuals of the constraints",
    ),
    _picture(
        "optimize",
        "both forces, the knife's path over the fruit, the search and the simulations that confirm it",
    ),
)

_EXPORT = (
    _folder(
        "export/cut",
        "the cut for the robot, in the subfolder `certified` or, with REASON.txt, `refused`; files: docs/export.md",
    ),
    _metrics(
        "export",
        "the certificate's verdict, where the files are, and how far the motion is inside its limits",
    ),
    _picture(
        "export", "the knife's track over the fruit, the joints against their limits, the predicted force"
    ),
)

_REPLAY = (
    _table(
        "replay/frames",
        [
            Column("time_s", "f64", "s", "time of the frame; 0 is the body at rest"),
            Column("knife_position_m", "array[f64,3]", "m", "middle of the knife's edge"),
            Column("force_n", "array[f64,3]", "N", "force on the knife in the step that ends there"),
            Column("force_norm_n", "f64", "N", "norm of force_n"),
            Column("cut_fraction", "f64", "-", "share of the springs' stiffness that is gone"),
        ],
        meaning="the recorded frames of the optimised cut",
    ),
    _table(
        "replay/faces",
        [
            _triangles("rows within a frame of replay/vertices, counter-clockwise seen from outside"),
            _SIDE,
            Column("on_cut", "bool", "", "true for the face that the knife makes"),
        ],
        meaning="triangles of both halves, the same in every frame",
    ),
    _table(
        "replay/vertices",
        [
            Column("frame", "i32", "index", "row of replay/frames"),
            Column("position_m", "array[f32,3]", "m", "position in the cutting frame (y up, board y = 0)"),
            Column("displacement_m", "f32", "m", "distance from where the vertex was at rest"),
        ],
        meaning="vertices of both halves, frame after frame, as many and in the same order in each",
    ),
    _table(
        "replay/springs",
        [
            Column("frame", "i32", "index", "row of replay/frames"),
            Column("plus_m", "array[f32,3]", "m", "the spring's end on side +1"),
            Column("minus_m", "array[f32,3]", "m", "its end on side -1"),
            Column("remaining_fraction", "f32", "-", "stiffness over stiffness at the start, 0 if cut"),
        ],
        meaning="cutting springs, frame after frame, in the rows of precut_half/springs",
    ),
    _metrics("replay", "outcome, length and mean force of the recorded cut, and the knife's size"),
    _picture("replay", "the halves and the knife at four moments of the optimised cut"),
)


@dataclass(frozen=True)
class Instance:
    """A stage that runs a second time, on other inputs, with parameters and a folder of its own."""

    base: str
    """The stage whose module it runs."""
    reads: Mapping[str, str]
    """Stage that the base reads from → stage that the instance reads from."""
    readers: Mapping[str, tuple[str, ...]]
    """File stem → stages that read it, beside the instances that the base's readers have."""


_CUT_MESH_FILES = ("nodes", "tets", "virtual_nodes", "springs")
INSTANCES: dict[str, Instance] = {
    "tetrahedralize_half": Instance(
        "tetrahedralize", {"clean": "halve"}, dict.fromkeys(("nodes", "tets"), ("optimize",))
    ),
    "precut_half": Instance(
        "precut",
        {"tetrahedralize": "tetrahedralize_half"},
        dict.fromkeys(_CUT_MESH_FILES, ("transport", "optimize", "replay")),
    ),
}
"""Name of the instance → what it is. It is run as `python -m stages.<base> data/scans/<id> --as <instance>`."""


def base_of(stage: str) -> str:
    """The stage whose module runs: the base of an instance, else the stage itself."""
    return INSTANCES[stage].base if stage in INSTANCES else stage


def name_in(stage: str, name: str) -> str:
    """What the artifact that the base calls `name` is called in the stage, which may be an instance of it."""
    if stage not in INSTANCES:
        return name
    folder, _, stem = name.partition("/")
    folders = {**INSTANCES[stage].reads, INSTANCES[stage].base: stage}
    return f"{folders.get(folder, folder)}/{stem}"


def _instance_artifacts(stage: str, artifacts: Iterable[Artifact]) -> tuple[Artifact, ...]:
    """The base's entries under the instance's name."""
    instance = INSTANCES[stage]
    return tuple(
        replace(
            a,
            name=name_in(stage, a.name),
            path=name_in(stage, a.path),
            producer=stage,
            consumers=_instance_consumers(stage, a) + instance.readers.get(a.name.partition("/")[2], ()),
            meaning=f"{a.meaning}; of the second cut",
        )
        for a in artifacts
        if a.producer == instance.base
    )


def _instance_consumers(stage: str, artifact: Artifact) -> tuple[str, ...]:
    """Instances of the base's consumers that read from this instance."""
    return tuple(
        name
        for name, other in INSTANCES.items()
        if other.base in artifact.consumers and other.reads.get(artifact.producer) == stage
    )


ARTIFACTS: dict[str, Artifact] = {
    a.name: a
    for a in (
        *_CLEAN,
        *_INGEST,
        *_TETRAHEDRALIZE,
        *_PRECUT,
        *_SIMULATE,
        *_CALIBRATE,
        *_HALVE,
        *_instance_artifacts("tetrahedralize_half", _TETRAHEDRALIZE),
        *_instance_artifacts("precut_half", _PRECUT),
        *_TRANSPORT,
        *_OPTIMIZE,
        *_EXPORT,
        *_REPLAY,
    )
}
"""Every artifact by name, in the order in which the stages write them."""


def artifacts_of(stage: str) -> tuple[Artifact, ...]:
    """The artifacts that the stage writes."""
    return tuple(a for a in ARTIFACTS.values() if a.producer == stage)
