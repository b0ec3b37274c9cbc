"""The stage export: the set of files, their round trip, the run script, and the stage as DVC runs it."""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stages.export.certificate import verify
from stages.export.demand import cut_of, fruit_of
from stages.export.description import _CHAIN as STAGES_OF_CHAIN
from stages.export.export import metrics
from stages.export.export_files import read_export, walk
from stages.export.export_picture import export_picture
from stages.export.motion_checks import POSE_M
from stages.export.trajectory_files import read_mcap, read_yaml
from stages.export.waypoints import PERIOD_S, joint_rows, table_of_csv, table_of_rows, whole_motion
from stages.runtime.artifacts import polars_dtype, read_metrics, write_json, write_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_file
from stages.shared.robots.robot import load_robot
from tests.stages.synthetic_cut import (
    PARAMS,
    ROOT,
    body_tables,
    certified_folder,
    demand_for,
    exported_cut,
    motion_table,
    replay_tables,
)

MOTION, BODY = motion_table(), body_tables()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return exported_cut(tmp_path_factory.mktemp("export") / "cut", MOTION)


def test_slicing_motion_is_certified(exported):
    assert exported.certificate.certified, exported.certificate.verdict
    assert exported.folder.name == "certified"
    assert exported.certificate.verdict.endswith("Not run: independent dynamics.")
    assert {check.number for check in exported.certificate.checks} == set(range(1, 10))
    assert not (exported.folder / "REASON.txt").exists()
    assert [p.name for p in exported.folder.parent.iterdir()] == ["certified"]


def test_files_of_the_set(exported):
    names = {str(p.relative_to(exported.folder)) for p in exported.folder.rglob("*") if p.is_file()}
    variants = {
        "joint_1khz.csv",
        "motion_1khz.csv",
        "joint_trajectory.yaml",
        "joint_trajectory.mcap",
        "to_start.csv",
        "to_ready.csv",
    }
    assert names == variants | {f"air_cut/{name}" for name in variants} | {
        "cut.json",
        "waypoints.parquet",
        "waypoints.csv",
        "run_cut.py",
        "cut_stream.py",
        "franka_arm.py",
        "stream_cut.cpp",
        "motion.parquet",
        "motion.mcap",
        "CHECKLIST.md",
    }
    document = json.loads((exported.folder / "cut.json").read_text())
    assert (document["schema"], document["schema_version"]) == ("scan2cut/cut", 4)
    assert set(document["siblings_sha256"]) == names - {"cut.json"}
    assert "not a power-and-force-limited application" in document["warning"]
    assert "not a power-and-force-limited application" in (exported.folder / "CHECKLIST.md").read_text()
    for check in document["certificate"]["checks"]:
        assert check["passed"] in (True, None) and "limit" in check and "margin" in check


def test_polars_reads_the_csv_without_options(exported):
    table = pl.read_csv(exported.folder / "waypoints.csv")
    assert {name: str(kind) for name, kind in table.schema.items() if kind != pl.Float64} == {
        "phase": "String"
    }
    exact = pl.read_parquet(exported.folder / "waypoints.parquet")
    assert np.array_equal(table["q_rad[3]"].to_numpy(), exact["q_rad"].to_numpy()[:, 3])
    joints = pl.read_csv(exported.folder / "motion_1khz.csv")
    assert set(joints.dtypes) == {pl.Float64}


def test_round_trip_is_bit_exact(exported):
    folder = exported.folder
    table = pl.read_parquet(folder / "waypoints.parquet")
    assert table_of_csv((folder / "waypoints.csv").read_bytes()).equals(table)
    assert table_of_rows(json.loads((folder / "cut.json").read_text())["waypoints"]).equals(table)
    q = table["q_rad"].to_numpy()
    rows = joint_rows((folder / "motion_1khz.csv").read_bytes())
    assert np.array_equal(rows[::10, 1:], q)
    assert np.array_equal(rows[:, 0], PERIOD_S * np.arange(len(rows)))
    first = (len(joint_rows((folder / "to_start.csv").read_bytes())) - 1) // 10
    middle = slice(first, first + len(q))
    for trajectory in (
        read_yaml((folder / "joint_trajectory.yaml").read_bytes()),
        read_mcap(folder / "joint_trajectory.mcap"),
    ):
        assert np.array_equal(trajectory.position[middle], q)
        assert np.array_equal(trajectory.velocity[middle], table["dq_rad_s"].to_numpy())
        assert np.array_equal(trajectory.acceleration[middle], table["ddq_rad_s2"].to_numpy())
        assert np.array_equal(trajectory.time_ns, 10_000_000 * np.arange(len(trajectory.position)))
        assert trajectory.joint_names == tuple(f"panda_joint{i}" for i in range(1, 8))


