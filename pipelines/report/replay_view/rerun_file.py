"""The recording as an .rrd file for Rerun (extra `rerun`), with a layout: 3D view above, force below."""

from pathlib import Path

from pipelines.report.colours import DATA_MAP, MAP, colour_of, rgb
from pipelines.report.replay_view.blade import WEDGE, blade_points
from pipelines.report.replay_view.extras import need
from pipelines.report.replay_view.recording import ReplayRecording

CLOCK = "cut time"
SPRING_RADIUS_M = 0.0008


def write_rrd(recording: ReplayRecording, path: Path) -> Path:
    """Write the file; open it with `rerun FILE` or, in a browser, `rerun --web-viewer FILE`."""
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
        stream.set_time(CLOCK, duration=frame["time_s"])
        points = recording.of_frame(recording.vertices, i)
        colours = [rgb(colour_of(d / most, MAP)) for d in points["displacement_m"]]
        places = points["position_m"].to_list()
        for side, name in ((1, "half_plus"), (-1, "half_minus")):
            faces = recording.faces.filter(recording.faces["side"] == side)["vertices"].to_list()
            mesh = rr.Mesh3D(vertex_positions=places, triangle_indices=faces, vertex_colors=colours)
            stream.log(f"fruit/{name}", mesh)
        springs = recording.of_frame(recording.springs, i)
        left = [rgb(colour_of(r, DATA_MAP)) for r in springs["remaining_fraction"]]
        ends = [
            list(pair) for pair in zip(springs["plus_m"].to_list(), springs["minus_m"].to_list(), strict=True)
        ]
        stream.log(
            "springs/ends",
            rr.Points3D(
                [p for pair in ends for p in pair],
                colors=[c for c in left for _ in "+-"],
                radii=SPRING_RADIUS_M,
            ),
        )
        stream.log("springs/threads", rr.LineStrips3D(ends, colors=left, radii=0.3 * SPRING_RADIUS_M))
        stream.log("knife", rr.Transform3D(translation=frame["knife_position_m"]))
        stream.log("force/norm", rr.Scalars(frame["force_norm_n"]))
    stream.disconnect()
    return path
