"""The catalogue of artifacts: the one place that knows paths, columns, units and schema versions.

docs/artifacts.md is generated from it (`python -m pipelines.catalogue_doc`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["table", "metrics", "picture", "plot"]


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
    """One file that a stage writes into the scan's directory."""

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


SUFFIX: dict[Kind, str] = {"table": ".parquet", "metrics": ".json", "picture": ".png", "plot": ".csv"}


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
            f"precut/half_{side}_vertices", [_POSITION], meaning=f"vertices of the closed {side} half-body"
        ),
        _table(
            f"precut/half_{side}_faces",
            [_triangles("the triangle's vertices, counter-clockwise seen from outside")],
            meaning=f"triangles of the closed {side} half-body",
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
        consumers=("simulate", "calibrate"),
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

_CALIBRATE = (
    _table(
        "calibrate/parameters",
        [
            Column(
                "position_m",
                "array[f64,2]",
                "m",
                "2D position on the cut surface; (z, y) for the plane x = 0",
            ),
            Column("area_m2", "f64", "m²", "tributary area"),
            Column("surface", "bool", "", "true for skin"),
            *(Column(name, "f64", unit, meaning) for name, unit, meaning in _SPRING_VALUES),
            Column("gradient_norm", "f64", "-", "what is left of the loss's gradient in the spring's values"),
            Column(
                "touched_ns", "f64", "N·s", "impulse that the spring's edges got from the knife; 0: no data"
            ),
        ],
        meaning="fitted parameters in the rows of precut/springs; nominal ones if the scan has no log",
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

ARTIFACTS: dict[str, Artifact] = {
    a.name: a for a in (*_CLEAN, *_INGEST, *_TETRAHEDRALIZE, *_PRECUT, *_SIMULATE, *_CALIBRATE)
}
"""Every artifact by name, in the order in which the stages write them."""


def artifacts_of(stage: str) -> tuple[Artifact, ...]:
    """The artifacts that the stage writes."""
    return tuple(a for a in ARTIFACTS.values() if a.producer == stage)
