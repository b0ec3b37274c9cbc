"""Motions and settings that keep every limit of the joints and still must never be certified."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stages.export.cell import cell_of
from stages.export.certificate import certify
from stages.export.checks import CUT_FRACTION, Check
from stages.export.demand import Demand, parting_of
from stages.export.export_files import read_export
from stages.export.load_checks import _COLLISION_N, _stopping_push, collisions, loads, thresholds
from stages.export.moves import move_checks
from stages.export.package import write_package
from stages.export.place_checks import cutting, tool_fits
from stages.shared.robots.robot import jacobian, load_robot
from tests.stages.synthetic_cut import (
    PARAMS,
    demand_for,
    exported_cut,
    motion_table,
    parting_at_end,
    replay_tables,
)

PANDA = load_robot("panda")
MOTION = motion_table()
SHORT = {"dwell_s": 0.1, "approach_height_m": 0.01}
"""Of approach and retract, where they do not matter: half of the samples."""


def demand(motion: pl.DataFrame = MOTION, *, cut_fraction: float = 0.99, **changes) -> Demand:
    parting = parting_at_end(motion, cut_fraction=cut_fraction)
    return demand_for(motion, PARAMS.changed(**changes), parting=parting)


def failed(checks: list[Check]) -> set[str]:
    """Names of the failed checks; each must say what to do."""
    for check in checks:
        assert check.passed or (check.remedy and check.remedy in check.sentence()), check.name
    return {check.name for check in checks if not check.passed}


def moved(*, up: float = 0.0, aside: float = 0.0) -> pl.DataFrame:
    position = MOTION["position_m"].to_numpy() + np.array([aside, up, 0.0])
    return MOTION.with_columns(pl.Series("position_m", position, pl.Array(pl.Float64, 3)))


def with_force(force: np.ndarray) -> pl.DataFrame:
    return MOTION.with_columns(pl.Series("force_n", force, pl.Array(pl.Float64, 3)))


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_package(folder, demand(), scan_id="synthetic")
    return folder


def test_nothing_is_found_in_a_good_cell(good):
    files, wanted = read_export(good), demand()
    assert failed(tool_fits(wanted) + cutting(files, wanted) + collisions(files, wanted)) == set()
    assert failed(move_checks(files, wanted)) == set()


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        (
            {"edge_offset_m": (0.0, 0.0, 0.0)},
            {"flange inside the fixture's box", "centre of mass outside knife and fixture"},
        ),
        ({"edge_offset_m": (0.0, 0.12, 0.02)}, {"centre of mass outside knife and fixture"}),
        (
            {"fixture_low_m": PARAMS.fixture_high_m, "fixture_high_m": PARAMS.fixture_low_m},
            {"shortest side of the fixture's box", "flange inside the fixture's box"},
        ),
        ({"fixture_low_m": (-0.045, 0.01, 0.11), "fixture_high_m": (0.045, 0.2, 0.2)}, None),
        ({"tool_mass_kg": 0.026}, {"mass of knife and fixture against the blade alone"}),
        ({"tool_mass_kg": 0.0}, {"mass of knife and fixture against the blade alone"}),
        ({"blade_angle_deg": 90.0}, {"flange inside the fixture's box"}),
        ({"edge_offset_m": (0.0, -0.12, 0.15)}, {"flange inside the fixture's box"}),
        ({"tool_com_m": (0.0, 40.0, 60.0)}, {"centre of mass outside knife and fixture"}),
    ],
)
def test_flange_blade_and_fixture_that_are_no_body(changes, reasons):
    found = failed(tool_fits(demand(**changes)))
    assert found >= (reasons or {"gap between blade and fixture", "flange inside the fixture's box"})


@pytest.mark.parametrize(
    "absurd",
    [
        {"max_deflection_m": 0.05},
        {"max_deflection_m": float("nan")},
        {"min_cut_fraction": 0.0},
        {"min_board_clearance_m": -0.01},
        {"joint_stiffness_nm_rad": 1e9},
        {"tool_mass_kg": 400.0},
        {"air_cut_lift_m": 0.0},
        {"board_position_m": (float("inf"), 0.0, 0.03)},
    ],
    ids=lambda one: next(iter(one)),
)
def test_limits_loosened_to_the_absurd_are_no_settings(absurd):
    with pytest.raises(ValueError, match=next(iter(absurd))):
        PARAMS.changed(**absurd)


def test_blade_of_a_metre_is_no_knife():
    wanted = demand()
    long = replace(wanted, cell=replace(wanted.cell, blade_length_m=1.0))
    assert "length of the blade" in failed(tool_fits(long))


def test_deflection_counts_with_the_path_beside_the_plane(good):
    """A soft arm within a loose max_deflection_m still cuts millimetres beside the simulated plane."""
    files = read_export(good)
    assert failed(loads(files, demand())) == set()
    soft = demand(joint_stiffness_nm_rad=6000.0, max_deflection_m=0.01)
    assert failed(loads(files, soft)) == {"edge beside the cut plane, path and deflection together"}
    (check,) = (c for c in loads(files, soft) if not c.passed)
    assert "6000 Nm/rad, which the run script sets" in check.sentence()
    # Path and deflection add up: half a millimetre of path, allowed by itself, is too much on top.
    _, _, z = PARAMS.board_position_m
    x, y, _ = PARAMS.board_position_m
    plane = cell_of(PARAMS.changed(board_position_m=(x + 0.0011, y, z)))
    aside = replace(demand(), cell=replace(demand().cell, o_t_c=plane.o_t_c))
    assert "edge beside the cut plane, path and deflection together" in failed(loads(files, aside))


def test_torque_rate_and_short_tare(good):
    files = read_export(good)
    hammering = with_force(MOTION["force_n"].to_numpy() * (np.arange(len(MOTION)) // 40 % 2)[:, None])
    assert "cut: torque rate" in failed(loads(files, demand(hammering)))
    assert failed(loads(files, demand(dwell_s=0.01))) >= {
        "readings at rest before the cut, for the tare of the force"
    }


@pytest.mark.parametrize("height", [0.0, 0.02])
def test_flange_at_the_board_is_refused_as_a_whole(tmp_path, height):
    """The flange 1 mm and 21 mm above the board, with a centre of mass that fits: the wrist is in the board."""
    offset = (0.0, 0.12, height)
    wanted = PARAMS.changed(
        edge_offset_m=offset,
        tool_com_m=(0.0, 0.04, height - 0.03),
        fixture_low_m=(-0.045, -0.001, 0.08),
        **SHORT,
    )
    exported = exported_cut(tmp_path / "cut", MOTION, wanted)
    assert "height of the arm's links above the board" in {c.name for c in exported.certificate.failed}
    assert exported.folder.name == "refused"


@pytest.mark.parametrize(
    ("motion", "reasons"),
    [
        (moved(up=0.03), {"lowest height of the edge"}),
        (motion_table(end_m=0.066), {"lowest height of the edge"}),
        (moved(aside=0.1), {"distance of the edge from the cut plane"}),
        (
            with_force(np.zeros((len(MOTION), 3))),
            {"fraction of the path in the fruit with a force", "mean upward force in the fruit"},
        ),
        (with_force(-MOTION["force_n"].to_numpy()), {"mean upward force in the fruit"}),
        (with_force(MOTION["force_n"].to_numpy()[::-1].copy()), {"force above the fruit"}),
    ],
    ids=["30 mm too high", "hovering", "100 mm beside", "no force", "pulls the knife", "backwards"],
)
def test_motions_that_do_not_cut_this_fruit(tmp_path, motion, reasons):
    wanted = demand(motion, **SHORT)
    write_package(tmp_path, wanted, scan_id="synthetic")
    certificate = certify(tmp_path, wanted)
    assert not certificate.certified
    assert failed([check for check in certificate.failed if check.number == 9]) >= reasons


def test_fruit_that_is_not_parted_is_said_with_what_remains(good):
    files = read_export(good)
    for fraction in (0.84, float("nan")):
        checks = cutting(files, demand(cut_fraction=fraction))
        assert failed(checks) == {CUT_FRACTION}
        (check,) = (c for c in checks if not c.passed)
        assert "1 of 100 springs remain, 0.8 mm above the board" in check.sentence()
    assert failed(cutting(files, demand(cut_fraction=0.84, min_cut_fraction=0.8))) == set()


def test_springs_that_survive_above_the_edge(good):
    """Two springs, one at 30 mm whole: half of what the edge passed. The one below its end is not counted."""
    frames, springs = replay_tables(MOTION)
    assert parting_of(frames, springs).reached_fraction == 1.0
    whole = springs.with_columns(pl.Series("remaining_fraction", [1.0, 1.0, 1.0, 0.9], pl.Float32))
    found = parting_of(frames, whole)
    assert found.reached_fraction == 0.0 and found.whole_heights_m == pytest.approx([0.0008, 0.03])
    checks = cutting(read_export(good), replace(demand(), parting=found))
    assert failed(checks) == {"cut fraction of the springs the edge passes"}


def test_simulated_cut_of_another_motion(good):
    wanted = demand()
    stopped = replace(wanted.parting, end_position_m=np.array([0.0, 0.03, 0.0]))
    checks = cutting(read_export(good), replace(wanted, parting=stopped))
    assert failed(checks) == {"end of the simulated cut from the motion's"}


def test_thresholds_pass_the_prediction_and_stop_a_collision(good):
    """No predicted reading trips them, 8 % and 10 N more included; a push of 120 N on the edge does, anywhere."""
    document = json.loads((good / "cut.json").read_text())
    air, cut = document["collision"]["air_cut"], document["collision"]["cut"]
    assert min(air["torque_nm"]) >= 3.0 and min(air["force_n"][:3]) >= 10.0
    assert all(a < b for a, b in zip(air["force_n"][:3], cut["force_n"][:3], strict=True) if b > 11.0)
    # The cut pushes with 40 N up and 12 N along: its moment about the flange, 0.12 m aside, is over 4.8 Nm.
    assert max(cut["force_n"][3:]) > 1.3 * 4.8
    files = read_export(good)
    limits = np.array([*cut["torque_nm"], *cut["force_n"]])
    assert _stopping_push(PANDA, cell_of(PARAMS), files.cut.joints, limits) < 1.25 * _COLLISION_N + 10.0


def test_thresholds_that_trip_or_never_trip_are_refused(good, tmp_path):
    for scale, reasons in (
        (
            0.3,
            {
                "cut: collision thresholds above what the prediction reads",
                "cut: push that trips the robot's reflex, in any direction",
            },
        ),
        (1.1, {"cut: collision thresholds beyond what the motion needs"}),
        (
            5.0,
            {
                "cut: collision thresholds beyond what the motion needs",
                "cut: push on the edge that stops the arm",
            },
        ),
    ):
        folder = Path(shutil.copytree(good, tmp_path / str(scale)))
        document = json.loads((folder / "cut.json").read_text())
        stated = document["collision"]["cut"]
        for key in ("torque_nm", "force_n"):
            stated[key] = [scale * value for value in stated[key]]
        (folder / "cut.json").write_text(json.dumps(document))
        assert failed(collisions(read_export(folder), demand())) == reasons


@pytest.mark.parametrize("name", ["panda", "fr3", "ur5e"])
def test_the_run_script_stops_before_the_robots_reflex_in_every_direction(name):
    """1.25 times the stop force from any side, also across the blade, where no force is predicted, trips nothing."""
    robot, cell = load_robot(name), cell_of(PARAMS)
    joints = np.tile(robot.ready_pose_rad, (3, 1))
    limits = thresholds(robot, cell, joints, np.array([[0.0, 0.0, 0.0], [0.0, 5.0, 30.0], [0.0, 0.0, 10.0]]))
    rng = np.random.default_rng(0)
    ways = rng.normal(size=(200, 3))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    lever = jacobian(robot.table, joints[:1], cell.f_t_e)[0, :3]
    for way in [*ways, [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]:
        push = 1.25 * limits.stop_force_n * np.array(way)
        assert (np.abs(push) <= limits.force_n[:3]).all()
        assert (np.abs(lever.T @ push) <= limits.torque_nm).all()


def test_thresholds_of_a_strong_cut_would_miss_a_collision():
    joints = np.tile(demand().robot.ready_pose_rad, (2, 1))
    found = thresholds(PANDA, cell_of(PARAMS), joints, np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 100.0]]))
    assert found.force_n[2] > _COLLISION_N and found.stop_force_n > _COLLISION_N
    # 100 N on an edge that is beside the flange: the moment there is no fixed number.
    aside = float(np.linalg.norm(PARAMS.edge_offset_m[:2]))
    assert aside > 0.1 and max(found.force_n[3:]) > 1.3 * 100.0 * aside


def test_move_that_starts_elsewhere_or_dives_is_refused(good, tmp_path):
    folder = Path(shutil.copytree(good, tmp_path / "copy"))
    head, *lines = (folder / "to_start.csv").read_text().splitlines()
    rows = np.array([[float(v) for v in line.split(",")] for line in lines])
    # A detour of joint 2, back at the end, that lowers the knife by more than 10 cm.
    rows[:, 2] += 0.5 * np.sin(np.pi * np.linspace(0.0, 1.0, len(rows))) ** 4
    rows[:, 1] += 0.01
    (folder / "to_start.csv").write_text(
        "\n".join([head, *(",".join(f"{v:.17g}" for v in row) for row in rows)]) + "\n"
    )
    found = {
        check.name.partition(": ")[2]
        for check in move_checks(read_export(folder), demand())
        if not check.passed
    }
    assert {"gap where they join", "knife and fixture above the fruit"} <= found
