"""The stage replay: a recording that starts at rest, follows the knife and agrees with the simulator."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from disect_sim import KNIVES, MATERIALS
from disect_sim.virtual_nodes.cutting import cut_by_plane
from disect_sim.virtual_nodes.split import half_body
from stages.replay.replay import (
    _surface_tables,
    _vertical_motion,
    _vertical_tables,
    frame_table,
    metrics,
    picture,
    record,
    spring_table,
)
from stages.runtime.artifacts import check_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from tests.disect_sim.tet_meshes import jittered_box

ROOT = Path(__file__).parents[3]
PARAMS = load_params(ROOT / "params.yaml").replay.changed(frames=12, dt_s=0.002)
VALUES = {"cut_spring_softness": 1.0}
START_M, END_M, DURATION_S = 0.043, 0.001, 0.15
"""Over a box that is 4 cm high: the whole cut in 75 steps."""


def motion() -> pl.DataFrame:
    """A straight descent that starts and ends at rest, as optimize/motion has it."""
    time = np.arange(round(1000 * DURATION_S) + 1) / 1000.0
    share, rate = time / DURATION_S, 1.0 / DURATION_S
    smooth = share**2 * (3.0 - 2.0 * share)
    position, velocity = np.zeros((len(time), 3)), np.zeros((len(time), 3))
    position[:, 1] = START_M + (END_M - START_M) * smooth
    velocity[:, 1] = (END_M - START_M) * 6.0 * share * (1.0 - share) * rate
    vector = pl.Array(pl.Float64, 3)
    return pl.DataFrame(
        [
            pl.Series("time_s", time),
            pl.Series("position_m", position, vector),
            pl.Series("velocity_m_s", velocity, vector),
        ]
    )


@pytest.fixture(scope="module")
def recording():
    mesh = cut_by_plane(*jittered_box(3), point=(0.0, 0.0, 0.0), normal=(1.0, 0.0, 0.0))
    return record(mesh, MATERIALS["apple"], motion(), VALUES, PARAMS)


def test_tables_keep_the_contract(recording):
    faces, vertices = _surface_tables(recording)
    tables = {"frames": frame_table(recording), "faces": faces, "vertices": vertices}
    for name, table in {**tables, "springs": spring_table(recording)}.items():
        check_table(ARTIFACTS[f"replay/{name}"], table, name)
    assert len(vertices) % len(tables["frames"]) == 0
    assert faces["vertices"].explode().max() == len(vertices) // len(tables["frames"]) - 1


def test_frames_of_a_knife_that_turns_have_its_angle(recording):
    assert "knife_pitch_rad" not in frame_table(recording).columns
    time = motion()["time_s"].to_numpy()
    turning = motion().with_columns(pl.Series("pitch_rad", 0.05 * (1.0 - time / DURATION_S)))
    frames = frame_table(record(recording.mesh, MATERIALS["apple"], turning, VALUES, PARAMS))
    check_table(ARTIFACTS["replay/frames"], frames, "frames")
    expected = 0.05 * (1.0 - frames["time_s"].to_numpy() / DURATION_S)
    assert frames["knife_pitch_rad"].to_numpy() == pytest.approx(expected, abs=1e-4)


def test_frames_follow_the_motion(recording):
    frames = frame_table(recording)
    assert len(frames) == PARAMS.frames
    assert frames["time_s"][0] == 0.0
    # The last step ends at the first multiple of dt at or after the motion's end; the knife rests there.
    assert frames["time_s"][-1] == pytest.approx(DURATION_S, abs=PARAMS.cut.dt_s)
    height = frames["knife_position_m"].arr.get(1)
    assert (height[0], height[-1]) == pytest.approx((START_M, END_M), abs=1e-12)
    assert (frames["cut_fraction"].diff().drop_nulls() >= 0.0).all()
    assert frames["force_norm_n"][0] == 0.0
    assert frames["force_norm_n"].max() > 0.0


def test_first_frame_is_the_body_at_rest(recording):
    faces, vertices = _surface_tables(recording)
    first = vertices.filter(pl.col("frame") == 0)
    rest = np.concatenate([half_body(recording.mesh, side).vertices for side in (1, -1)])
    # Single precision holds 0.1 m to 6e-9 m.
    assert first["position_m"].to_numpy() == pytest.approx(rest, abs=1e-8)
    assert first["displacement_m"].max() == 0.0
    assert vertices["displacement_m"].max() > 1e-4
    assert set(faces["side"]) == {1, -1}


def test_springs_lose_stiffness_and_halves_open(recording):
    springs = spring_table(recording)
    count = len(springs) // PARAMS.frames
    first, last = springs.head(count), springs.tail(count)
    assert (first["remaining_fraction"] == 1.0).all()
    assert last["remaining_fraction"].mean() < 0.5
    gap = last["plus_m"].arr.get(0) - last["minus_m"].arr.get(0)
    assert first["plus_m"].to_numpy() == pytest.approx(first["minus_m"].to_numpy(), abs=1e-8)
    # The blade is 2 mm thick at its spine and about 1 mm inside a body 4 cm high.
    assert float(gap.mean()) > 2e-4


def test_metrics_and_picture(recording):
    found = metrics(recording, "kitchen")
    assert found["frames"] == PARAMS.frames
    assert found["blade_length_m"] == KNIVES["kitchen"].length_m
    assert found["max_displacement_m"] > 0.0
    pixels = picture(recording)
    assert pixels.ndim == 3
    assert pixels.std() > 5.0


def test_a_cut_that_stops_early_is_recorded_as_far_as_it_came(recording):
    force = recording.result.force_norm
    limit = float(0.5 * force.max())
    stopped = record(
        recording.mesh,
        MATERIALS["apple"],
        motion(),
        VALUES,
        PARAMS.changed(force_limit_n=limit),
    )
    assert 2 <= len(stopped.steps) < PARAMS.frames
    assert len(frame_table(stopped)) == len(stopped.steps)
    assert not stopped.result.outcome.ok


def test_a_cut_that_stops_at_once_is_refused(recording):
    params = PARAMS.changed(force_limit_n=1e-9, frames=2)
    with pytest.raises(InputError, match=r"cut\.dt_s"):
        record(recording.mesh, MATERIALS["apple"], motion(), VALUES, params)


def test_the_vertical_cut_is_recorded_beside_it(recording):
    """Its velocity is that of its positions, and a cut that stopped at once leaves tables without rows."""
    straight = motion()
    path = _vertical_motion(straight.rename({"position_m": "vertical_position_m"}))
    expected = straight["velocity_m_s"].to_numpy()
    # Second-order differences of a cubic over 1 ms: 2 * 42 mm / (0.15 s)^3 * (1 ms)^2 = 0.02 mm/s.
    assert np.abs(path["velocity_m_s"].to_numpy()[1:-1] - expected[1:-1]).max() < 1e-4
    assert not path["velocity_m_s"].to_numpy()[[0, -1]].any()
    for tables, rows in (
        (_vertical_tables(recording, recording), True),
        (_vertical_tables(recording, None), False),
    ):
        for name, frame in tables.items():
            check_table(ARTIFACTS[f"replay/vertical_{name}"], frame, name)
            assert bool(len(frame)) == rows
