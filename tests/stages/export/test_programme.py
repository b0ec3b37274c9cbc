"""One programme of several slices: joined at rest, certified as a whole, stopped and resumed by its run script."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from stages.export.cell import cell_of
from stages.export.programme import PROGRAMME, SliceOfProgramme, main, verify_programme, write_programme
from stages.export.trajectory_files import read_mcap, read_yaml
from stages.export.waypoints import joint_rows
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_value
from stages.shared.slicing import Piece
from tests.stages.export.test_export_signature import write_key
from tests.stages.synthetic_cut import PARAMS, certified_folder, motion_table

THICKNESS = 0.01
STANDING = (-0.03, 0.0, -0.03), (0.03, 0.045, 0.03)


def slices(parent: Path, steps=(0.0, THICKNESS)) -> list[SliceOfProgramme]:
    """Certified cuts beside each other; the fruit's box moves against the step."""
    across, motion, made = cell_of(PARAMS).o_t_c[:3, 0], motion_table(), []
    for number, away in enumerate(steps, start=1):
        board = np.array(PARAMS.board_position_m) + away * across
        params = PARAMS.changed(board_position_m=tuple(board.tolist()))
        folder = certified_folder(parent / f"{number}", motion, params, scan_id=f"apple-slice-{number:02d}")
        low, high = (np.array(end) - [away, 0.0, 0.0] for end in STANDING)
        made.append(SliceOfProgramme(number, folder, THICKNESS, low.tolist(), high.tolist()))
    return made


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[SliceOfProgramme]:
    return slices(tmp_path_factory.mktemp("slices"))


@pytest.fixture(scope="module")
def good(two, tmp_path_factory) -> Path:
    folder, certificate = write_programme(tmp_path_factory.mktemp("plan") / "programme", "apple", two)
    assert certificate.certified, certificate.verdict
    return folder


@pytest.fixture
def copy(good, tmp_path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "measuring" / "programme"))


def joints(path: Path) -> np.ndarray:
    return joint_rows(path.read_bytes())[:, 1:]


def test_a_programme_is_its_slices_joined_at_rest(good):
    whole, step = joints(good / "joint_1khz.csv"), joints(good / "step_01_02.csv")
    first, second = (joints(good / name / "motion_1khz.csv") for name in ("01", "02"))
    assert np.array_equal(step[0], first[-1]) and np.array_equal(step[-1], second[0])
    start, end = joints(good / "01" / "to_start.csv"), joints(good / "02" / "to_ready.csv")
    assert len(whole) == len(start) + len(first) + len(step) + len(second) + len(end) - 4
    assert np.array_equal(whole[0], whole[-1]), "it begins and ends at the ready pose"
    for trajectory in (
        read_yaml((good / "joint_trajectory.yaml").read_bytes()),
        read_mcap(good / "joint_trajectory.mcap"),
    ):
        assert trajectory.time_ns[-1] == 1_000_000 * (len(whole) - 1)
        assert np.allclose(trajectory.position, whole[::10], atol=1e-12)


def test_the_certificate_covers_the_moves_between_and_the_standing_slices(good):
    document = json.loads((good / PROGRAMME).read_text())
    names = {check["name"] for check in document["certificate"]["checks"]}
    assert {
        "slice 1",
        "slice 2",
        "moves between the slices: joint speed",
        "moves between the slices: knife and fixture above the fruit",
        "distance of the fixture from slices that stand",
        "flesh between the blade and the cut before",
        "step from cut to cut against the thickness",
    } <= names
    assert document["certificate"]["loads"]["total_s"] == document["total_s"] > 5.0


def test_verify_repeats_every_check_and_no_edit_passes(good, copy):
    assert verify_programme(good).certified
    for name in ("step_01_02.csv", "02/CHECKLIST.md"):
        (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    (copy / "json").mkdir()
    document = json.loads((copy / PROGRAMME).read_text())
    document["slices"][1]["thickness_m"] = 0.02
    (copy / PROGRAMME).write_text(json.dumps(document))
    assert {
        "slice 2",
        "files have exactly the content that is written for these slices",
        "every file is listed and regular",
        "step from cut to cut against the thickness",
        "certificate belongs to this programme",
    } <= {check.name for check in verify_programme(copy).failed}
    (copy / PROGRAMME).write_text("[]")
    assert not verify_programme(copy).certified


def test_with_the_labs_key_a_resealed_programme_is_refused(tmp_path, monkeypatch):
    """The boxes of standing slices are stated, not computed again: hashes that were renewed do not show an edit."""
    private, public = write_key(tmp_path, "lab")
    monkeypatch.setenv("SCAN2CUT_SIGNING_KEY", str(private))
    signed, certificate = write_programme(tmp_path / "programme", "apple", slices(tmp_path / "slices"))
    assert certificate.certified and verify_programme(signed, public).certified
    document = json.loads((signed / PROGRAMME).read_text())
    for one in document["slices"]:
        one["standing_high_m"][1] = 0.02
    content = {key: value for key, value in document.items() if key != "certificate"}
    document["certificate"]["content_sha256"] = sha256_of_value(content)
    (signed / PROGRAMME).write_text(json.dumps(document))
    assert [check.name for check in verify_programme(signed, public).failed] == ["signature of the lab"]


def test_slices_that_stand_in_the_holders_way_refuse_the_programme(two, tmp_path):
    wide = [
        SliceOfProgramme(one.number, one.folder, one.thickness_m, one.standing_low_m, (0.05, 0.3, 0.3))
        for one in two
    ]
    folder, certificate = write_programme(tmp_path / "programme", "apple", wide)
    assert folder.name == "refused" and not (folder / "run_slices.py").exists()
    assert "distance of the fixture from slices that stand" in {check.name for check in certificate.failed}
    assert "NOT CERTIFIED" in (folder / "REASON.txt").read_text()


def test_slices_thinner_than_blade_and_drift_refuse_the_programme(two, tmp_path):
    thin = [SliceOfProgramme(o.number, o.folder, 0.0011, o.standing_low_m, o.standing_high_m) for o in two]
    certificate = write_programme(tmp_path / "programme", "apple", thin)[1]
    assert "flesh between the blade and the cut before" in {check.name for check in certificate.failed}


def test_an_empty_programme_is_rejected(tmp_path):
    with pytest.raises(InputError, match="at least one"):
        write_programme(tmp_path / "programme", "apple", [])


def script(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, folder / "run_slices.py", *arguments], capture_output=True, text=True, check=False
    )


