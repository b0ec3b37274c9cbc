"""What must be refused is refused, with the right reason; and nothing certified breaks a limit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stages.export.cell import cell_of
from stages.export.certificate import Certificate, certify
from stages.export.checks import CUT_FRACTION
from stages.export.export import Exported
from stages.runtime.errors import InputError
from stages.shared.robots.robot import load_robot
from tests.stages.independent_limits import violations
from tests.stages.synthetic_cut import PARAMS, body_tables, demand_for, exported_cut, motion_table, table_of

# The fruit is so wide that the blade of 150 mm reaches 5 mm beyond it, and the fixture begins beyond that.
WIDE = 0.124
MOTION, BODY = motion_table(), body_tables(WIDE)


def made(place: Path, motion: pl.DataFrame, body=BODY, **changes) -> Exported:
    return exported_cut(place / "cut", motion, PARAMS.changed(**changes), body=body)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    exported = made(tmp_path_factory.mktemp("good"), MOTION)
    assert exported.certificate.certified, exported.certificate.verdict
    return exported.folder


@pytest.fixture
def copy(good, tmp_path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "copy"))


def judged(folder: Path, **changes) -> Certificate:
    demand = demand_for(MOTION, body=BODY)
    return certify(folder, replace(demand, **changes))


def reasons(certificate: Certificate) -> set[str]:
    assert not certificate.certified
    assert certificate.verdict.startswith("Refused: ")
    return {check.name for check in certificate.failed}


COPIES = {
    "moves to and from the ready pose: distance from the direct move",
    "every statement in cut.json follows from settings, motion and joints",
    "run scripts and checklist are those of this release",
}
"""Checks that compare what was written with the demand as a whole."""


def rewrite_joints(folder: Path, change) -> None:
    """Change the lines of the 1 kHz file, header excepted."""
    path = folder / "motion_1khz.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *change(lines)]) + "\n")


def test_good_files_stay_good_and_every_check_knows_a_remedy(copy):
    certificate = judged(copy)
    assert certificate.certified
    assert [check.name for check in certificate.checks if check.passed and not check.remedy] == []


def test_raw_motion_without_window(tmp_path):
    """Starts and ends at speed, as an optimised motion without window would."""
    time = 1e-3 * np.arange(1001)
    down, along = -0.06, 0.05
    position = np.stack([0 * time, 0.065 + down * time, 0.005 * np.sin(10.0 * time)], axis=1)
    velocity = np.stack([0 * time, 0 * time + down, along * np.cos(10.0 * time)], axis=1)
    push = np.stack([0 * time, 0 * time, -10.0 * along * np.sin(10.0 * time)], axis=1)
    exported = made(tmp_path, table_of(time, position, velocity, push, 40.0))
    found = reasons(exported.certificate)
    assert exported.folder.name == "refused"
    assert {"edge speed where the cut starts and ends", "cut: joint acceleration", "cut: joint jerk"} <= found
    text = (exported.folder / "REASON.txt").read_text()
    assert "NOT CERTIFIED" in text and "joint jerk" in text
    assert not (exported.folder / "run_cut.py").exists()
    assert json.loads((exported.folder / "cut.json").read_text())["certificate"]["certified"] is False


def test_five_decimals(copy):
    rewrite_joints(
        copy, lambda lines: [",".join(f"{float(v):.5f}" for v in line.split(",")) for line in lines]
    )
    # Half a step of 1e-5 rad in one cycle is 5e3 rad/s³ and more.
    assert "cut: joint jerk" in reasons(judged(copy))


def test_gap_of_one_millisecond(copy):
    rewrite_joints(copy, lambda lines: lines[:2000] + lines[2001:])
    assert {"cut: distance from the 1 ms grid", "cut: all samples there"} <= reasons(judged(copy))


def test_gap_hidden_by_new_times(copy):
    """The row is gone and the clock was corrected: fewer samples than the document says."""
    rewrite_joints(
        copy,
        lambda lines: [
            f"{0.001 * k:.17g},{line.split(',', 1)[1]}" for k, line in enumerate(lines[:2000] + lines[2001:])
        ],
    )
    assert reasons(judged(copy)) == {"cut: all samples there"}


def test_nan(copy):
    rewrite_joints(copy, lambda lines: [*lines[:9], lines[9].rsplit(",", 1)[0] + ",nan", *lines[10:]])
    assert reasons(judged(copy)) == {"all numbers finite"}


def test_nan_in_the_motion_never_gets_so_far(tmp_path):
    position = MOTION["position_m"].to_numpy().copy()
    position[700, 1] = np.nan
    broken = MOTION.with_columns(pl.Series("position_m", position, pl.Array(pl.Float64, 3)))
    with pytest.raises(InputError, match="NaN"):
        made(tmp_path, broken)


def test_swapped_axes_in_the_frame(copy):
    document = json.loads((copy / "cut.json").read_text())
    pose = np.array(document["frames"]["O_T_C"])
    document["frames"]["O_T_C"] = pose[:, [1, 0, 2, 3]].tolist()
    (copy / "cut.json").write_text(json.dumps(document))
    found = reasons(judged(copy))
    assert "O_T_C: distance from a rotation with det +1" in found
    assert "O_T_C: distance from the cell's" in found


def test_swapped_axes_in_the_motion(tmp_path):
    """Height and blade direction exchanged: the knife goes into the board."""
    swapped = MOTION.with_columns(
        *(
            pl.Series(name, MOTION[name].to_numpy()[:, [0, 2, 1]], pl.Array(pl.Float64, 3))
            for name in ("position_m", "velocity_m_s", "acceleration_m_s2")
        )
    )
    assert "height of the whole edge above the board" in reasons(made(tmp_path, swapped).certificate)


def test_swapped_axes_in_the_waypoints(copy):
    table = pl.read_parquet(copy / "waypoints.parquet")
    edge = table["edge_position_m"].to_numpy()[:, [1, 0, 2]]
    table.with_columns(pl.Series("edge_position_m", edge, pl.Array(pl.Float64, 3))).write_parquet(
        copy / "waypoints.parquet"
    )
    found = reasons(judged(copy))
    assert {"edge of the joints against the waypoints", "waypoints equal in Parquet, CSV and JSON"} <= found


def test_swapped_joints(copy):
    rewrite_joints(
        copy, lambda lines: [",".join(np.array(line.split(","))[[0, 2, 1, 3, 4, 5, 6, 7]]) for line in lines]
    )
    found = reasons(judged(copy))
    assert {"cut: edge against the optimised motion", "cut: knife against the cell's directions"} <= found


def test_wrong_robot(copy):
    assert {"made for this robot", "sha256 of the robot file"} <= reasons(
        judged(copy, robot=load_robot("fr3"))
    )


def test_board_two_millimetres_higher(copy):
    x, y, z = PARAMS.board_position_m
    higher = cell_of(PARAMS.changed(board_position_m=(x, y, z + 0.002)))
    assert "height of the whole edge above the board" in reasons(judged(copy, cell=higher))


def test_blade_ten_millimetres_shorter(copy):
    cell = cell_of(PARAMS)
    shorter = replace(cell, blade_length_m=cell.blade_length_m - 0.01)
    assert reasons(judged(copy, cell=shorter)) - COPIES == {
        "blade beyond the fruit at both ends",
        "cut.json agrees with cell, robot and motion",
    }


def test_knife_other_than_the_one_of_the_motion(copy, tmp_path):
    for name in ("slicing", "not stated"):
        certificate = judged(copy, knife_of_motion=name)
        assert reasons(certificate) - COPIES == {"knife is the one of the optimised motion"}
        assert f"cell kitchen, motion {name}" in certificate.verdict
    # The motion was made for a knife that is too short for the fruit.
    short = PARAMS.changed(knife="folding")
    exported = exported_cut(tmp_path / "cut", MOTION, short, body=BODY, knife="folding")
    assert reasons(exported.certificate) == {
        "blade beyond the fruit at both ends",
        "gap between blade and fixture",
    }


def test_fixture_in_the_fruit(tmp_path):
    wide = made(tmp_path / "wide", MOTION, body_tables(0.155))
    assert {"distance of the fixture from the fruit", "blade beyond the fruit at both ends"} <= reasons(
        wide.certificate
    )
    low = made(tmp_path / "low", MOTION, fixture_low_m=(-0.045, 0.001, 0.08))
    assert reasons(low.certificate) == {"height of the fixture above the board"}


def test_too_fast_too_strong_too_soft(tmp_path):
    fast = made(tmp_path / "fast", motion_table(amplitude=0.25, frequency=25.0))
    assert {"cut: knife speed", "air cut: knife speed"} <= reasons(fast.certificate)
    strong = made(tmp_path / "strong", motion_table(force_n=400.0))
    assert reasons(strong.certificate) == {
        "torque with the cutting force",
        "deflection at 14250 Nm/rad",
        "edge beside the cut plane, path and deflection together",
        "cut: torque rate",
        "cut: push on the edge that stops the arm",
    }
    soft = made(tmp_path / "soft", MOTION, joint_stiffness_nm_rad=3000.0)
    assert reasons(soft.certificate) == {
        "deflection at 3000 Nm/rad",
        "edge beside the cut plane, path and deflection together",
    }


def test_changed_or_added_sibling(copy):
    (copy / "CHECKLIST.md").write_text("all is well\n")
    (copy / "extra.txt").write_text("?")
    assert reasons(judged(copy)) == {
        "sha256 of the sibling files",
        "every file is listed and regular",
        "run scripts and checklist are those of this release",
    }


def test_missing_file(copy):
    (copy / "joint_trajectory.mcap").unlink()
    assert reasons(judged(copy)) == {"files readable"}


def test_elements_inside_out_in_the_simulated_cut(copy):
    """The force of such a cut is unreliable, and the torques are certified with it."""
    demand = demand_for(MOTION, body=BODY)
    parting = replace(demand.parting, inverted_tets=3)
    assert "elements inside out in the simulated cut" in reasons(judged(copy, parting=parting))


@pytest.mark.parametrize(("top", "refused"), [(0.03, True), (-0.005, False)])
def test_a_stone_under_the_edge(copy, top, refused):
    """The edge goes down to the board: it would hit a stone whose top is above it; one far below it is no obstacle."""
    demand = demand_for(MOTION, body=BODY)
    parting = replace(demand.parting, rigid_tops_m=np.array([[0.0, top], [0.002, top - 0.001]]))
    failed = {check.name for check in judged(copy, parting=parting).failed}
    assert ("height of the edge above rigid regions" in failed) == refused


def test_a_cut_that_did_not_happen(copy):
    demand = demand_for(MOTION, body=BODY)
    parting = replace(demand.parting, cut_fraction=0.02, reached_fraction=0.02)
    found = reasons(judged(copy, parting=parting))
    assert {"cut fraction of the springs the edge passes", CUT_FRACTION} <= found


def test_broken_chain(copy):
    assert reasons(judged(copy, broken_links=("scan.ply",))) == {"sha256 of the upstream files"}


def test_motion_off_the_grid_and_board_out_of_reach(tmp_path):
    with pytest.raises(InputError, match=r"row 700 is at 0\.701000 s"):
        made(tmp_path / "gap", pl.concat([MOTION[:700], MOTION[701:]]))
    with pytest.raises(InputError, match="can't bring its flange"):
        made(tmp_path / "far", MOTION, board_position_m=(1.2, 0.0, 0.03))


def test_the_second_judge_sees_what_it_should(copy):
    """Otherwise it would prove nothing below."""
    assert second_opinion(copy, WIDE) == []
    rewrite_joints(
        copy, lambda lines: [",".join(f"{float(v):.5f}" for v in line.split(",")) for line in lines]
    )
    assert "motion_1khz.csv: derivative 3" in second_opinion(copy, WIDE)


def second_opinion(folder: Path, width_m: float) -> list[str]:
    return violations(
        folder,
        board=np.array(PARAMS.board_position_m),
        edge_in_flange=np.array(PARAMS.edge_offset_m),
        reach_m=0.5 * PARAMS.cut.blade.length_m,
        fruit=(-0.49 * width_m, 0.49 * width_m),
    )


def random_case(seed: int) -> tuple[pl.DataFrame, float]:
    """A slicing motion and a fruit's width, about half of them too much for the arm or the cell."""
    rng = np.random.default_rng(seed)
    motion = motion_table(
        duration=float(rng.uniform(0.6, 1.8)),
        amplitude=rng.uniform(-0.25, 0.25, 5),
        frequency=rng.uniform(0.0, 30.0, 5),
        start_m=float(rng.uniform(0.061, 0.09)),
        end_m=float(rng.uniform(0.0, 0.002)),
        window_s=float(rng.uniform(0.02, 0.25)),
        force_n=float(rng.uniform(5.0, 90.0)),
        z_m=float(rng.uniform(-0.02, 0.02)),
    )
    return motion, float(rng.uniform(0.03, 0.13))


def certified_without_violation(seeds: range, place: Path) -> int:
    """How many of the random motions were certified; fails if one of those breaks a limit."""
    count = 0
    for seed in seeds:
        motion, width = random_case(seed)
        exported = made(place / str(seed), motion, body_tables(width))
        if exported.certificate.certified:
            count += 1
            assert second_opinion(exported.folder, width) == [], seed
        shutil.rmtree(place / str(seed))
    return count


def test_no_certified_random_motion_of_a_few_breaks_a_limit(tmp_path):
    # One of these two is certified.
    assert certified_without_violation(range(13, 15), tmp_path) == 1


@pytest.mark.slow
def test_no_certified_random_motion_of_two_hundred_breaks_a_limit(tmp_path):
    assert 20 <= certified_without_violation(range(1000, 1200), tmp_path) <= 170
