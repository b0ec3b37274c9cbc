"""`make nightly` leaves nothing out, and its summary says when, of what, and what failed."""

import configparser
import os
import subprocess
import tomllib
from pathlib import Path

from scripts.nightly import nightly, parts

ROOT = Path(__file__).parents[1]


def test_it_leaves_no_test_out():
    """Neither by its own arguments nor by those of pyproject.toml; and make passes only what it is given."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    words = [*parts([])["tests"], *options["addopts"].split()]
    assert not {"-m", "-k", "--ignore", "--deselect"} & set(words)
    assert options["testpaths"] == ["tests"]
    assert not any((ROOT / name).exists() for name in ("pytest.ini", "tox.ini"))
    assert not configparser.ConfigParser().read(ROOT / "setup.cfg")
    made = subprocess.run(
        ["make", "--dry-run", "--old-file=setup", "nightly"],
        cwd=ROOT,
        env={
            name: value for name, value in os.environ.items() if "MAKE" not in name
        },  # we may run under make
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.split()[-2:] == ["-m", "scripts.nightly"]


def test_the_summary(tmp_path):
    good = ["timeit", "-n", "1", "-r", "1", "pass"]
    assert nightly({"good": good}, tmp_path) == 0
    bad = ["pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    assert nightly({"good": good, "bad": bad}, tmp_path) == 1, "the exit code is the worst"
    first, of_good, of_bad = (tmp_path / "summary.txt").read_text().splitlines()
    assert " UTC, commit " in first and first[:2] == "20"
    assert of_good.startswith("good: ok") and "1 loop" in of_good
    assert of_bad.startswith("bad: FAILED (exit code 5)")
    assert (tmp_path / "bad.txt").read_text()
