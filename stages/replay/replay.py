"""replay: simulate the optimised motion once more and store body, springs and knife frame by frame.

The certificate reads from it whether the motion cuts through; the viewer shows it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim import MATERIALS, RecordedMotion, simulate
from disect_sim.cut_mesh import CutMesh
from disect_sim.knife import Knife
from disect_sim.parameters import Material, Values
from disect_sim.regions import rigid_tops
from disect_sim.result import Result
from disect_sim.virtual_nodes.split import half_body
from stages.replay.description import ReplayParams
from stages.runtime.errors import InputError
from stages.runtime.stage_io import StageIO
from stages.shared.cut import cutting_model, outcome_of, read_cut_mesh, read_second_cut_values
from stages.shared.cut_description import BESIDE_M, INVERTED, RIGID
from stages.shared.pictures import Moment, cut_views

_MOTION, _PROFILE = "optimize/motion", "optimize/profile"
_SIDES = (1, -1)
_PICTURED_FRACTIONS = (0.1, 0.4, 0.7, 1.0)
"""Moments of the picture, as fractions of the recorded frames [-]."""
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Recording:
    """A simulated cut at the times of its frames."""

    mesh: CutMesh
    knife: Knife
    result: Result
    steps: NDArray[np.int64]
    """Simulation steps that are frames, shape [frame_count]; the first is 0, the body at rest."""
    positions: tuple[_Floats, ...]
    """Node positions [m] of every frame, each of shape [node_count, 3]."""

    @property
    def times(self) -> _Floats:
        """Times of the frames [s], shape [frame_count]."""
        return self.result.step_time[self.steps]


def record(
    mesh: CutMesh,
    material: Material,
    motion: pl.DataFrame,
    values: Values,
    params: ReplayParams,
    progress: Callable[[float], None] | None = None,
) -> _Recording:
    """Simulate the motion (columns of optimize/motion) and keep the frames that it reaches.

    A cut that stops early is recorded up to that time, for inspection.
    """
    time = motion["time_s"].to_numpy()
    steps = int(np.ceil((time[-1] - time[0]) / params.cut.dt_s - 1e-6))
    frame_steps = np.unique(np.linspace(0, steps, params.frames).round().astype(np.int64))
    keep = [params.cut.dt_s * int(step) for step in frame_steps[1:]]
    result = simulate(
        cutting_model(mesh, material, params.cut),
        _recorded(motion),
        values,
        duration=steps * params.cut.dt_s,
        dt=params.cut.dt_s,
        sample_rate_hz=1.0 / params.cut.dt_s,
        keep_times=keep,
        force_limit_n=params.cut.force_limit_n,
        progress=progress,
    )
    reached = frame_steps[frame_steps < len(result.step_time)]
    if len(reached) < 2:
        raise InputError(
            f"replay: the cut stopped after {len(result.step_time) - 1} steps, before the second frame. "
            f"{result.outcome}. Lower cut.dt_s."
        )
    positions = (mesh.nodes, *(result.positions[params.cut.dt_s * int(step)] for step in reached[1:]))
    return _Recording(mesh, params.cut.blade, result, reached, positions)


def _recorded(motion: pl.DataFrame) -> RecordedMotion:
    """Return the motion of a table with the columns of optimize/motion, with its pitch if the knife turns."""
    time = motion["time_s"].to_numpy()
    pose, velocity = (motion[name].to_numpy() for name in ("position_m", "velocity_m_s"))
    if "pitch_rad" in motion.columns:
        pitch = motion["pitch_rad"].to_numpy()
        rate = np.gradient(pitch, time)
        rate[[0, -1]] = 0.0  # from rest to rest
        pose, velocity = np.column_stack([pose, pitch]), np.column_stack([velocity, rate])
    return RecordedMotion(time - time[0], pose, velocities=velocity)


def _vertical_motion(profile: pl.DataFrame) -> pl.DataFrame:
    """Return the vertical cut of optimize/profile with the columns of optimize/motion that `record` needs."""
    time, position = profile["time_s"].to_numpy(), profile["vertical_position_m"].to_numpy()
    velocity = np.gradient(position, time, axis=0)
    velocity[[0, -1]] = 0.0  # from rest to rest
    return pl.DataFrame(
        [
            pl.Series("time_s", time, pl.Float64),
            pl.Series("position_m", position, pl.Array(pl.Float64, 3)),
            pl.Series("velocity_m_s", velocity, pl.Array(pl.Float64, 3)),
        ]
    )


def frame_table(recording: _Recording) -> pl.DataFrame:
    """Return the table replay/frames. The force of a frame is that of the step that ends there."""
    result = recording.result
    force = np.concatenate([np.zeros((1, 3)), result.force])[recording.steps]
    columns = [
        pl.Series("time_s", recording.times, pl.Float64),
        pl.Series("knife_position_m", result.pose[recording.steps], pl.Array(pl.Float64, 3)),
        pl.Series("force_n", force, pl.Array(pl.Float64, 3)),
        pl.Series("force_norm_n", np.linalg.norm(force, axis=1), pl.Float64),
        pl.Series("cut_fraction", result.cut_fraction[recording.steps], pl.Float64),
    ]
    if result.pitch.any():
        columns.append(pl.Series("knife_pitch_rad", result.pitch[recording.steps], pl.Float64))
    return pl.DataFrame(columns)


def _surface_tables(recording: _Recording) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables replay/faces and replay/vertices: both halves as one set of vertices, frame after frame."""
    rest = [half_body(recording.mesh, side) for side in _SIDES]
    first = np.cumsum([0, *(len(half.vertices) for half in rest)])
    faces = pl.DataFrame(
        [
            pl.Series(
                "vertices",
                np.concatenate([half.faces + offset for half, offset in zip(rest, first, strict=False)]),
                pl.Array(pl.Int32, 3),
            ),
            pl.Series("side", np.repeat(_SIDES, [len(half.faces) for half in rest]), pl.Int8),
            pl.Series("on_cut", np.concatenate([half.face_on_cut for half in rest]), pl.Boolean),
        ]
    )
    at_rest = np.concatenate([half.vertices for half in rest])
    moved = np.stack([_vertices(recording.mesh, nodes) for nodes in recording.positions])
    vertices = pl.DataFrame(
        [
            pl.Series("frame", np.repeat(np.arange(len(moved)), len(at_rest)), pl.Int32),
            pl.Series("position_m", moved.reshape(-1, 3).astype(np.float32), pl.Array(pl.Float32, 3)),
            pl.Series("displacement_m", np.linalg.norm(moved - at_rest, axis=2).ravel(), pl.Float32),
        ]
    )
    return faces, vertices


