"""The 3D viewer of the cut that the stage replay recorded: viewer.html (three.js), USD and Rerun files."""

import base64
from dataclasses import dataclass
from importlib import import_module
from math import degrees
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.project import Project
from pipelines.report.drawings import DATA_MAP, MAP, colour_map, colour_of, rgb
from pipelines.report.page import asset, environment
from pipelines.report.scan_data import ScanData
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.files import write_bytes_atomic
from stages.shared.robots.robot import arm_of

_TABLES = ("frames", "faces", "vertices", "springs")


@dataclass(frozen=True)
class _Recording:
    """Tables of the stage replay; vertices and springs are stored frame by frame."""

    scan_id: str
    frames: pl.DataFrame
    faces: pl.DataFrame
    vertices: pl.DataFrame
    springs: pl.DataFrame
    metrics: dict[str, Any]
    cut: dict[str, Any]
    """Content of the export's cut.json; empty if there is none."""
    vertical: dict[str, pl.DataFrame]
    """Tables frames, vertices and springs of the vertical cut; empty if it was not recorded."""
    final_from_s: float | None
    """Time at which the final strokes begin; None if there are none."""

    def of_frame(self, table: pl.DataFrame, frame: int) -> pl.DataFrame:
        """Return the rows of one frame."""
        count = len(table) // len(self.frames)
        return table.slice(frame * count, count)


def read_recording(project: Project, scan_id: str) -> _Recording:
    """Read the recording; raise InputError if the stage replay has not run."""
    data = ScanData(project, scan_id)
    by_name = {name: data.table(f"replay/{name}") for name in _TABLES}
    metrics = data.metrics("replay")
    missing = [name for name, table in by_name.items() if table is None]
    if missing or not metrics:
        reason = f" {data.problems[0]}" if data.problems else ""
        raise InputError(
            f"The scan {scan_id!r} has no recording of its cut.{reason} The stage replay writes it. "
            f"Run 'scan2cut run {scan_id}' first."
        )
    tables = {name: table for name, table in by_name.items() if table is not None}
    compared = {name: data.table(f"replay/vertical_{name}") for name in ("frames", "vertices", "springs")}
    vertical = {name: table for name, table in compared.items() if table is not None}
    motion = data.metrics("optimize")
    return _Recording(
        scan_id,
        metrics=metrics,
        cut=data.cut,
        vertical=vertical if len(vertical) == len(compared) else {},
        final_from_s=motion.get("duration_s") if motion.get("draw_strokes") else None,
        **tables,
    )