@pytest.mark.parametrize("variant", [".", "air_cut"])
def test_every_file_to_play_begins_and_ends_at_the_ready_pose(exported, variant):
    """Without a jump: rest at both ends, and every 1 kHz step within the robot's limits, the joins included."""
    folder, robot = exported.folder / variant, load_robot("panda")
    whole = joint_rows((folder / "joint_1khz.csv").read_bytes())
    assert np.array_equal(whole[:, 0], PERIOD_S * np.arange(len(whole)))
    for q in (
        whole[:, 1:],
        read_yaml((folder / "joint_trajectory.yaml").read_bytes()).position,
        read_mcap(folder / "joint_trajectory.mcap").position,
    ):
        assert np.array_equal(q[[0, -1]], [robot.ready_pose_rad] * 2)
    assert np.array_equal(whole[::10, 1:], q)
    padded = np.concatenate([whole[:1, 1:]] * 3 + [whole[:, 1:]] + [whole[-1:, 1:]] * 3)
    for order, limit in ((1, robot.velocity_rad_s), (2, robot.acceleration_rad_s2), (3, robot.jerk_rad_s3)):
        assert (np.abs(np.diff(padded, n=order, axis=0)) * 1e3**order <= limit).all()


def test_bag_opens_with_rosbags(exported):
    from rosbags.highlevel import AnyReader

    with AnyReader([exported.folder / "joint_trajectory.mcap"]) as reader:
        (connection,) = reader.connections
        assert connection.msgtype == "trajectory_msgs/msg/JointTrajectory"
        _, _, raw = next(reader.messages())
        message = reader.deserialize(raw, connection.msgtype)
    assert len(message.points) == (len(pl.read_csv(exported.folder / "joint_1khz.csv")) - 1) // 10 + 1


def test_same_input_gives_the_same_bytes(exported, tmp_path):
    again = exported_cut(tmp_path / "cut", MOTION)
    for path in exported.folder.rglob("*"):
        if path.is_file():
            other = again.folder / path.relative_to(exported.folder)
            assert hashlib.sha256(other.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()


def test_air_cut_is_the_same_motion_higher(exported):
    files = read_export(exported.folder)
    cut, air = whole_motion(cut_of(MOTION), PARAMS), whole_motion(cut_of(MOTION), PARAMS, lift_m=0.06)
    assert air.position - cut.position == pytest.approx(np.tile([0.0, 0.06, 0.0], (len(cut), 1)), abs=1e-15)
    assert (air.force == 0.0).all() and np.array_equal(air.phase, cut.phase)
    assert len(files.air.rows) == len(files.cut.rows) == len(cut)


def test_approach_and_retract_rest_at_their_ends_and_keep_their_limits():
    edge = whole_motion(cut_of(MOTION), PARAMS)
    assert (len(edge) - 1) % 10 == 0
    for phase in ("approach", "retract"):
        rows = np.flatnonzero(edge.phase == phase)
        height = edge.position[rows[0] - 1 : rows[-1] + 2, 1]
        assert abs(height[-1] - height[0]) > 0.04
        assert np.ptp(edge.position[rows, 2]) == 0.0
        speed = np.diff(height, prepend=height[0]) / PERIOD_S
        push = np.diff(speed) / PERIOD_S
        # One cycle's difference of a motion at its limit exceeds it by rounding only.
        assert np.abs(speed).max() <= PARAMS.approach_speed_m_s * (1 + 1e-9)
        assert np.abs(push).max() <= PARAMS.approach_acceleration_m_s2 * (1 + 1e-6)
        assert np.abs(np.diff(push)).max() / PERIOD_S <= PARAMS.approach_jerk_m_s3 * 1.01
        # At the ends the speed is what one cycle of the allowed jerk gives.
        assert max(abs(speed[1]), abs(speed[-1])) < PARAMS.approach_jerk_m_s3 * PERIOD_S**2


def test_fruit_of_an_ellipsoid():
    vertices, faces = body_tables(0.05)
    fruit = fruit_of(vertices["position_m"].to_numpy(), faces["vertices"].to_numpy())
    # The sphere's triangles lie up to 1 % inside.
    assert fruit.section_high_m == pytest.approx(0.025, rel=0.01)
    assert fruit.section_low_m == pytest.approx(-0.025, rel=0.01)
    assert fruit.section[..., 1].max() == pytest.approx(0.06, rel=0.01)
    with pytest.raises(InputError, match="the knife at x = 0 misses it"):
        fruit_of(vertices["position_m"].to_numpy() + np.array([0.1, 0.0, 0.0]), faces["vertices"].to_numpy())


def test_metrics_and_picture(exported):
    found = metrics(exported, "somewhere")
    assert found["certified"] is True and found["outcome"] == "certified"
    assert found["path"] == "somewhere" and found["failed"] == []
    assert 0.0 < found["joint_acceleration_margin_fraction"] < 1.0
    assert found["board_margin_m"] == pytest.approx(0.001 + POSE_M - PARAMS.min_board_clearance_m, abs=1e-12)
    picture = export_picture(
        exported.folder,
        demand_for(MOTION),
        exported.certificate,
    )
    assert picture.shape == (1000, 1500, 3) and picture.std() > 10.0


def script(folder: Path, *arguments: str, answers: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, folder / "run_cut.py", *arguments],
        input=answers,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": os.environ["PATH"]},
    )


