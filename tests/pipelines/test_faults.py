"""Full and read-only disks, damaged files and caches, power cuts: the next run repairs, or refuses in words."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.dvc.commands import cache_dir, cached_file
from pipelines.dvc.repair import _BROKEN_MESSAGE, check_raw_files, damaged, recorded_outputs
from pipelines.dvc.stage import Outcome, StageFailedError, bring_up_to_date
from pipelines.scans.register import Request, register_scan, track_raw_files
from stages.runtime.errors import InputError
from tests.pipelines.test_dvc_stage import entry_of, outputs
from tests.pipelines.tiny_project import dvc, runs, write_scan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cleaned(project, tmp_path):
    """A project with one scan whose first stage is done."""
    register_scan(project, Request(write_scan(tmp_path, "apple.ply", "good words")))
    bring_up_to_date(project, "apple", entry_of(project, "clean"))
    return project


def cache_entry(project, path: Path) -> Path:
    item = next(i for i in recorded_outputs(project, "apple", "clean") if i.path == path)
    return cached_file(cache_dir(project), item.md5)


def flip(path: Path, *, unnoticed: bool) -> None:
    """Change one byte; unnoticed means time, size, inode and mode stay as they were, as when a disk decays."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)
        file.seek(before.st_size // 2)
        file.write(bytes([byte[0] ^ 0xFF]))
    path.chmod(before.st_mode)
    if unnoticed:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "unnoticed", [pytest.param(False, marks=pytest.mark.slow), True], ids=["edited", "decayed"]
)
def test_a_damaged_artifact_comes_back_from_the_cache(cleaned, unnoticed):
    good = outputs(cleaned)
    flip(cleaned.scan_dir("apple") / "clean" / "faces.parquet", unnoticed=unnoticed)
    assert outputs(cleaned) != good
    report = bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean"))
    assert report.outcome is Outcome.CACHED
    assert outputs(cleaned) == good
    assert runs(cleaned) == ["apple clean"], "nothing was computed twice"


def test_a_damaged_cache_entry_is_not_believed(cleaned):
    """DVC itself would hand it out: the file is write-protected, which it takes for untouched."""
    good = outputs(cleaned)
    faces = cleaned.scan_dir("apple") / "clean" / "faces.parquet"
    flip(cache_entry(cleaned, faces), unnoticed=True)
    faces.unlink()
    report = bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean"))
    assert report.outcome is Outcome.COMPLETED, "computed anew, since the cache had nothing good"
    assert outputs(cleaned) == good
    assert damaged(recorded_outputs(cleaned, "apple", "clean")) == []
    faces.unlink()
    assert bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean")).outcome is Outcome.CACHED
    assert outputs(cleaned) == good, "and the cache is sound again"


def test_a_damaged_raw_file_is_refused_and_can_be_got_back(cleaned):
    track_raw_files(cleaned, "apple")
    raw = cleaned.scan_dir("apple") / "apple.ply"
    check_raw_files(cleaned, "apple")
    flip(raw, unnoticed=True)
    with pytest.raises(InputError, match=r"has changed since it was registered.*dvc checkout"):
        check_raw_files(cleaned, "apple")
    raw.unlink()
    with pytest.raises(InputError, match="is missing"):
        check_raw_files(cleaned, "apple")
    assert dvc(cleaned, "checkout", "data/scans/apple/apple.ply.dvc").returncode == 0
    check_raw_files(cleaned, "apple")
    assert raw.read_text() == "good words"