def need(module: str, extra: str) -> Any:
    """Import an optional module; raise InputError with the install command if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"view: the package {module.partition('.')[0]!r} is not installed. This format requires it. "
            f"Install it with: pip install 'scan2cut[{extra}]'"
        ) from error


WEDGE = ((0, 1, 4), (0, 4, 3), (1, 2, 5), (1, 5, 4), (2, 0, 3), (2, 3, 5), (0, 2, 1), (3, 4, 5))
"""Faces of blade_points, counter-clockwise seen from outside; the knife is drawn as a wedge with a sharp edge."""


def blade_points(metrics: dict[str, Any]) -> list[tuple[float, float, float]]:
    """Return the corners of the blade [m] relative to the centre of its edge, from replay/metrics."""
    half, up, side = (
        0.5 * metrics["blade_length_m"],
        metrics["blade_height_m"],
        0.5 * metrics["blade_spine_m"],
    )
    section = ((0.0, 0.0), (side, up), (-side, up))
    return [(x, y, z) for z in (-half, half) for x, y in section]


# USD (extra `usd`).


_TICKS_PER_SECOND = 1000.0
"""USD time codes per second: one per millisecond."""
_SUFFIXES = (".usd", ".usda", ".usdc")
_SPRING_WIDTH_M = 0.0015


def write_usd(recording: _Recording, path: Path) -> Path:
    """Write an animated USD file: metres, y up, surface coloured by displacement."""
    if path.suffix not in _SUFFIXES:
        raise InputError(
            f"view: {path.name!r} is not a USD file name. It must end with {', '.join(_SUFFIXES)}. Rename it."
        )
    usd, geom, gf = need("pxr.Usd", "usd"), need("pxr.UsdGeom", "usd"), need("pxr.Gf", "usd")
    path.unlink(missing_ok=True)
    stage = usd.Stage.CreateNew(str(path))
    geom.SetStageUpAxis(stage, geom.Tokens.y)
    geom.SetStageMetersPerUnit(stage, 1.0)
    stage.SetTimeCodesPerSecond(_TICKS_PER_SECOND)
    times = [_TICKS_PER_SECOND * t for t in recording.frames["time_s"].to_list()]
    stage.SetStartTimeCode(times[0])
    stage.SetEndTimeCode(times[-1])
    stage.SetDefaultPrim(geom.Xform.Define(stage, "/cut").GetPrim())
    fruit = geom.Mesh.Define(stage, "/cut/fruit")
    faces = recording.faces["vertices"].explode().to_list()
    fruit.CreateFaceVertexCountsAttr([3] * (len(faces) // 3))
    fruit.CreateFaceVertexIndicesAttr(faces)
    fruit.CreateSubdivisionSchemeAttr(geom.Tokens.none)
    shade = fruit.CreateDisplayColorPrimvar(geom.Tokens.vertex)
    springs = geom.Points.Define(stage, "/cut/springs")
    springs.CreateWidthsAttr([_SPRING_WIDTH_M])
    springs.SetWidthsInterpolation(geom.Tokens.constant)
    spring_colours = springs.CreateDisplayColorPrimvar(geom.Tokens.vertex)
    knife = geom.Mesh.Define(stage, "/cut/knife")
    knife.CreatePointsAttr([gf.Vec3f(*p) for p in blade_points(recording.metrics)])
    knife.CreateFaceVertexCountsAttr([3] * len(WEDGE))
    knife.CreateFaceVertexIndicesAttr([i for face in WEDGE for i in face])
    knife.CreateSubdivisionSchemeAttr(geom.Tokens.none)
    move, pitch = knife.AddTranslateOp(), _pitch(recording.frames)
    turn = knife.AddRotateXOp() if any(pitch) else None
    most = max(float(recording.metrics["max_displacement_m"]), 1e-9)
    for i, time in enumerate(times):
        points = recording.of_frame(recording.vertices, i)
        fruit.GetPointsAttr().Set([gf.Vec3f(*p) for p in points["position_m"].to_list()], time)
        shade.Set([gf.Vec3f(*_shade(colour_of(d / most, MAP))) for d in points["displacement_m"]], time)
        rows = recording.of_frame(recording.springs, i)
        springs.GetPointsAttr().Set([gf.Vec3f(*p) for p in rows["plus_m"].to_list()], time)
        spring_colours.Set(
            [gf.Vec3f(*_shade(colour_of(r, DATA_MAP))) for r in rows["remaining_fraction"]], time
        )
        move.Set(gf.Vec3d(*recording.frames["knife_position_m"].to_list()[i]), time)
        if turn is not None:
            turn.Set(degrees(pitch[i]), time)
    stage.GetRootLayer().Save()
    return path


def _shade(colour: str) -> list[float]:
    """Convert a colour to USD's range, 0 to 1."""
    return [part / 255 for part in rgb(colour)]


# Rerun (extra `rerun`).


_CLOCK = "cut time"
_SPRING_RADIUS_M = 0.0008


def write_rrd(recording: _Recording, path: Path) -> Path:
    """Write an .rrd file with 3D view and force plot; open it with `rerun FILE` or `rerun --web-viewer FILE`."""
    rr, blueprint = need("rerun", "rerun"), need("rerun.blueprint", "rerun")
    stream = rr.RecordingStream("scan2cut", recording_id=recording.scan_id)
    stream.save(path)
    stream.send_blueprint(
        blueprint.Blueprint(
            blueprint.Vertical(
                blueprint.Spatial3DView(origin="/", name="cut"),
                blueprint.TimeSeriesView(origin="/force", name="force on the knife [N]"),
                row_shares=[3, 1],
            )
        )
    )
    stream.log("/", rr.ViewCoordinates.RIGHT_HAND_Y_UP, static=True)
    stream.log(
        "knife",
        rr.Mesh3D(vertex_positions=blade_points(recording.metrics), triangle_indices=WEDGE),
        static=True,
    )
    most = max(float(recording.metrics["max_displacement_m"]), 1e-9)
    for i, frame in enumerate(recording.frames.iter_rows(named=True)):
        stream.set_time(_CLOCK, duration=frame["time_s"])
        points = recording.of_frame(recording.vertices, i)
        colours = [rgb(colour_of(d / most, MAP)) for d in points["displacement_m"]]
        positions = points["position_m"].to_list()
        for side, name in ((1, "half_plus"), (-1, "half_minus")):
            faces = recording.faces.filter(recording.faces["side"] == side)["vertices"].to_list()
            mesh = rr.Mesh3D(vertex_positions=positions, triangle_indices=faces, vertex_colors=colours)
            stream.log(f"fruit/{name}", mesh)
        springs = recording.of_frame(recording.springs, i)
        spring_colours = [rgb(colour_of(r, DATA_MAP)) for r in springs["remaining_fraction"]]
        ends = [
            list(pair) for pair in zip(springs["plus_m"].to_list(), springs["minus_m"].to_list(), strict=True)
        ]
        stream.log(
            "springs/ends",
            rr.Points3D(
                [p for pair in ends for p in pair],
                colors=[c for c in spring_colours for _ in "+-"],
                radii=_SPRING_RADIUS_M,
            ),
        )
        stream.log(
            "springs/threads", rr.LineStrips3D(ends, colors=spring_colours, radii=0.3 * _SPRING_RADIUS_M)
        )
        turned = {}
        if "knife_pitch_rad" in frame:
            turned["rotation"] = rr.RotationAxisAngle(axis=[1.0, 0.0, 0.0], radians=frame["knife_pitch_rad"])
        stream.log("knife", rr.Transform3D(translation=frame["knife_position_m"], **turned))
        stream.log("force/norm", rr.Scalars(frame["force_norm_n"]))
    stream.disconnect()
    return path