def test_the_dry_run_checks_everything_and_goes_on_after_what_is_done(copy):
    done = script(copy)
    assert done.returncode == 0 and "slices 1 to 2" in done.stdout, done.stdout
    records = copy.parent / "measured"
    records.mkdir()
    (records / "slices_done.json").write_text('{"1": "x"}')
    assert "slices 2 to 2" in script(copy).stdout
    assert "slices 1 to 1" in script(copy, "--from-slice", "1", "--stop-after", "1").stdout
    (records / "slices_done.json").write_text('{"1": "x", "2": "y"}')
    assert script(copy).returncode == 2
    assert script(copy, "--from-slice", "7").returncode == 2
    refused = script(copy, "--from-slice", "1", "--execute")
    assert refused.returncode == 2 and "needs --robot and --host" in refused.stdout
    (copy / "step_01_02.csv").write_text("changed")
    assert "missing or was changed" in script(copy, "--from-slice", "1").stdout


def test_the_script_plays_slice_step_slice_and_records_what_is_done(copy, monkeypatch):
    """Without an arm: the slices' execute is replaced; it must get the step as the way out of the first slice."""
    import importlib.util
    from argparse import Namespace

    spec = importlib.util.spec_from_file_location("run_slices", copy / "run_slices.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    played, codes, load = [], {}, module._load_slice

    def loaded(folder, entry):
        slice_module = load(folder, entry)

        def execute(document, motion, host, log, **options):
            played.append((entry["number"], len(motion.to_ready), log.name[:8], options))
            return codes.get(entry["number"], 0)

        slice_module.execute = execute
        return slice_module

    def here(options, entry, following):
        then = None if following is None else following["number"]
        one = Namespace(**{**vars(options), "one": entry["number"], "then": then})
        return module._play_one(copy, json.loads((copy / PROGRAMME).read_text()), one)

    monkeypatch.setattr(module, "_load_slice", loaded)
    monkeypatch.setattr(module, "_in_a_process", here)
    monkeypatch.setattr(module, "_confirm", lambda question, answer: True)
    monkeypatch.setattr(
        sys, "argv", ["run_slices.py", "--execute", "--robot", "panda", "--host", "nowhere", "--no-realtime"]
    )
    codes[2] = 3
    assert module.main() == 3, "stopped in slice 2"
    assert [row[0] for row in played] == [1, 2]
    assert played[0][1] == len(joints(copy / "step_01_02.csv"))
    assert played[1][1] == len(joints(copy / "02" / "to_ready.csv"))
    assert played[0][2] == "slice_01" and played[0][3] == {"realtime": False, "confirmed": True}
    assert list(json.loads((copy.parent / "measured" / "slices_done.json").read_text())) == ["1"]
    codes.clear()
    assert module.main() == 0, "goes on with slice 2"
    assert [row[0] for row in played] == [1, 2, 2]
    assert module.main() == 2, "nothing left"


def test_the_stages_command_writes_the_programme_of_a_plan(two, tmp_path):
    folder = tmp_path / "data" / "scans" / "apple" / "slices"
    folder.mkdir(parents=True)
    scans = [f"apple-slice-{one.number:02d}" for one in two]
    plan = {
        "fruit": "apple",
        "pieces": [asdict(Piece(k, (k - 1) * THICKNESS, k * THICKNESS, 1e-4, 1e-6)) for k in (1, 2, 3)],
        "scans": scans,
        "standing_m": [[one.standing_low_m, one.standing_high_m] for one in two],
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match="slice 1 is not certified"):
        main(folder)
    for one, scan in zip(two, scans, strict=True):
        shutil.copytree(one.folder, tmp_path / "data" / "scans" / scan / "export" / "cut" / "certified")
    main(folder)
    assert verify_programme(folder / "programme" / "certified").certified
    before = (folder / "programme" / "certified" / PROGRAMME).read_bytes()
    main(folder)
    assert (folder / "programme" / "certified" / PROGRAMME).read_bytes() == before, (
        "the same slices, the same bytes"
    )