@pytest.mark.slow
def test_power_cut_between_rename_and_lock_file(cleaned, tmp_path):
    """The new outputs are published, dvc.lock still describes the old ones: the stage is not taken for fresh."""
    lock = cleaned.scan_dir("apple") / "dvc.lock"
    before, good = lock.read_bytes(), outputs(cleaned)
    scan = cleaned.scan_dir("apple") / "apple.ply"
    register_scan(cleaned, Request(scan, overrides={"clean": {"unit": "mm"}}))
    bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean"))
    new = outputs(cleaned)
    assert new != good
    lock.write_bytes(before)
    report = bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean"))
    assert report.metrics["unit_text"] == "mm"
    assert outputs(cleaned) == new
    lock.write_bytes(before)
    register_scan(cleaned, Request(scan, reset=True))
    assert bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean")).metrics["unit_text"] == "auto"
    assert outputs(cleaned) == good, "the older result comes back whole"


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_a_lock_file_cut_short_is_restored(cleaned, share):
    lock = cleaned.scan_dir("apple") / "dvc.lock"
    whole, good = lock.read_bytes(), outputs(cleaned)
    lock.write_bytes(whole[: int(share * len(whole))])
    report = bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean"))
    assert report.cached
    assert outputs(cleaned) == good
    assert lock.read_bytes() == whole
    assert runs(cleaned) == ["apple clean"]


@pytest.mark.slow
def test_a_broken_lock_file_without_a_spare_is_set_aside(cleaned):
    lock = cleaned.scan_dir("apple") / "dvc.lock"
    shutil.rmtree(cleaned.state_dir)
    lock.write_text("stages: [")
    good = outputs(cleaned)
    assert bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean")).cached, "from DVC's run cache"
    assert outputs(cleaned) == good
    assert lock.with_name("dvc.lock.broken").read_text() == "stages: ["


@pytest.mark.slow
def test_a_file_too_large_for_the_account(cleaned, tmp_path):
    """A real refusal of the kernel in the middle of writing: a sentence, and the older artifacts stay."""
    good = outputs(cleaned)
    write_scan(cleaned.scan_dir("apple"), "apple.ply", "large-clean")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(StageFailedError, match="larger than this account may write") as caught:
            bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "Traceback" not in str(caught.value)
    assert outputs(cleaned) == good
    assert not list(cleaned.scan_dir("apple").glob(".scratch-*"))
    assert bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean")).outcome is Outcome.COMPLETED


@pytest.mark.slow
def test_a_broken_table_of_path_locks_is_removed(cleaned):
    """A kill while DVC rewrites .dvc/tmp/rwlock leaves it empty; the harness of kills found this."""
    table = cleaned.root / ".dvc" / "tmp" / "rwlock"
    table.write_text("")
    said = dvc(cleaned, "repro", "--single-item", "--force", "data/scans/apple/dvc.yaml:clean")
    assert _BROKEN_MESSAGE in said.stderr, "DVC alone fails until someone deletes the file"
    assert (
        bring_up_to_date(cleaned, "apple", entry_of(cleaned, "clean"), force=True).outcome
        is Outcome.COMPLETED
    )
    assert json.loads(table.read_text()) is not None


