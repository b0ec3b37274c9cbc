"""The recording as an animated USD file (extra `usd`): meshes with moving points and coloured displacement."""

from pathlib import Path

from disect_sim.errors import InputError
from pipelines.report.colours import DATA_MAP, MAP, colour_of, rgb
from pipelines.report.replay_view.blade import WEDGE, blade_points
from pipelines.report.replay_view.extras import need
from pipelines.report.replay_view.recording import ReplayRecording

TICKS_PER_SECOND = 1000.0
"""USD's time code is one millisecond."""
SUFFIXES = (".usd", ".usda", ".usdc")
SPRING_WIDTH_M = 0.0015


def write_usd(recording: ReplayRecording, path: Path) -> Path:
    """Write the file: metres, y up, one time code per millisecond."""
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"view: {path.name!r} is no name of a USD file. It must end with {', '.join(SUFFIXES)}. Rename it."
        )
    usd, geom, gf = need("pxr.Usd", "usd"), need("pxr.UsdGeom", "usd"), need("pxr.Gf", "usd")
    path.unlink(missing_ok=True)
    stage = usd.Stage.CreateNew(str(path))
    geom.SetStageUpAxis(stage, geom.Tokens.y)
    geom.SetStageMetersPerUnit(stage, 1.0)
    stage.SetTimeCodesPerSecond(TICKS_PER_SECOND)
    times = [TICKS_PER_SECOND * t for t in recording.frames["time_s"].to_list()]
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
    springs.CreateWidthsAttr([SPRING_WIDTH_M])
    springs.SetWidthsInterpolation(geom.Tokens.constant)
    left = springs.CreateDisplayColorPrimvar(geom.Tokens.vertex)
    knife = geom.Mesh.Define(stage, "/cut/knife")
    knife.CreatePointsAttr([gf.Vec3f(*p) for p in blade_points(recording.metrics)])
    knife.CreateFaceVertexCountsAttr([3] * len(WEDGE))
    knife.CreateFaceVertexIndicesAttr([i for face in WEDGE for i in face])
    knife.CreateSubdivisionSchemeAttr(geom.Tokens.none)
    move = knife.AddTranslateOp()
    most = max(float(recording.metrics["max_displacement_m"]), 1e-9)
    for i, time in enumerate(times):
        points = recording.of_frame(recording.vertices, i)
        fruit.GetPointsAttr().Set([gf.Vec3f(*p) for p in points["position_m"].to_list()], time)
        shade.Set([gf.Vec3f(*_shade(colour_of(d / most, MAP))) for d in points["displacement_m"]], time)
        rows = recording.of_frame(recording.springs, i)
        springs.GetPointsAttr().Set([gf.Vec3f(*p) for p in rows["plus_m"].to_list()], time)
        left.Set([gf.Vec3f(*_shade(colour_of(r, DATA_MAP))) for r in rows["remaining_fraction"]], time)
        move.Set(gf.Vec3d(*recording.frames["knife_position_m"].to_list()[i]), time)
    stage.GetRootLayer().Save()
    return path


def _shade(colour: str) -> list[float]:
    """USD's colours go from 0 to 1."""
    return [part / 255 for part in rgb(colour)]