def test_without_a_force_log_only_the_geometry_is_certified(tmp_path):
    """Verdict, metrics, cut.json, verify and script say so; the cut needs an explicit flag, the air cut does not."""
    found = exported_cut(tmp_path / "cut", MOTION, force_calibrated=False)
    verdict = found.certificate.verdict
    assert found.certificate.certified and verdict.startswith("Geometry certified, force uncalibrated: all ")
    figures = metrics(found, "somewhere")
    assert (figures["outcome"], figures["force_calibrated"]) == (
        "geometry certified, force uncalibrated",
        False,
    )
    document = json.loads((found.folder / "cut.json").read_text())
    assert document["certificate"]["verdict"] == verdict and document["demand"]["force_calibrated"] is False
    assert verify(found.folder).verdict.startswith("Geometry certified, force uncalibrated")
    assert "force uncalibrated" in script(found.folder).stdout
    target = ("--execute", "--robot", "panda", "--host", "127.0.0.1")
    assert "accept the estimates with --accept-uncalibrated" in script(found.folder, *target).stdout
    for more in ("--air", "--accept-uncalibrated"):
        assert "--accept-uncalibrated." not in script(found.folder, *target, more).stdout.split("REFUSED")[-1]


def test_run_script_is_dry_by_default_and_checks_hashes(exported, tmp_path):
    dry = script(exported.folder)
    assert (dry.returncode, dry.stderr) == (0, "")
    assert "All checks passed. Dry run: nothing was moved." in dry.stdout
    wrong = script(exported.folder, "--robot", "fr3")
    assert wrong.returncode == 2 and "certified for panda, not for fr3" in wrong.stdout
    assert "--execute needs --robot and --host" in script(exported.folder, "--execute").stdout

    for name, before, after, reason in (
        ("air_cut/motion_1khz.csv", b"0", b"1", "air_cut/motion_1khz.csv is missing or was changed"),
        ("cut.json", b'"lift_m": 0.06', b'"lift_m": 0.00', "cut.json was changed after"),
        ("cut.json", b'"certified": true', b'"certified": false', "no valid certificate"),
    ):
        copy = tmp_path / hashlib.sha256(after).hexdigest()
        shutil.copytree(exported.folder, copy)
        changed = (copy / name).read_bytes().replace(before, after, 1)
        assert changed != (copy / name).read_bytes()
        (copy / name).write_bytes(changed)
        refused = script(copy)
        assert refused.returncode == 2 and reason in refused.stdout


