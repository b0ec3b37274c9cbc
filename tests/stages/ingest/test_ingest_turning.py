"""A knife that turns during a cut: the angle in and out of the cut plane, jumps, and what is no rotation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from disect_sim import MATERIALS, box_mesh, build_model, cut_by_plane
from stages.calibrate.problem import _motion, read_recorded_cut
from stages.ingest.ingest import force_table, ingest, metrics
from stages.ingest.log_file import ON_KNIFE, RobotLog
from stages.runtime.errors import InputError
from tests.stages.force_logs import PARAMS, synthetic_cut

AXES = {"x": 0, "y": 1, "z": 2}
HELD = Rotation.from_euler("xyz", [180.0, 3.0, 20.0], degrees=True)
"""How the arm holds the knife: its own axes are not those of the base."""


def a_log(turn: Rotation | None) -> RobotLog:
    """A cut down the base's z, the blade along PARAMS.blade_axis; turn: of the knife in the base frame, per sample."""
    cut = synthetic_cut()
    rotation = None if turn is None else (turn * HELD).as_matrix()
    return RobotLog(
        "synthetic", cut.time_s, "t", "s", cut.position_m, rotation, cut.reading_n, force_factor=ON_KNIFE
    )


def turn_about(axis: str, degrees: float) -> Rotation:
    """From none to this angle, in proportion to the time."""
    vector = np.zeros((len(synthetic_cut().time_s), 3))
    vector[:, AXES[axis]] = np.radians(degrees) * np.linspace(0.0, 1.0, len(vector))
    return Rotation.from_rotvec(vector)


def figures(turn: Rotation | None) -> dict[str, object]:
    return metrics(ingest(a_log(turn), PARAMS), "synthetic", 0)


def test_the_turn_is_measured_in_and_out_of_the_cut_plane():
    across = ({"x", "y", "z"} - {PARAMS.up_axis[-1], PARAMS.blade_axis[-1]}).pop()
    rocked = figures(turn_about(across, 6.0))
    plain = ingest(a_log(None), PARAMS)
    share = (plain.descent.bottom - plain.onset) / (len(synthetic_cut().time_s) - 1)
    assert rocked["pitch_deg"] == pytest.approx(6.0 * share, abs=1e-6)
    assert rocked["out_of_plane_deg"] == pytest.approx(0.0, abs=1e-6)
    assert rocked["warning"] is None, "the simulated knife turns in the plane, too"
    twisted = figures(turn_about(PARAMS.up_axis[-1], -6.0))
    assert twisted["out_of_plane_deg"] == pytest.approx(6.0 * share, abs=1e-6)
    assert twisted["pitch_deg"] == pytest.approx(0.0, abs=1e-6)
    assert f"0.0° in the cut plane, {6.0 * share:.1f}° out of it" in twisted["warning"]
    assert figures(turn_about(across, 1.0))["warning"] is None
    assert figures(None)["pitch_deg"] is None


def test_a_turn_in_the_plane_is_in_the_table_and_in_the_simulated_motion():
    across = ({"x", "y", "z"} - {PARAMS.up_axis[-1], PARAMS.blade_axis[-1]}).pop()
    result = ingest(a_log(turn_about(across, 6.0)), PARAMS)
    table = force_table(result)
    pitch = table["pitch_rad"].to_numpy()
    assert pitch[result.onset] == 0.0
    assert abs(pitch[-1]) == pytest.approx(
        np.radians(6.0) * (1.0 - result.onset / (len(pitch) - 1)), rel=1e-6
    )
    cut = read_recorded_cut(table)
    assert cut is not None and cut.pitch is not None and np.array_equal(cut.pitch, pitch)
    nodes = box_mesh((-0.02, 0.0, -0.02), (0.02, 0.04, 0.02), (3, 2, 2))
    model = build_model(cut_by_plane(*nodes), MATERIALS["apple"])
    poses = _motion(cut, model, 0.0, cut.onset_s, 0.0).poses(cut.time.copy())
    assert poses.shape[1] == 4 and poses[:, 3] == pytest.approx(pitch, abs=1e-9)
    held = force_table(ingest(a_log(turn_about(across, 1.0)), PARAMS))
    assert "pitch_rad" not in held.columns, "small turns are left out"
    assert read_recorded_cut(held).pitch is None


def test_the_way_to_the_fruit_does_not_count():
    """An arm turns the knife by 45° between its ready pose and the start of the cut."""
    before = np.arange(len(synthetic_cut().time_s)) / ingest(a_log(None), PARAMS).onset
    vector = np.zeros((len(before), 3))
    vector[:, AXES[PARAMS.up_axis[-1]]] = np.radians(45.0) * (1.0 - np.minimum(before, 1.0))
    found = figures(Rotation.from_rotvec(vector))
    assert found["warning"] is None and found["out_of_plane_deg"] == pytest.approx(0.0, abs=1e-6)


def test_a_jump_and_what_is_no_rotation_are_refused():
    jumping = turn_about("x", 0.0).as_rotvec()
    jumping[200:, 0] = 0.3
    with pytest.raises(InputError, match=r"orientation jumps by 17\.2°.*order of the quaternion"):
        ingest(a_log(Rotation.from_rotvec(jumping)), PARAMS)
    log = a_log(turn_about("x", 0.0))
    with pytest.raises(InputError, match="not a rotation in every sample"):
        ingest(replace(log, rotation=0.0 * log.rotation), PARAMS)