def spring_table(recording: _Recording) -> pl.DataFrame:
    """Return the table replay/springs: positions and remaining stiffness, frame after frame."""
    ends = np.stack(
        [recording.mesh.virtual_positions(x)[recording.mesh.spring_virtual] for x in recording.positions]
    )
    stiffness = recording.result.stiffness
    remaining = stiffness[recording.steps] / stiffness[0]
    return pl.DataFrame(
        [
            pl.Series("frame", np.repeat(np.arange(len(ends)), ends.shape[1]), pl.Int32),
            pl.Series("plus_m", ends[:, :, 0].reshape(-1, 3).astype(np.float32), pl.Array(pl.Float32, 3)),
            pl.Series("minus_m", ends[:, :, 1].reshape(-1, 3).astype(np.float32), pl.Array(pl.Float32, 3)),
            pl.Series("remaining_fraction", remaining.ravel(), pl.Float32),
        ]
    )


def metrics(recording: _Recording, knife: str) -> dict[str, Any]:
    """Return the artifact replay/metrics."""
    result = recording.result
    moved = max(float(np.linalg.norm(x - recording.mesh.nodes, axis=1).max()) for x in recording.positions)
    return {
        "outcome": str(result.outcome),
        "frames": len(recording.steps),
        "duration_s": float(recording.times[-1]),
        "mean_force_over_time_n": float(result.force_norm.mean()),
        "peak_force_n": float(result.force_norm.max()),
        **outcome_of("optimised cut", result, recording.mesh).metrics(),
        "max_displacement_m": moved,
        "knife": knife,
        "blade_length_m": recording.knife.length_m,
        "blade_height_m": recording.knife.height_m,
        "blade_spine_m": recording.knife.spine_m,
    }


def picture(recording: _Recording) -> NDArray[np.uint8]:
    """Draw the halves and the knife at four moments; 8-bit pixels, shape [height, width, 3]."""
    last = len(recording.steps) - 1
    moments = []
    for fraction in _PICTURED_FRACTIONS:
        i = round(fraction * last)
        step = recording.steps[i]
        pose, pitch = recording.result.pose[step], float(recording.result.pitch[step])
        moments.append(Moment(float(recording.times[i]), recording.positions[i], pose, pitch))
    return cut_views(recording.mesh, recording.knife, moments)


def _vertices(mesh: CutMesh, nodes: _Floats) -> _Floats:
    moved = replace(mesh, nodes=nodes)
    return np.concatenate([half_body(moved, side).vertices for side in _SIDES])


def _vertical_tables(recording: _Recording, vertical: _Recording | None) -> dict[str, pl.DataFrame]:
    """Return the tables of the vertical cut; without rows if there is none."""
    shown = vertical or recording
    tables = {
        "frames": frame_table(shown),
        "vertices": _surface_tables(shown)[1],
        "springs": spring_table(shown),
    }
    return tables if vertical else {name: frame.clear() for name, frame in tables.items()}


def _rigid_note(mesh: CutMesh) -> dict[str, str]:
    tops = np.zeros((0, 2)) if mesh.anatomy is None else rigid_tops(mesh.anatomy, BESIDE_M)
    return {RIGID: json.dumps(tops.round(6).tolist())} if len(tops) else {}


def run(io: StageIO, params: ReplayParams) -> dict[str, Any]:
    """Read the second body, its parameters and the motion, simulate, write the recording."""
    io.progress(0.0, "read the cut mesh and the motion")
    body = (read_cut_mesh(io.read, "precut_half"), MATERIALS[io.scan.material])
    values = read_second_cut_values(io.read)
    recording = record(
        *body,
        io.read(_MOTION),
        values,
        params,
        progress=lambda fraction: io.progress(0.02 + 0.45 * fraction, "optimised cut"),
    )
    try:
        vertical = record(
            *body,
            _vertical_motion(io.read(_PROFILE)),
            values,
            params,
            progress=lambda fraction: io.progress(0.47 + 0.38 * fraction, "vertical cut"),
        )
    except InputError:  # it stopped at once; only the viewer's comparison is lost
        vertical = None
    io.progress(0.85, "write the recording")
    faces, vertices = _surface_tables(recording)
    inverted = recording.result.statistics.inverted_tets
    io.write(
        "replay/frames",
        frame_table(recording),
        notes={INVERTED: str(inverted), **_rigid_note(recording.mesh)},
    )
    io.write("replay/faces", faces)
    io.write("replay/vertices", vertices)
    io.write("replay/springs", spring_table(recording))
    for name, frame in _vertical_tables(recording, vertical).items():
        io.write(f"replay/vertical_{name}", frame)
    io.progress(0.95, "draw the picture")
    io.write_png("replay/preview", picture(recording))
    io.progress(1.0, str(recording.result.outcome))
    return metrics(recording, params.cut.knife_label)