@pytest.mark.parametrize(("robot", "package"), [("panda", "panda-python"), ("fr3", "pylibfranka")])
def test_run_script_refuses_with_sentences_before_it_connects(exported, tmp_path, robot, package):
    """Without its library, without a real-time kernel, and with a log that exists: no traceback, nothing lost."""
    folder = exported.folder
    if robot != "panda":
        folder = certified_folder(tmp_path / robot, MOTION, PARAMS.changed(robot=robot))
    line = ("--execute", "--robot", robot, "--host", "127.0.0.1")
    missing = script(folder, *line, "--no-realtime", "--log", str(tmp_path / "new.json"))
    assert (missing.returncode, missing.stderr) == (2, "")
    assert f"REFUSED: {package} can't be imported" in missing.stdout
    assert f"Run pip install {package}." in missing.stdout
    if not Path("/sys/kernel/realtime").exists():
        slow = script(folder, *line, "--log", str(tmp_path / "new.json"))
        assert slow.returncode == 2 and "has no real-time kernel" in slow.stdout
    (tmp_path / "old.json").write_text("{}")
    kept = script(folder, *line, "--log", str(tmp_path / "old.json"))
    assert kept.returncode == 2 and "Give a new file with --log" in kept.stdout
    assert (tmp_path / "old.json").read_text() == "{}" and not (tmp_path / "new.json").exists()