# viewer.html.


_VIEWER_FILE_NAME = "viewer.html"
_GRAIN_M = 1e-5
"""Resolution of stored positions and displacements [m]; 16-bit integers reach 327 mm."""
_GRAIN = 1e-3
"""Resolution of stored fractions."""


def has_recording(project: Project, scan_id: str) -> bool:
    """Return whether the stage replay has run."""
    return (project.scan_dir(scan_id) / ARTIFACTS["replay/frames"].path).is_file()


def build_viewer(project: Project, scan_id: str) -> Path:
    """Write viewer.html into the scan's directory and return its path."""
    path = project.scan_dir(scan_id) / _VIEWER_FILE_NAME
    write_bytes_atomic(path, viewer_html(read_recording(project, scan_id)).encode())
    return path


def viewer_html(recording: _Recording) -> str:
    """Return the page as HTML."""
    return (
        environment()
        .get_template("viewer.html")
        .render(
            title=f"scan2cut viewer: {recording.scan_id}",
            data=_viewer_data(recording),
            styles=asset("viewer.css"),
            scripts=asset("three.min.js") + "\n" + asset("viewer.js"),
        )
    )


def _viewer_data(recording: _Recording) -> dict[str, Any]:
    """Return the data for the page's script; large arrays are base64-encoded integers."""
    metrics = recording.metrics
    by_name = {"frames": recording.frames, "vertices": recording.vertices, "springs": recording.springs}
    return {
        **_cut_data(by_name),
        "vertical": _cut_data(recording.vertical) if recording.vertical else None,
        "final_from_s": recording.final_from_s,
        "blade": {
            "length_m": metrics["blade_length_m"],
            "height_m": metrics["blade_height_m"],
            "spine_m": metrics["blade_spine_m"],
        },
        "grain_m": _GRAIN_M,
        "grain": _GRAIN,
        "faces": packed(recording.faces["vertices"].explode(), 1.0, pl.Int32),
        "side": packed(recording.faces["side"], 1.0),
        "on_cut": packed(recording.faces["on_cut"].cast(pl.Int16), 1.0),
        "max_displacement_m": metrics["max_displacement_m"],
        "surface_colours": list(colour_map(MAP)),
        "spring_colours": list(colour_map(DATA_MAP)),
        "outcome": metrics["outcome"],
        "arm": arm_of(recording.cut, recording.frames["time_s"].to_list()),
    }


def _pitch(frames: pl.DataFrame) -> list[float]:
    """Return the angle of the blade about x in every frame [rad]."""
    return frames["knife_pitch_rad"].to_list() if "knife_pitch_rad" in frames.columns else [0.0] * len(frames)


def _cut_data(tables: dict[str, pl.DataFrame]) -> dict[str, Any]:
    """Return what moves in one of the cuts."""
    frames, vertices, springs = tables["frames"], tables["vertices"], tables["springs"]
    return {
        "time_s": frames["time_s"].to_list(),
        "knife_m": frames["knife_position_m"].to_list(),
        "pitch_rad": _pitch(frames),
        "force_n": frames["force_norm_n"].to_list(),
        "force_vector_n": frames["force_n"].to_list(),
        "cut_fraction": frames["cut_fraction"].to_list(),
        "vertices": packed(vertices["position_m"].explode(), _GRAIN_M),
        "displacement": packed(vertices["displacement_m"], _GRAIN_M),
        "plus": packed(springs["plus_m"].explode(), _GRAIN_M),
        "minus": packed(springs["minus_m"].explode(), _GRAIN_M),
        "remaining": packed(springs["remaining_fraction"], _GRAIN),
    }


def packed(values: pl.Series, grain: float, dtype: Any = pl.Int16) -> str:
    """Encode values as little-endian multiples of the grain, clipped to the type's range."""
    limit = 2**15 - 1 if dtype == pl.Int16 else 2**31 - 1
    rounded = (values.cast(pl.Float64) / grain).round().clip(-limit, limit).cast(dtype)
    return base64.b64encode(rounded.to_numpy().tobytes()).decode()
