"""motion.mcap: joint states, frames and force over time, read back by other libraries than the one that wrote it."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from stages.export.cell import cell_of
from stages.export.demand import Demand
from stages.export.export_files import read_export
from stages.export.file_checks import rest_and_copies
from stages.export.trajectory_files import TYPES, read_recording, recording_bytes
from stages.shared.robots.robot import load_robot
from tests.stages.synthetic_cut import PARAMS, certified_folder, demand_for, motion_table

MOTION = motion_table()
QUICK = PARAMS.changed(dwell_s=0.1, approach_height_m=0.01)
PANDA = load_robot("panda")


def demand() -> Demand:
    return demand_for(MOTION, QUICK)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return certified_folder(tmp_path_factory.mktemp("export") / "cut", MOTION, QUICK)


def test_the_mcap_library_finds_every_topic_at_every_waypoint(folder):
    reader = pytest.importorskip("mcap.reader")
    rows = len(pl.read_parquet(folder / "waypoints.parquet"))
    with (folder / "motion.mcap").open("rb") as file:
        bag = reader.make_reader(file)
        summary = bag.get_summary()
        kinds = {c.topic: summary.schemas[c.schema_id].name for c in summary.channels.values()}
        assert kinds == TYPES
        assert {c.message_encoding for c in summary.channels.values()} == {"cdr"}
        messages = list(bag.iter_messages())
    assert Counter(channel.topic for _, channel, _ in messages) == dict.fromkeys(TYPES, rows)
    times = [message.log_time for _, channel, message in messages if channel.topic == "/joint_states"]
    assert times == [10_000_000 * i for i in range(rows)]


def test_joints_force_and_frames_are_those_of_the_waypoints(folder):
    table, seen = pl.read_parquet(folder / "waypoints.parquet"), read_recording(folder / "motion.mcap")
    assert seen.joint_names == PANDA.joint_names
    assert np.array_equal(seen.position, table["q_rad"].to_numpy())
    assert np.array_equal(seen.velocity, table["dq_rad_s"].to_numpy())
    # Nine frames turned by quaternions: a few roundings of a metre.
    assert seen.edge == pytest.approx(table["edge_position_m"].to_numpy(), abs=1e-12)
    turn = cell_of(QUICK).o_t_c[:3, :3]
    assert seen.force @ turn.T == pytest.approx(table["force_n"].to_numpy(), abs=1e-12)
    # The knife weighs on joint 2, and the torques stay inside the arm's.
    assert (np.abs(seen.effort) < PANDA.torque_nm).all() and np.abs(seen.effort[:, 1]).min() > 1.0


def test_frames_have_the_names_of_the_robots_description(folder):
    from rosbags.highlevel import AnyReader

    with AnyReader([folder / "motion.mcap"]) as reader:
        connection = next(c for c in reader.connections if c.topic == "/tf")
        _, _, raw = next(reader.messages(connections=[connection]))
        tree = reader.deserialize(raw, connection.msgtype).transforms
    pairs = [(item.header.frame_id, item.child_frame_id) for item in tree]
    links = [f"panda_link{i}" for i in range(9)]
    assert pairs == [
        *pairwise(links),
        ("panda_link8", "knife_edge"),
        ("panda_link0", "cutting_frame"),
    ]


def test_a_recording_of_another_motion_is_refused(folder):
    files, wanted = read_export(folder), demand()
    name = "recording (motion.mcap) is that of the waypoints"
    assert all(check.passed for check in rest_and_copies(files, wanted) if check.name == name)
    table = files.waypoints.with_columns(
        pl.Series("q_rad", files.waypoints["q_rad"].to_numpy() + 1e-6, pl.Array(pl.Float64, 7))
    )
    (folder / "motion.mcap").write_bytes(recording_bytes(table, PANDA, wanted.cell))
    found = {check.name: check.passed for check in rest_and_copies(read_export(folder), wanted)}
    assert found[name] is False
    document = json.loads((folder / "cut.json").read_text())
    assert "motion.mcap" in document["siblings_sha256"]