def test_script_between_samples_stops_within_the_limits(exported, monkeypatch):
    """Slowing down anywhere on the way keeps every joint within the robot's own acceleration and jerk."""
    monkeypatch.syspath_prepend(str(exported.folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    stream = importlib.import_module("cut_stream")
    document = json.loads((exported.folder / "cut.json").read_text())
    run = stream.Run(None, document, stream.Motion(exported.folder, document, False))
    run.path = [*run.motion.to_start, *run.motion.joints[1:]]
    robot = load_robot("panda")
    assert stream.between(run.path, 1234.0) is run.path[1234]
    for begin in range(500, len(run.path) - 1000, 700):
        run.place, place, path = float(begin), float(begin), list(run.path[begin - 3 : begin])
        slowing = stream.stopping_cycles(run.path, run.place, run.limits)
        for cycle in range(slowing + 1):
            path.append(stream.between(run.path, place))
            place += 1.0 - stream.smooth(cycle / slowing)
        path += [path[-1]] * 3
        for order, limit in ((2, robot.acceleration_rad_s2), (3, robot.jerk_rad_s3)):
            assert (np.abs(np.diff(np.array(path), n=order, axis=0)) * 1e3**order <= limit).all(), begin


@pytest.fixture
def scan_dir(tmp_path: Path) -> Path:
    """A registered scan whose halve and optimize tables are synthetic, with their chain of hashes."""
    for name in ("stages", "disect_sim", "pipelines", "params.yaml", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    directory = tmp_path / "data" / "scans" / "synthetic"
    directory.mkdir(parents=True)
    (directory / "scan.ply").write_bytes(b"synthetic")
    (directory / "scan.yaml").write_text(
        "id: synthetic\nscan: scan.ply\nlog: null\nmaterial: apple\ncut_surface: scan.ply\n"
    )
    (directory / "dvc.yaml").symlink_to(ROOT / "pipelines" / "dvc" / "scan.dvc.yaml")
    for name, used in LINKS.items():
        link(directory, name, used)
    for name, frame in zip(("halve/vertices", "halve/faces"), BODY, strict=True):
        write_table(directory, name, frame)
    record(directory, "halve", ["precut/nodes.parquet"], ["halve/vertices.parquet", "halve/faces.parquet"])
    link(directory, "tetrahedralize_half/nodes.parquet", ["halve/vertices.parquet", "halve/faces.parquet"])
    link(directory, "precut_half/nodes.parquet", ["tetrahedralize_half/nodes.parquet"])
    link(directory, "transport/parameters.parquet", ["calibrate/parameters.parquet"])
    write_table(directory, "calibrate/profile", one_row("calibrate/profile"))
    write_table(directory, "optimize/motion", MOTION, notes={"knife": "kitchen"})
    used = ["precut_half/nodes.parquet", "transport/parameters.parquet"]
    record(directory, "optimize", used, ["optimize/motion.parquet"])
    for name, frame in zip(("replay/frames", "replay/springs"), replay_tables(MOTION), strict=True):
        write_table(directory, name, frame)
    record(
        directory, "replay", ["optimize/motion.parquet"], ["replay/frames.parquet", "replay/springs.parquet"]
    )
    for stage in STAGES_OF_CHAIN:
        if not (directory / stage / "provenance.json").exists():
            record(directory, stage, [], [])
    return directory


def one_row(artifact: str) -> pl.DataFrame:
    """The smallest table of the artifact that is not empty: here, a fitted force log."""
    columns = {c.name: polars_dtype(c.dtype) for c in ARTIFACTS[artifact].columns}
    return pl.DataFrame(
        {name: [True if dtype == pl.Boolean else 0] for name, dtype in columns.items()}, columns
    )


LINKS = {
    "clean/vertices.parquet": ["scan.ply"],
    "precut/nodes.parquet": ["clean/vertices.parquet"],
    "calibrate/parameters.parquet": ["precut/nodes.parquet"],
}
"""Tables of the first cut, and what each was made from."""


def digests(directory: Path, names: list[str]) -> dict[str, str]:
    return {name: sha256_of_file(directory / name) for name in names}


def record(directory: Path, stage: str, used: list[str], written: list[str]) -> None:
    """The stage's record of what it read and wrote."""
    content = {
        "stage": stage,
        "inputs_sha256": digests(directory, used),
        "outputs_sha256": digests(directory, written),
    }
    write_json(directory, f"{stage}/provenance", content)


def link(directory: Path, name: str, used: list[str]) -> None:
    """A table of which only the record of its inputs matters."""
    (directory / name).parent.mkdir(exist_ok=True)
    pl.DataFrame({"row": [0]}).write_parquet(directory / name)
    record(directory, name.partition("/")[0], used, [name])


def run(scan_dir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stages", "export", "data/scans/synthetic"],
        cwd=scan_dir.parents[2],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_stage_without_a_fitted_log_says_that_the_force_is_uncalibrated(scan_dir):
    """Found by running a scan without a log: the stage itself, not only its parts, must pass the state on."""
    write_table(scan_dir, "calibrate/profile", one_row("calibrate/profile").clear())
    assert run(scan_dir).returncode == 0
    found = read_metrics(scan_dir / "export" / "metrics.json")
    assert (found["certified"], found["force_calibrated"]) == (True, False)
    assert found["verdict"].startswith("Geometry certified, force uncalibrated")


def test_stage_certifies_refuses_and_loses_nothing(scan_dir):
    done = run(scan_dir)
    assert (done.returncode, done.stderr) == (0, "")
    found = read_metrics(scan_dir / "export" / "metrics.json")
    assert found["certified"] is True
    place = scan_dir.parents[2] / found["path"]
    assert place == scan_dir / ARTIFACTS["export/cut"].path / "certified" and script(place).returncode == 0
    upstream = json.loads((place / "cut.json").read_text())["provenance"]["upstream_sha256"]
    assert set(upstream) == {
        "scan.ply",
        *LINKS,
        "halve/vertices.parquet",
        "halve/faces.parquet",
        "tetrahedralize_half/nodes.parquet",
        "precut_half/nodes.parquet",
        "transport/parameters.parquet",
        "optimize/motion.parquet",
        "replay/frames.parquet",
        "replay/springs.parquet",
    }

    # A chain that leaves out the calibration is none.
    shorter = walk(scan_dir, ("precut_half/nodes.parquet",), root="scan.ply")
    assert shorter.broken == ("calibrate", "optimize", "transport")

    # The raw scan was swapped after the fact: the chain is broken, and the certified folder is gone.
    (scan_dir / "scan.ply").write_bytes(b"another")
    assert walk(scan_dir, ("optimize/motion.parquet",), root="scan.ply").broken == ("scan.ply",)
    assert run(scan_dir).returncode == 0
    found = read_metrics(scan_dir / "export" / "metrics.json")
    assert found["certified"] is False and found["outcome"] == "refused" and "scan.ply" in found["verdict"]
    folder = scan_dir / "export" / "cut"
    assert [p.name for p in folder.iterdir()] == ["refused"]
    assert "Do not run" in (folder / "refused" / "REASON.txt").read_text()
    assert not (folder / "refused" / "run_cut.py").exists()

    # A table that breaks its contract is refused with a sentence and leaves everything as it was.
    before = (folder / "refused" / "cut.json").read_bytes()
    (scan_dir / "optimize" / "motion.parquet").write_bytes(b"PAR1")
    bad = run(scan_dir)
    assert bad.returncode == 2 and "can't be read as Parquet" in bad.stderr and "Traceback" not in bad.stderr
    assert (folder / "refused" / "cut.json").read_bytes() == before