def in_namespace(place, mount, *command):
    """The command with `mount` done before, which nobody else sees; skips where the system does not allow that."""
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    if subprocess.run([*namespace, "true"], cwd=place, capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here, so nothing can be mounted")
    return subprocess.run([*namespace, *command], cwd=place, capture_output=True, text=True, check=False)


ON_A_SMALL_DISK = """
import json, os, shutil, sys
from pathlib import Path
root, kind = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(Path.cwd()))
from tests.pipelines.tiny_project import make_tiny_project, write_scan
from tests.pipelines.test_dvc_stage import entry_of, outputs
from pipelines.dvc import repair as disk_space
from pipelines.dvc.stage import bring_up_to_date
from pipelines.project import apply_environment
from pipelines.scans.register import Request, register_scan
from pipelines.runs.run_summary import RunResult
project = make_tiny_project(root)
apply_environment(project)
scan = write_scan(root, "apple.ply", "good")
register_scan(project, Request(scan))
os.chdir(root)
clean = entry_of(project, "clean")
folder = project.scan_dir("apple")
if "cache" in kind:
    write_scan(folder, "apple.ply", "large-clean")
bring_up_to_date(project, "apple", clean)
good = outputs(project)
free = int(sys.argv[3])
if "cache" in kind:
    register_scan(project, Request(folder / "apple.ply", overrides={"clean": {"unit": "mm"}}))
    free = int(1.5 * sum(map(len, good.values())))  # space for the outputs, not for their copies in DVC's cache
else:
    write_scan(folder, "apple.ply", "large-clean")
locked = root / ".dvc" / "cache" if "cache" in kind else folder
if "read-only" not in kind:
    with open(root / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
    if free:
        disk_space._MIN_FREE_BYTES = 0  # let the stage or DVC run into it
    os.truncate(root / "filler", os.stat(root / "filler").st_size - free)
else:
    os.system(f"mount --bind {locked} {locked} && mount -o remount,ro,bind {locked}")
result = RunResult()
try:
    bring_up_to_date(project, "apple", clean)
except Exception as error:
    result.fail(error)
kept = outputs(project) == good
if "read-only" not in kind:
    (root / "filler").unlink()
else:
    os.system(f"umount {locked}")
report = bring_up_to_date(project, "apple", clean)
left = len(list(folder.glob(".[sk]*")))
print(json.dumps({"error": result.error, "kept": kept, "after": report.outcome.value, "left": left}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "free_bytes", "words"),
    [
        ("full", 0, "disk is full"),
        ("full", 500_000, "disk is full"),
        ("cache", 0, "disk is full"),
        ("read-only", 0, "read-only"),
        ("read-only cache", 0, "disk is read-only"),
    ],
    ids=["full", "fills in the stage", "fills in DVC's cache", "read-only", "read-only cache"],
)
def test_on_a_small_disk(tmp_path, kind, free_bytes, words):
    """A disk of its own in a namespace of its own; no rights are needed where user namespaces are allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=128m tmpfs {disk}"
    script = [sys.executable, "-c", ON_A_SMALL_DISK, str(disk), kind, str(free_bytes)]
    result = in_namespace(ROOT, mount, *script)
    assert result.returncode == 0, result.stderr[-3000:]
    answer = json.loads(result.stdout.splitlines()[-1])
    assert answer["error"] and re.search(words, answer["error"]), answer
    assert "Traceback" not in answer["error"]
    assert answer["kept"], "the older artifacts are all there"
    assert answer["after"] == "Completed", "and with the fault gone the run succeeds"
    assert answer["left"] == 0


@pytest.mark.parametrize(
    "words",
    [("run", "pear.ply"), ("run", "apple"), ("watch", "inbox", "--once"), ("report", "apple")],
    ids=" ".join,
)
def test_read_only_data_is_a_refusal(project, tmp_path, words):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    write_scan(project.root, "pear.ply")
    (project.root / "inbox").mkdir()
    before = sorted(project.scans_dir.rglob("*"))
    said = in_namespace(
        project.root,
        "mount --bind data data && mount -o remount,ro,bind data",
        *(sys.executable, "-m", "pipelines.cli.main", *words),
    )
    assert said.returncode == 2, said.stderr
    message = said.stderr.splitlines()[-1]  # a run of a new scan has said before which material it assumes
    assert message.startswith("error: The disk is read-only (") and "Remount it writable" in message
    assert sorted(project.scans_dir.rglob("*")) == before
    assert not project.prefect_home.exists(), "nothing was begun"


def test_every_output_of_a_run_is_what_the_lock_file_says(cleaned):
    """The check itself: it finds a missing file, a changed one, and nothing where nothing is wrong."""
    entry = entry_of(cleaned, "clean")
    assert len(recorded_outputs(cleaned, "apple", "clean")) == len(entry.outs)
    assert damaged(recorded_outputs(cleaned, "apple", "clean")) == []
    folder = cleaned.scan_dir("apple") / "clean"
    flip(folder / "faces.parquet", unnoticed=True)
    (folder / "metrics.json").unlink()
    assert {i.path.name for i in damaged(recorded_outputs(cleaned, "apple", "clean"))} == {
        "faces.parquet",
        "metrics.json",
    }


@pytest.mark.slow
def test_hash_of_a_directory_is_dvcs(project, tmp_path):
    """DVC's own number for a directory, so that outputs that are directories are checked too."""
    from pipelines.dvc.repair import md5_of_path, recorded_md5

    folder = project.scans_dir / "some"
    (folder / "b").mkdir(parents=True)
    for name in ("z", "b/a", "a.b", "a"):
        (folder / name).write_text(name)
    assert dvc(project, "add", "data/scans/some").returncode == 0
    assert recorded_md5(folder) == md5_of_path(folder)
